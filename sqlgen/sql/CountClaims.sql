-- Counts the claims of the claim ring's slot, open or not: rows of claims, so one for up to 4096 attempts,
-- however those ended.
--
-- Columns: claims bigint.
select (select count(*) from {schema}.lease_claim_batches_{slot})
     + (select count(*) from {schema}.lease_claims_{slot}) as claims
