-- Moves rows of retryable history to fresh positions of their lanes in the open segment, in the order
-- of their jobs, due now and with attempt 0; their lease goes on (R026-19, H52). Rows that are gone, or
-- whose body is missing, stay out. Negative deltas are appended where the rows lay (R026-22).
--
-- $1 bigint[], $2 bigint[], $3 bigint[]: job, lane and position of each.
-- Columns, by job: job_id bigint, lane_id bigint.
with {wanted_rows},
removed as (
  delete from {schema}.done_entries d
   using wanted w
   where d.ready_slot = w.ready_slot and d.lane_id = w.lane_id and d.lane_seq = w.lane_seq
     and d.job_id = w.job_id and w.args is not null
  returning d.ready_slot, d.ready_generation, d.lane_id, d.job_id, d.run_lease, d.state, d.kind,
            w.args, w.max_attempts, w.created_at, w.payload, w.unique_key, w.unique_states
),
{append_removed},
enqueued as (
  insert into {schema}.ready_entries
         (ready_slot, max_attempts, attempt, ready_generation, lane_id, moved_job_id, run_lease, run_at,
          created_at, kind, args, payload, unique_key, unique_states)
  select s.current_slot, d.max_attempts, 0, s.generation, d.lane_id, d.job_id, d.run_lease,
         statement_timestamp(), d.created_at, d.kind, d.args, d.payload, d.unique_key, d.unique_states
    from removed d
   cross join {schema}.queue_ring_state s
   order by d.job_id
  returning job_id, lane_id
)
select job_id, lane_id from enqueued order by job_id, lane_id
