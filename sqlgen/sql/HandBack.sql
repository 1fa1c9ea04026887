-- Gives the jobs of attempts that their worker stopped back to their lanes, in the open segment and under
-- their fences: due as before, with their errors, and the attempt not counted; their lease goes on (H60).
-- Attempts that are not proved to be open, or whose ready row is gone, are left alone.
--
-- $1 to $7: see leaf/named_claims.sql; each attempt once.
--
-- Columns: closed bigint[]: receipts, in no promised order; NULL for none.
with {named_claims},
{held},
proved as materialized (
  select b.claim_slot, b.batch_id, b.ready_slot, b.ready_generation, b.lane_id,
         b.lane_seqs[j.place] as lane_seq, j.job_id, j.run_lease,
         coalesce(b.attempts[j.place], b.attempts[1]) as attempt, b.batch_id + j.place - 1 as receipt_id
{proved}
),
closing as materialized (
  select p.*, r.max_attempts, r.run_at, r.created_at, r.kind, r.args, r.payload, r.unique_key, r.unique_states
    from proved p
   cross join lateral (
     select r.*
       from {schema}.ready_entries r
      where r.ready_slot = p.ready_slot and r.ready_generation = p.ready_generation
        and r.lane_id = p.lane_id and r.lane_seq = p.lane_seq
     offset 0) as r
),
returned as (
  insert into {schema}.ready_entries
         (ready_slot, max_attempts, attempt, ready_generation, lane_id, moved_job_id, run_lease, run_at,
          created_at, kind, args, payload, unique_key, unique_states)
  select s.current_slot, c.max_attempts, c.attempt - 1, s.generation, c.lane_id, c.job_id, c.run_lease,
         c.run_at, c.created_at, c.kind, c.args, c.payload, c.unique_key, c.unique_states
    from closing c
   cross join {schema}.queue_ring_state s
   order by c.lane_id, c.lane_seq
),
closures as (
  insert into {schema}.lease_claim_closures
         (claim_slot, batch_id, receipt_id, ready_slot, ready_generation, closed_at)
  select c.claim_slot, c.batch_id, c.receipt_id, c.ready_slot, c.ready_generation, statement_timestamp()
    from closing c
),
{released},
{forgotten}
select array_agg(receipt_id) as closed from closing
