-- The negative deltas of the rows `removed` from retryable history, where they lay (R026-22).
appended as (
  insert into {schema}.queue_terminal_count_deltas
         (ready_slot, counter_bucket, ready_generation, lane_id, delta, state)
  select d.ready_slot, {counter_bucket}, d.ready_generation, d.lane_id, -count(*), d.state
    from removed d
   group by 1, 2, 3, 4, 6
)
