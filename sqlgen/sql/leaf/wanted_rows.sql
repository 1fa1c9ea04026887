-- The rows of retryable history that $1 bigint[] (jobs), $2 bigint[] (lanes) and $3 bigint[]
-- (positions) name, wherever they lie now: `wanted`, with the row's body where it has one. Nothing
-- that exists fails the first three conditions, and no position is taken twice: they and LIMIT tell
-- the planner to expect one row, so that it probes for each, whatever it takes the children's size to be.
wanted as materialized (
  select d.ready_slot, d.ready_generation, d.lane_id, d.lane_seq, d.job_id,
         coalesce(d.args, r.args) as args, coalesce(d.max_attempts, r.max_attempts) as max_attempts,
         coalesce(d.created_at, r.created_at) as created_at,
         case when d.args is null then coalesce(d.payload, r.payload) else d.payload end as payload,
         coalesce(d.unique_key, r.unique_key) as unique_key,
         coalesce(d.unique_states, r.unique_states) as unique_states
    from (select distinct named.* from unnest($1::bigint[], $2::bigint[], $3::bigint[]) as named (job_id, lane_id, lane_seq)
           where named.job_id >= 0 and named.lane_id >= 0 and named.lane_seq >= 0) as n
   cross join lateral (select d.*
                         from {schema}.done_entries d
                        where d.job_id = n.job_id and d.lane_id = n.lane_id and d.lane_seq = n.lane_seq
                        limit 1) as d
    left join lateral (select r.args, r.max_attempts, r.created_at, r.payload, r.unique_key, r.unique_states
                         from {schema}.ready_entries r
                        where r.ready_slot = d.ready_slot and r.ready_generation = d.ready_generation
                          and r.lane_id = d.lane_id and r.lane_seq = d.lane_seq
                        limit 1) as r on d.args is null
)
