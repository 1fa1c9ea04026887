-- Looks for a ready row of the slot that no evidence of the slot covers, whatever generation it
-- bears (docs/VISIBILITY.md, G5): each gap of each lane's evidence is one probe, so the cost follows lanes and
-- gaps above the position up to which the lane's evidence says that all is spent, not rows. Under ExcludeWriters a miss stays a miss.
--
-- Columns: held_by bigint or NULL: the smallest such position.
with recursive lanes (lane_id) as (
  (select r.lane_id from {schema}.ready_entries_{slot} r order by r.lane_id limit 1)
  union all
  select (select r.lane_id from {schema}.ready_entries_{slot} r
           where r.lane_id > l.lane_id order by r.lane_id limit 1)
    from lanes l
   where l.lane_id is not null
),
floors as materialized (
  select e.lane_id, max(e.spent_to) as position
    from {schema}.ready_claim_attempt_batches_{slot} e
   group by e.lane_id
),
spent as materialized (
  select {slot} as ready_slot, l.lane_id,
         coalesce(e.positions, '{}') + int8multirange(int8range(1, coalesce(f.position, 0) + 1)) as positions
    from lanes l
    left join floors f on f.lane_id = l.lane_id
    left join (select e.lane_id, range_agg(e.range) as positions
                 from (select e.lane_id, unnest(e.ranges) as range
                         from {schema}.ready_claim_attempt_batches_{slot} e
                         join floors f on f.lane_id = e.lane_id and e.last_seq > f.position) as e
                group by e.lane_id) as e on e.lane_id = l.lane_id
   where l.lane_id is not null
),
{stretches}
select min(found.lane_seq) as held_by
  from stretches s
  join spent p on p.lane_id = s.lane_id
 cross join lateral (
   select r.lane_seq
     from {schema}.ready_entries_{slot} r
    where r.lane_id = s.lane_id and r.lane_seq >= s.lo and r.lane_seq < s.hi
      and not p.positions @> r.lane_seq
    order by r.lane_seq
    limit 1) as found
