-- What each slot of the queue ring holds, by slot.
--
-- has_droppable: any row beside failures inside the floor and the
-- deltas that count them. A slot that holds nothing but retryable history is looked through at up to
-- 64 blocks spread evenly over it, so that 100,000 failures held are not read again at each
-- observation: exact up to 64 blocks, and beyond that at the latest when one row in 64 is past the
-- floor.
--
-- newest_fact_at: exact for compact successes; of retryable history the last 16 blocks are looked at, where
-- a child that nothing but TRUNCATE empties has its newest rows.
--
-- Where an index begins with the slot, ORDER BY keeps a probe from gathering all its rows first.
--
-- $1 timestamptz: the cutoff, NULL when the floor is off.
-- Columns: slot int, bytes bigint (children with indexes), has_droppable boolean, droppable_hint bigint,
-- carried_hint bigint (both from the terminal counters, not from the rows), newest_fact_at timestamptz or
-- NULL.
select s.slot, size.bytes,
       dead.found or coalesce((
         select true
           from (select size.done_blocks as blocks, least(size.done_blocks, 64) as looks) as b
          cross join lateral generate_series(0, b.looks - 1) as look
          cross join lateral (
            select true
              from {schema}.done_entries d
             where d.ready_slot = s.slot
               and d.ctid >= format('(%s,0)', look * b.blocks / b.looks)::tid
               and d.ctid < format('(%s,0)', look * b.blocks / b.looks + 1)::tid
               and not {is_carried}
             limit 1) as due
          limit 1), false) as has_droppable,
       (coalesce(compact.n, 0) + coalesce(facts.other, 0))::bigint as droppable_hint,
       coalesce(facts.failed, 0)::bigint as carried_hint,
       greatest(compact.newest, late.newest) as newest_fact_at
  from {schema}.queue_ring_slots s
 cross join lateral (
   select coalesce(
     (select true from {schema}.ready_entries r where r.ready_slot = s.slot limit 1),
     (select true from {schema}.ready_tombstones t where t.ready_slot = s.slot
       order by t.lane_id, t.lane_seq limit 1),
     (select true from {schema}.ready_claim_attempt_batches e where e.ready_slot = s.slot limit 1),
     (select true from {schema}.receipt_completion_batches b where b.ready_slot = s.slot limit 1),
     (select true from {schema}.receipt_completion_tombstones t where t.ready_slot = s.slot
       order by t.lane_id, t.lane_seq limit 1),
     false) as found
   offset 0) as dead
 cross join lateral (
   select sum(pg_total_relation_size(c.child))::bigint as bytes,
          coalesce(max(pg_relation_size(c.child)) filter (where c.name = 'done_entries'), 0)
            / current_setting('block_size')::bigint as done_blocks
     from (select t.name, to_regclass(format('%I.%I', {schema_name}, t.name || '_' || s.slot)) as child
             from (values ('ready_entries'), ('ready_tombstones'), ('ready_claim_attempt_batches'),
                          ('receipt_completion_batches'), ('receipt_completion_tombstones'),
                          ('done_entries'), ('queue_terminal_count_deltas')) as t (name)) as c) as size
 cross join lateral (
   select max(d.finalized_at) as newest
     from {schema}.done_entries d
    where d.ready_slot = s.slot
      and d.ctid >= format('(%s,0)', greatest(size.done_blocks - 16, 0))::tid) as late
  left join (
   select b.ready_slot, sum(b.completed_count) as n, max(b.finalized_at) as newest
     from {schema}.receipt_completion_batches b
    group by b.ready_slot) as compact on compact.ready_slot = s.slot
  left join (
   select f.ready_slot, sum(f.n) filter (where f.state = 'failed') as failed,
          sum(f.n) filter (where f.state <> 'failed') as other
     from (select c.ready_slot, c.state, c.delta as n from {schema}.queue_terminal_count_deltas c
            union all
           select c.ready_slot, c.state, c.count from {schema}.queue_terminal_live_counts c) as f
    group by f.ready_slot) as facts on facts.ready_slot = s.slot
 order by s.slot
