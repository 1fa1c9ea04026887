-- The claims that receipts name, one row each, with their arrays unpacked once: a subscript of a
-- stored array would unpack the whole of it for every job. The tables come in the order in which
-- prune locks them.
-- $1 int[]: claim slots, ascending: see leaf/between_named.sql.
-- $2 bigint[]: claims. $3 int[], $4 int[]: the first and the last of the claim's jobs in $5 int[],
-- one-based places; $6 bigint[], jobs; $7 bigint[], run leases.
named_claims as materialized (
  select b.claim_slot, b.batch_id, b.ready_slot, b.ready_generation, b.lane_id, b.claimed_at, b.n,
         b.lane_seqs || '{}'::bigint[] as lane_seqs, b.job_ids || '{}'::bigint[] as job_ids,
         b.run_leases || '{}'::bigint[] as run_leases, b.attempts || '{}'::smallint[] as attempts,
         a.first, a.last, ($5::int[])[a.first:a.last] as places,
         ($6::bigint[])[a.first:a.last] as asked_jobs, ($7::bigint[])[a.first:a.last] as asked_leases,
         t.receipts as closed_together, o.receipts as closed_singly
    from unnest((select $1::int[]), (select $2::bigint[]), (select $3::int[]), (select $4::int[]))
         as a (claim_slot, batch_id, first, last)
   cross join lateral (
     select *
       from {schema}.lease_claim_batches b
      where b.claim_slot {between_named}
        and b.claim_slot = a.claim_slot and b.batch_id = a.batch_id
     offset 0) as b
   cross join lateral (
     select array_agg(c.receipts) as receipts
       from {schema}.lease_claim_closure_batches c
      where c.claim_slot {between_named}
        and c.claim_slot = b.claim_slot and c.batch_id = b.batch_id
     offset 0) as t
   cross join lateral (
     select array_agg(c.receipt_id) as receipts
       from {schema}.lease_claim_closures c
      where c.claim_slot {between_named}
        and c.claim_slot = b.claim_slot and c.batch_id = b.batch_id
     offset 0) as o
)
