-- What each slot of the lease or the claim ring holds, by slot: nothing in them is carried, and any row
-- is dropped by a prune. {first} is the table that a row is written to first.
--
-- Columns as of ObserveLoads.
select s.slot, size.bytes,
       (select true from {schema}.{first} f where f.{ring}_slot = s.slot limit 1) is true as has_droppable,
       0::bigint as droppable_hint, 0::bigint as carried_hint,
       null::timestamptz as newest_fact_at
  from {schema}.{ring}_ring_slots s
 cross join lateral (
   select sum(pg_total_relation_size(to_regclass(format('%I.%I', {schema_name}, t.name || '_' || s.slot))))::bigint
            as bytes
     from (values {tables}) as t (name)) as size
 order by s.slot
