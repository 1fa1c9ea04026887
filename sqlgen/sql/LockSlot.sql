-- Takes one slot's row of the {ring} ring until the transaction ends (R032-14). Waits.
--
-- $1 int: the slot.
-- Columns: slot int.
select slot from {schema}.{ring}_ring_slots where slot = $1 for update
