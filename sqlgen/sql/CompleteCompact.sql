-- Closes attempts as successes on the compact path.
with batch as materialized (
  select b.claim_slot, b.batch_id, b.ready_slot, b.ready_generation, b.lane_id, b.claimed_at, b.n,
         b.lane_seqs || '{}'::bigint[] as lane_seqs, b.job_ids || '{}'::bigint[] as job_ids,
         b.run_leases || '{}'::bigint[] as run_leases, b.attempts || '{}'::smallint[] as attempts,
         ($5::int[])[asked.first:asked.last] as places, ($6::bigint[])[asked.first:asked.last] as asked_jobs,
         ($7::bigint[])[asked.first:asked.last] as asked_leases,
         array(select c.receipts from {schema}.lease_claim_closure_batches c
                where c.claim_slot = asked.claim_slot and c.batch_id = asked.batch_id) as closed_compactly,
         array(select c.receipt_id from {schema}.lease_claim_closures c
                where c.claim_slot = asked.claim_slot and c.batch_id = asked.batch_id) as closed_singly
    from unnest((select $1::int[]), (select $2::bigint[]), (select $3::int[]), (select $4::int[])) as asked (claim_slot, batch_id, first, last)
   cross join lateral (
     select * from {schema}.lease_claim_batches b
      where b.claim_slot = asked.claim_slot and b.batch_id = asked.batch_id
     offset 0) as b
),
closing as materialized (
  select b.claim_slot, b.batch_id, b.ready_slot, b.ready_generation, b.lane_id, b.claimed_at,
         b.lane_seqs[j.place] as lane_seq, j.job_id, j.run_lease, coalesce(b.attempts[j.place], b.attempts[1]) as attempt,
         b.batch_id + j.place - 1 as receipt_id
    from batch b
   cross join lateral (select unnest(b.places) as place, unnest(b.asked_jobs) as job_id, unnest(b.asked_leases) as run_lease) as j
   where j.place between 1 and b.n
     and j.job_id = coalesce(b.job_ids[j.place], b.lane_seqs[j.place])
     and j.run_lease = coalesce(b.run_leases[j.place], b.run_leases[1])
     and not b.batch_id + j.place - 1 <@ any (b.closed_compactly)
     and not b.batch_id + j.place - 1 = any (b.closed_singly)
     and (not (select exists (select from {schema}.leases))
          or (select l.job_id from {schema}.leases l
               where l.job_id = j.job_id and l.run_lease = j.run_lease limit 1) is null)
),
successes as (
  insert into {schema}.receipt_completion_batches
         (ready_slot, ready_generation, lane_id, claim_slot, completed_count, finalized_at, first_seq, last_seq,
          lane_seqs, job_ids, run_leases, attempts, attempted_at)
  select ready_slot, ready_generation, lane_id, claim_slot, count(*), statement_timestamp(),
         min(lane_seq), max(lane_seq), array_agg(lane_seq),
         case when bool_and(job_id = lane_seq) then null else array_agg(job_id) end,
         case when min(run_lease) = max(run_lease) then array[min(run_lease)] else array_agg(run_lease) end,
         case when min(attempt) = max(attempt) then array[min(attempt)] else array_agg(attempt) end,
         case when min(claimed_at) = max(claimed_at) then array[min(claimed_at)] else array_agg(claimed_at) end
    from (select * from closing order by ready_slot, ready_generation, lane_id, claim_slot, lane_seq) as c
   group by ready_slot, ready_generation, lane_id, claim_slot
),
closures as (
  insert into {schema}.lease_claim_closure_batches
         (claim_slot, batch_id, ready_slot, ready_generation, n, receipts)
  select claim_slot, batch_id, ready_slot, ready_generation, n,
         case when hi - lo + 1 = n then int8multirange(int8range(lo, hi, '[]'))
         else (select range_agg(int8range(r.id, r.id, '[]')) from unnest(c.ids) as r (id)) end
    from (select claim_slot, batch_id, ready_slot, ready_generation, count(*)::int as n, min(receipt_id) as lo, max(receipt_id) as hi, array_agg(receipt_id) as ids
            from closing
           group by claim_slot, batch_id, ready_slot, ready_generation) as c
),
forgotten as (
  delete from {schema}.attempt_state a using closing c
   where (select exists (select from {schema}.attempt_state))
     and a.job_id = c.job_id and a.run_lease = c.run_lease
)
select array_agg(receipt_id) as closed from closing
