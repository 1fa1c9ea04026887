-- Writes the state 'pruned' over 'sealed' in the {ring} ring (law 6 of docs/LAWS.md).
--
-- $1 int: the slot.
-- Columns: exact boolean: the slot was there, and sealed.
with marked as (
  update {schema}.{ring}_ring_slots
     set state = 'pruned', sealed_at = null
   where slot = $1 and state = 'sealed'
  returning 1
)
select count(*) = 1 as exact from marked
