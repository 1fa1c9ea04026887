//! Drives the machines of `awa-core` over tokio-postgres: sends steps, decodes replies, and nothing else.

mod decode;
