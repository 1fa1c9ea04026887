//! A job as a service hands it over.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use awa_driver::core::fault::{Field, JsonReason, UserError};
use awa_driver::core::{Instant, Kind, QueueName, Span, in_range, json, limits};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    pub(crate) queue: QueueName,
    pub(crate) kind: Kind,
    pub(crate) args: String,
    pub(crate) priority: i16,
    pub(crate) shard: i16,
    pub(crate) max_attempts: i16,
    pub(crate) due: Due,
    /// Each key's value as JSON text: one that was read as a number might be rounded.
    metadata: BTreeMap<String, String>,
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
        let text = serde_json::to_string(args)
            .map_err(|error| UserError::NotJson { field: Field::Args, why: error.to_string() })?;
        Self::from_json(kind, text)
    }

    /// The same with args that are JSON text already. They are stored as `jsonb`: a number keeps all
    /// its digits, of a key that stands twice in one object the last value is kept, and neither blanks
    /// nor the order of keys are.
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
            metadata: BTreeMap::new(),
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
    /// The key or value holds what `jsonb` can't, or the metadata is too big.
    pub fn metadata(self, key: &str, value: Value) -> Result<Self, UserError> {
        self.more_metadata([(key.to_owned(), value.to_string())])
    }

    /// With all keys of a JSON object in its metadata. Stored like the args of [`Job::from_json`].
    ///
    /// # Errors
    /// The text is no JSON object, holds what `jsonb` can't, or makes the metadata too big.
    pub fn metadata_json(self, object: &str) -> Result<Self, UserError> {
        json::check_field(Field::Metadata, object)?;
        let no_object = |_| UserError::Json {
            field: Field::Metadata,
            path: "$".to_owned(),
            reason: JsonReason::NotAnObject,
            line: 1,
            column: 1,
        };
        let more: BTreeMap<String, &RawValue> = serde_json::from_str(object).map_err(no_object)?;
        self.more_metadata(more.into_iter().map(|(key, value)| (key, value.get().to_owned())))
    }

    fn more_metadata(
        mut self,
        more: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, UserError> {
        self.metadata.extend(more);
        check_stored(&self.metadata_text())?;
        Ok(self)
    }

    fn metadata_text(&self) -> String {
        object(self.metadata.iter().map(|(key, value)| (key.as_str(), value.as_str())))
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
        let metadata = (!self.metadata.is_empty()).then(|| ("metadata", self.metadata_text()));
        let tags = || ("tags", Value::from(self.tags.clone()).to_string());
        let tags = (!self.tags.is_empty()).then(tags);
        let members: Vec<_> = metadata.into_iter().chain(tags).collect();
        let members = members.iter().map(|(key, value)| (*key, value.as_str()));
        (members.len() > 0).then(|| object(members))
    }
}

/// Checks metadata as a part of what is stored, which is one level deeper. Places are those in `text`.
fn check_stored(text: &str) -> Result<(), UserError> {
    let checked = json::check_field(Field::Metadata, &object([("metadata", text)].into_iter()));
    checked.map(|_| ()).map_err(|error| match error {
        UserError::Json { field, path, reason, line, column } => UserError::Json {
            field,
            path: path.replacen("$.metadata", "$", 1),
            reason,
            line,
            column: if line == 1 { column - r#"{"metadata":"#.len() } else { column },
        },
        other => other,
    })
}

/// A JSON object of these keys with values that are JSON text.
fn object<'a>(members: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let mut text = String::from("{");
    for (key, value) in members {
        if text.len() > 1 {
            text.push(',');
        }
        text.push_str(&Value::from(key).to_string());
        text.push(':');
        text.push_str(value);
    }
    text.push('}');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job() -> Job {
        Job::new("k", &1).unwrap()
    }

    /// A number is stored as it was spelt, however many digits it has, also in metadata.
    #[test]
    fn metadata_is_not_rounded() {
        let spelt = r#"{"n":123456789012345678901234567890.000100,"t":"a\"b"}"#;
        let job = job().metadata_json(spelt).unwrap().tag("x").unwrap();
        let expected = format!(r#"{{"metadata":{spelt},"tags":["x"]}}"#);
        assert_eq!(job.payload().unwrap(), expected);
        let more = job.metadata_json(r#"{"n":1e2,"é\"":[]}"#).unwrap();
        let expected = r#"{"metadata":{"n":1e2,"t":"a\"b","é\"":[]},"tags":["x"]}"#;
        assert_eq!(more.payload().unwrap(), expected);
        assert_eq!(Job::new("k", &1).unwrap().metadata_json("{}").unwrap().payload(), None);
    }

    /// As `jsonb` does it, so that it doesn't matter where keys meet.
    #[test]
    fn of_a_key_given_twice_the_last_value_is_kept() {
        let job = job().metadata_json(r#"{"a":1,"b":0,"a":2}"#).unwrap();
        let job = job.metadata("b", Value::from(3)).unwrap();
        assert_eq!(job.payload().unwrap(), r#"{"metadata":{"a":2,"b":3}}"#);
    }

    /// An error is about the field that is at fault.
    #[test]
    fn flaws_of_metadata_are_called_so() {
        let said = |refused: Result<Job, UserError>| refused.unwrap_err().to_string();
        let nul = r#"{"t":"\u0000"}"#;
        let expected = "metadata at $.t (line 1, column 7): \
                        holds a NUL character, which PostgreSQL cannot store";
        assert_eq!(said(job().metadata_json(nul)), expected);
        assert!(said(job().metadata("t", "\0".into())).starts_with("metadata at $.t (line 1"));
        for text in ["[1]", "null", "\"{}\""] {
            let expected = "metadata at $ (line 1, column 1): is not an object";
            assert_eq!(said(job().metadata_json(text)), expected, "{text}");
        }
        assert_eq!(
            said(Job::from_json("k", "[1".to_owned())),
            "args at $ (line 1, column 3): not valid JSON"
        );
        let deep = |levels| format!("{{\"a\":{}1{}}}", "[".repeat(levels), "]".repeat(levels));
        assert!(job().metadata_json(&deep(limits::ARGS_DEPTH_MAX - 2)).is_ok());
        assert!(
            said(job().metadata_json(&deep(limits::ARGS_DEPTH_MAX - 1)))
                .starts_with("metadata at $.a[0]")
        );
    }

    /// All of a job's metadata is bounded together, not each call's.
    #[test]
    fn metadata_is_bounded_as_a_whole() {
        let half = Value::from("x".repeat(limits::ARGS_BYTES_MAX / 2));
        let one = job().metadata("a", half.clone()).unwrap();
        let (bytes, max) = (limits::ARGS_BYTES_MAX + 28, limits::ARGS_BYTES_MAX);
        let too_long = UserError::TooLong { field: Field::Metadata, bytes, max };
        assert_eq!(one.clone().metadata("b", half.clone()).unwrap_err(), too_long);
        let object = format!(r#"{{"b":{half}}}"#);
        assert_eq!(one.metadata_json(&object).unwrap_err(), too_long);
    }
}
