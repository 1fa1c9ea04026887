-- The batch of a receipt that lease_claims holds by itself, called c: receipts are numbered from their
-- batch on, and batches lie 4096 apart.
c.receipt_id - c.receipt_id % 4096
