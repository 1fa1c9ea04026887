-- $1 text: the channel. $2 text[]: payloads.
--
-- A full notification queue fails the transaction that notifies; so a queue that nobody drains is
-- left alone: listeners poll as well (H44).
--
-- A notification is lost with the server that crashes, so nobody waits for the disk; and commits that
-- notify pass one at a time, each with its wait.
select pg_notify($1, w.payload), set_config('synchronous_commit', 'off', true)
  from unnest($2::text[]) as w (payload)
 where (select pg_notification_queue_usage()) < 0.5
