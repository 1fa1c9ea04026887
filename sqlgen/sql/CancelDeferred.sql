-- Takes a deferred job away and writes its wide cancelled row at a fresh position in the open segment,
-- with its delta (R026-18).
--
-- $1 bigint: the job.
-- Columns, in one row or none: job_id bigint, lane_id bigint.
with taken as (
  delete from {schema}.deferred_jobs j where j.job_id = $1 returning j.*
), written as (
  insert into {schema}.done_entries
         (ready_slot, attempt, max_attempts, ready_generation, lane_id, lane_seq, job_id, run_lease,
          attempted_at, finalized_at, run_at, created_at, state, kind, args, payload, unique_key,
          unique_states)
  select s.current_slot, j.attempt, j.max_attempts, s.generation, j.lane_id,
         case when pg_current_xact_id() is not null then nextval({position_seq}) end, j.job_id, j.run_lease,
         j.attempted_at, statement_timestamp(), j.run_at, j.created_at, 'cancelled', j.kind, j.args, j.payload,
         j.unique_key, j.unique_states
    from taken j
   cross join {schema}.queue_ring_state s
  returning ready_slot, ready_generation, lane_id, job_id, state
), appended as (
  insert into {schema}.queue_terminal_count_deltas
         (ready_slot, counter_bucket, ready_generation, lane_id, delta, state)
  select d.ready_slot, {counter_bucket}, d.ready_generation, d.lane_id, 1, d.state from written d
)
select job_id, lane_id from written
