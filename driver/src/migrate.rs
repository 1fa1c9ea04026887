//! Applies the migrations: one transaction, one connection, one migrator at a time.

use awa_core::SchemaName;
use awa_migrations as migrations;
use tokio_postgres::{Client, Transaction};

use crate::error::{Error, Mismatch};

/// What a migration did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migrated {
    /// The version before; `None` where there was no installation.
    pub from: Option<u32>,
    /// The version now.
    pub to: u32,
    /// Versions that were applied, ascending.
    pub applied: Vec<u32>,
}

/// Brings `schema` to the version of this build. Safe to call from many processes at once: one
/// migrates, the others wait and find nothing to do (H53). A cancelled call leaves nothing behind.
///
/// # Errors
/// [`Error::as_mismatch`]: the server is too old, the schema newer or altered; nothing is written then.
pub async fn migrate(client: &mut Client, schema: &SchemaName) -> Result<Migrated, Error> {
    let doing = |e| Error::postgres(format!("migrate schema {:?}", schema.as_str()), e);
    let transaction = client.transaction().await.map_err(doing)?;
    transaction.batch_execute(&migrations::lock(schema.as_str())).await.map_err(doing)?;
    let found = observe(&transaction, schema).await?;
    let mut applied = Vec::new();
    if !found.schema_exists {
        let sql = migrations::create_schema(schema.as_str());
        transaction.batch_execute(&sql).await.map_err(doing)?;
    }
    if found.version.is_none() {
        let sql = migrations::bootstrap(schema.as_str());
        transaction.batch_execute(&sql).await.map_err(doing)?;
    }
    let ahead = migrations::MIGRATIONS.iter().filter(|m| Some(m.version) > found.version);
    for migration in ahead {
        transaction.batch_execute(&migration.sql(schema.as_str())).await.map_err(doing)?;
        transaction.batch_execute(&migration.record(schema.as_str())).await.map_err(doing)?;
        applied.push(migration.version);
    }
    transaction.commit().await.map_err(doing)?;
    Ok(Migrated { from: found.version, to: migrations::LATEST, applied })
}

/// Checks that `schema` is at the version of this build, without writing.
///
/// # Errors
/// [`Error::as_user_error`]: there is no installation; [`Error::as_mismatch`]: it doesn't fit.
pub async fn check(client: &mut Client, schema: &SchemaName) -> Result<(), Error> {
    let doing = |e| Error::postgres(format!("check schema {:?}", schema.as_str()), e);
    let transaction = client.build_transaction().read_only(true).start().await.map_err(doing)?;
    let found = observe(&transaction, schema).await?;
    transaction.rollback().await.map_err(doing)?;
    let name = schema.as_str().to_owned();
    match found.version {
        Some(migrations::LATEST) => Ok(()),
        Some(found) => Err(Error::installation(Mismatch::SchemaOlder {
            schema: name,
            found,
            needed: migrations::LATEST,
        })),
        None => Err(awa_core::UserError::UnknownSchema { schema: name }.into()),
    }
}

/// Drops the installation in `schema` and the schema with all else that is in it: for tests and
/// demonstrations. A schema that holds no installation is left alone.
///
/// # Errors
/// [`Error::as_user_error`]: there is no installation; or PostgreSQL's.
pub async fn drop_installation(client: &Client, schema: &SchemaName) -> Result<(), Error> {
    let found = client.query_one(&migrations::installed(schema.as_str()), &[]).await;
    let found =
        found.map_err(|e| Error::postgres(format!("observe schema {:?}", schema.as_str()), e))?;
    let installed: bool = found.get(2);
    if !installed {
        let schema = schema.as_str().to_owned();
        return Err(awa_core::UserError::UnknownSchema { schema }.into());
    }
    let dropped = client.batch_execute(&migrations::drop_schema(schema.as_str())).await;
    dropped.map_err(|e| Error::postgres(format!("drop schema {:?}", schema.as_str()), e))
}

struct Found {
    schema_exists: bool,
    version: Option<u32>,
}

/// Reads what is there and refuses what this build must not touch.
async fn observe(transaction: &Transaction<'_>, schema: &SchemaName) -> Result<Found, Error> {
    let name = schema.as_str();
    let doing = |e| Error::postgres(format!("observe schema {name:?}"), e);
    let row = transaction.query_one(&migrations::installed(name), &[]).await.map_err(doing)?;
    let version_num: i32 = row.get(0);
    if version_num < migrations::SERVER_VERSION_MIN {
        let min = migrations::SERVER_VERSION_MIN;
        return Err(Error::installation(Mismatch::ServerTooOld { version_num, min }));
    }
    let encoding: String = row.get(3);
    if encoding != "UTF8" {
        return Err(Error::installation(Mismatch::Encoding { found: encoding }));
    }
    let (schema_exists, installed): (bool, bool) = (row.get(1), row.get(2));
    if !installed {
        return Ok(Found { schema_exists, version: None });
    }
    let rows = transaction.query(&migrations::applied(name), &[]).await.map_err(doing)?;
    let mut version = 0;
    for row in rows {
        let (applied, sum): (i32, String) = (row.get(0), row.get(1));
        version = applied.cast_unsigned();
        match migrations::MIGRATIONS.iter().find(|m| m.version == version) {
            Some(known) if known.checksum() == sum => {}
            Some(_) => {
                let schema = name.to_owned();
                return Err(Error::installation(Mismatch::Checksum { schema, version }));
            }
            None => {
                return Err(Error::installation(Mismatch::SchemaNewer {
                    schema: name.to_owned(),
                    found: version,
                    known: migrations::LATEST,
                }));
            }
        }
    }
    Ok(Found { schema_exists, version: Some(version) })
}
