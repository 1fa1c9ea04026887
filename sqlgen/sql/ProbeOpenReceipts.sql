-- Looks for a receipt for a ready row of the queue slot that nothing closes (R026-13).
--
-- $1 int: the queue slot.
-- Columns: held_by bigint or NULL: the smallest such receipt.
with issued (batch_id, receipts) as not materialized (
  select b.batch_id, int8range(b.batch_id, b.batch_id + b.n)
    from {schema}.lease_claim_batches b
   where b.ready_slot = $1
  union all
  select {batch_of_receipt}, int8range(c.receipt_id, c.receipt_id, '[]')
    from {schema}.lease_claims c
   where c.ready_slot = $1
),
closed_together (batch_id, receipts) as not materialized (
  select c.batch_id, c.receipts
    from {schema}.lease_claim_closure_batches c
   where c.ready_slot = $1
),
closed_singly (slot, batch_id, receipt_id) as not materialized (
  select c.claim_slot, c.batch_id, c.receipt_id
    from {schema}.lease_claim_closures c
   where c.ready_slot = $1
),
{unproved},
{open_receipts}
select lower(receipts) as held_by from open_receipts
