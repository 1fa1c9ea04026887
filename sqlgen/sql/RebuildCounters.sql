-- Recomputes the folded counters from done_entries (R026-26). After ExcludeCounters, before the truncation
-- of pending deltas. Counters without rows are deleted, so none of them is 0; this table is small and
-- updated in place, and vacuum sees to it.
--
-- Columns, both bigint: rows of done_entries; sum of the counters written.
with counted as materialized (
  select d.ready_slot, d.lane_id, {counter_bucket} as counter_bucket, d.state, count(*) as count
    from {schema}.done_entries d
   group by 1, 2, 3, 4
), dropped as (
  delete from {schema}.queue_terminal_live_counts c
   where not exists (select from counted n
                      where n.ready_slot = c.ready_slot and n.lane_id = c.lane_id
                        and n.counter_bucket = c.counter_bucket and n.state = c.state)
), written as (
  insert into {schema}.queue_terminal_live_counts (ready_slot, counter_bucket, lane_id, state, count)
  select ready_slot, counter_bucket, lane_id, state, count
    from counted
   order by ready_slot, lane_id, counter_bucket, state
  on conflict (ready_slot, lane_id, counter_bucket, state) do update set count = excluded.count
  returning count
)
select (select count(*) from {schema}.done_entries) as rows,
       (select coalesce(sum(count), 0)::bigint from written) as sum
