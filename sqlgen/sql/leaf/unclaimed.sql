-- Where unclaimed rows of `lanes (lane_id)` can lie, slot by slot: what a row's own slot has as
-- evidence covers it (R026-09), so each gap is one probe of one child. `filled` comes first because
-- it locks the ready children, which prune locks first; the conditions on the slot, which every slot
-- fulfils, tell the planner that slots are few.
filled as materialized (
  select s.slot
    from {schema}.queue_ring_slots s
   where s.slot >= 0 and s.slot < 1000000
     and (select true from {schema}.ready_entries r where r.ready_slot = s.slot limit 1)
),
spent as materialized (
  select f.slot as ready_slot, l.lane_id, coalesce(e.positions, '{}') as positions
    from filled f
   cross join lanes l
   cross join lateral (
     select range_agg(e.range) as positions
       from (select unnest(e.ranges) as range
               from {schema}.ready_claim_attempt_batches e
              where e.ready_slot = f.slot and e.lane_id = l.lane_id) as e) as e
),
{stretches}
