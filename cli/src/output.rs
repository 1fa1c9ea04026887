//! What a command says, to a person or in JSON, and how it fails.

use std::fmt;
use std::io::Write as _;
use std::process::ExitCode;

use awa::core::{Instant, JobRow};
use serde_json::{Value, json};

/// Not allowed in this state; nothing was changed.
pub(crate) const NOT_ALLOWED: u8 = 3;
/// No such job.
pub(crate) const NOT_FOUND: u8 = 4;
/// The input is malformed (as EX_DATAERR).
const BAD_INPUT: u8 = 65;

/// Why a command failed.
#[derive(Debug)]
pub(crate) struct Failed {
    what: String,
    code: u8,
}

impl Failed {
    pub(crate) fn other(doing: &str, error: impl fmt::Display) -> Self {
        Self { what: format!("{doing}: {error}"), code: 1 }
    }

    pub(crate) fn input(error: impl fmt::Display) -> Self {
        Self { what: error.to_string(), code: BAD_INPUT }
    }

    pub(crate) fn code(&self) -> ExitCode {
        ExitCode::from(self.code)
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl From<awa::Error> for Failed {
    fn from(error: awa::Error) -> Self {
        let code = if error.as_user_error().is_some() { BAD_INPUT } else { 1 };
        Self { what: error.to_string(), code }
    }
}

impl From<awa::UserError> for Failed {
    fn from(error: awa::UserError) -> Self {
        Self::input(error)
    }
}

impl From<awa_devpg::DevPgError> for Failed {
    fn from(error: awa_devpg::DevPgError) -> Self {
        Self { what: error.to_string(), code: 1 }
    }
}

/// Says `text`, or `value` where JSON is wanted.
pub(crate) fn say(as_json: bool, text: &str, value: &Value) {
    let said = if as_json {
        writeln!(std::io::stdout(), "{value}")
    } else {
        writeln!(std::io::stdout(), "{}", text.trim_end())
    };
    // A reader that has seen enough closes the pipe; anything else is worth a word.
    if let Err(error) = said
        && error.kind() != std::io::ErrorKind::BrokenPipe
    {
        eprintln!("awa: could not write the answer: {error}");
    }
}

/// A job as JSON. Args and payload are JSON themselves, not text.
pub(crate) fn job_json(row: &JobRow) -> Value {
    let parsed = |text: &Option<String>| match text {
        Some(text) => serde_json::from_str(text).unwrap_or_else(|_| json!(text)),
        None => Value::Null,
    };
    json!({
        "job": row.job.0,
        "state": row.state.as_str(),
        "queue": row.queue,
        "priority": row.priority.0,
        "shard": row.shard.0,
        "kind": row.kind,
        "attempt": row.attempt.0,
        "max_attempts": row.max_attempts,
        "run_lease": row.run_lease.0,
        "run_at": instant(row.run_at),
        "created_at": instant(row.created_at),
        "attempted_at": row.attempted_at.map(instant),
        "finalized_at": row.finalized_at.map(instant),
        "args": parsed(&row.args),
        "payload": parsed(&row.payload),
    })
}

/// A job as a person reads it, a field a line.
pub(crate) fn job_text(row: &JobRow) -> String {
    let value = job_json(row);
    let fields = value.as_object().into_iter().flatten();
    let shown = fields.filter(|(_, v)| !v.is_null()).map(|(k, v)| match v.as_str() {
        Some(text) => format!("{k:<13} {text}"),
        None => format!("{k:<13} {v}"),
    });
    shown.collect::<Vec<_>>().join("\n")
}

/// A job as one line of a list.
pub(crate) fn job_line(row: &JobRow) -> String {
    let when = row.finalized_at.or(row.attempted_at).unwrap_or(row.run_at);
    format!(
        "{:>12}  {:<10} {:<16} p{} {:<20} attempt {}/{}  {}",
        row.job.0,
        row.state.as_str(),
        row.queue,
        row.priority.0,
        row.kind,
        row.attempt.0,
        row.max_attempts,
        instant(when)
    )
}

/// RFC 3339 in UTC, to the microsecond.
pub(crate) fn instant(at: Instant) -> String {
    crate::ndjson::rfc3339_of(at)
}

/// Warnings go to standard error; `AWA_LOG=debug` says more.
pub(crate) fn start_log() {
    let level = std::env::var("AWA_LOG").ok().and_then(|word| word.parse().ok());
    let level = level.unwrap_or(tracing_subscriber::filter::LevelFilter::ERROR);
    tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr).init();
}
