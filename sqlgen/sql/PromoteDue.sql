-- Moves due jobs to fresh positions in their lanes, oldest run_at first; rows that another promotion
-- holds are stepped over. $1 bigint: jobs at most.
--
-- Columns: job_id bigint, lane_id bigint; in the order of their new positions.
--
-- Rows are deleted by their place in the table, which can't change while this transaction holds
-- them. BETWEEN makes the planner expect few, so that it keeps to the index. It is planned each time:
-- what is right while nothing is deferred reads a hundred thousand rows for each promoted one later.
with due as materialized (
  delete from {schema}.deferred_jobs d
   where d.ctid = any (array(select c.ctid
                               from {schema}.deferred_jobs c
                              where c.run_at between '-infinity' and now()
                              order by c.run_at, c.job_id
                              limit $1
                                for update skip locked))
  returning d.*
),
promoted as (
  insert into {schema}.ready_entries
         (ready_slot, ready_generation, lane_id, moved_job_id, run_lease, attempt, max_attempts, run_at,
          created_at, kind, args, payload, unique_key, unique_states)
  select (select current_slot from {schema}.queue_ring_state),
         (select generation from {schema}.queue_ring_state),
         d.lane_id, d.job_id, d.run_lease, d.attempt, d.max_attempts, d.run_at, d.created_at, d.kind, d.args,
         d.payload, d.unique_key, d.unique_states
    from due d
   order by d.run_at, d.job_id
  returning job_id, lane_id, lane_seq
)
select job_id, lane_id from promoted order by lane_seq
