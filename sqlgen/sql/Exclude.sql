-- Keeps everyone out of all children of one slot of a ring (ACCESS EXCLUSIVE) until the transaction
-- ends (R032-14). A script without an answer; lock_not_available (55P03) where a lock was not to be
-- had in time.
{take_locks}
