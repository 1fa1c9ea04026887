-- Keeps writers out of the slot's ready_entries, receipt_completion_tombstones and done_entries
-- (SHARE) until the transaction ends; readers and claims go on. A script without an answer;
-- lock_not_available (55P03) where a lock was not to be had in time.
{take_locks}
