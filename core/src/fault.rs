//! What can go wrong, by kind (refused, unknown, bug and the user's error are different types).
#![allow(missing_docs, reason = "a variant's own text says what its fields are")]

use alloc::string::String;
use core::fmt;

use crate::ids::JobId;

/// An input that a user can correct. Nothing was written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum UserError {
    /// The field must not be empty.
    Empty { field: Field },
    /// The field holds a NUL character, which PostgreSQL's text cannot.
    Nul { field: Field },
    /// The field is longer than it may be.
    TooLong { field: Field, bytes: usize, max: usize },
    /// The number lies outside its range, bounds included.
    OutOfRange { field: Field, value: i64, min: i64, max: i64 },
    /// The field is not JSON that PostgreSQL's `jsonb` can hold.
    Json { field: Field, path: String, reason: JsonReason, line: usize, column: usize },
    /// The value can't be written as JSON; why, in the serialiser's words.
    NotJson { field: Field, why: String },
    /// Jobs with a time of their own, where only jobs that are due now are taken.
    NotDue { jobs: usize },
    /// No such queue: declare it first.
    UnknownQueue { queue: String },
    /// The queue has fewer shards than the job asks for.
    UnknownShard { queue: String, shard: i16 },
    /// An environment variable is set to what it can't mean; bounds included.
    Variable { name: String, value: String, min: i64, max: i64 },
    /// The schema has no Awa in it: migrate first.
    UnknownSchema { schema: String },
}

/// The field that a [`UserError`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Field {
    /// The queue's name.
    Queue,
    /// The job's kind.
    Kind,
    /// The schema's name.
    Schema,
    /// The job's args.
    Args,
    /// The job's priority.
    Priority,
    /// The job's shard.
    Shard,
    /// The job's `max_attempts`.
    MaxAttempts,
    /// How many jobs one call holds.
    Jobs,
    /// An attempt's place in its claim's batch.
    Place,
    /// How many rows a call may take.
    Limit,
    /// How many jobs of a queue run at a time.
    Concurrency,
    /// How many shards a queue has.
    Shards,
    /// The job's metadata.
    Metadata,
    /// One of the job's tags.
    Tag,
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Queue => "queue",
            Self::Kind => "kind",
            Self::Schema => "schema",
            Self::Args => "args",
            Self::Priority => "priority",
            Self::Shard => "shard",
            Self::MaxAttempts => "max_attempts",
            Self::Jobs => "jobs",
            Self::Place => "place",
            Self::Limit => "limit",
            Self::Concurrency => "concurrency",
            Self::Shards => "shards",
            Self::Metadata => "metadata",
            Self::Tag => "tag",
        })
    }
}

/// Why a text is not JSON that can be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum JsonReason {
    /// Not JSON at all.
    Syntax,
    /// JSON, but not an object where one is wanted.
    NotAnObject,
    /// A string or key holds `\u0000`, which `jsonb` cannot.
    Nul,
    /// A `\ud800`..`\udfff` escape without its other half.
    LoneSurrogate,
    /// Nested deeper than [`crate::limits::ARGS_DEPTH_MAX`].
    TooDeep,
    /// A number outside what `jsonb`'s `numeric` can hold.
    NumberRange,
}

impl fmt::Display for JsonReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Syntax => "not valid JSON",
            Self::NotAnObject => "is not an object",
            Self::Nul => "holds a NUL character, which PostgreSQL cannot store",
            Self::LoneSurrogate => "holds half of a surrogate pair",
            Self::TooDeep => "is nested too deep",
            Self::NumberRange => "holds a number that PostgreSQL cannot store",
        })
    }
}

impl fmt::Display for UserError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty { field } => write!(f, "{field} must not be empty"),
            Self::Nul { field } => write!(f, "{field} holds a NUL character"),
            Self::TooLong { field, bytes, max } => {
                write!(f, "{field} is {bytes} bytes long; at most {max} are allowed")
            }
            Self::OutOfRange { field, value, min, max } => {
                write!(f, "{field} is {value}; it must lie between {min} and {max}")
            }
            Self::Json { field, path, reason, line, column } => {
                write!(f, "{field} at {path} (line {line}, column {column}): {reason}")
            }
            Self::NotJson { field, why } => write!(f, "{field} can't be written as JSON: {why}"),
            Self::NotDue { jobs } => {
                write!(
                    f,
                    "{jobs} of the jobs have a time of their own; only jobs due now are taken"
                )
            }
            Self::UnknownQueue { queue } => {
                write!(f, "queue {queue:?} is not declared in this schema")
            }
            Self::UnknownShard { queue, shard } => {
                write!(f, "shard {shard} of queue {queue:?} is not declared")
            }
            Self::Variable { name, value, min, max } => write!(
                f,
                "{name} is set to {value:?}; it must be a whole number between {min} and {max}"
            ),
            Self::UnknownSchema { schema } => {
                write!(f, "schema {schema:?} holds no Awa; migrate it first")
            }
        }
    }
}

impl core::error::Error for UserError {}

/// The books do not balance, or a reply does not fit its step: the engine's own error. The
/// transaction is rolled back and the fault reported; nothing is repaired by guessing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// Two independent readings of one operation disagree.
    Unbalanced { what: &'static str, expected: i64, found: i64 },
    /// A narrow terminal row has no ready row to take its body from (`R026-03`, H30).
    BodyMissing { rows: i64 },
    /// The same of a job that was asked for: it can be discarded, and nothing else.
    JobBodyMissing { job: JobId },
    /// A count that can't be negative is.
    Negative { what: &'static str, value: i64 },
    /// The driver answered a step with a reply of another kind.
    UnexpectedReply { step: String, reply: String },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unbalanced { what, expected, found } => {
                write!(f, "{what}: expected {expected}, found {found}")
            }
            Self::BodyMissing { rows } => {
                write!(f, "{rows} narrow terminal rows have no retained ready row")
            }
            Self::JobBodyMissing { job } => write!(f, "{job} has no retained body"),
            Self::Negative { what, value } => write!(f, "{what} is {value}"),
            Self::UnexpectedReply { step, reply } => {
                write!(f, "step «{step}» was answered with «{reply}»")
            }
        }
    }
}

impl core::error::Error for Fault {}
