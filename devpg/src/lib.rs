//! Finds or fetches a PostgreSQL server and runs a private one.
