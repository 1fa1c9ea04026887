//! A job as a service hands it over.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use awa_driver::core::fault::{Field, JsonReason, UserError};
use awa_driver::core::{Instant, Kind, QueueName, Span, in_range, json, limits};
use serde::Serialize;
use serde_json::{Map, Value};

/// A job to be enqueued: a kind, args, and where they differ from the defaults, a queue, a priority,
/// a time. Checked as it is built; nothing is clamped.
///
/// ```
/// # fn main() -> Result<(), awa::UserError> {
/// let job = awa::Job::new("send_mail", &serde_json::json!({"to": "ada@example.org"}))?
///     .queue("mail")?
///     .priority(1)?;
/// # let _ = job;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    pub(crate) queue: QueueName,
    pub(crate) kind: Kind,
    pub(crate) args: String,
    pub(crate) priority: i16,
    pub(crate) shard: i16,
    pub(crate) max_attempts: i16,
    pub(crate) due: Due,
    metadata: Map<String, Value>,
    tags: Vec<String>,
}

/// When a job may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    Now,
    /// At an instant of the database's clock.
    At(Instant),
    /// So long after the database's now.
    After(Span),
}

impl Job {
    /// The queue of a job that names none.
    pub const DEFAULT_QUEUE: &'static str = "default";

    /// A job of `kind` whose args are `args` as JSON, on queue `default`, priority 2, 25 attempts.
    ///
    /// # Errors
    /// The kind is empty or too long; the args don't serialise, hold what `jsonb` can't, or are too big.
    pub fn new<A: Serialize + ?Sized>(kind: &str, args: &A) -> Result<Self, UserError> {
        let text = serde_json::to_string(args).map_err(|error| UserError::Json {
            path: "$".to_owned(),
            reason: JsonReason::Syntax,
            line: error.line(),
            column: error.column(),
        })?;
        Self::from_json(kind, text)
    }

    /// The same with args that are JSON text already; numbers keep their spelling.
    ///
    /// # Errors
    /// As for [`Job::new`].
    pub fn from_json(kind: &str, args: String) -> Result<Self, UserError> {
        json::check(&args)?;
        Ok(Self {
            queue: QueueName::new(Self::DEFAULT_QUEUE)?,
            kind: Kind::new(kind)?,
            args,
            priority: limits::PRIORITY_DEFAULT,
            shard: 0,
            max_attempts: limits::ATTEMPTS_DEFAULT,
            due: Due::Now,
            metadata: Map::new(),
            tags: Vec::new(),
        })
    }

    /// On this queue. It must be declared before the job is enqueued.
    ///
    /// # Errors
    /// The name is empty, too long or holds NUL.
    pub fn queue(mut self, name: &str) -> Result<Self, UserError> {
        self.queue = QueueName::new(name)?;
        Ok(self)
    }

    /// With this priority: 1 is the most urgent, 4 the least.
    ///
    /// # Errors
    /// Out of range.
    pub fn priority(mut self, priority: i64) -> Result<Self, UserError> {
        let max = limits::PRIORITY_MAX.into();
        self.priority = in_range(Field::Priority, priority, 1, max)? as i16;
        Ok(self)
    }

    /// In this shard of the queue, from 0. Order is kept within a shard only.
    ///
    /// # Errors
    /// Out of range.
    pub fn shard(mut self, shard: i64) -> Result<Self, UserError> {
        let max = i64::from(limits::SHARDS_MAX) - 1;
        self.shard = in_range(Field::Shard, shard, 0, max)? as i16;
        Ok(self)
    }

    /// With this many attempts, 1 to 32,767.
    ///
    /// # Errors
    /// Out of range.
    pub fn max_attempts(mut self, attempts: i64) -> Result<Self, UserError> {
        let max = limits::ATTEMPTS_MAX.into();
        self.max_attempts = in_range(Field::MaxAttempts, attempts, 1, max)? as i16;
        Ok(self)
    }

    /// Not before `at`, an instant of the database's clock. A past instant means now.
    #[must_use]
    pub fn run_at(mut self, at: SystemTime) -> Self {
        let us = match at.duration_since(UNIX_EPOCH) {
            Ok(after) => i64::try_from(after.as_micros()).unwrap_or(i64::MAX),
            Err(before) => i64::try_from(before.duration().as_micros()).map_or(i64::MIN, |us| -us),
        };
        self.due = Due::At(Instant::from_unix_us(us));
        self
    }

    /// Not before `at` on the database's clock.
    #[must_use]
    pub fn run_at_instant(mut self, at: Instant) -> Self {
        self.due = Due::At(at);
        self
    }

    /// Not before `delay` from the database's now (H59: this process's clock doesn't matter).
    #[must_use]
    pub fn run_in(mut self, delay: Duration) -> Self {
        self.due = Due::After(delay.into());
        self
    }

    /// With one more key in its metadata. A job with metadata takes the general path when it ends.
    ///
    /// # Errors
    /// The key or value holds what `jsonb` can't.
    pub fn metadata(mut self, key: &str, value: Value) -> Result<Self, UserError> {
        self.metadata.insert(key.to_owned(), value);
        json::check(&Value::Object(self.metadata.clone()).to_string())?;
        Ok(self)
    }

    /// With all keys of a JSON object in its metadata.
    ///
    /// # Errors
    /// The text is no JSON object, or holds what `jsonb` can't.
    pub fn metadata_json(mut self, object: &str) -> Result<Self, UserError> {
        json::check(object)?;
        let no_object = |_| UserError::Json {
            path: "$".to_owned(),
            reason: JsonReason::Syntax,
            line: 1,
            column: 1,
        };
        let mut more: Map<String, Value> = serde_json::from_str(object).map_err(no_object)?;
        self.metadata.append(&mut more);
        Ok(self)
    }

    /// With one more tag.
    ///
    /// # Errors
    /// The tag is empty, too long or holds NUL.
    pub fn tag(mut self, tag: &str) -> Result<Self, UserError> {
        let field = Field::Tag;
        if tag.is_empty() {
            return Err(UserError::Empty { field });
        }
        if tag.contains('\0') {
            return Err(UserError::Nul { field });
        }
        if tag.len() > limits::NAME_BYTES_MAX {
            let max = limits::NAME_BYTES_MAX;
            return Err(UserError::TooLong { field, bytes: tag.len(), max });
        }
        self.tags.push(tag.to_owned());
        Ok(self)
    }

    /// Metadata and tags as the text that is stored; `None` for a job that has neither.
    pub(crate) fn payload(&self) -> Option<String> {
        let mut payload = Map::new();
        if !self.metadata.is_empty() {
            payload.insert("metadata".to_owned(), Value::Object(self.metadata.clone()));
        }
        if !self.tags.is_empty() {
            payload.insert("tags".to_owned(), self.tags.clone().into());
        }
        (!payload.is_empty()).then(|| Value::Object(payload).to_string())
    }
}
