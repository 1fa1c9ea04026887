-- Hides a compact success from reads and counts; its receipt stays closed (R026-17). Nothing if there
-- is none, or if it is hidden already.
--
-- $1 bigint: the lane. $2 bigint: the position.
-- Columns, in one row or none: job_id bigint, lane_id bigint.
with hidden as (
  insert into {schema}.receipt_completion_tombstones_{slot}
         (ready_slot, ready_generation, lane_id, lane_seq, job_id, deleted_at)
  select b.ready_slot, b.ready_generation, b.lane_id, $2::bigint, coalesce(b.job_ids[i.place], $2::bigint),
         statement_timestamp()
    from {schema}.receipt_completion_batches_{slot} b
   cross join lateral (select array_position(b.lane_seqs, $2::bigint) as place) as i
   where b.lane_id = $1 and $2::bigint between b.first_seq and b.last_seq and i.place is not null
  on conflict (ready_slot, lane_id, lane_seq) do nothing
  returning job_id, lane_id
)
select job_id, lane_id from hidden
