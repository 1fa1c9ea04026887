//! What the driver reports. Refused, unknown, bug and user's error are told apart by method, so that
//! the set of causes can grow.

use std::fmt;

use awa_core::{Fault, Refusal, UserError};
use tokio_postgres::error::SqlState;

/// An operation that gave no outcome.
pub struct Error(Box<Kind>);

#[derive(Debug)]
enum Kind {
    /// PostgreSQL said no, or the connection broke before anything was asked to commit.
    Postgres { doing: String, source: tokio_postgres::Error },
    /// The connection broke while a COMMIT was on its way.
    Unknown { doing: String, source: tokio_postgres::Error },
    /// A connection string that can't be read: nothing was tried.
    ConnectionString(tokio_postgres::Error),
    /// The books don't balance. Rolled back.
    Fault { doing: String, fault: Fault },
    /// The input can't be stored.
    User(UserError),
    /// The schema or the server doesn't fit this build.
    Installation(Mismatch),
    /// A caller's transaction cannot carry this operation.
    Refused { doing: String, refusal: Refusal },
    /// The same because of its isolation level: it may look at what is gone.
    Isolation { doing: String, level: String },
}

/// How an installation doesn't fit.
#[allow(missing_docs, reason = "a variant's own text says what its fields are")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// The server is older than the schema works on.
    ServerTooOld { version_num: i32, min: i32 },
    /// The database can't store every text: a handler's error could not be kept in it.
    Encoding { found: String },
    /// The schema was migrated by a newer build: this one refuses before it writes (H54).
    SchemaNewer { schema: String, found: u32, known: u32 },
    /// The schema is behind: migrate first.
    SchemaOlder { schema: String, found: u32, needed: u32 },
    /// An applied migration is not the one that this build ships.
    Checksum { schema: String, version: u32 },
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ServerTooOld { version_num, min } => write!(
                f,
                "PostgreSQL {} is too old: {} or newer is needed",
                version_num / 10_000,
                min / 10_000
            ),
            Self::Encoding { found } => write!(
                f,
                "the database's encoding is {found}: a database with encoding UTF8 is needed"
            ),
            Self::SchemaNewer { schema, found, known } => write!(
                f,
                "schema {schema:?} is at v{found:03} and this build knows only v{known:03}: update this program"
            ),
            Self::SchemaOlder { schema, found, needed } => write!(
                f,
                "schema {schema:?} is at v{found:03} and this build needs v{needed:03}: run `awa migrate`"
            ),
            Self::Checksum { schema, version } => write!(
                f,
                "v{version:03} as applied to schema {schema:?} is not the v{version:03} of this build"
            ),
        }
    }
}

impl Error {
    /// PostgreSQL's error while `doing` something that the driver has no machine for.
    pub fn postgres(doing: impl Into<String>, source: tokio_postgres::Error) -> Self {
        Self(Box::new(Kind::Postgres { doing: doing.into(), source }))
    }

    pub(crate) fn unknown(doing: impl Into<String>, source: tokio_postgres::Error) -> Self {
        Self(Box::new(Kind::Unknown { doing: doing.into(), source }))
    }

    /// A connection string could not be read.
    pub(crate) fn connection_string(source: tokio_postgres::Error) -> Self {
        Self(Box::new(Kind::ConnectionString(source)))
    }

    /// The engine's own error while `doing` something.
    pub fn fault(doing: impl Into<String>, fault: Fault) -> Self {
        Self(Box::new(Kind::Fault { doing: doing.into(), fault }))
    }

    pub(crate) fn installation(mismatch: Mismatch) -> Self {
        Self(Box::new(Kind::Installation(mismatch)))
    }

    /// Contention that didn't end while `doing` something.
    pub fn refused(doing: impl Into<String>, refusal: Refusal) -> Self {
        Self(Box::new(Kind::Refused { doing: doing.into(), refusal }))
    }

    /// The caller's transaction has the isolation level `level`, in which `doing` something would go by
    /// an old snapshot.
    pub(crate) fn isolation(doing: impl Into<String>, level: String) -> Self {
        Self(Box::new(Kind::Isolation { doing: doing.into(), level }))
    }

    /// Whether it can't be known if the operation took place: the connection was lost in COMMIT.
    /// Observe before repeating; completions may be repeated as they are (H22).
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        matches!(&*self.0, Kind::Unknown { .. })
    }

    /// Whether the connection is gone: make a new one and repeat.
    #[must_use]
    pub fn is_connection(&self) -> bool {
        match &*self.0 {
            Kind::Unknown { .. } => true,
            Kind::Postgres { source, .. } => {
                source.is_closed() || source.as_db_error().is_none() || is_shutdown(source)
            }
            Kind::ConnectionString(_)
            | Kind::Fault { .. }
            | Kind::User(_)
            | Kind::Installation(_)
            | Kind::Refused { .. }
            | Kind::Isolation { .. } => false,
        }
    }

    /// Whether the server refused what was to be stored, not the moment: repeating it is useless
    /// (SQLSTATE classes 22 and 23, and programs' own limits, 54).
    #[must_use]
    pub fn is_content(&self) -> bool {
        self.sqlstate().is_some_and(|s| ["22", "23", "54"].iter().any(|c| s.code().starts_with(c)))
    }

    /// The engine's own error, if this is one: nothing was changed.
    #[must_use]
    pub fn as_fault(&self) -> Option<&Fault> {
        if let Kind::Fault { fault, .. } = &*self.0 { Some(fault) } else { None }
    }

    /// The user's error, if this is one: nothing was written.
    #[must_use]
    pub fn as_user_error(&self) -> Option<&UserError> {
        if let Kind::User(user) = &*self.0 { Some(user) } else { None }
    }

    /// How the installation doesn't fit, if that is it: nothing was written.
    #[must_use]
    pub fn as_mismatch(&self) -> Option<&Mismatch> {
        if let Kind::Installation(mismatch) = &*self.0 { Some(mismatch) } else { None }
    }

    /// What stood in the way, if the caller's own transaction was refused and must be rolled back.
    #[must_use]
    pub fn as_refusal(&self) -> Option<Refusal> {
        if let Kind::Refused { refusal, .. } = &*self.0 { Some(*refusal) } else { None }
    }

    /// The isolation level of the caller's own transaction, if the operation was refused for it: all but
    /// enqueuing needs READ COMMITTED. Nothing was done, and the transaction is as good as before.
    #[must_use]
    pub fn as_isolation(&self) -> Option<&str> {
        if let Kind::Isolation { level, .. } = &*self.0 { Some(level) } else { None }
    }

    /// What PostgreSQL called the error, if it was PostgreSQL's.
    #[must_use]
    pub fn sqlstate(&self) -> Option<&SqlState> {
        match &*self.0 {
            Kind::Postgres { source, .. } | Kind::Unknown { source, .. } => source.code(),
            Kind::ConnectionString(_)
            | Kind::Fault { .. }
            | Kind::User(_)
            | Kind::Installation(_)
            | Kind::Refused { .. }
            | Kind::Isolation { .. } => None,
        }
    }
}

/// The server is going down, or took the connection away.
fn is_shutdown(error: &tokio_postgres::Error) -> bool {
    let gone = [
        SqlState::ADMIN_SHUTDOWN,
        SqlState::CRASH_SHUTDOWN,
        SqlState::CANNOT_CONNECT_NOW,
        SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
    ];
    error.code().is_some_and(|code| gone.contains(code))
}

impl From<UserError> for Error {
    fn from(user: UserError) -> Self {
        Self(Box::new(Kind::User(user)))
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            Kind::Postgres { doing, source } => write!(f, "{doing}: {}", Said(source)),
            Kind::Unknown { doing, source } => write!(
                f,
                "{doing}: the connection was lost in COMMIT, so it may or may not have happened: {}",
                Said(source)
            ),
            Kind::ConnectionString(source) => {
                write!(f, "read the connection string: {}", Said(source))
            }
            Kind::Fault { doing, fault } => write!(f, "{doing}: {fault} (rolled back)"),
            Kind::User(user) => user.fmt(f),
            Kind::Installation(mismatch) => mismatch.fmt(f),
            Kind::Refused { doing, refusal } => write!(f, "{doing}: {refusal}"),
            Kind::Isolation { doing, level } => write!(
                f,
                "{doing}: the transaction is {level} and may see what is gone; read committed is needed"
            ),
        }
    }
}

/// A PostgreSQL error with the server's own words.
struct Said<'a>(&'a tokio_postgres::Error);

impl fmt::Display for Said<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_db_error() {
            Some(db) => write!(f, "{} (SQLSTATE {})", db.message(), db.code().code()),
            None => {
                write!(f, "{}", self.0)?;
                let mut cause = std::error::Error::source(self.0);
                while let Some(inner) = cause {
                    write!(f, ": {inner}")?;
                    cause = inner.source();
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &*self.0 {
            Kind::Postgres { source, .. }
            | Kind::Unknown { source, .. }
            | Kind::ConnectionString(source) => Some(source),
            Kind::Fault { fault, .. } => Some(fault),
            Kind::User(user) => Some(user),
            Kind::Installation(_) | Kind::Refused { .. } | Kind::Isolation { .. } => None,
        }
    }
}
