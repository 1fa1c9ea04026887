-- $1 text: the queue.
--
-- Columns: lane_id bigint, priority smallint, enqueue_shard smallint; by priority and shard.
select lane_id, priority, enqueue_shard
  from {schema}.queue_lanes
 where queue = $1
 order by priority, enqueue_shard
