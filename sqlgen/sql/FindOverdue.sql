-- Open attempts whose deadline has passed, those that are overdue for longest first. Only overdue claims
-- are looked at, by an index (R026-14); attempts with a lease of their own follow the lease's deadline.
--
-- $1 bigint: rows at most.
-- Columns: claim_slot int, batch_id bigint, place bigint (one-based), job_id bigint, run_lease bigint,
-- attempt smallint, max_attempts smallint.
with overdue as materialized (
  select b.*
    from {schema}.lease_claim_batches b
   where b.deadline_at between '-infinity' and statement_timestamp()
),
partly as materialized (
  select o.*
    from overdue o
   where not (select exists (select from {schema}.lease_claim_closure_batches x
                              where x.claim_slot = o.claim_slot and x.batch_id = o.batch_id
                                and x.receipts @> int8range(o.batch_id, o.batch_id + o.n)))
),
closed as materialized (
  select o.batch_id, range_agg(c.receipts) as receipts
    from partly o
   cross join lateral (
     select unnest(x.receipts) as receipts
       from {schema}.lease_claim_closure_batches x where x.claim_slot = o.claim_slot and x.batch_id = o.batch_id
      union all
     select int8range(x.receipt_id, x.receipt_id, '[]')
       from {schema}.lease_claim_closures x where x.claim_slot = o.claim_slot and x.batch_id = o.batch_id) as c
   group by o.batch_id
)
select o.claim_slot, o.batch_id, u.place, coalesce(u.job_id, u.lane_seq) as job_id,
       coalesce(u.run_lease, o.run_leases[1]) as run_lease, coalesce(u.attempt, o.attempts[1]) as attempt,
       coalesce(r.max_attempts, 1::smallint) as max_attempts
  from partly o
  left join closed c on c.batch_id = o.batch_id
 cross join lateral unnest(o.lane_seqs, o.job_ids, o.run_leases, o.attempts) with ordinality
    as u (lane_seq, job_id, run_lease, attempt, place)
  left join lateral (
    select r.max_attempts
      from {schema}.ready_entries r
     where r.ready_slot = o.ready_slot and r.ready_generation = o.ready_generation
       and r.lane_id = o.lane_id and r.lane_seq = u.lane_seq
    offset 0) as r on true
 where (c.receipts @> int8range(o.batch_id, o.batch_id + o.n)) is not true
   and not coalesce(c.receipts, '{}') @> (o.batch_id + u.place - 1)
   and not exists (
     select from {schema}.leases l
      where l.receipt_id = o.batch_id + u.place - 1 and l.deadline_at > statement_timestamp())
 order by o.deadline_at, o.batch_id, u.place
 limit (select $1::bigint)
