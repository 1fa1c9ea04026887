-- Ring children have no statistics, so estimates are large: without the two settings PostgreSQL would
-- compile statements, or start workers for them, at many times their cost. Both end with the transaction.
begin isolation level read committed; set local jit = off; set local max_parallel_workers_per_gather = 0
