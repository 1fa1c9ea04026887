-- $1 text: the channel. $2 text[]: payloads.
--
-- A full notification queue fails the transaction that notifies; so a queue that nobody drains is
-- left alone: listeners poll as well (H44).
select pg_notify($1, w.payload)
  from unnest($2::text[]) as w (payload)
 where (select pg_notification_queue_usage()) < 0.5
