-- Makes what is missing of a queue and its lanes, a lane for each priority and shard. Fewer shards
-- than there are change nothing: jobs may lie there.
-- $1 text: the queue. $2 smallint: its shards. $3 smallint: the last priority.
--
-- Columns: lane_id bigint, priority smallint, enqueue_shard smallint; by priority and shard.
--
-- What was there when the statement began is left untouched. What another session has made since
-- collides and is updated to itself: only so does RETURNING tell of it. Through arrays, because the
-- planner takes a series to be so long that the server would compile the statement.
with queue as (
  insert into {schema}.queues as q (queue, shards)
  select $1::text, $2::smallint
   where not exists (select from {schema}.queues p where p.queue = $1::text and p.shards >= $2::smallint)
      on conflict (queue) do update set shards = greatest(q.shards, excluded.shards)
  returning q.queue
),
made as (
  insert into {schema}.queue_lanes as l (queue, priority, enqueue_shard)
  select $1::text, p.priority, s.shard
    from unnest(array(select generate_series(1, $3::smallint))) as p (priority)
   cross join unnest(array(select generate_series(0, $2::smallint - 1))) as s (shard)
   where not exists (select from {schema}.queue_lanes o
                     where o.queue = $1::text and o.priority = p.priority and o.enqueue_shard = s.shard)
   order by p.priority, s.shard
      on conflict (queue, priority, enqueue_shard) do update set queue = excluded.queue
  returning l.lane_id, l.priority, l.enqueue_shard
)
select lane_id, priority, enqueue_shard from made
 union all
select lane_id, priority, enqueue_shard from {schema}.queue_lanes where queue = $1::text
 order by priority, enqueue_shard
