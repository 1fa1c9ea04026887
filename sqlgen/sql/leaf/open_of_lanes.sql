-- The receipts of `lanes (lane_id)` that nothing closes: see leaf/open_receipts.sql. The condition on
-- closures, which each fulfils, keeps them behind the claims in the order of locks: members of a union
-- without a condition become part of the query around it, and are locked first.
claims (batch_id, receipts) as not materialized (
  select b.batch_id, int8range(b.batch_id, b.batch_id + b.n)
    from {schema}.lease_claim_batches b
   where b.lane_id in (select lane_id from lanes)
   union all
  select {batch_of_receipt}, int8range(c.receipt_id, c.receipt_id, '[]')
    from {schema}.lease_claims c
   where c.lane_id in (select lane_id from lanes)
),
closures (batch_id, receipts) as not materialized (
  select x.batch_id, x.receipts
    from {schema}.lease_claim_closure_batches x
   where x.batch_id >= 0
   union all
  select x.batch_id, int8multirange(int8range(x.receipt_id, x.receipt_id, '[]'))
    from {schema}.lease_claim_closures x
   where x.batch_id >= 0
),
{open_receipts}
