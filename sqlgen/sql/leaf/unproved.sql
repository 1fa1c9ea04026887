-- The claims that counting does not prove to be closed: `claims (batch_id, receipts int8range)`, and
-- `closures (batch_id, receipts int8multirange)`, for leaf/open_receipts.sql, which makes a range of each
-- closure and unites them, and so costs ten times as much. Of `issued`, a row a claim;
-- `closed_together (batch_id, receipts)`, a row a closure of several; and `closed_singly (slot, batch_id,
-- receipt_id)`, which has no such row twice, by its table's key; all named before, best NOT MATERIALIZED.
--
-- The count is one of sets: single closures count where they are the claim's own, lie in one slot and are
-- in no other closure; receipts of other closures count as a union. As many as the claim has are all of
-- it, so that a receipt closed twice closes no other (H29).
divided as materialized (
  select i.batch_id, i.receipts
    from issued i
   where not exists (select from closed_together x where x.batch_id = i.batch_id and x.receipts @> i.receipts)
),
merged as materialized (
  select x.batch_id, range_agg(r) as receipts
    from closed_together x
   cross join lateral unnest(x.receipts) as r
   where x.batch_id in (select batch_id from divided)
   group by x.batch_id
),
added as materialized (
  select s.batch_id, count(*) as n, int8range(min(s.receipt_id), max(s.receipt_id), '[]') as span,
         min(s.slot) = max(s.slot) as in_one_slot
    from closed_singly s
    left join merged m on m.batch_id = s.batch_id
   where (m.receipts @> s.receipt_id) is not true
   group by s.batch_id
),
claims (batch_id, receipts) as materialized (
  select p.batch_id, p.receipts
    from divided p
    left join merged m on m.batch_id = p.batch_id
    left join added a on a.batch_id = p.batch_id
   where not coalesce(a.span <@ p.receipts and a.in_one_slot, true)
      or upper(p.receipts) - lower(p.receipts)
         <> coalesce(a.n, 0) + (select coalesce(sum(upper(r) - lower(r)), 0)
                                  from unnest(m.receipts * int8multirange(p.receipts)) as r)
),
closures (batch_id, receipts) as not materialized (
  select x.batch_id, x.receipts
    from closed_together x
  union all
  select s.batch_id, int8multirange(int8range(s.receipt_id, s.receipt_id, '[]'))
    from closed_singly s
)
