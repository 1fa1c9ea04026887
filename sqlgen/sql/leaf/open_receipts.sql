-- The receipts that nothing closes: `open_receipts`, one row with one column `receipts int8multirange`.
-- Of `claims (batch_id, receipts int8range)` and `closures (batch_id, receipts int8multirange)`, named
-- before; a closure bears the batch of what it closes. By sets, so that a receipt closed twice closes no
-- other (H29). Most claims are closed whole by one closure, and containment proves that cheaper than
-- a union does. Both are best NOT MATERIALIZED: then that is one hash join of two scans.
partly as materialized (
  select c.batch_id, c.receipts
    from claims c
   where not exists (select from closures x where x.batch_id = c.batch_id and x.receipts @> c.receipts)
),
open_receipts as materialized (
  select coalesce((select range_agg(p.receipts) from partly p), '{}')
       - coalesce((select range_agg(r)
                     from closures x
                    cross join lateral unnest(x.receipts) as r
                    where x.batch_id in (select batch_id from partly)), '{}') as receipts
)
