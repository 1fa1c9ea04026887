-- Looks for a lease in the lease ring's slot.
--
-- Columns: held_by bigint or NULL: the smallest job that has one.
select min(l.job_id) as held_by from {schema}.leases_{slot} l
