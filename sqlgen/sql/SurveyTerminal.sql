-- What prune would do to the slot's terminal rows: the first of the two readings that must agree.
-- Gates ignore generation, and so do counts: every row of the children counts.
--
-- $1 timestamptz: the cutoff, NULL when the floor is off.
-- Columns, all bigint: carried; bodies_missing: of those, narrow ones whose ready row is gone (H30);
-- failed: past the floor; other; compact: successes that are not hidden.
select count(*) filter (where {is_carried}) as carried,
       -- OFFSET keeps this a probe a row: as a join it could become a scan of all ready rows.
       count(*) filter (where {is_carried} and d.args is null and not exists (
         select from {schema}.ready_entries_{slot} r
          where r.ready_generation = d.ready_generation and r.lane_id = d.lane_id and r.lane_seq = d.lane_seq
         offset 0)) as bodies_missing,
       count(*) filter (where d.state = 'failed' and not {is_carried}) as failed,
       count(*) filter (where d.state <> 'failed') as other,
       (select coalesce(sum(b.completed_count), 0) from {schema}.receipt_completion_batches_{slot} b)
         - (select count(*) from {schema}.receipt_completion_tombstones_{slot}) as compact
  from {schema}.done_entries_{slot} d
