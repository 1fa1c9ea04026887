-- v032: how many failed jobs left the ring past the retention floor.
--
-- Additive: pruned_completed_count keeps its name and now means "pruned and not failed". A binary
-- that does not know the new column folds everything into the old one, so that their sum is right
-- in every mix of versions.

alter table {schema}.queue_terminal_rollups
  add column pruned_failed_count bigint not null default 0;
