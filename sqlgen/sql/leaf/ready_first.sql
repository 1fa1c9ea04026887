-- Locks the children of ready_entries before a statement comes to their evidence, which is the order
-- in which prune locks them (registry). Reads nothing: the value is known when execution begins, no
-- slot has it, and now() keeps the planner from seeing that; LIMIT keeps its guess of the cost down.
-- Must be referred to, or it is dropped.
ready_first as materialized (
  select from {schema}.ready_entries r where r.ready_slot = case when now() is null then 0 else -1 end limit 1
)
