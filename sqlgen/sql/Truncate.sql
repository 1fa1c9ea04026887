-- Empties all children of one slot of the {ring} ring, those that hold nothing left alone, and for
-- the queue ring forgets the slot's folded counters (R026-20). After Exclude. A script without an
-- answer.
do {quote}
declare
  filled text;
begin
{truncate_filled}
  if '{ring}' = 'queue' then
    delete from {schema}.queue_terminal_live_counts where ready_slot = {slot};
  end if;
end
{quote}
