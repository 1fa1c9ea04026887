-- How many failures of the queue left the ring past the floor, ever (R032-08).
--
-- $1 text: the queue.
-- Columns: pruned_failed bigint, in one row; no row if the queue was never declared.
select (select coalesce(sum(r.pruned_failed_count), 0)::bigint
          from {schema}.queue_terminal_rollups r
          join {schema}.queue_lanes l on l.lane_id = r.lane_id
         where l.queue = q.queue) as pruned_failed
  from {schema}.queues q
 where q.queue = $1
