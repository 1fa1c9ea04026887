//! Hears which lanes have new jobs, on a connection of its own.

use awa_core::LaneId;
use awa_sqlgen::Sql;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_postgres::{Client, Notification};

use crate::error::Error;
use crate::pool::Connector;

/// A connection that listens until it is dropped or lost.
pub struct Listener {
    notified: UnboundedReceiver<Notification>,
    /// Held so that the connection lives.
    _client: Client,
}

impl Listener {
    /// Connects and listens.
    ///
    /// # Errors
    /// The server can't be reached or refuses.
    pub async fn start(connector: &Connector, sql: &Sql) -> Result<Self, Error> {
        let (client, notified) = connector.connect_listening().await?;
        let listening = client.batch_execute(&sql.listen()).await;
        listening.map_err(|e| Error::postgres("listen for new jobs", e))?;
        Ok(Self { notified, _client: client })
    }

    /// The lanes that the next notification names; `None` when the connection is gone.
    pub async fn next(&mut self) -> Option<Vec<LaneId>> {
        let told = self.notified.recv().await?;
        Some(Sql::woken_lanes(told.payload()))
    }
}
