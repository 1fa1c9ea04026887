-- Adds the slot's terminal rows, less those that are carried, to the permanent counts of their lanes,
-- in lane order (R032-06). The rows themselves are counted, not the counters. A lane for which
-- nothing is added is not written.
--
-- $1 timestamptz: the cutoff, NULL when the floor is off.
-- Columns, both bigint: other, failed: what was added.
with folded as materialized (
  select lane_id, sum(other)::bigint as other, sum(failed)::bigint as failed
    from (select b.lane_id, sum(b.completed_count) as other, 0 as failed
            from {schema}.receipt_completion_batches_{slot} b
           group by b.lane_id
           union all
          select t.lane_id, -count(*), 0
            from {schema}.receipt_completion_tombstones_{slot} t
           group by t.lane_id
           union all
          select d.lane_id, count(*) filter (where d.state <> 'failed'), count(*) filter (where d.state = 'failed')
            from {schema}.done_entries_{slot} d
           where not {is_carried}
           group by d.lane_id) as counted
   group by lane_id
), added as (
  insert into {schema}.queue_terminal_rollups as r (lane_id, pruned_completed_count, pruned_failed_count)
  select lane_id, other, failed from folded where other <> 0 or failed <> 0 order by lane_id
  on conflict (lane_id) do update
     set pruned_completed_count = r.pruned_completed_count + excluded.pruned_completed_count,
         pruned_failed_count = r.pruned_failed_count + excluded.pruned_failed_count
)
select coalesce(sum(other), 0)::bigint as other, coalesce(sum(failed), 0)::bigint as failed from folded
