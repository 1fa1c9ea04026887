//! Jobs from NDJSON: one JSON object a line, all of them or none.
//!
//! | key | value | if absent or `null` |
//! |---|---|---|
//! | `kind` | text, 1 to 200 bytes | refused |
//! | `args` | any JSON, at most 16 MiB; handed on as it stands in the file (`null` is a value) | `{}` |
//! | `queue` | text, 1 to 200 bytes | the command's queue |
//! | `priority` | 1 (most urgent) to 4 | 2 |
//! | `shard` | 0 to 63 | 0 |
//! | `max_attempts` | 1 to 32,767 | 25 |
//! | `run_at` | an instant as RFC 3339 text | now |
//! | `in_s` | seconds from now, at least 0, at most six decimals; not beside `run_at` | now |
//! | `tags` | an array of texts, each 1 to 200 bytes | none |
//! | `metadata` | an object, at most 16 MiB | none |
//!
//! Any other key is refused, so that a typo doesn't vanish; so is a key given twice. Blank lines,
//! CRLF and a byte order mark at the start are fine.
//!
//! Inside `args` and `metadata` a key may stand twice: that is JSON, and what it means is `jsonb`'s
//! to say, which keeps the last value. A service that enqueues the same text gets the same job.

use std::error::Error;
use std::fmt;
use std::io::{self, BufRead, Read};

use awa::core::fault::{JsonReason, UserError};
use awa::core::{Instant, Kind, Priority, QueueName, Shard, Span, limits};

mod fields;
mod rfc3339;

pub(crate) use rfc3339::format as rfc3339_of;
#[cfg(test)]
mod tests;

/// Bytes of one line, its end included: the largest args and room for everything beside them.
pub(crate) const LINE_BYTES_MAX: usize = limits::ARGS_BYTES_MAX + (1 << 20);

/// What a line may hold, for a person.
pub(crate) const HELP: &str = "\
A line is a JSON object that describes one job. Blank lines are skipped. Errors name
line, column and path; then nothing is enqueued, however many lines were fine.

  kind          text, 1 to 200 bytes; every line needs it
  args          any JSON, at most 16 MiB (16777216 bytes), at most 256 levels deep;
                default {}. Stored as jsonb: a number keeps all its digits, of a key
                that stands twice in one object the last value is kept
  queue         text, 1 to 200 bytes: a declared queue; default: that of --queue
  priority      whole number, 1 (the most urgent) to 4; default 2
  shard         whole number, 0 to 63 and less than the queue has; default 0
  max_attempts  whole number, 1 to 32767; default 25
  run_at        text: not before this instant, as RFC 3339 has it, for example
                \"2026-11-30T08:15:00+01:00\"; default: now
  in_s          number: not before so many seconds from now, at least 0, at most six
                decimals; not beside run_at; default 0
  tags          array of texts of 1 to 200 bytes each; default: none
  metadata      object, at most 255 levels deep, else bounded and stored like args;
                default: none

Instead of its default a key may be null (args may not: there null is a value, and
kind has no default). Any other key is refused, and so is one given twice. A line has
at most 17825792 bytes.";

const BYTE_ORDER_MARK: &str = "\u{feff}";

/// One job as a line describes it, every field within its bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JobLine {
    /// Where it stands in the file, from 1.
    pub(crate) line: usize,
    /// What it is for.
    pub(crate) kind: Kind,
    /// Its args as the file spells them: numbers are not rounded, keys keep their order.
    pub(crate) args: String,
    /// Its queue; `None` where the line leaves that to the command.
    pub(crate) queue: Option<QueueName>,
    /// Its priority.
    pub(crate) priority: Priority,
    /// Its shard.
    pub(crate) shard: Shard,
    /// Attempts that it is given.
    pub(crate) max_attempts: i16,
    /// When it may run.
    pub(crate) due: Due,
    /// Its tags, in the order of the file.
    pub(crate) tags: Vec<String>,
    /// Its metadata, an object, as the file spells it.
    pub(crate) metadata: Option<String>,
}

/// When a job may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// At once.
    Now,
    /// At an instant of the database's clock. A past one means at once.
    At(Instant),
    /// So long after the database's now.
    After(Span),
}

/// Why no job was read, and where in the file the reason lies.
#[derive(Debug)]
pub(crate) struct NdjsonError {
    /// The line, from 1.
    pub(crate) line: usize,
    /// The character in the line, from 1; a byte order mark is not counted.
    pub(crate) column: usize,
    /// The place in the line's object, as `$.args.items[3]`; `None` where the line holds no JSON.
    pub(crate) path: Option<String>,
    /// What is wrong there.
    pub(crate) flaw: Flaw,
}

/// What is wrong with a line.
#[derive(Debug)]
pub(crate) enum Flaw {
    /// The source could not be read on.
    Unreadable(io::Error),
    /// The line is longer than [`LINE_BYTES_MAX`].
    LineTooLong,
    /// Not UTF-8 from this byte of the line on, counted from 1.
    NotUtf8 { byte: usize },
    /// Not JSON that can be stored.
    Json(JsonReason),
    /// JSON of another type or form than the key wants.
    NotA(&'static str),
    /// A key that no job has.
    UnknownKey(String),
    /// A key that stands twice in the object.
    RepeatedKey(String),
    /// A key that every job needs.
    MissingKey(&'static str),
    /// Both `run_at` and `in_s`.
    TwoTimes,
    /// A value out of its bounds.
    Bounds(UserError),
}

/// Reads every job of `source`, in order. Memory is in proportion to the input; a caller that
/// enqueues what it gets in one transaction has written all of the file or nothing.
///
/// # Errors
/// A flaw of the first line that has one, with its place. What was read before it is dropped.
pub(crate) fn read_jobs(mut source: impl BufRead) -> Result<Vec<JobLine>, NdjsonError> {
    let mut jobs = Vec::new();
    let mut bytes = Vec::new();
    let mut line = 0;
    loop {
        line += 1;
        if !next_line(&mut source, line, &mut bytes)? {
            return Ok(jobs);
        }
        let text = utf8(line, &bytes)?;
        if !text.bytes().all(|b| matches!(b, b' ' | b'\t' | b'\r' | b'\n')) {
            jobs.push(fields::job(line, text)?);
        }
    }
}

/// The next line into `bytes`, without its line feed; `false` at the end of the source. Takes no
/// more into memory than a line may have.
fn next_line(
    source: &mut impl BufRead,
    line: usize,
    bytes: &mut Vec<u8>,
) -> Result<bool, NdjsonError> {
    let at_column = |column, flaw| NdjsonError { line, column, path: None, flaw };
    bytes.clear();
    let mut bounded = source.take(LINE_BYTES_MAX as u64 + 1);
    bounded.read_until(b'\n', bytes).map_err(|error| at_column(1, Flaw::Unreadable(error)))?;
    if bytes.len() > LINE_BYTES_MAX {
        return Err(at_column(1, Flaw::LineTooLong));
    }
    let some = !bytes.is_empty();
    if bytes.ends_with(b"\n") {
        bytes.pop();
    }
    Ok(some)
}

/// The line as text, without the byte order mark that the first may begin with.
fn utf8(line: usize, bytes: &[u8]) -> Result<&str, NdjsonError> {
    let mark = BYTE_ORDER_MARK.as_bytes();
    let marked = line == 1 && bytes.starts_with(mark);
    let text = if marked { &bytes[mark.len()..] } else { bytes };
    std::str::from_utf8(text).map_err(|error| {
        let valid = String::from_utf8_lossy(&text[..error.valid_up_to()]);
        let column = 1 + valid.chars().count();
        let byte = 1 + bytes.len() - text.len() + error.valid_up_to();
        NdjsonError { line, column, path: None, flaw: Flaw::NotUtf8 { byte } }
    })
}

impl NdjsonError {
    /// Whether the source is at fault and not what stands in it.
    pub(crate) fn is_unreadable(&self) -> bool {
        matches!(self.flaw, Flaw::Unreadable(_))
    }
}

impl fmt::Display for NdjsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: ", self.line, self.column)?;
        if let Some(path) = &self.path {
            write!(f, "{path}: ")?;
        }
        write!(f, "{}", self.flaw)
    }
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(error) => write!(f, "could not be read: {error}"),
            Self::LineTooLong => write!(f, "the line is longer than {LINE_BYTES_MAX} bytes"),
            Self::NotUtf8 { byte } => write!(f, "byte {byte} of the line is not UTF-8"),
            Self::Json(reason) => write!(f, "{reason}"),
            Self::NotA(wanted) => write!(f, "must be {wanted}"),
            Self::UnknownKey(key) => {
                write!(f, "unknown key {key:?}; a job has {}", fields::KEYS.join(", "))
            }
            Self::RepeatedKey(key) => write!(f, "key {key:?} is given twice"),
            Self::MissingKey(key) => write!(f, "key {key:?} is missing"),
            Self::TwoTimes => f.write_str("give either \"run_at\" or \"in_s\", not both"),
            Self::Bounds(error) => write!(f, "{error}"),
        }
    }
}

impl Error for NdjsonError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.flaw {
            Flaw::Unreadable(error) => Some(error),
            Flaw::Bounds(error) => Some(error),
            Flaw::LineTooLong
            | Flaw::NotUtf8 { .. }
            | Flaw::Json(_)
            | Flaw::NotA(_)
            | Flaw::UnknownKey(_)
            | Flaw::RepeatedKey(_)
            | Flaw::MissingKey(_)
            | Flaw::TwoTimes => None,
        }
    }
}
