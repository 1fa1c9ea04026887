-- Keeps everyone out of the slot's queue_terminal_count_deltas (ACCESS EXCLUSIVE) until the
-- transaction ends. A script without an answer; lock_not_available (55P03) in time.
{take_locks}
