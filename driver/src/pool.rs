//! Connections to one installation, made when they are needed and kept for the next user.

use std::future::Future;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use awa_sqlgen::Sql;
use tokio::sync::{Semaphore, SemaphorePermit, mpsc};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{AsyncMessage, Client, Config, Notification, Socket};

use crate::connect::{limited, reach};
use crate::error::Error;
use crate::session::{Session, Statements};

type Connecting = Pin<Box<dyn Future<Output = Result<Client, Error>> + Send>>;
type Listeners = Option<mpsc::UnboundedSender<Notification>>;

/// Makes connections; hides which TLS they use.
#[derive(Clone)]
pub struct Connector(Arc<dyn Fn(Listeners) -> Connecting + Send + Sync>);

impl Connector {
    /// Connects as `config` says, over `tls`; where it sets no `connect_timeout`, reaching an address may
    /// take 10 s. Each connection is driven by a task of its own, which
    /// ends with the client.
    pub fn new<T>(config: Config, tls: T) -> Self
    where
        T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
        T::Stream: Send + 'static,
        T::TlsConnect: Send,
        <T::TlsConnect as tokio_postgres::tls::TlsConnect<Socket>>::Future: Send,
    {
        let config = Arc::new(limited(config));
        Self(Arc::new(move |listeners| {
            let (config, tls) = (Arc::clone(&config), tls.clone());
            Box::pin(async move {
                let (client, mut connection) = reach(&config, tls).await?;
                tokio::spawn(async move {
                    loop {
                        match std::future::poll_fn(|cx| connection.poll_message(cx)).await {
                            Some(Ok(AsyncMessage::Notification(told))) => {
                                if let Some(listeners) = &listeners {
                                    // Nobody listens any more: the client is about to go, too.
                                    let _ = listeners.send(told);
                                }
                            }
                            Some(Ok(AsyncMessage::Notice(notice))) => {
                                tracing::debug!(%notice, "PostgreSQL says");
                            }
                            Some(Ok(_)) => {}
                            Some(Err(error)) => {
                                // The client sees the same error on its next request.
                                tracing::debug!(%error, "the connection ended");
                                return;
                            }
                            None => return,
                        }
                    }
                });
                Ok(client)
            })
        }))
    }

    /// Connects without TLS as `url` says: `postgresql://..` or `key=value ..`.
    ///
    /// # Errors
    /// The text is no connection string.
    pub fn without_tls(url: &str) -> Result<Self, Error> {
        let config = url.parse().map_err(Error::connection_string)?;
        Ok(Self::new(config, tokio_postgres::NoTls))
    }

    /// A new connection.
    ///
    /// # Errors
    /// The server can't be reached ([`Error::is_connection`]; the error names it) or refuses.
    pub async fn connect(&self) -> Result<Client, Error> {
        (self.0)(None).await
    }

    /// A new connection, and what is notified on it.
    ///
    /// # Errors
    /// The server can't be reached or refuses.
    pub async fn connect_listening(
        &self,
    ) -> Result<(Client, mpsc::UnboundedReceiver<Notification>), Error> {
        let (sender, receiver) = mpsc::unbounded_channel();
        Ok(((self.0)(Some(sender)).await?, receiver))
    }
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Connector")
    }
}

/// A bounded set of sessions. Holding one is exclusive; a broken or interrupted one is not reused.
pub struct Sessions {
    connector: Connector,
    sql: Sql,
    statements: Statements,
    idle: Mutex<Vec<Session>>,
    permits: Semaphore,
    /// Connections made so far.
    made: AtomicU64,
}

impl Sessions {
    /// At most `max` connections at a time, at least one.
    #[must_use]
    pub fn new(connector: Connector, sql: Sql, statements: Statements, max: usize) -> Self {
        let permits = Semaphore::new(max.max(1));
        let (idle, made) = (Mutex::default(), AtomicU64::new(0));
        Self { connector, sql, statements, idle, permits, made }
    }

    /// The statements of the installation.
    #[must_use]
    pub fn sql(&self) -> &Sql {
        &self.sql
    }

    /// What makes the connections.
    #[must_use]
    pub fn connector(&self) -> &Connector {
        &self.connector
    }

    /// A session of one's own until it is dropped. Waits while all are held.
    ///
    /// # Errors
    /// A new connection was needed and could not be made.
    pub async fn take(&self) -> Result<Held<'_>, Error> {
        // The semaphore is never closed: an error would mean that it was.
        let permit = self.permits.acquire().await.ok();
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let session = match idle {
            Some(session) if !session.is_closed() => session,
            Some(_) | None => {
                let client = self.connector.connect().await?;
                self.made.fetch_add(1, Ordering::AcqRel);
                Session::new(client, self.sql.clone(), self.statements)
            }
        };
        let era = Era(self.made.load(Ordering::Acquire));
        Ok(Held { home: self, session: Some(session), era, _permit: permit })
    }
}

impl std::fmt::Debug for Sessions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sessions").field("schema", self.sql.schema()).finish_non_exhaustive()
    }
}

/// A stretch of time in which no new connection was made. A connection that lives spans no failover
/// and no restore, so whatever two sessions of one era saw is one history; a new connection may lead
/// into another, in which the sequence has gone back (`docs/VISIBILITY.md`, B12).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Era(u64);

/// A session on loan.
pub struct Held<'a> {
    home: &'a Sessions,
    session: Option<Session>,
    era: Era,
    _permit: Option<SemaphorePermit<'a>>,
}

impl Held<'_> {
    /// The era in which this session was lent out.
    #[must_use]
    pub fn era(&self) -> Era {
        self.era
    }
}

impl Deref for Held<'_> {
    type Target = Session;
    #[allow(clippy::expect_used)]
    fn deref(&self) -> &Session {
        self.session.as_ref().expect("a session is taken away only by drop")
    }
}

impl DerefMut for Held<'_> {
    #[allow(clippy::expect_used)]
    fn deref_mut(&mut self) -> &mut Session {
        self.session.as_mut().expect("a session is taken away only by drop")
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if let Some(session) = self.session.take()
            && session.is_reusable()
        {
            self.home.idle.lock().unwrap_or_else(PoisonError::into_inner).push(session);
        }
    }
}
