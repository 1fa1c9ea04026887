-- Takes the cursor of the {ring} ring until the transaction ends; prune and rotate exclude one
-- another through it (R032-13). Waits.
--
-- Columns: current_slot int, generation bigint.
select current_slot, generation from {schema}.{ring}_ring_state for update
