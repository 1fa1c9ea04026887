//! What a service holds to enqueue, look and operate.

mod enqueue;
mod operate;

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};

use awa_driver::core::machine::declare::{DeclareQueue, FindLanes};
use awa_driver::core::{Lane, Machine, QueueName, Refusal, SchemaName, UserError};
use awa_driver::tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use awa_driver::tokio_postgres::{Config, Socket};
use awa_driver::{Connector, Embedded, Error, Migrated, Sessions, Sql, Statements};

/// How often an operation that PostgreSQL undid to resolve a conflict is tried.
const TRIES: usize = 5;
/// Connections of a client, unless told otherwise.
const CONNECTIONS: usize = 8;

/// Brings the schema to the version of this build; see [`awa_driver::migrate()`].
///
/// # Errors
/// The server can't be reached or is too old, the schema is newer or its name is no name.
pub async fn migrate(url: &str, schema: &str) -> Result<Migrated, Error> {
    let schema = SchemaName::new(schema)?;
    let mut client = Connector::without_tls(url)?.connect().await?;
    awa_driver::migrate(&mut client, &schema).await
}

/// Drops an installation and its schema: for tests and demonstrations.
///
/// # Errors
/// The server can't be reached or refuses.
pub async fn drop_installation(url: &str, schema: &SchemaName) -> Result<(), Error> {
    let client = Connector::without_tls(url)?.connect().await?;
    awa_driver::drop_installation(&client, schema).await
}

/// How a [`Client`] connects.
#[derive(Clone, Copy, Debug)]
pub struct ClientOptions {
    /// Connections at most; a [`crate::Worker`] uses the same ones.
    pub connections: usize,
    /// Whether a pooler that gives each transaction another server connection stands between (H57).
    pub behind_pooler: bool,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self { connections: CONNECTIONS, behind_pooler: false }
    }
}

/// A handle on one installation. Cheap to clone; all clones share connections.
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    sessions: Sessions,
    embedded: Embedded,
    lanes: Mutex<BTreeMap<QueueName, Arc<[Lane]>>>,
    behind_pooler: bool,
}

impl Client {
    /// Connects without TLS to the installation in `schema`. It must have been migrated.
    ///
    /// # Errors
    /// The server can't be reached; the schema holds no installation of this build's version.
    pub async fn connect(url: &str, schema: &str) -> Result<Self, Error> {
        Self::start(Connector::without_tls(url)?, schema, ClientOptions::default()).await
    }

    /// The same with TLS and options of one's own.
    ///
    /// # Errors
    /// As for [`Client::connect`].
    pub async fn connect_with<T>(
        config: Config,
        tls: T,
        schema: &str,
        options: ClientOptions,
    ) -> Result<Self, Error>
    where
        T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
        T::Stream: Send + 'static,
        T::TlsConnect: Send,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        Self::start(Connector::new(config, tls), schema, options).await
    }

    async fn start(
        connector: Connector,
        schema: &str,
        options: ClientOptions,
    ) -> Result<Self, Error> {
        let schema = SchemaName::new(schema)?;
        let mut first = connector.connect().await?;
        awa_driver::check(&mut first, &schema).await?;
        let sql = Sql::new(schema);
        let statements =
            if options.behind_pooler { Statements::Unnamed } else { Statements::Named };
        let shared = Shared {
            embedded: Embedded::new(sql.clone()),
            sessions: Sessions::new(connector, sql, statements, options.connections),
            lanes: Mutex::default(),
            behind_pooler: options.behind_pooler,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    pub(crate) fn sessions(&self) -> &Sessions {
        &self.shared.sessions
    }

    fn embedded(&self) -> &Embedded {
        &self.shared.embedded
    }

    /// A number of this process's own, to spread retries of many.
    pub(crate) fn seed(&self) -> u64 {
        RandomState::new().hash_one(std::process::id())
    }

    pub(crate) fn behind_pooler(&self) -> bool {
        self.shared.behind_pooler
    }

    /// Runs one machine of `awa-core` in a transaction of its own.
    ///
    /// # Errors
    /// See [`awa_driver::Session::run`].
    pub async fn run<M: Machine>(&self, machine: M) -> Result<M::Outcome, Error> {
        self.shared.sessions.take().await?.run(machine).await
    }

    /// Runs a machine that PostgreSQL may undo to resolve a conflict, again if it does.
    pub(crate) async fn run_settled<M, T>(&self, machine: M) -> Result<T, Error>
    where
        M: Machine<Outcome = Result<T, Refusal>> + Clone,
    {
        let mut session = self.shared.sessions.take().await?;
        let mut tried = 1;
        loop {
            match session.run(machine.clone()).await? {
                Ok(outcome) => return Ok(outcome),
                Err(refusal) if tried == TRIES => {
                    return Err(Error::refused("run it again and again", refusal));
                }
                Err(refusal) => {
                    tracing::debug!(%refusal, tried, "trying again");
                    tried += 1;
                }
            }
        }
    }

    /// Makes a queue with `shards` lanes a priority, or the lanes that it lacks. Order is kept within a
    /// shard; one shard means strict order (`R026-31`).
    ///
    /// # Errors
    /// The name or the number is out of bounds.
    pub async fn declare_queue(&self, name: &str, shards: i64) -> Result<(), Error> {
        let queue = QueueName::new(name)?;
        let lanes = self.run_settled(DeclareQueue::new(queue.clone(), shards)?).await?;
        self.remember(queue, lanes);
        Ok(())
    }

    fn remember(&self, queue: QueueName, lanes: Vec<Lane>) -> Arc<[Lane]> {
        let lanes: Arc<[Lane]> = lanes.into();
        if !lanes.is_empty() {
            let mut known = self.shared.lanes.lock().unwrap_or_else(PoisonError::into_inner);
            known.insert(queue, Arc::clone(&lanes));
        }
        lanes
    }

    fn known_lanes(&self, queue: &QueueName) -> Option<Arc<[Lane]>> {
        let known = self.shared.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(queue).cloned()
    }

    pub(crate) async fn lanes(&self, queue: &QueueName) -> Result<Arc<[Lane]>, Error> {
        if let Some(lanes) = self.known_lanes(queue) {
            return Ok(lanes);
        }
        let found = self.run_settled(FindLanes { queue: queue.clone() }).await?;
        if found.is_empty() {
            return Err(UserError::UnknownQueue { queue: queue.as_str().to_owned() }.into());
        }
        Ok(self.remember(queue.clone(), found))
    }
}
