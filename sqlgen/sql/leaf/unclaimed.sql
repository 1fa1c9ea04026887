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
-- Up to where each lane is spent, by the newest of each slot: any of them says what is true, and the
-- newest say most. The last eight, because tombstones say nothing.
floors as materialized (
  select l.lane_id, coalesce(max(e.spent_to), 0) as position
    from lanes l
   cross join {schema}.queue_ring_slots s
    left join lateral (
      select e.spent_to
        from {schema}.ready_claim_attempt_batches e
       where e.ready_slot = s.slot and e.lane_id = l.lane_id
       order by e.last_seq desc
       limit 8) as e on true
   where s.slot >= 0 and s.slot < 1000000
   group by l.lane_id
),
spent as materialized (
  select f.slot as ready_slot, l.lane_id,
         coalesce(e.positions, '{}') + int8multirange(int8range(1, l.position + 1)) as positions
    from filled f
   cross join floors l
   cross join lateral (
     select range_agg(e.range) as positions
       from (select unnest(e.ranges) as range
               from {schema}.ready_claim_attempt_batches e
              where e.ready_slot = f.slot and e.lane_id = l.lane_id and e.last_seq > l.position
             offset 0) as e) as e
),
{stretches}
