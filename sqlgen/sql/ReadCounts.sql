-- The exact counts of a queue (R026-23, R032-08), in one statement: TRUNCATE is not MVCC-safe, so a
-- statement takes its locks before its snapshot, and a function or an older snapshot would not.
-- Tables come in the registry's order, which is the order in which prune locks their children.
-- Ready rows cost what the backlog and the evidence cost, not what is retained; successes a row a
-- batch. Where the counters are not trusted, retryable history is scanned instead.
--
-- $1 text: the queue.
-- Columns, all bigint, in one row; no row if the queue was never declared: available, scheduled,
-- retryable, running, waiting_external, completed, failed, cancelled, pruned_other, pruned_failed.
with lanes as materialized (
  select l.lane_id from {schema}.queue_lanes l where l.queue = $1
),
{unclaimed},
available as materialized (
  select coalesce(sum(found.n), 0)::bigint as n
    from stretches s
    join spent p on p.ready_slot = s.ready_slot and p.lane_id = s.lane_id
   cross join lateral (
     select count(*) as n
       from {schema}.ready_entries r
      where r.ready_slot = s.ready_slot and r.lane_id = s.lane_id
        and r.lane_seq >= s.lo and r.lane_seq < s.hi
        and not p.positions @> r.lane_seq) as found
),
compact as materialized (
  select coalesce(sum(b.completed_count), 0) as n
    from {schema}.receipt_completion_batches b
   where b.lane_id in (select lane_id from lanes)
),
hidden as materialized (
  select count(*) as n
    from {schema}.receipt_completion_tombstones t
   where t.lane_id in (select lane_id from lanes)
),
trust as materialized (
  select coalesce((select trusted from {schema}.terminal_count_trust), false) as trusted, 0 as first_slot
),
-- The condition on first_slot, which every row fulfils, ties the scan to this query level, so that no
-- parallel workers are started for it: they take longer than the whole statement.
general as materialized (
  select coalesce(sum(n) filter (where state = 'completed'), 0)::bigint as completed,
         coalesce(sum(n) filter (where state = 'failed'), 0)::bigint as failed,
         coalesce(sum(n) filter (where state = 'cancelled'), 0)::bigint as cancelled
    from (select t.state, t.n
            from trust
           cross join lateral (
             select t.state, count(*) as n
               from {schema}.terminal_jobs t
              where t.queue = $1 and not t.compact and not trust.trusted and t.ready_slot >= trust.first_slot
              group by t.state) as t
           union all
          select d.state, d.delta
            from {schema}.queue_terminal_count_deltas d
           where d.lane_id in (select lane_id from lanes) and (select trusted from trust)
           union all
          select c.state, c.count
            from {schema}.queue_terminal_live_counts c
           where c.lane_id in (select lane_id from lanes) and (select trusted from trust)) as facts
),
{open_of_lanes},
waiting as materialized (
  select count(*) as n,
         coalesce(range_agg(int8range(l.receipt_id, l.receipt_id, '[]')), '{}') as receipts
    from {schema}.leases l
   where l.lane_id in (select lane_id from lanes) and l.state = 'waiting_external'
),
running as materialized (
  select coalesce(sum(upper(r) - lower(r)), 0)::bigint as n
    from unnest((select receipts from open_receipts) - (select receipts from waiting)) as r
),
deferred as materialized (
  select count(*) filter (where d.state = 'scheduled') as scheduled,
         count(*) filter (where d.state = 'retryable') as retryable
    from {schema}.deferred_jobs d
   where d.lane_id in (select lane_id from lanes)
),
pruned as materialized (
  select coalesce(sum(r.pruned_completed_count), 0)::bigint as other,
         coalesce(sum(r.pruned_failed_count), 0)::bigint as failed
    from {schema}.queue_terminal_rollups r
   where r.lane_id in (select lane_id from lanes)
)
select available.n as available, deferred.scheduled, deferred.retryable, running.n as running,
       waiting.n as waiting_external,
       (compact.n - hidden.n + general.completed)::bigint as completed, general.failed, general.cancelled,
       pruned.other as pruned_other, pruned.failed as pruned_failed
  from {schema}.queues q
 cross join available
 cross join compact
 cross join hidden
 cross join general
 cross join running
 cross join waiting
 cross join deferred
 cross join pruned
 where q.queue = $1
