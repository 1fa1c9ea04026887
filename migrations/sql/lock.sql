-- One migration of a schema at a time, until the transaction ends: nothing is stranded by a cancel.
select pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('awa migrate ' || {schema_name}, 0))
