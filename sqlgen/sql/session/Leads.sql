-- Columns: whether this session leads.
select exists (
  select from pg_locks l
   where l.locktype = 'advisory' and l.pid = pg_backend_pid() and l.granted
     and l.classid = ({lock_class}::bigint & 4294967295)::oid and l.objid = 0 and l.objsubid = 2)
