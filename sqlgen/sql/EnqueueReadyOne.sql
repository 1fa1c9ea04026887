-- Appends one job to its lane in the open segment, which may be stale. The column's default draws
-- the transaction's id, then the position (law 3 of visibility).
-- $1 bigint: the lane. $2 text: the kind. $3 jsonb: args. $4 smallint: attempts given.
-- $5 jsonb: payload or NULL.
--
-- Columns: job_id bigint.
insert into {schema}.ready_entries
       (ready_slot, ready_generation, lane_id, kind, args, max_attempts, payload)
select s.current_slot, s.generation, $1, $2, $3, $4, $5
  from {schema}.queue_ring_state s
returning job_id
