-- Takes jobs in binary format: columns as named. Position, run_at and created_at come by default.
-- What follows COPY's own row format is built in render/enqueue.rs.
copy {schema}.ready_entries (ready_slot, max_attempts, ready_generation, lane_id, kind, args, payload)
from stdin (format binary)
