//! What a command says, to a person or in JSON, and how it fails.

use std::fmt;
use std::io::Write as _;
use std::process::ExitCode;

use awa::core::{Instant, JobRow, JobState};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::draw::{self, Style};

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
///
/// # Errors
/// It can't be written; but a reader that has seen enough may close the pipe.
pub(crate) fn say(as_json: bool, text: &str, value: &impl Serialize) -> Result<(), Failed> {
    let said = if as_json {
        match serde_json::to_string(value) {
            Ok(json) => write_line(&json),
            Err(error) => Err(error.into()),
        }
    } else if text.is_empty() {
        Ok(())
    } else {
        write_line(text.trim_end())
    };
    said.map_err(|error| Failed::other("write the answer", error))
}

/// Writes a line to standard output. A reader that has seen enough and closed the pipe is no error.
pub(crate) fn write_line(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout();
    let written = writeln!(out, "{text}").and_then(|()| out.flush());
    match written {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// A job as JSON.
#[derive(Debug, Serialize)]
pub(crate) struct JobView<'a> {
    job: i64,
    state: &'static str,
    queue: &'a str,
    priority: i16,
    shard: i16,
    kind: &'a str,
    attempt: i16,
    max_attempts: i16,
    run_lease: i64,
    run_at: String,
    created_at: String,
    attempted_at: Option<String>,
    finalized_at: Option<String>,
    /// What a list does not load has no key; what a job does not have is `null`.
    #[serde(flatten)]
    bodies: Option<Bodies<'a>>,
}

/// Args and payload are JSON themselves, as they are stored: no number is rounded.
#[derive(Debug, Serialize)]
struct Bodies<'a> {
    args: Option<&'a RawValue>,
    payload: Option<&'a RawValue>,
}

impl<'a> JobView<'a> {
    /// A job of a list.
    pub(crate) fn head(row: &'a JobRow) -> Self {
        Self {
            job: row.job.0,
            state: row.state.as_str(),
            queue: &row.queue,
            priority: row.priority.0,
            shard: row.shard.0,
            kind: &row.kind,
            attempt: row.attempt.0,
            max_attempts: row.max_attempts,
            run_lease: row.run_lease.0,
            run_at: instant(row.run_at),
            created_at: instant(row.created_at),
            attempted_at: row.attempted_at.map(instant),
            finalized_at: row.finalized_at.map(instant),
            bodies: None,
        }
    }

    /// The whole job.
    ///
    /// # Errors
    /// What the database gave for args or payload is no JSON: it has been altered.
    pub(crate) fn whole(row: &'a JobRow) -> Result<Self, Failed> {
        let raw = |text: &'a Option<String>| text.as_deref().map(serde_json::from_str).transpose();
        let bodies =
            raw(&row.args).and_then(|args| Ok(Bodies { args, payload: raw(&row.payload)? }));
        let bodies = bodies.map_err(|e| Failed::other("read what is stored", e))?;
        Ok(Self { bodies: Some(bodies), ..Self::head(row) })
    }
}

/// A job as a person reads it, a field a line.
pub(crate) fn job_text(row: &JobRow, style: Style) -> String {
    let name = |text: &str| draw::shown(text, usize::MAX, style);
    let body = |text: &str| json_shown(text, style);
    let fields = [
        ("job", Some(row.job.0.to_string())),
        ("state", Some(row.state.as_str().to_owned())),
        ("queue", Some(name(&row.queue))),
        ("priority", Some(row.priority.0.to_string())),
        ("shard", Some(row.shard.0.to_string())),
        ("kind", Some(name(&row.kind))),
        ("attempt", Some(format!("{} of {}", row.attempt.0, row.max_attempts))),
        ("run_lease", Some(row.run_lease.0.to_string())),
        ("run_at", Some(instant(row.run_at))),
        ("created_at", Some(instant(row.created_at))),
        ("attempted_at", row.attempted_at.map(instant)),
        ("finalized_at", row.finalized_at.map(instant)),
        ("args", row.args.as_deref().map(body)),
        ("payload", row.payload.as_deref().map(body)),
    ];
    let shown = fields.into_iter().filter_map(|(key, value)| Some(format!("{key:<13} {}", value?)));
    shown.collect::<Vec<_>>().join("\n")
}

/// Stored JSON, safe to print, with the escapes that JSON has: what is no control character in it stands
/// outside of strings.
fn json_shown(text: &str, style: Style) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() || !(style.unicode || c.is_ascii()) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                shown.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            shown.push(c);
        }
    }
    shown
}

/// A job as one line of a list, with the instant that matters: when it is due, began or ended.
pub(crate) fn job_line(row: &JobRow, style: Style) -> String {
    let when = match row.state {
        JobState::Available | JobState::Scheduled | JobState::Retryable => None,
        JobState::Running | JobState::WaitingExternal => row.attempted_at,
        JobState::Completed | JobState::Failed | JobState::Cancelled => row.finalized_at,
    };
    let name = |text: &str| draw::shown(text, usize::MAX, style);
    format!(
        "{:>12}  {:<10} {:<16} p{} {:<20} attempt {}/{}  {}",
        row.job.0,
        row.state.as_str(),
        name(&row.queue),
        row.priority.0,
        name(&row.kind),
        row.attempt.0,
        row.max_attempts,
        instant(when.unwrap_or(row.run_at))
    )
}

/// RFC 3339 in UTC, to the microsecond.
pub(crate) fn instant(at: Instant) -> String {
    crate::ndjson::rfc3339_of(at)
}

/// Warnings go to standard error; `AWA_LOG=debug` says more.
pub(crate) fn start_log() {
    let mut level = tracing_subscriber::filter::LevelFilter::WARN;
    if let Ok(word) = std::env::var("AWA_LOG") {
        match word.parse() {
            Ok(wanted) => level = wanted,
            Err(_) => eprintln!(
                "awa: AWA_LOG is {word:?} and not one of off, error, warn, info, debug and trace"
            ),
        }
    }
    let style = Style::of_stderr();
    let log = tracing_subscriber::fmt().with_max_level(level).with_ansi(style.colour);
    log.with_writer(std::io::stderr).init();
}

#[cfg(test)]
mod tests {
    use awa::core::{Attempt, JobId, Priority, RunLease, Shard};

    use super::*;

    const ARGS: &str = r#"{"id": 123456789012345678901234567890, "sum": 0.1000000000000000055}"#;
    const PLAIN: Style = Style { colour: false, unicode: true };

    fn row() -> JobRow {
        JobRow {
            job: JobId(7),
            state: awa::JobState::Failed,
            queue: "mail".to_owned(),
            priority: Priority(2),
            shard: Shard(0),
            kind: "send\u{1b}[2J".to_owned(),
            attempt: Attempt(1),
            run_lease: RunLease(1),
            max_attempts: 25,
            run_at: Instant::from_unix_us(0),
            created_at: Instant::from_unix_us(0),
            attempted_at: None,
            finalized_at: Some(Instant::from_unix_us(1)),
            args: Some(ARGS.to_owned()),
            payload: None,
        }
    }

    /// A number that no float can hold is said as it is stored.
    #[test]
    fn args_are_not_rounded() {
        let row = row();
        let json = serde_json::to_string(&JobView::whole(&row).unwrap()).unwrap();
        assert!(json.contains(&format!(r#""args":{ARGS},"payload":null"#)), "{json}");
        assert!(job_text(&row, PLAIN).ends_with(&format!("args          {ARGS}")));
    }

    /// A list does not load bodies, so it does not say that there are none.
    #[test]
    fn a_list_has_no_keys_for_what_it_does_not_load() {
        let row = row();
        let json = serde_json::to_value(JobView::head(&row)).unwrap();
        let keys: Vec<_> = json.as_object().unwrap().keys().collect();
        assert!(!keys.iter().any(|key| ["args", "payload"].contains(&key.as_str())), "{keys:?}");
        assert_eq!(json["attempted_at"], serde_json::Value::Null);
        assert_eq!(json["finalized_at"], "1970-01-01T00:00:00.000001Z");
    }

    /// What stands at the end of a job's line is when it is due, began or ended.
    #[test]
    fn a_line_has_the_instant_that_matters() {
        let at = |second: i64| Instant::from_unix_us(second * 1_000_000);
        for state in JobState::ALL {
            let (attempted_at, finalized_at) = (Some(at(2)), Some(at(3)));
            let row = JobRow { state, run_at: at(1), attempted_at, finalized_at, ..row() };
            let expected = match state {
                JobState::Available | JobState::Scheduled | JobState::Retryable => 1,
                JobState::Running | JobState::WaitingExternal => 2,
                JobState::Completed | JobState::Failed | JobState::Cancelled => 3,
            };
            let line = job_line(&row, PLAIN);
            assert!(line.ends_with(&instant(at(expected))), "{line}");
        }
    }

    /// A kind or args that somebody chose can't drive the terminal; args are JSON all the same.
    #[test]
    fn names_are_printed_safely() {
        let args = "{\"a\": \"\u{9b}31m\u{7f}é😀\"}";
        let row = JobRow { args: Some(args.to_owned()), ..row() };
        let printed = job_text(&row, Style { colour: false, unicode: false });
        assert!(printed.ends_with(r#"{"a": "\u009b31m\u007f\u00e9\ud83d\ude00"}"#), "{printed}");
        for text in [job_text(&row, PLAIN), job_line(&row, PLAIN)] {
            assert!(text.contains("send\\u{1b}[2J") && !text.contains('\u{1b}'), "{text:?}");
        }
    }
}
