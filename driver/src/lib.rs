//! Drives the machines of `awa-core` over tokio-postgres: sends steps, decodes replies, and decides
//! nothing. Another driver is anything else that turns a step into a reply.

mod connect;
mod decode;
mod error;
mod flush;
pub mod leadership;
pub mod listen;
mod migrate;
mod pool;
mod session;

pub use awa_core as core;
pub use awa_sqlgen::Sql;
pub use error::{Error, Mismatch};
pub use migrate::{Migrated, check, drop_installation, migrate};
pub use pool::{Connector, Era, Held, Sessions};
pub use session::{Embedded, Session, Statements};
pub use tokio_postgres;

/// Everything that a migration of an empty database runs, as text.
#[must_use]
pub fn migration_script(schema: &awa_core::SchemaName) -> String {
    awa_migrations::script(schema.as_str())
}
