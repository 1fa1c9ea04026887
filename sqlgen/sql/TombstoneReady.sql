-- Spends an unclaimed position and writes the job's wide cancelled row into the ready row's segment,
-- with its delta (R026-18); nothing if evidence covers the position already. Under LockLane, so that
-- no claim takes it meanwhile (law 10).
--
-- $1 bigint: the lane. $2 bigint: the position.
-- Columns, in one row or none: job_id bigint, lane_id bigint.
with spent as materialized (
  select r.*
    from {schema}.ready_entries_{slot} r
   where r.lane_id = $1 and r.lane_seq = $2
     and not exists (select from {schema}.ready_claim_attempt_batches_{slot} e
                      where e.lane_id = $1 and e.last_seq >= $2 and e.first_seq <= $2 and e.ranges @> $2::bigint)
), tombstoned as (
  insert into {schema}.ready_tombstones_{slot}
         (ready_slot, ready_generation, lane_id, lane_seq, job_id, tombstoned_at)
  select r.ready_slot, r.ready_generation, r.lane_id, r.lane_seq, r.job_id, statement_timestamp() from spent r
), covered as (
  insert into {schema}.ready_claim_attempt_batches_{slot}
         (ready_slot, n, ready_generation, lane_id, first_seq, last_seq, spent_at, ranges)
  select r.ready_slot, 0, r.ready_generation, r.lane_id, r.lane_seq, r.lane_seq, statement_timestamp(),
         int8multirange(int8range(r.lane_seq, r.lane_seq, '[]'))
    from spent r
), written as (
  insert into {schema}.done_entries_{slot}
         (ready_slot, attempt, max_attempts, ready_generation, lane_id, lane_seq, job_id, run_lease,
          finalized_at, run_at, created_at, state, kind, args, payload, unique_key, unique_states)
  select r.ready_slot, r.attempt, r.max_attempts, r.ready_generation, r.lane_id, r.lane_seq, r.job_id, r.run_lease,
         statement_timestamp(), r.run_at, r.created_at, 'cancelled', r.kind, r.args, r.payload, r.unique_key,
         r.unique_states
    from spent r
  returning ready_slot, ready_generation, lane_id, job_id, state
), appended as (
  insert into {schema}.queue_terminal_count_deltas_{slot}
         (ready_slot, counter_bucket, ready_generation, lane_id, delta, state)
  select d.ready_slot, {counter_bucket}, d.ready_generation, d.lane_id, 1, d.state from written d
)
select job_id, lane_id from written
