-- Schemas that hold an installation and whose names begin with $1, by name.
-- Columns: schema text.
select n.nspname::text as schema
  from pg_catalog.pg_namespace n
  join pg_catalog.pg_class c on c.relnamespace = n.oid and c.relname = 'schema_migrations'
 where starts_with(n.nspname::text, $1)
 order by n.nspname
