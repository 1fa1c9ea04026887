//! What a service writes: an async function of a job's args, registered by kind.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use awa_driver::core::{ClaimedJob, JobId, json};
use serde::de::DeserializeOwned;

/// How an attempt failed. `?` on any [`std::error::Error`] gives [`Failure::retry`] with the error and what
/// caused it. What is none (`anyhow::Error`, a `Box<dyn Error>`) goes through `.map_err(Failure::retry)?`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub(crate) error: String,
    pub(crate) how: Again,
}

/// Whether a failed attempt is followed by another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Again {
    /// After the backoff, while attempts are left.
    Backoff,
    /// After this delay, while attempts are left.
    After(Duration),
    /// Never.
    Never,
}

impl Failure {
    /// The job is tried again after the backoff, while attempts are left.
    pub fn retry(error: impl std::fmt::Display) -> Self {
        Self::because(error, Again::Backoff)
    }

    /// The job is tried again after `delay`, while attempts are left.
    pub fn retry_after(error: impl std::fmt::Display, delay: Duration) -> Self {
        Self::because(error, Again::After(delay))
    }

    /// The job failed for good, whatever attempts are left. It stays retryable by an operator for
    /// `failed_retention`.
    pub fn permanent(error: impl std::fmt::Display) -> Self {
        Self::because(error, Again::Never)
    }

    /// Any text can be stored, bounded: an error never keeps the fact of a failure from being written.
    fn because(error: impl std::fmt::Display, how: Again) -> Self {
        Self { error: json::keep_error_text(error.to_string().as_bytes()), how }
    }
}

impl<E: std::error::Error> From<E> for Failure {
    /// Many errors say of themselves only what kind they are; what went wrong stands in their causes.
    fn from(error: E) -> Self {
        let mut told = error.to_string();
        let mut cause = error.source();
        while let Some(inner) = cause {
            let said = inner.to_string();
            // Others tell their causes, too.
            if !told.contains(&said) {
                told.push_str(": ");
                told.push_str(&said);
            }
            cause = inner.source();
        }
        Self::retry(told)
    }
}

/// The attempt that a handler works on.
#[derive(Clone, Debug)]
pub struct Attempt {
    pub(crate) claimed: Arc<ClaimedJob>,
    pub(crate) deadline: Option<tokio::time::Instant>,
}

impl Attempt {
    /// The job.
    #[must_use]
    pub fn job(&self) -> JobId {
        self.claimed.receipt.job
    }

    /// The number of this attempt, from 1.
    #[must_use]
    pub fn number(&self) -> i16 {
        self.claimed.attempt.0
    }

    /// Attempts that the job is given.
    #[must_use]
    pub fn max_attempts(&self) -> i16 {
        self.claimed.max_attempts
    }

    /// The kind, for a handler that serves several.
    #[must_use]
    pub fn kind(&self) -> &str {
        &self.claimed.kind
    }

    /// The args as JSON text.
    #[must_use]
    pub fn args(&self) -> &str {
        &self.claimed.args
    }

    /// Metadata, tags and earlier errors as JSON text, where there are any.
    #[must_use]
    pub fn payload(&self) -> Option<&str> {
        self.claimed.payload.as_deref()
    }

    /// When the attempt must be over, if it must.
    #[must_use]
    pub fn deadline(&self) -> Option<tokio::time::Instant> {
        self.deadline
    }
}

type Handled = Pin<Box<dyn Future<Output = Result<(), Failure>> + Send>>;
type Handler = Arc<dyn Fn(Attempt) -> Handled + Send + Sync>;

/// Handlers by kind.
#[derive(Clone, Default)]
pub(crate) struct Handlers {
    by_kind: BTreeMap<String, Handler>,
    other: Option<Handler>,
}

impl Handlers {
    pub(crate) fn typed<A, F, Fut>(&mut self, kind: &str, handler: F)
    where
        A: DeserializeOwned + Send,
        F: Fn(Attempt, A) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        let handler = move |attempt: Attempt| -> Handled {
            match serde_json::from_str::<A>(attempt.args()) {
                Ok(args) => Box::pin(handler(attempt, args)),
                // Args that don't parse today won't parse on the next attempt either.
                Err(error) => Box::pin(async move {
                    Err(Failure::permanent(format!("args do not fit the handler: {error}")))
                }),
            }
        };
        self.by_kind.insert(kind.to_owned(), Arc::new(handler));
    }

    pub(crate) fn other<F, Fut>(&mut self, handler: F)
    where
        F: Fn(Attempt) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        self.other = Some(Arc::new(move |attempt| Box::pin(handler(attempt))));
    }

    /// The handler's work on one attempt. A kind that nobody registered here is tried again later: a
    /// process that knows it may come.
    pub(crate) fn handle(&self, attempt: Attempt) -> Handled {
        match self.by_kind.get(attempt.kind()).or(self.other.as_ref()) {
            Some(handler) => handler(attempt),
            None => {
                let kind = attempt.kind().to_owned();
                Box::pin(async move {
                    Err(Failure::retry(format!("no handler is registered for kind {kind:?}")))
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Caused(&'static str, Option<Box<Caused>>);

    impl std::fmt::Display for Caused {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str(self.0)
        }
    }

    impl std::error::Error for Caused {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            self.1.as_deref().map(|cause| cause as _)
        }
    }

    /// An error that says only its kind (tokio-postgres's "db error") would leave an operator with nothing.
    #[test]
    fn a_failure_says_what_caused_it() {
        let told = |error: Caused| Failure::from(error).error;
        let root = || Some(Box::new(Caused("no such column", None)));
        assert_eq!(told(Caused("db error", None)), "db error");
        let chain = Caused("send mail", Some(Box::new(Caused("db error", root()))));
        assert_eq!(told(chain), "send mail: db error: no such column");
        assert_eq!(told(Caused("query: no such column", root())), "query: no such column");
    }
}
