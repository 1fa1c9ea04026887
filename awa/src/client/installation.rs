//! Installations as a whole: made, found, held, dropped; and a connection of one's own to them.

use awa_driver::core::SchemaName;
use awa_driver::leadership::Leadership;
use awa_driver::tokio_postgres;
use awa_driver::{Connector, Error, Migrated, Sql};

/// A connection of one's own, for transactions that [`crate::Client::enqueue_in`] is to be a part of: made as
/// [`crate::Client::connect`] makes its own, without TLS, and driven by a task that ends with it.
///
/// # Errors
/// The text is no connection string; the server can't be reached or refuses. The error names the
/// server.
pub async fn connect(url: &str) -> Result<tokio_postgres::Client, Error> {
    Connector::without_tls(url)?.connect().await
}

/// Brings the schema to the version of this build; see [`awa_driver::migrate()`].
///
/// # Errors
/// The server can't be reached or is too old, the schema is newer or its name is no name.
pub async fn migrate(url: &str, schema: &str) -> Result<Migrated, Error> {
    let schema = SchemaName::new(schema)?;
    awa_driver::migrate(&mut connect(url).await?, &schema).await
}

/// Drops an installation and its schema, with all else that is in it: for tests and demonstrations.
///
/// # Errors
/// The schema holds no installation; the server can't be reached or refuses.
pub async fn drop_installation(url: &str, schema: &SchemaName) -> Result<(), Error> {
    awa_driver::drop_installation(&connect(url).await?, schema).await
}

/// The schemas of the database that hold an installation, of any version, and whose names begin with
/// `prefix`.
///
/// # Errors
/// The server can't be reached or refuses.
pub async fn installations(url: &str, prefix: &str) -> Result<Vec<SchemaName>, Error> {
    let found = connect(url).await?.query(Sql::installations(), &[&prefix]).await;
    let found = found.map_err(|e| Error::postgres("look for installations", e))?;
    found.iter().map(|row| Ok(SchemaName::new(row.get(0))?)).collect()
}

/// The right to lead an installation, taken without leading it: while it is held no [`crate::Worker`] and
/// no [`crate::MaintenanceService`] does maintenance there. The server takes it back as soon as this
/// value, or the process, is gone, so it also says that the process lives.
pub struct Hold {
    _leadership: Leadership,
}

/// Takes the right to lead the installation in `schema`, also before there is one. `None`: another
/// session has it.
///
/// # Errors
/// The server can't be reached or refuses.
pub async fn hold(url: &str, schema: &SchemaName) -> Result<Option<Hold>, Error> {
    let connector = Connector::without_tls(url)?;
    let held = Leadership::try_acquire(&connector, &Sql::new(schema.clone())).await?;
    Ok(held.map(|leadership| Hold { _leadership: leadership }))
}
