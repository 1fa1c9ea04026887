-- Where a job is.
--
-- $1 bigint: the job.
-- Columns, in one row or none: job_id bigint, place text ('ready', 'deferred', 'running', 'compact', 'terminal'),
-- state text, ready_slot int, lane_id bigint, lane_seq bigint; slot and position are NULL for 'deferred'.
with {job_place}
select $1::bigint as job_id, p.place, p.state, p.ready_slot, p.lane_id, p.lane_seq from place p
