//! What a service holds to enqueue, look and operate.

mod enqueue;
mod installation;
mod operate;
mod wake;

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};

use awa_driver::core::machine::declare::{DeclareQueue, FindLanes};
use awa_driver::core::{Lane, Machine, QueueName, Refusal, SchemaName, UserError};
use awa_driver::tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use awa_driver::tokio_postgres::{Config, Socket};
use awa_driver::{Connector, Embedded, Error, Sessions, Sql, Statements};
pub use installation::{Hold, connect, drop_installation, hold, installations, migrate};

/// How often an operation that PostgreSQL undid to resolve a conflict is tried.
const TRIES: usize = 5;
/// Connections of a client, unless told otherwise.
const CONNECTIONS: usize = 8;

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
    wakes: wake::Wakes,
}

impl Client {
    /// Connects without TLS to the installation in `schema`. It must have been migrated. Reaching an
    /// address may take 10 s, unless `connect_timeout` says otherwise.
    ///
    /// # Errors
    /// The server can't be reached ([`Error::is_connection`]; the error names it); the schema holds no
    /// installation of this build's version.
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
            wakes: wake::Wakes::default(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    pub(crate) fn sessions(&self) -> &Sessions {
        &self.shared.sessions
    }

    fn embedded(&self) -> &Embedded {
        &self.shared.embedded
    }

    fn wakes(&self) -> &wake::Wakes {
        &self.shared.wakes
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

    /// Makes a queue with `shards` lanes a priority, or the lanes that it lacks; shards are never taken
    /// away. Order is kept within a shard; one shard means strict order (`R026-31`). Workers that
    /// run hear of new ones with the first wake from there, or find them within minutes.
    ///
    /// Gives how many shards the queue has now.
    ///
    /// # Errors
    /// The name or the number is out of bounds.
    pub async fn declare_queue(&self, name: &str, shards: i64) -> Result<i64, Error> {
        let queue = QueueName::new(name)?;
        let lanes = self.run_settled(DeclareQueue::new(queue.clone(), shards)?).await?;
        let lanes = self.remember(queue, lanes);
        Ok(lanes.iter().map(|lane| i64::from(lane.shard.0) + 1).max().unwrap_or(0))
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

    /// The lanes of a declared queue.
    pub(crate) async fn lanes(&self, queue: &QueueName) -> Result<Arc<[Lane]>, Error> {
        match self.known_lanes(queue) {
            Some(lanes) => Ok(lanes),
            None => self.find_lanes(queue).await,
        }
    }

    /// The same as the server has them now: another process may have added shards since.
    pub(crate) async fn find_lanes(&self, queue: &QueueName) -> Result<Arc<[Lane]>, Error> {
        let found = self.run_settled(FindLanes { queue: queue.clone() }).await?;
        if found.is_empty() {
            return Err(UserError::UnknownQueue { queue: queue.as_str().to_owned() }.into());
        }
        Ok(self.remember(queue.clone(), found))
    }
}
