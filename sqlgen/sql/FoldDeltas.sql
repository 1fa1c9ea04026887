-- Adds the slot's pending deltas to its folded counters, in key order (R026-24), whatever generation
-- they bear. Every key is written, also one whose deltas cancel out.
--
-- Columns, both bigint: rows read; sum of their deltas.
with pending as materialized (
  select d.lane_id, d.counter_bucket, d.state, sum(d.delta)::bigint as delta, count(*) as rows
    from {schema}.queue_terminal_count_deltas_{slot} d
   group by d.lane_id, d.counter_bucket, d.state
), added as (
  insert into {schema}.queue_terminal_live_counts as c (ready_slot, counter_bucket, lane_id, state, count)
  select {slot}, counter_bucket, lane_id, state, delta
    from pending
   order by lane_id, counter_bucket, state
  on conflict (ready_slot, lane_id, counter_bucket, state) do update
     set count = c.count + excluded.count
)
select coalesce(sum(rows), 0)::bigint as rows, coalesce(sum(delta), 0)::bigint as sum from pending
