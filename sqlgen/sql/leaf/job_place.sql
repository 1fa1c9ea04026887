-- Where the job $1 is: `place`, one row or none, with place, state, ready_slot, ready_generation,
-- lane_id, lane_seq, attempt, run_lease, attempted_at, finalized_at.
--
-- A job that never moved lies at the position that it is called by, so it is probed for in each
-- lane; one that moved has an index entry; its newest position is the one that counts. OFFSET keeps
-- the probes probes: planned as joins, on children without statistics, they could become scans. The
-- conditions on lanes, which every lane fulfils, keep the planner from expecting so many that it has
-- the statement compiled, which takes a hundred times as long as running it.
newest as materialized (
  select r.*
    from (select r.ready_slot, r.ready_generation, r.lane_id, r.lane_seq, r.attempt, r.run_lease
            from {schema}.queue_lanes l
           cross join lateral (select r.ready_slot, r.ready_generation, r.lane_id, r.lane_seq, r.attempt, r.run_lease
                                 from {schema}.ready_entries r
                                where r.lane_id = l.lane_id and r.lane_seq = $1 and r.moved_job_id is null
                               offset 0) as r
           where l.lane_id >= 0 and l.lane_id < 9223372036854775807
           union all
          select r.ready_slot, r.ready_generation, r.lane_id, r.lane_seq, r.attempt, r.run_lease
            from {schema}.ready_entries r
           where r.moved_job_id = $1) as r
   order by r.lane_seq desc
   limit 1
),
spent as materialized (
  select e.batch_id
    from newest r
   cross join lateral (select e.batch_id
                         from {schema}.ready_claim_attempt_batches e
                        where e.ready_slot = r.ready_slot and e.lane_id = r.lane_id
                          and e.last_seq >= r.lane_seq and e.first_seq <= r.lane_seq and e.ranges @> r.lane_seq
                       offset 0) as e
),
compact as materialized (
  select coalesce(b.attempts[i.place], b.attempts[1]) as attempt,
         coalesce(b.run_leases[i.place], b.run_leases[1]) as run_lease,
         coalesce(b.attempted_at[i.place], b.attempted_at[1]) as attempted_at, b.finalized_at
    from newest r
   cross join lateral (select b.*
                         from {schema}.receipt_completion_batches b
                        where b.ready_slot = r.ready_slot and b.ready_generation = r.ready_generation
                          and b.lane_id = r.lane_id and r.lane_seq between b.first_seq and b.last_seq
                       offset 0) as b
   cross join lateral (select array_position(b.lane_seqs, r.lane_seq) as place) as i
   where i.place is not null
     and not exists (select from {schema}.receipt_completion_tombstones t
                      where t.ready_slot = r.ready_slot and t.lane_id = r.lane_id and t.lane_seq = r.lane_seq)
),
terminal as materialized (
  select d.*
    from {schema}.done_entries d
   where d.job_id = $1
   order by d.lane_seq desc
   limit 1
),
attempts as materialized (
  select b.batch_id, b.batch_id + i.place - 1 as receipt_id,
         coalesce(b.attempts[i.place], b.attempts[1]) as attempt,
         coalesce(b.run_leases[i.place], b.run_leases[1]) as run_lease, b.claimed_at
    from newest r
   cross join spent e
   cross join lateral (select b.*
                         from {schema}.lease_claim_batches b
                        where b.batch_id = e.batch_id
                       offset 0) as b
   cross join lateral (select array_position(b.lane_seqs, r.lane_seq) as place) as i
   where b.ready_slot = r.ready_slot and b.lane_id = r.lane_id and i.place is not null
   union all
  select {batch_of_receipt}, c.receipt_id, c.attempt, c.run_lease, c.claimed_at
    from newest r
    join {schema}.lease_claims c on c.lane_id = r.lane_id and c.lane_seq = r.lane_seq
   where c.job_id = $1
),
claims (batch_id, receipts) as (
  select a.batch_id, int8range(a.receipt_id, a.receipt_id, '[]') from attempts a
),
closures (batch_id, receipts) as materialized (
  select x.batch_id, x.receipts
    from attempts a
   cross join lateral (select x.batch_id, x.receipts
                         from {schema}.lease_claim_closure_batches x
                        where x.batch_id = a.batch_id
                       offset 0) as x
   union all
  select x.batch_id, int8multirange(int8range(x.receipt_id, x.receipt_id, '[]'))
    from {schema}.lease_claim_closures x
   where x.batch_id in (select batch_id from attempts)
),
{open_receipts},
running as materialized (
  select coalesce((select l.state
                     from {schema}.leases l
                    where l.job_id = $1 and l.receipt_id = a.receipt_id
                    limit 1), 'running') as state,
         a.attempt, a.run_lease, a.claimed_at
    from attempts a
   where (select receipts from open_receipts) @> a.receipt_id
),
place as materialized (
  select p.*
    from (select 'terminal' as place, t.state, t.ready_slot, t.ready_generation, t.lane_id, t.lane_seq,
                 t.attempt, t.run_lease, t.attempted_at, t.finalized_at
            from terminal t
           union all
          select 'deferred', d.state, null, null, d.lane_id, null, d.attempt, d.run_lease, d.attempted_at, null
            from {schema}.deferred_jobs d
           where d.job_id = $1
           union all
          select 'running', a.state, r.ready_slot, r.ready_generation, r.lane_id, r.lane_seq,
                 a.attempt, a.run_lease, a.claimed_at, null
            from newest r
           cross join running a
           union all
          select 'compact', 'completed', r.ready_slot, r.ready_generation, r.lane_id, r.lane_seq,
                 b.attempt, b.run_lease, b.attempted_at, b.finalized_at
            from newest r
           cross join compact b
           union all
          select 'ready', 'available', r.ready_slot, r.ready_generation, r.lane_id, r.lane_seq,
                 r.attempt, r.run_lease, null, null
            from newest r
           where not exists (select from spent)) as p
   limit 1
)
