-- Empties the slot's queue_terminal_count_deltas, unless it is empty. After ExcludeDeltas or
-- ExcludeCounters. A script without an answer.
do {quote}
declare
  filled text;
begin
{truncate_filled}
end
{quote}
