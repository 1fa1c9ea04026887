-- Columns: now timestamptz; due timestamptz, NULL if no job is deferred.
select now() as now,
       (select run_at from {schema}.deferred_jobs order by run_at limit 1) as due
