-- Closes attempts as successes on the compact path (R026-04, R026-05, R026-07, R026-27), under their
-- fences: one row of history for each segment, lane and claim slot, one closure for each claim.
-- Attempts that are not proved to be open, or have a materialised lease, are left alone.
--
-- $1 to $7: see leaf/named_claims.sql; places ascend within a claim, each once.
--
-- Columns: closed bigint[]: receipts, in no promised order; NULL for none.
with {named_claims},
{held},
closing as materialized (
  select b.claim_slot, b.batch_id, b.ready_slot, b.ready_generation, b.lane_id, b.claimed_at,
         b.lane_seqs[j.place] as lane_seq, j.job_id, j.run_lease,
         coalesce(b.attempts[j.place], b.attempts[1]) as attempt, b.batch_id + j.place - 1 as receipt_id
{proved}
     and (j.job_id, j.run_lease) not in (select h.job_id, h.run_lease from held h)
),
successes as (
  insert into {schema}.receipt_completion_batches
         (ready_slot, ready_generation, lane_id, claim_slot, completed_count, finalized_at, first_seq,
          last_seq, lane_seqs, job_ids, run_leases, attempts, attempted_at)
  select ready_slot, ready_generation, lane_id, claim_slot, count(*), statement_timestamp(), min(lane_seq),
         max(lane_seq), array_agg(lane_seq),
         case when bool_and(job_id = lane_seq) then null else array_agg(job_id) end,
         case when min(run_lease) = max(run_lease) then array[min(run_lease)] else array_agg(run_lease) end,
         case when min(attempt) = max(attempt) then array[min(attempt)] else array_agg(attempt) end,
         case when min(claimed_at) = max(claimed_at) then array[min(claimed_at)] else array_agg(claimed_at) end
    from (select ready_slot, ready_generation, lane_id, claim_slot, lane_seq, job_id, run_lease, attempt, claimed_at
            from closing
           order by ready_slot, ready_generation, lane_id, claim_slot, lane_seq) as c
   group by ready_slot, ready_generation, lane_id, claim_slot
),
closures as (
  insert into {schema}.lease_claim_closure_batches
         (claim_slot, batch_id, ready_slot, ready_generation, n, receipts)
  select claim_slot, batch_id, ready_slot, ready_generation, n,
         case when last - first + 1 = n then int8multirange(int8range(first, last, '[]'))
              else (select range_agg(int8range(r.id, r.id, '[]')) from unnest(c.receipts) as r (id)) end
    from (select claim_slot, batch_id, ready_slot, ready_generation, count(*)::int as n,
                 min(receipt_id) as first, max(receipt_id) as last, array_agg(receipt_id) as receipts
            from closing
           group by claim_slot, batch_id, ready_slot, ready_generation) as c
),
{forgotten}
select array_agg(receipt_id) as closed from closing
