-- Closes attempts on the general path, under their fences: completed and failed ones get a narrow row
-- of history with its delta (R026-02, R026-22), those to be tried again are deferred with their body;
-- each gets a closure of its own. Attempts that are not proved to be open are left alone.
--
-- $1 to $7: see leaf/named_claims.sql; each attempt once. In the order of $5: $8 text[], `completed`,
-- `failed` or `retry`; $9 text[], the error or NULL; $10 bigint[], microseconds until the next attempt
-- or NULL. $11 bigint: errors kept of one job.
--
-- Columns: closed bigint[]: receipts, in no promised order; NULL for none.
--
-- A job whose ready row is gone can't be tried again: it has failed. Its row of history has the kind
-- '', which no job can have, and terminal_jobs says that the body is missing (H21, H30).
with {clock},
{named_claims},
{held},
proved as materialized (
  select b.claim_slot, b.batch_id, b.ready_slot, b.ready_generation, b.lane_id, b.claimed_at,
         b.lane_seqs[j.place] as lane_seq, j.job_id, j.run_lease, j.entry,
         coalesce(b.attempts[j.place], b.attempts[1]) as attempt, b.batch_id + j.place - 1 as receipt_id
{proved}
),
closing as materialized (
  select p.*, e.delay_us, r.kind, r.args, r.max_attempts, r.created_at, r.unique_key, r.unique_states,
         case when e.ending = 'retry' and r.kind is null then 'failed' else e.ending end as ending,
         case when e.ending = 'completed' then null
              else (case when r.payload is null then '{}'
                         when jsonb_typeof(r.payload) = 'object' then r.payload
                         else jsonb_build_object('payload', r.payload) end)
                   || jsonb_build_object('errors', (
                        select jsonb_agg(kept.error order by kept.place)
                          from (select listed.error, listed.place
                                  from jsonb_array_elements(
                                         case when jsonb_typeof(r.payload -> 'errors') = 'array'
                                              then r.payload -> 'errors' else '[]' end
                                         || jsonb_build_array(jsonb_build_object(
                                              'attempt', p.attempt, 'error', e.error,
                                              'at', to_char(clock.instant at time zone 'UTC',
                                                            'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))))
                                       with ordinality as listed (error, place)
                                 order by listed.place desc
                                 limit $11) as kept)) end as payload
    from proved p
    join unnest($8::text[], $9::text[], $10::bigint[]) with ordinality
         as e (ending, error, delay_us, entry) on e.entry = p.entry
   cross join clock
    left join lateral (
      select r.*
        from {schema}.ready_entries r
       where r.ready_slot = p.ready_slot and r.ready_generation = p.ready_generation
         and r.lane_id = p.lane_id and r.lane_seq = p.lane_seq
      offset 0) as r on true
),
ended as (
  insert into {schema}.done_entries as d
         (ready_slot, ready_generation, lane_id, lane_seq, job_id, run_lease, attempt, attempted_at,
          finalized_at, state, kind, payload)
  select c.ready_slot, c.ready_generation, c.lane_id, c.lane_seq, c.job_id, c.run_lease, c.attempt,
         c.claimed_at, clock.instant, c.ending, coalesce(c.kind, ''), c.payload
    from closing c
   cross join clock
   where c.ending <> 'retry'
  returning d.ready_slot, d.ready_generation, d.lane_id, d.job_id, d.state
),
deltas as (
  insert into {schema}.queue_terminal_count_deltas
         (ready_slot, ready_generation, lane_id, counter_bucket, state, delta)
  select d.ready_slot, d.ready_generation, d.lane_id, {counter_bucket}, d.state, count(*)
    from ended d
   group by d.ready_slot, d.ready_generation, d.lane_id, {counter_bucket}, d.state
),
deferred as (
  insert into {schema}.deferred_jobs
         (job_id, lane_id, run_at, created_at, attempted_at, run_lease, attempt, max_attempts, state, kind,
          args, payload, unique_key, unique_states)
  select c.job_id, c.lane_id, {clock_after}, c.created_at, c.claimed_at, c.run_lease, c.attempt,
         c.max_attempts, 'retryable', c.kind, c.args, c.payload, c.unique_key, c.unique_states
    from closing c
   cross join clock
   cross join lateral (select coalesce(c.delay_us, 0) as us) as span
   where c.ending = 'retry'
),
closures as (
  insert into {schema}.lease_claim_closures
         (claim_slot, batch_id, receipt_id, ready_slot, ready_generation, closed_at)
  select c.claim_slot, c.batch_id, c.receipt_id, c.ready_slot, c.ready_generation, clock.instant
    from closing c
   cross join clock
),
{released},
{forgotten}
select array_agg(receipt_id) as closed from closing
