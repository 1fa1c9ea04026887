//! Connections to one installation, made when they are needed and kept for the next user.

use std::future::Future;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use awa_sqlgen::Sql;
use tokio::sync::{Semaphore, SemaphorePermit, mpsc};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{AsyncMessage, Client, Config, Notification, Socket};

use crate::error::Error;
use crate::session::{Session, Statements};

type Connecting = Pin<Box<dyn Future<Output = Result<Client, Error>> + Send>>;
type Listeners = Option<mpsc::UnboundedSender<Notification>>;

/// Makes connections; hides which TLS they use.
#[derive(Clone)]
pub struct Connector(Arc<dyn Fn(Listeners) -> Connecting + Send + Sync>);

impl Connector {
    /// Connects as `config` says, over `tls`. Each connection is driven by a task of its own, which
    /// ends with the client.
    pub fn new<T>(config: Config, tls: T) -> Self
    where
        T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
        T::Stream: Send + 'static,
        T::TlsConnect: Send,
        <T::TlsConnect as tokio_postgres::tls::TlsConnect<Socket>>::Future: Send,
    {
        let config = Arc::new(config);
        Self(Arc::new(move |listeners| {
            let (config, tls) = (Arc::clone(&config), tls.clone());
            Box::pin(async move {
                let connected = config.connect(tls).await;
                let (client, mut connection) = connected.map_err(|e| Error::postgres("connect", e))?;
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
        let config = url.parse().map_err(|e| Error::postgres("read the connection string", e))?;
        Ok(Self::new(config, tokio_postgres::NoTls))
    }

    /// A new connection.
    ///
    /// # Errors
    /// The server can't be reached or refuses.
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
}

impl Sessions {
    /// At most `max` connections at a time, at least one.
    #[must_use]
    pub fn new(connector: Connector, sql: Sql, statements: Statements, max: usize) -> Self {
        let permits = Semaphore::new(max.max(1));
        Self { connector, sql, statements, idle: Mutex::default(), permits }
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
                Session::new(self.connector.connect().await?, self.sql.clone(), self.statements)
            }
        };
        Ok(Held { home: self, session: Some(session), _permit: permit })
    }
}

impl std::fmt::Debug for Sessions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sessions").field("schema", self.sql.schema()).finish_non_exhaustive()
    }
}

/// A session on loan.
pub struct Held<'a> {
    home: &'a Sessions,
    session: Option<Session>,
    _permit: Option<SemaphorePermit<'a>>,
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
