//! Drives the machines of awa-core over tokio-postgres.
