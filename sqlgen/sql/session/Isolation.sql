-- Columns: the isolation level of the transaction, in PostgreSQL's words.
show transaction_isolation
