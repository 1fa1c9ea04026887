-- Where an unclaimed row can lie: the gaps of `spent (ready_slot, lane_id, positions)`. Gaps with at
-- most 32 spent positions between them are looked through in one go, because a probe costs as much
-- as some 30 rows; so whoever probes leaves spent rows out. Many gaps lie close together, and then
-- a stretch is a scan.
stretches as (
  select ready_slot, lane_id, min(lo) as lo, max(hi) as hi
    from (select g.*, count(*) filter (where starts) over (partition by ready_slot, lane_id order by lo) as stretch
            from (select s.ready_slot, s.lane_id, lower(g) as lo, upper(g) as hi,
                         lower(g) - lag(upper(g)) over (partition by s.ready_slot, s.lane_id order by lower(g)) > 32
                           as starts
                    from spent s,
                         unnest(int8multirange(int8range(1, 9223372036854775807)) - s.positions) as g) as g) as g
   group by ready_slot, lane_id, stretch
)
