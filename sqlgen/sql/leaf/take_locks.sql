-- Takes table locks one after another within {timeout_ms} altogether, and leaves the transaction's
-- lock_timeout as it was. {locks}: place, table, mode; in the registry's order.
do {quote}
declare
  before  text := current_setting('lock_timeout');
  ends_at timestamptz := clock_timestamp() + interval '{timeout_ms} ms';
  wanted  record;
begin
  for wanted in select * from (values {locks}) as w (place, name, mode) order by w.place loop
    -- 0 would wait for ever.
    perform set_config('lock_timeout',
      greatest(1, ceil(extract(epoch from ends_at - clock_timestamp()) * 1000))::bigint || 'ms', true);
    execute format('lock table only %I.%I in %s mode', {schema_name}, wanted.name, wanted.mode);
  end loop;
  perform set_config('lock_timeout', before, true);
end
{quote}
