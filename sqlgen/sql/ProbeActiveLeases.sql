-- Looks for a materialised lease for a ready row of the queue slot.
--
-- $1 int: the queue slot.
-- Columns: held_by bigint or NULL: the smallest job that has one.
select min(l.job_id) as held_by from {schema}.leases l where l.ready_slot = $1
