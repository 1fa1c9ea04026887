-- A page of jobs in one state, newest id first, without their args (H40). A spelling for each way in
-- which a state is stored.
--
-- Conditions that every row fulfils (a batch's id is not negative, its count is at least 1) keep the
-- planner from expecting so much that it has the statement compiled, which takes longer than running it.
--
-- $1 text: only this queue, NULL for all. $2 text: only this kind, NULL for all. $3 bigint: only ids
-- below, NULL for all. $4 bigint: rows at most. $5 text: the state, where a spelling serves several.
-- Columns: as those of LoadJob; args and payload are NULL.

-- [available]
-- A job at its first position is called by it, so the page comes off the end of each gap; those that
-- moved come off their own index.
with lanes as materialized (
  select l.lane_id from {schema}.queue_lanes l where $1::text is null or l.queue = $1
),
{unclaimed},
found as (
  select r.*
    from stretches s
    join spent p on p.ready_slot = s.ready_slot and p.lane_id = s.lane_id
   cross join lateral (
     select r.job_id, r.lane_id, r.kind, r.attempt, r.run_lease, r.max_attempts, r.run_at, r.created_at
       from {schema}.ready_entries r
      where r.ready_slot = s.ready_slot and r.lane_id = s.lane_id
        and r.lane_seq >= s.lo and r.lane_seq < least(s.hi, $3::bigint)
        and not p.positions @> r.lane_seq
        and r.moved_job_id is null and ($2::text is null or r.kind = $2)
      order by r.lane_seq desc
      limit $4) as r
   union all
  select r.*
    from filled f
   cross join lateral (
     select r.job_id, r.lane_id, r.kind, r.attempt, r.run_lease, r.max_attempts, r.run_at, r.created_at
       from {schema}.ready_entries r
      where r.ready_slot = f.slot and r.moved_job_id < coalesce($3::bigint, 9223372036854775807)
        and not (select p.positions from spent p
                  where p.ready_slot = r.ready_slot and p.lane_id = r.lane_id) @> r.lane_seq
        and ($2::text is null or r.kind = $2)
      order by r.moved_job_id desc
      limit $4) as r
)
select f.job_id, 'available' as state, l.queue, l.priority, l.enqueue_shard, f.kind, f.attempt, f.run_lease,
       f.max_attempts, f.run_at, f.created_at, null::timestamptz as attempted_at,
       null::timestamptz as finalized_at, null::jsonb as args, null::jsonb as payload
  from found f
  join {schema}.queue_lanes l on l.lane_id = f.lane_id
 order by f.job_id desc
 limit $4

-- [deferred] scheduled or retryable.
select d.job_id, d.state, l.queue, l.priority, l.enqueue_shard, d.kind, d.attempt, d.run_lease, d.max_attempts,
       d.run_at, d.created_at, d.attempted_at, null::timestamptz as finalized_at,
       null::jsonb as args, null::jsonb as payload
  from {schema}.deferred_jobs d
  join {schema}.queue_lanes l on l.lane_id = d.lane_id
 where d.state = $5 and ($1::text is null or l.queue = $1) and ($2::text is null or d.kind = $2)
   and d.job_id < coalesce($3::bigint, 9223372036854775807)
 order by d.job_id desc
 limit $4

-- [running] running or waiting_external: an open receipt, and what its lease says if it has one.
with lanes as materialized (
  select l.lane_id from {schema}.queue_lanes l where $1::text is null or l.queue = $1
),
{open_of_lanes},
attempts as (
  select b.batch_id + u.place - 1 as receipt_id, b.ready_slot, b.lane_id, u.lane_seq,
         coalesce(b.attempts[u.place], b.attempts[1]) as attempt,
         coalesce(b.run_leases[u.place], b.run_leases[1]) as run_lease, b.claimed_at
    from partly p
   cross join lateral (select b.*
                         from {schema}.lease_claim_batches b
                        where b.batch_id = p.batch_id
                       offset 0) as b
   cross join lateral unnest(b.lane_seqs) with ordinality as u (lane_seq, place)
   where p.batch_id >= 0 and p.batch_id < 9223372036854775807
     and (select receipts from open_receipts) @> (b.batch_id + u.place - 1)
   union all
  select c.receipt_id, c.ready_slot, c.lane_id, c.lane_seq, c.attempt, c.run_lease, c.claimed_at
    from {schema}.lease_claims c
   where c.lane_id in (select lane_id from lanes) and (select receipts from open_receipts) @> c.receipt_id
),
found as (
  select r.job_id, a.lane_id, r.kind, a.attempt, a.run_lease, r.max_attempts, r.run_at, r.created_at, a.claimed_at,
         coalesce(w.state, 'running') as state
    from attempts a
    left join {schema}.leases w on w.receipt_id = a.receipt_id
   cross join lateral (select r.*
                         from {schema}.ready_entries r
                        where r.ready_slot = a.ready_slot and r.lane_id = a.lane_id and r.lane_seq = a.lane_seq
                       offset 0) as r
)
select f.job_id, f.state, l.queue, l.priority, l.enqueue_shard, f.kind, f.attempt, f.run_lease, f.max_attempts,
       f.run_at, f.created_at, f.claimed_at as attempted_at, null::timestamptz as finalized_at,
       null::jsonb as args, null::jsonb as payload
  from found f
  join {schema}.queue_lanes l on l.lane_id = f.lane_id
 where f.state = $5 and ($2::text is null or f.kind = $2)
   and f.job_id < coalesce($3::bigint, 9223372036854775807)
 order by f.job_id desc
 limit $4

-- [terminal] failed or cancelled: retryable history, newest ids off its index.
select d.job_id, d.state, l.queue, l.priority, l.enqueue_shard, d.kind, d.attempt, d.run_lease,
       coalesce(d.max_attempts, r.max_attempts) as max_attempts, coalesce(d.run_at, r.run_at) as run_at,
       coalesce(d.created_at, r.created_at) as created_at, d.attempted_at, d.finalized_at,
       null::jsonb as args, null::jsonb as payload
  from (select d.*
          from {schema}.done_entries d
         where d.state = $5 and ($2::text is null or d.kind = $2)
           and d.job_id < coalesce($3::bigint, 9223372036854775807)
           and ($1::text is null or d.lane_id = any (array(select lane_id from {schema}.queue_lanes where queue = $1)))
         order by d.job_id desc
         limit $4) as d
  join {schema}.queue_lanes l on l.lane_id = d.lane_id
  left join lateral (select r.max_attempts, r.run_at, r.created_at
                       from {schema}.ready_entries r
                      where r.ready_slot = d.ready_slot and r.ready_generation = d.ready_generation
                        and r.lane_id = d.lane_id and r.lane_seq = d.lane_seq
                     offset 0) as r on d.args is null
 order by d.job_id desc

-- [completed] compact successes and those of retryable history. The ids of a batch end at its last
-- position, and unless some of its jobs moved they begin at its first. So without a kind to look for,
-- batches that end before the point above which the page is surely full are not opened.
with lanes as materialized (
  select l.lane_id from {schema}.queue_lanes l where $1::text is null or l.queue = $1
),
hidden as materialized (
  select count(*) as n from {schema}.receipt_completion_tombstones
),
bound as materialized (
  select coalesce(max(b.first_seq) filter (where b.jobs >= $4 + (select n from hidden)), 0) as lowest
    from (select b.first_seq, sum(b.completed_count) over (order by b.first_seq desc) as jobs
            from {schema}.receipt_completion_batches b
           where b.lane_id in (select lane_id from lanes) and b.job_ids is null
             and b.last_seq < coalesce($3::bigint, 9223372036854775807) and $2::text is null) as b
),
compact as (
  select coalesce(u.job_id, u.lane_seq) as job_id, b.lane_id, b.ready_slot, b.ready_generation, u.lane_seq,
         coalesce(u.attempt, b.attempts[1]) as attempt, coalesce(u.run_lease, b.run_leases[1]) as run_lease,
         coalesce(u.attempted_at, b.attempted_at[1]) as attempted_at, b.finalized_at
    from {schema}.receipt_completion_batches b
   cross join lateral unnest(b.lane_seqs, b.job_ids, b.run_leases, b.attempts, b.attempted_at)
      as u (lane_seq, job_id, run_lease, attempt, attempted_at)
   where b.lane_id in (select lane_id from lanes) and b.last_seq >= (select lowest from bound)
     and b.completed_count >= 1 and b.completed_count <= 2147483647
     and coalesce(u.job_id, u.lane_seq) < coalesce($3::bigint, 9223372036854775807)
     and ((select n from hidden) = 0
          or not exists (select from {schema}.receipt_completion_tombstones t
                          where t.ready_slot = b.ready_slot and t.lane_id = b.lane_id and t.lane_seq = u.lane_seq))
     and ($2::text is null
          or (select r.kind
                from {schema}.ready_entries r
               where r.ready_slot = b.ready_slot and r.ready_generation = b.ready_generation
                 and r.lane_id = b.lane_id and r.lane_seq = u.lane_seq) = $2)
   order by 1 desc
   limit $4
),
general as (
  select d.*
    from {schema}.done_entries d
   where d.state = 'completed' and ($2::text is null or d.kind = $2)
     and d.job_id < coalesce($3::bigint, 9223372036854775807)
     and d.lane_id = any (array(select lane_id from lanes))
   order by d.job_id desc
   limit $4
),
found as (
  select c.job_id, c.lane_id, c.ready_slot, c.ready_generation, c.lane_seq, c.attempt, c.run_lease,
         c.attempted_at, c.finalized_at, null::text as kind, null::smallint as max_attempts,
         null::timestamptz as run_at, null::timestamptz as created_at
    from compact c
   union all
  select g.job_id, g.lane_id, g.ready_slot, g.ready_generation, g.lane_seq, g.attempt, g.run_lease,
         g.attempted_at, g.finalized_at, g.kind, g.max_attempts, g.run_at, g.created_at
    from general g
   order by 1 desc
   limit $4
)
select f.job_id, 'completed' as state, l.queue, l.priority, l.enqueue_shard, coalesce(f.kind, r.kind) as kind,
       f.attempt, f.run_lease, coalesce(f.max_attempts, r.max_attempts) as max_attempts,
       coalesce(f.run_at, r.run_at) as run_at, coalesce(f.created_at, r.created_at) as created_at,
       f.attempted_at, f.finalized_at, null::jsonb as args, null::jsonb as payload
  from found f
  join {schema}.queue_lanes l on l.lane_id = f.lane_id
  left join lateral (select r.kind, r.max_attempts, r.run_at, r.created_at
                       from {schema}.ready_entries r
                      where r.ready_slot = f.ready_slot and r.ready_generation = f.ready_generation
                        and r.lane_id = f.lane_id and r.lane_seq = f.lane_seq and f.max_attempts is null
                     offset 0) as r on true
 order by f.job_id desc
