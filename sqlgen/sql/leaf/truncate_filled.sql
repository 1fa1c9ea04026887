-- An empty child is left alone: TRUNCATE would give it new files and the catalog dead rows (H42).
-- {children}: place, table; in the registry's order. plpgsql with a variable `filled text`.
select string_agg(format('%I.%I', {schema_name}, c.name), ', ' order by c.place) into filled
  from (values {children}) as c (place, name)
 where pg_relation_size(format('%I.%I', {schema_name}, c.name)::regclass) > 0;
if filled is not null then
  execute 'truncate table ' || filled;
end if;
