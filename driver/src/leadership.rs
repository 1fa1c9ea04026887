//! Leadership is a session lock on a connection of its own: the one session state that the engine
//! allows itself. It saves work; it is not what makes maintenance safe.

use awa_sqlgen::Sql;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_postgres::{Client, Notification};

use crate::error::Error;
use crate::pool::Connector;

/// Leadership, held until it is dropped or its connection is lost.
pub struct Leadership {
    client: Client,
    sql: Sql,
    /// Nothing is listened to: it ends with the connection.
    ends: UnboundedReceiver<Notification>,
}

impl Leadership {
    /// Tries to lead, without waiting. `None`: another process leads.
    ///
    /// # Errors
    /// The server can't be reached or refuses.
    pub async fn try_acquire(connector: &Connector, sql: &Sql) -> Result<Option<Self>, Error> {
        let (client, ends) = connector.connect_listening().await?;
        let row = client.query_one(&sql.try_lead(), &[]).await;
        let row = row.map_err(|e| Error::postgres("try to lead", e))?;
        Ok(row.get::<_, bool>(0).then(|| Self { client, sql: sql.clone(), ends }))
    }

    /// Waits until the connection, and with it the lock, is known to be lost: at once when the server
    /// ends it. One that has gone dead without a word is found out by [`Leadership::confirm`].
    pub async fn lost(&mut self) {
        while self.ends.recv().await.is_some() {}
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
