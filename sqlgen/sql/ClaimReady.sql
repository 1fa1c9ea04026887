-- Takes unclaimed visible rows above the window's low bound in lane order, and writes their evidence
-- and receipts (R026-05, R026-06, R026-09): one claim batch and one evidence row for each segment
-- that they lie in. Finding none, it writes nothing and draws nothing.
--
-- $1 bigint: the lane. The window: $2 text, the last claim's snapshot, NULL before the first;
-- $3 bigint, the frontier or NULL; $4 bigint[] and $5 bigint[], positions and ids of its samples.
-- $6 bigint: rows at most. $7 bigint: bytes of args at most. $8 bigint: microseconds until the
-- deadline, NULL for none.
--
-- Columns, in the one row where seen is not NULL: seen text; attempted_at timestamptz; deadline_at
-- timestamptz or NULL; bounded bool; claim_slot int and batch_ids bigint[], by part, NULL if the claim
-- is empty.
-- In one row a job, in no promised order: part int, the place of its batch in batch_ids, NULL for 0;
-- lane_seq bigint; job_id bigint, NULL where it is lane_seq; run_lease bigint, NULL for 1; attempt
-- smallint, NULL for 1; max_attempts smallint; run_at timestamptz; created_at timestamptz, NULL where
-- it is run_at; traits int, 1 unique key + 2 tags + 4 errors + 8 custom metadata, NULL for 0; kind text;
-- args text; payload text or NULL. Jobs are numbered within their part by lane_seq.
--
-- Parameters that say how many rows to expect go through a sub-select, so that a generic plan looks
-- no dearer than a custom one and the server stops planning.
with recursive {ready_first},
{clock},
bounds as materialized (
  select (select $1::bigint) as lane_id, pg_current_snapshot() as seen, {window_low} as low,
         (select coalesce(max(s.position), 0)
            from unnest(w.positions, w.xids) as s (position, xid)
           where s.xid <= pg_snapshot_xmin(pg_current_snapshot())::text::bigint) as settled
    from (select (select $2::text)::pg_snapshot as seen, (select $3::bigint) as frontier,
                 (select $4::bigint[]) as positions, (select $5::bigint[]) as xids) as w
   where not exists (select from ready_first)
),
spent as materialized (
  select null::int as ready_slot, null::bigint as lane_id, {spent_above} as positions
    from bounds l
),
{stretches},
-- A row has its args unpacked here if that can't be much; the others are weighed first.
found as materialized (
  select f.*, case when pg_column_size(f.args) <= 4096 then f.args::text end as args_text
    from (select f.*
            from stretches s
           cross join lateral (
             select r.ready_slot, r.ready_generation, r.lane_seq, r.job_id, r.run_lease, r.attempt,
                    r.max_attempts, r.run_at, r.created_at, r.kind, r.args, r.payload,
                    r.unique_key is not null as has_unique_key
               from {schema}.ready_entries r
              where r.lane_id = $1 and r.lane_seq >= s.lo and r.lane_seq < s.hi
                and not (select positions from spent) @> r.lane_seq
              order by r.lane_seq
              limit (select $6::bigint)) as f
           order by f.lane_seq
           limit (select $6::bigint)) as f
),
extent as materialized (
  select count(*) as n, min(lane_seq) as first_seq, max(lane_seq) as last_seq,
         count(*) = count(args_text) and sum(octet_length(args_text)) <= $7 as fits
    from found
),
-- From here to weighed only where it is not plain that all fits. Args are unpacked a portion at a
-- time, a megabyte of what is stored or one row, so that a lane of huge jobs costs little more than
-- the jobs that are taken (H47).
portioned as (
  select lane_seq, args,
         (sum(pg_column_size(args)) over (order by lane_seq) - pg_column_size(args)) / 1048576 as portion
    from found
),
unpacked (portion, bytes, lane_seqs, sizes) as (
  select -1::bigint, 0::bigint, '{}'::bigint[], '{}'::int[]
   union all
  select n.portion, u.bytes + n.bytes, n.lane_seqs, n.sizes
    from unpacked u
   cross join lateral (
     select s.portion, sum(s.size)::bigint as bytes, array_agg(s.lane_seq) as lane_seqs, array_agg(s.size) as sizes
       from (select p.portion, p.lane_seq, octet_length(p.args::text) as size
               from portioned p
              where p.portion = (select min(q.portion) from portioned q where q.portion > u.portion)
             offset 0) as s
      group by s.portion) as n
   where u.bytes <= $7
),
weighed as (
  select r.lane_seq, sum(r.size) over (order by r.lane_seq) as bytes
    from unpacked u
   cross join lateral unnest(u.lane_seqs, u.sizes) as r (lane_seq, size)
),
cut as materialized (
  select c.last_seq, e.n = (select $6::bigint) or c.last_seq < e.last_seq as bounded
    from extent e
   cross join lateral (
     select case when e.fits then e.last_seq
                 else (select max(w.lane_seq) from weighed w where w.bytes <= $7 or w.lane_seq = e.first_seq)
             end as last_seq
     offset 0) as c
),
parts as materialized (
  select p.*, row_number() over (order by p.ready_slot, p.ready_generation) - 1 as part,
         nextval({receipt_seq}) as batch_id, (select current_slot from {schema}.claim_ring_state) as claim_slot
    from (
      select ready_slot, ready_generation, count(*)::int as n, min(lane_seq) as first_seq,
             max(lane_seq) as last_seq, array_agg(lane_seq) as lane_seqs,
             case when bool_and(job_id = lane_seq) then null else array_agg(job_id) end as job_ids,
             case when min(run_lease) = max(run_lease) then array[min(run_lease) + 1]
                  else array_agg(run_lease + 1) end as run_leases,
             case when min(attempt) = max(attempt) then array[(min(attempt) + 1)::smallint]
                  else array_agg((attempt + 1)::smallint) end as attempts
        from (select ready_slot, ready_generation, lane_seq, job_id, run_lease, attempt
                from found
               where lane_seq <= (select last_seq from cut)
               order by ready_slot, ready_generation, lane_seq) as f
       group by ready_slot, ready_generation
       order by ready_slot, ready_generation) as p
),
deadline as materialized (
  select case when span.us is not null then {clock_after} end as instant
    from clock
   cross join (select $8::bigint as us) as span
),
-- Whoever drew a settled position has finished: what is not taken now can never be a row of this
-- lane, so one range covers them all, and it begins where the claim began to look. So the evidence
-- of a lane grows together, however many other lanes draw positions between its own. Above, each
-- position stands for itself.
evidence as (
  insert into {schema}.ready_claim_attempt_batches
         (ready_slot, ready_generation, lane_id, first_seq, last_seq, n, batch_id, spent_at, spent_to, ranges)
  select p.ready_slot, p.ready_generation, $1, f.first_seq, p.last_seq, p.n, p.batch_id, clock.instant,
         case when c.bounded then least(c.last_seq, b.settled) else b.settled end,
         case when p.last_seq <= b.settled or p.last_seq - p.first_seq + 1 = p.n
              then int8multirange(int8range(f.first_seq, p.last_seq, '[]'))
              else (select range_agg(int8range(case when s.lane_seq <= b.settled then f.first_seq else s.lane_seq end,
                                               s.lane_seq, '[]'))
                      from unnest(p.lane_seqs) as s (lane_seq)) end
    from parts p
   cross join clock
   cross join bounds b
   cross join cut c
   cross join lateral (select case when p.first_seq <= b.settled then b.low + 1 else p.first_seq end) as f (first_seq)
),
receipts as (
  insert into {schema}.lease_claim_batches
         (claim_slot, batch_id, ready_slot, ready_generation, lane_id, claimed_at, deadline_at, n,
          lane_seqs, job_ids, run_leases, attempts)
  select p.claim_slot, p.batch_id, p.ready_slot, p.ready_generation, $1, clock.instant, deadline.instant, p.n,
         p.lane_seqs, p.job_ids, p.run_leases, p.attempts
    from parts p
   cross join clock
   cross join deadline
)
select b.seen::text as seen, clock.instant as attempted_at, deadline.instant as deadline_at,
       coalesce((select bounded from cut), false) as bounded,
       (select min(claim_slot) from parts) as claim_slot, (select array_agg(batch_id order by part) from parts) as batch_ids,
       null::int as part, null::bigint as lane_seq, null::bigint as job_id, null::bigint as run_lease,
       null::smallint as attempt, null::smallint as max_attempts, null::timestamptz as run_at,
       null::timestamptz as created_at, null::int as traits, null::text as kind, null::text as args,
       null::text as payload
  from bounds b
 cross join clock
 cross join deadline
 union all
select null, null, null, null, null, null,
       case when f.ready_slot <> (select ready_slot from parts where part = 0)
              or f.ready_generation <> (select ready_generation from parts where part = 0)
            then (select p.part from parts p
                   where p.ready_slot = f.ready_slot and p.ready_generation = f.ready_generation)::int end,
       f.lane_seq, nullif(f.job_id, f.lane_seq), nullif(f.run_lease + 1, 1), nullif(f.attempt + 1, 1)::smallint,
       f.max_attempts, f.run_at, nullif(f.created_at, f.run_at),
       case when f.has_unique_key or f.payload is not null
            then f.has_unique_key::int + 2 * coalesce(f.payload ? 'tags', false)::int
                 + 4 * coalesce(f.payload ? 'errors', false)::int
                 + case when not coalesce(f.payload ? 'metadata', false) then 0
                        when jsonb_typeof(f.payload -> 'metadata') = 'object'
                         and (f.payload -> 'metadata') - '{_awa_original_priority,_awa_original_queue}'::text[] = '{}'
                        then 0
                        else 8 end
       end,
       f.kind, coalesce(f.args_text, f.args::text), f.payload::text
  from found f
 where f.lane_seq <= (select last_seq from cut)
