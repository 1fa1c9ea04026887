-- The open segment, without a lock: stale as soon as it is read, which is legal.
--
-- Columns: slot int, generation bigint.
select current_slot as slot, generation from {schema}.queue_ring_state
