-- core: Window::low in the statement's own snapshot. w is the window: w.seen pg_snapshot, NULL before
-- the first claim; w.frontier; w.positions and w.xids, its samples.
case when w.seen is null then 0
     else least(w.frontier, (
       select coalesce(max(s.position), 0)
         from (select least(pg_snapshot_xmax(w.seen)::text::bigint,
                            (select min(o.id::text::bigint) from pg_snapshot_xip(w.seen) as o (id)
                              where pg_visible_in_snapshot(o.id, pg_current_snapshot()))) as xid
               offset 0) as first_finished
        cross join unnest(w.positions, w.xids) as s (position, xid)
        where s.xid <= first_finished.xid)) end
