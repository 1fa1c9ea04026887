-- Looks for a receipt of the claim ring's slot that nothing closes; what closes a receipt lies in
-- the same slot (R026-11).
--
-- Columns: held_by bigint or NULL: the smallest such receipt.
with issued (batch_id, receipts) as not materialized (
  select b.batch_id, int8range(b.batch_id, b.batch_id + b.n)
    from {schema}.lease_claim_batches_{slot} b
  union all
  select {batch_of_receipt}, int8range(c.receipt_id, c.receipt_id, '[]')
    from {schema}.lease_claims_{slot} c
),
closed_together (batch_id, receipts) as not materialized (
  select c.batch_id, c.receipts
    from {schema}.lease_claim_closure_batches_{slot} c
),
closed_singly (slot, batch_id, receipt_id) as not materialized (
  select c.claim_slot, c.batch_id, c.receipt_id
    from {schema}.lease_claim_closures_{slot} c
),
{unproved},
{open_receipts}
select lower(receipts) as held_by from open_receipts
