//! Leadership is a session lock on a connection of its own: the one session state that the engine
//! allows itself. It saves work; it is not what makes maintenance safe.

use awa_sqlgen::Sql;
use tokio_postgres::Client;

use crate::error::Error;
use crate::pool::Connector;

/// Leadership, held until it is dropped or its connection is lost.
pub struct Leadership {
    client: Client,
    sql: Sql,
}

impl Leadership {
    /// Tries to lead, without waiting. `None`: another process leads.
    ///
    /// # Errors
    /// The server can't be reached or refuses.
    pub async fn try_acquire(connector: &Connector, sql: &Sql) -> Result<Option<Self>, Error> {
        let client = connector.connect().await?;
        let row = client.query_one(&sql.try_lead(), &[]).await;
        let row = row.map_err(|e| Error::postgres("try to lead", e))?;
        Ok(row.get::<_, bool>(0).then(|| Self { client, sql: sql.clone() }))
    }

    /// Whether the lock's session lives and holds it.
    pub async fn confirm(&self) -> bool {
        match self.client.query_one(&self.sql.leads(), &[]).await {
            Ok(row) => row.get(0),
            Err(error) => {
                tracing::debug!(%error, "leadership is lost");
                false
            }
        }
    }
}
