-- Seals the open segment of the {ring} ring, opens a pruned slot as the next segment, and moves the
-- cursor.
--
-- $1 int, $2 bigint: slot and generation to seal. $3 int, $4 bigint: slot to open, its new generation.
-- Columns: exact boolean: all three rows were as expected.
with sealed as (
  update {schema}.{ring}_ring_slots
     set state = 'sealed', sealed_at = statement_timestamp()
   where slot = $1 and generation = $2 and state = 'open'
  returning 1
), opened as (
  update {schema}.{ring}_ring_slots
     set state = 'open', generation = $4, opened_at = statement_timestamp()
   where slot = $3 and generation < $4 and state = 'pruned'
  returning 1
), moved as (
  update {schema}.{ring}_ring_state
     set current_slot = $3, generation = $4
   where current_slot = $1 and generation = $2
  returning 1
)
select (select count(*) from sealed) = 1
   and (select count(*) from opened) = 1
   and (select count(*) from moved) = 1 as exact
