-- Forgets the progress of the attempts in `closing`. Most have none, which a probe each finds out.
progressed as materialized (
  select s.job_id, s.run_lease
    from closing c
   cross join lateral (
     select s.job_id, s.run_lease
       from {schema}.attempt_state s
      where s.job_id = c.job_id and s.run_lease = c.run_lease
     offset 0) as s
   where (select exists (select from {schema}.attempt_state))
),
forgotten as (
  delete from {schema}.attempt_state s
   using progressed p
   where s.job_id = p.job_id and s.run_lease = p.run_lease
)
