-- What is spent of a lane, l.lane_id, whose positions up to l.low are: an int8multirange. Each row of
-- evidence says up to where its lane is spent for good, and of what lies below the highest of these
-- nothing else need be read. Through unnest, because range_agg takes multiranges only since PostgreSQL 15.
(with near as materialized (
   select e.last_seq, e.spent_to, e.ranges
     from {schema}.ready_claim_attempt_batches e
    where e.lane_id = l.lane_id and e.last_seq > l.low
 ), spent_floor as materialized (
   select greatest(l.low, (select max(n.spent_to) from near n)) as position
 )
 select coalesce(range_agg(e.range), '{}') + int8multirange(int8range(1, (select position from spent_floor) + 1))
   from (select unnest(n.ranges) as range
           from near n
          where n.last_seq > (select position from spent_floor)) as e)
