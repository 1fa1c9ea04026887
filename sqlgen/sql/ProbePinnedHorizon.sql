-- Looks for another backend of this database that pins the MVCC horizon (R026-25): one that has sat idle
-- on a snapshot for a tenth of a second, or whose transaction has held a snapshot or an id for a second.
-- What is younger is ordinary traffic, under which the rollup must go on (H39): between two statements
-- of a transaction the last one's portal still holds its snapshot.
--
-- A role without pg_read_all_stats does not see how old the transactions of other roles are, but
-- it sees their snapshots and ids: they count as pinned. A backend that shows what it does and has no
-- transaction has just begun one: its snapshot is read a moment after the rest of its row.
--
-- Not counted: autovacuum (no role of its own; it holds nothing back), parallel workers (their leader
-- counts), prepared transactions (no backend, and an orphaned one would stop the rollup for ever).
--
-- Columns: held_by bigint or NULL: the smallest process id.
select min(a.pid)::bigint as held_by
  from pg_catalog.pg_stat_activity a
 where a.datname = current_database()
   and a.pid <> pg_backend_pid()
   and a.usesysid is not null
   and a.leader_pid is null
   and (a.backend_xmin is not null or a.backend_xid is not null)
   and ((a.xact_start is null and (a.state is null or a.state = 'disabled'))
        or a.xact_start <= clock_timestamp() - interval '1 second'
        or (a.state like 'idle in transaction%' and a.backend_xmin is not null
            and a.state_change <= clock_timestamp() - interval '100 milliseconds'))
