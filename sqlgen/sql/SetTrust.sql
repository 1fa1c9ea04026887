-- Says whether folded counters and pending deltas can be trusted (R026-26).
--
-- $1 boolean.
-- Columns: exact boolean: the marker was there.
with marked as (
  update {schema}.terminal_count_trust set trusted = $1 where singleton returning 1
)
select count(*) = 1 as exact from marked
