-- Inserts a wide copy of every failure of the slot that lies inside the floor into the segment given,
-- each at its own position, and its delta with it (R032-03 to R032-05). A narrow row without its body
-- stays out: SurveyTerminal counts it first. No ON CONFLICT: a collision is loud (R032-04).
--
-- $1 timestamptz: the cutoff. $2 int, $3 bigint: slot and generation to carry to.
-- Columns, both bigint: rows inserted; deltas: their sum.
with carried as (
  insert into {schema}.done_entries
         (ready_slot, attempt, max_attempts, ready_generation, lane_id, lane_seq, job_id, run_lease,
          attempted_at, finalized_at, run_at, created_at, state, kind, args, payload, unique_key,
          unique_states)
  select $2, d.attempt, coalesce(d.max_attempts, r.max_attempts), $3, d.lane_id, d.lane_seq, d.job_id,
         d.run_lease, d.attempted_at, d.finalized_at, coalesce(d.run_at, r.run_at),
         coalesce(d.created_at, r.created_at), d.state, d.kind, coalesce(d.args, r.args),
         case when d.args is null then coalesce(d.payload, r.payload) else d.payload end,
         coalesce(d.unique_key, r.unique_key), coalesce(d.unique_states, r.unique_states)
    from {schema}.done_entries_{slot} d
    -- OFFSET keeps this a probe a row: as a join it could become a scan of all ready rows.
    left join lateral (
      select r.max_attempts, r.run_at, r.created_at, r.args, r.payload, r.unique_key, r.unique_states
        from {schema}.ready_entries_{slot} r
       where r.ready_generation = d.ready_generation and r.lane_id = d.lane_id and r.lane_seq = d.lane_seq
      offset 0) as r on d.args is null
   where {is_carried} and (d.args is not null or r.args is not null)
  returning ready_slot, ready_generation, lane_id, job_id, state
), appended as (
  insert into {schema}.queue_terminal_count_deltas
         (ready_slot, counter_bucket, ready_generation, lane_id, delta, state)
  select d.ready_slot, {counter_bucket}, d.ready_generation, d.lane_id, count(*), d.state
    from carried d
   group by 1, 2, 3, 4, 6
  returning delta
)
select (select count(*) from carried) as rows,
       (select coalesce(sum(delta), 0)::bigint from appended) as deltas
