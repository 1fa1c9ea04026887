-- Deletes rows from retryable history, whether or not they have a body, and appends their negative
-- deltas where they lay (R026-22).
--
-- $1 bigint[], $2 bigint[], $3 bigint[]: job, lane and position of each.
-- Columns, by job: job_id bigint, lane_id bigint.
with {wanted_rows},
removed as (
  delete from {schema}.done_entries d
   using wanted w
   where d.ready_slot = w.ready_slot and d.lane_id = w.lane_id and d.lane_seq = w.lane_seq
     and d.job_id = w.job_id
  returning d.ready_slot, d.ready_generation, d.lane_id, d.job_id, d.state
),
{append_removed}
select job_id, lane_id from removed order by job_id, lane_id
