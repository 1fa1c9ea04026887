-- Forgets the progress of the attempts in `closing`. Most attempts have none.
forgotten as (
  delete from {schema}.attempt_state s
   using closing c
   where (select exists (select from {schema}.attempt_state))
     and s.job_id = c.job_id and s.run_lease = c.run_lease
)
