-- Leadership of the installation: a lock of the session's, kept apart from lanes' and fences' by its
-- second key, which no claim's fence has: fences are of claims with ids from 1 on.
-- Columns: whether this session leads now.
select pg_try_advisory_lock({lock_class}, 0)
