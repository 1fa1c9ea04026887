-- Retryable history that fits, oldest job first. A spelling for each kind of filter.
--
-- $1: the filter's value. $2 bigint: only jobs beyond this one, NULL for all. $3 bigint: rows at most.
-- Columns: job_id bigint, lane_id bigint, lane_seq bigint.

-- [job] $1 bigint. Failed or cancelled.
select d.job_id, d.lane_id, d.lane_seq
  from {schema}.done_entries d
 where d.job_id = $1 and d.job_id > coalesce($2::bigint, 0) and d.state in ('failed', 'cancelled')
 order by d.job_id, d.lane_id, d.lane_seq
 limit $3

-- [kind] $1 text. Failed.
select d.job_id, d.lane_id, d.lane_seq
  from {schema}.done_entries d
 where d.kind = $1 and d.job_id > coalesce($2::bigint, 0) and d.state = 'failed'
 order by d.job_id, d.lane_id, d.lane_seq
 limit $3

-- [queue] $1 text. Failed.
select d.job_id, d.lane_id, d.lane_seq
  from {schema}.done_entries d
 where d.lane_id = any (array(select l.lane_id from {schema}.queue_lanes l where l.queue = $1))
   and d.job_id > coalesce($2::bigint, 0) and d.state = 'failed'
 order by d.job_id, d.lane_id, d.lane_seq
 limit $3
