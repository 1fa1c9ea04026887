-- Which lanes hold an unclaimed visible row above their window's low bound. Reads only.
-- By lane: $1 bigint[], the lanes; $2 text[], the last claims' snapshots, NULL before the first;
-- $3 bigint[], the frontiers or NULL; $4 int[] and $5 int[], the first and the last of its samples in
-- $6 bigint[], positions, and $7 bigint[], ids.
--
-- Columns: seen text, the statement's snapshot; holding bigint[], lanes, ascending.
with {ready_first},
lanes as materialized (
  select w.lane_id, {window_low} as low
    from (select a.lane_id, a.seen::pg_snapshot as seen, a.frontier,
                 ($6::bigint[])[a.first:a.last] as positions, ($7::bigint[])[a.first:a.last] as xids
            from unnest((select $1::bigint[]), $2::text[], $3::bigint[], $4::int[], $5::int[])
                 as a (lane_id, seen, frontier, first, last)
           -- In the very snapshot that everything was claimed in there is nothing new.
           where not exists (select from ready_first)
             and (a.frontier is not null or a.seen is distinct from pg_current_snapshot()::text)
          offset 0) as w
),
spent as materialized (
  select null::int as ready_slot, l.lane_id, {spent_above} as positions
    from lanes l
),
{stretches}
select pg_current_snapshot()::text as seen,
       array(select distinct s.lane_id
               from stretches s
               join spent p on p.lane_id = s.lane_id
              cross join lateral (
                select from {schema}.ready_entries r
                 where r.lane_id = s.lane_id and r.lane_seq >= s.lo and r.lane_seq < s.hi
                   and not p.positions @> r.lane_seq
                 order by r.lane_seq
                 limit 1) as found
              order by s.lane_id) as holding
