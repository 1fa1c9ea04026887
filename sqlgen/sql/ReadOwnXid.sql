-- Columns: xid bigint: the id that this transaction was given, NULL if it was given none.
select pg_current_xact_id_if_assigned()::text::bigint as xid
