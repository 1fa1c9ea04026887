-- The slots of the queue ring that have pending deltas, the open one included, ascending (R026-24).
--
-- Columns: slot int.
select s.slot
  from {schema}.queue_ring_slots s
 where (select true from {schema}.queue_terminal_count_deltas d where d.ready_slot = s.slot limit 1)
 order by s.slot
