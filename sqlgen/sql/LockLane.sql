-- Takes the lane for the rest of the transaction; waits. $1 bigint: the lane.
--
-- Advisory locks of one key and of two keys never meet. Lanes use one key, 64 bits: the
-- installation's class above, the lane below; fences use two (Fence.sql). Whatever else in the
-- database uses the same number costs waiting and nothing more.
select pg_advisory_xact_lock(({lock_class}::bigint << 32) | ($1::bigint & 4294967295))
