-- Keeps writers out of all done_entries (SHARE) and everyone out of all queue_terminal_count_deltas
-- and of queue_terminal_live_counts (ACCESS EXCLUSIVE) until the transaction ends. A script without
-- an answer; lock_not_available (55P03) where a lock was not to be had in time.
{take_locks}
