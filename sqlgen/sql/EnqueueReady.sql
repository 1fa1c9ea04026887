-- The same as EnqueueReadyOne for several jobs; positions ascend in their order.
-- $1 bigint[]: lanes. $2 text[]: kinds. $3 jsonb[]: args. $4 smallint[]: attempts given.
-- $5 jsonb[]: payloads or NULL.
--
-- Columns: job_id bigint; ascending is the order of the jobs.
insert into {schema}.ready_entries
       (ready_slot, ready_generation, lane_id, kind, args, max_attempts, payload)
select (select current_slot from {schema}.queue_ring_state),
       (select generation from {schema}.queue_ring_state),
       j.lane_id, j.kind, j.args, j.max_attempts, j.payload
  from unnest($1::bigint[], $2::text[], $3::jsonb[], $4::smallint[], $5::jsonb[]) with ordinality
       as j (lane_id, kind, args, max_attempts, payload, place)
 order by j.place
returning job_id
