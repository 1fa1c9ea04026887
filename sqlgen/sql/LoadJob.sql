-- A whole job, wherever it is (R026-03). A narrow terminal row whose ready row is gone comes with
-- max_attempts, run_at and created_at NULL: the reader reports it.
--
-- $1 bigint: the job.
-- Columns, in one row or none: job_id bigint, state text, queue text, priority smallint,
-- enqueue_shard smallint, kind text, attempt smallint, run_lease bigint, max_attempts smallint,
-- run_at timestamptz, created_at timestamptz, attempted_at timestamptz, finalized_at timestamptz,
-- args jsonb, payload jsonb.
with {job_place}
select $1::bigint as job_id, p.state, l.queue, l.priority, l.enqueue_shard,
       coalesce(d.kind, w.kind, r.kind) as kind, p.attempt, p.run_lease,
       coalesce(d.max_attempts, w.max_attempts, r.max_attempts) as max_attempts,
       coalesce(d.run_at, w.run_at, r.run_at) as run_at,
       coalesce(d.created_at, w.created_at, r.created_at) as created_at,
       p.attempted_at, p.finalized_at,
       coalesce(d.args, w.args, r.args) as args,
       case when p.place = 'deferred' then w.payload
            when d.args is not null then d.payload
            else coalesce(d.payload, r.payload) end as payload
  from place p
  join {schema}.queue_lanes l on l.lane_id = p.lane_id
  left join terminal d on p.place = 'terminal'
  left join {schema}.deferred_jobs w on p.place = 'deferred' and w.job_id = $1
  left join lateral (select r.*
                       from {schema}.ready_entries r
                      where r.ready_slot = p.ready_slot and r.ready_generation = p.ready_generation
                        and r.lane_id = p.lane_id and r.lane_seq = p.lane_seq and d.args is null
                     offset 0) as r on true
