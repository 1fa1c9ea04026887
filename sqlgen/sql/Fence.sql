-- Takes the fences of claims for the rest of the transaction, in the order of $1; waits.
-- $1 int[]: the claims' keys, ascending, so that two exits never wait for one another. Two claims
-- with one key only wait for each other's exits. Two-key locks never meet lanes' locks (LockLane.sql).
select pg_advisory_xact_lock({lock_class}, f.key) from unnest($1::int[]) as f (key)
