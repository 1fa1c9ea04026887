-- Keeps jobs until their run_at. A job is called by a number of the sequence that positions come from.
-- $1 bigint[]: lanes. $2 text[]: kinds. $3 jsonb[]: args. $4 smallint[]: attempts given.
-- $5 jsonb[]: payloads or NULL. $6 timestamptz[]: when they are due.
--
-- Columns: job_id bigint; ascending is the order of the jobs.
insert into {schema}.deferred_jobs (job_id, lane_id, run_at, state, kind, args, max_attempts, payload)
select nextval({position_seq}), j.*
  from (select j.lane_id, j.run_at, 'scheduled', j.kind, j.args, j.max_attempts, j.payload
          from unnest($1::bigint[], $2::text[], $3::jsonb[], $4::smallint[], $5::jsonb[], $6::timestamptz[])
               with ordinality as j (lane_id, kind, args, max_attempts, payload, run_at, place)
         order by j.place) as j
returning job_id
