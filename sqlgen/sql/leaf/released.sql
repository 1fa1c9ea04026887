-- Ends the materialised leases of the attempts in `closing`, of those that are `held`. Most jobs have none.
released as (
  delete from {schema}.leases l
   using closing c, held h
   where (select exists (select from held))
     and h.job_id = c.job_id and h.run_lease = c.run_lease
     and l.lease_slot = h.lease_slot and l.job_id = h.job_id and l.run_lease = h.run_lease
)
