-- The {ring} ring and the clock, a row a slot, by slot.
--
-- Columns: now timestamptz, current_slot int, current_generation bigint, slot int, generation bigint,
-- state text, opened_at timestamptz, sealed_at timestamptz or NULL.
select statement_timestamp() as now, c.current_slot, c.generation as current_generation,
       s.slot, s.generation, s.state, s.opened_at, s.sealed_at
  from {schema}.{ring}_ring_state c
 cross join {schema}.{ring}_ring_slots s
 order by s.slot
