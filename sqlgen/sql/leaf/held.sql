-- Materialised leases among the jobs $6 bigint[] and those numbered between them: one range a slot.
held as materialized (
  select l.lease_slot, l.job_id, l.run_lease
    from (select min(a.job) as first, max(a.job) as last from unnest($6::bigint[]) as a (job)) as m
   cross join unnest(array(select slot from {schema}.lease_ring_slots)) as s (slot)
   cross join lateral (
     select l.lease_slot, l.job_id, l.run_lease
       from {schema}.leases l
      where l.lease_slot = s.slot and l.job_id between m.first and m.last
     offset 0) as l
)
