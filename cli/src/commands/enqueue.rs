//! `awa enqueue`: NDJSON in, all or nothing.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal as _, Read, stdin};
use std::path::Path;
use std::process::ExitCode;

use awa::core::{JobId, Shard};
use awa::{Client, Job, QueueName, UserError};
use serde_json::json;

use super::{Done, Place};
use crate::draw::{Style, shown};
use crate::ndjson::{JobLine, read_jobs};
use crate::output::Failed;
use crate::progress::{Progress, Unit};
use crate::wording::counted;

/// Jobs of one statement: many enough to be fast, few enough that a bar moves.
const PIECE_JOBS: usize = 5_000;
/// Bytes of args and metadata after which a statement takes no further job: the protocol ends at 1 GiB.
const PIECE_BYTES: usize = 32 << 20;

pub(super) async fn enqueue(place: &Place, file: &Path, queue: &str) -> Done {
    let queue = QueueName::new(queue)?;
    let source = Source { name: name_of(file), queue };
    let lines = read(file, place.progress).map_err(|error| match error {
        Unread::Open(error) => Failed::other(&source.name, error),
        Unread::Lines(error) if error.is_unreadable() => Failed::other(&source.name, error),
        Unread::Lines(error) => Failed::input(format!("{}: {error}", source.name)),
    })?;
    let count = lines.len();
    let client = place.client().await?;
    let mut pieces = pieces(lines);
    let ids = if pieces.len() > 1 {
        send(place, &client, &source, pieces, count).await?
    } else {
        let piece = source.piece(pieces.pop().unwrap_or_default())?;
        let enqueued = client.enqueue_many(piece.jobs).await;
        enqueued.map_err(|error| source.failed(&piece.places, error))?
    };
    let ids: Vec<_> = ids.into_iter().map(|id| id.0).collect();
    let text = format!("Enqueued {}.", counted(count as i64, "job"));
    place.say(&text, &json!({ "enqueued": count, "jobs": ids }))?;
    Ok(ExitCode::SUCCESS)
}

/// What stood in the way of reading the file.
enum Unread {
    Open(io::Error),
    Lines(crate::ndjson::NdjsonError),
}

fn name_of(file: &Path) -> String {
    if is_standard_input(file) { "standard input".to_owned() } else { file.display().to_string() }
}

fn is_standard_input(file: &Path) -> bool {
    file == Path::new("-")
}

fn read(file: &Path, progress: Progress) -> Result<Vec<JobLine>, Unread> {
    let watched = |length, from: &mut dyn Read| {
        let bar = progress.bar("Reading", length, Unit::Bytes);
        let lines = read_lines(BufReader::new(bar.wrap_read(from)));
        bar.finish_and_clear();
        lines
    };
    if is_standard_input(file) {
        if stdin().is_terminal() && progress.is_told() {
            eprintln!(
                "awa: reading jobs from the terminal, one JSON object a line; end with Ctrl-D"
            );
        }
        return watched(None, &mut stdin().lock());
    }
    let mut opened = File::open(file).map_err(Unread::Open)?;
    let about = opened.metadata().map_err(Unread::Open)?;
    watched(about.is_file().then_some(about.len()), &mut opened)
}

fn read_lines(source: impl BufRead) -> Result<Vec<JobLine>, Unread> {
    read_jobs(source).map_err(Unread::Lines)
}

/// The lines in their order, in pieces for one statement each.
fn pieces(lines: Vec<JobLine>) -> Vec<Vec<JobLine>> {
    let mut pieces: Vec<Vec<JobLine>> = Vec::new();
    let mut bytes = 0;
    for line in lines {
        match pieces.last_mut() {
            Some(piece) if piece.len() < PIECE_JOBS && bytes < PIECE_BYTES => {
                bytes += line.bytes();
                piece.push(line);
            }
            Some(_) | None => {
                bytes = line.bytes();
                pieces.push(vec![line]);
            }
        }
    }
    pieces
}

/// All pieces in one transaction.
async fn send(
    place: &Place,
    client: &Client,
    source: &Source,
    pieces: Vec<Vec<JobLine>>,
    count: usize,
) -> Result<Vec<JobId>, Failed> {
    let queue_of = |line: &JobLine| line.queue.clone().unwrap_or_else(|| source.queue.clone());
    let queues: BTreeSet<QueueName> = pieces.iter().flatten().map(queue_of).collect();
    let bar = place.progress.bar("Enqueuing", Some(count as u64), Unit::Jobs);
    let mut connection = awa::connect(&place.url()?).await?;
    let begun = connection.transaction().await;
    let transaction = begun.map_err(|e| awa::Error::postgres("begin", e))?;
    let mut ids = Vec::with_capacity(count);
    for lines in pieces {
        let piece = source.piece(lines)?;
        let enqueued = client.enqueue_in(&transaction, piece.jobs).await;
        ids.extend(enqueued.map_err(|error| source.failed(&piece.places, error))?);
        bar.set_position(ids.len() as u64);
    }
    bar.set_message("committing");
    transaction.commit().await.map_err(|error| match error.as_db_error() {
        Some(_) => awa::Error::postgres("commit", error).into(),
        None => {
            let lost = "the connection was lost in COMMIT, so the jobs may or may not be there";
            Failed::other(lost, error)
        }
    })?;
    bar.finish_and_clear();
    for queue in queues {
        // What is committed can't fail any more.
        if let Err(error) = client.wake_queue(queue.as_str()).await {
            eprintln!("awa: workers were not told of the jobs and will find them: {error}");
        }
    }
    Ok(ids)
}

/// Where jobs come from, for errors, and the queue of those that name none.
struct Source {
    name: String,
    queue: QueueName,
}

/// Some jobs, and where each stands.
struct Piece {
    jobs: Vec<Job>,
    places: Vec<LinePlace>,
}

/// A line, as far as an error may be about it.
struct LinePlace {
    line: usize,
    queue: Option<QueueName>,
    shard: Shard,
}

impl Source {
    fn piece(&self, lines: Vec<JobLine>) -> Result<Piece, Failed> {
        let mut piece = Piece { jobs: Vec::new(), places: Vec::new() };
        for line in lines {
            let (number, queue, shard) = (line.line, line.queue.clone(), line.shard);
            piece.places.push(LinePlace { line: number, queue, shard });
            let job = line.into_job(self.queue.as_str());
            piece.jobs.push(job.map_err(|error| self.at(number, &error.to_string()))?);
        }
        Ok(piece)
    }

    fn at(&self, line: usize, what: &str) -> Failed {
        Failed::input(format!("{}: line {line}: {what}; nothing was enqueued", self.name))
    }

    /// The error with the first line that it is about, and what helps.
    fn failed(&self, places: &[LinePlace], error: awa::Error) -> Failed {
        let queue_of = |place: &LinePlace| match &place.queue {
            Some(queue) => queue.as_str().to_owned(),
            None => self.queue.as_str().to_owned(),
        };
        let (found, hint) = match error.as_user_error() {
            Some(UserError::UnknownQueue { queue }) => (
                places.iter().find(|place| queue_of(place) == *queue),
                format!("`awa declare-queue {}` declares it", shell_word(queue)),
            ),
            Some(UserError::UnknownShard { queue, shard }) => (
                places.iter().find(|p| queue_of(p) == *queue && p.shard.0 == *shard),
                format!(
                    "`awa declare-queue {} --shards {}` adds it",
                    shell_word(queue),
                    i32::from(*shard) + 1
                ),
            ),
            Some(_) | None => (None, String::new()),
        };
        match found {
            Some(LinePlace { line, queue: None, .. }) => {
                self.at(*line, &format!("no \"queue\" is given, and {error}; {hint}"))
            }
            Some(LinePlace { line, .. }) => self.at(*line, &format!("{error}; {hint}")),
            None => error.into(),
        }
    }
}

/// `text` as a shell takes it.
fn shell_word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:@".contains(c);
    if text.chars().all(plain) {
        text.to_owned()
    } else {
        let style = Style { colour: false, unicode: true };
        format!("'{}'", shown(text, usize::MAX, style).replace('\'', r"'\''"))
    }
}

impl JobLine {
    fn bytes(&self) -> usize {
        self.args.len() + self.metadata.as_ref().map_or(0, String::len)
    }

    /// The job that the line describes, on `queue` if it names none.
    pub(crate) fn into_job(self, queue: &str) -> Result<Job, Failed> {
        use crate::ndjson::Due;
        let queue = self.queue.as_ref().map_or(queue, |q| q.as_str());
        let mut job = Job::from_json(self.kind.as_str(), self.args)?
            .queue(queue)?
            .priority(self.priority.0.into())?
            .shard(self.shard.0.into())?
            .max_attempts(self.max_attempts.into())?;
        job = match self.due {
            Due::Now => job,
            Due::At(at) => job.run_at_instant(at),
            Due::After(span) => job.run_in(span.into()),
        };
        for tag in &self.tags {
            job = job.tag(tag)?;
        }
        if let Some(metadata) = &self.metadata {
            job = job.metadata_json(metadata)?;
        }
        Ok(job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A piece is bounded in jobs and in bytes; no line is lost or out of order.
    #[test]
    fn lines_are_sent_in_bounded_pieces() {
        let sizes = |text: &str| {
            let pieces = pieces(read_jobs(text.as_bytes()).unwrap());
            let lines: Vec<_> = pieces.iter().flatten().map(|line| line.line).collect();
            assert!(lines.is_sorted(), "{lines:?}");
            pieces.iter().map(Vec::len).collect::<Vec<_>>()
        };
        assert_eq!(sizes(""), [0; 0]);
        let small = "{\"kind\":\"k\"}\n";
        assert_eq!(sizes(&small.repeat(PIECE_JOBS)), [PIECE_JOBS]);
        assert_eq!(sizes(&small.repeat(PIECE_JOBS + 1)), [PIECE_JOBS, 1]);
        let large = format!("{{\"kind\":\"k\",\"args\":\"{}\"}}\n", "x".repeat(PIECE_BYTES / 4));
        assert_eq!(sizes(&large.repeat(9)), [4, 4, 1]);
    }

    #[test]
    fn a_name_is_quoted_for_the_shell_where_it_must_be() {
        for (name, word) in [
            ("mail", "mail"),
            ("a b", "'a b'"),
            ("it's", r"'it'\''s'"),
            ("$(reboot)", "'$(reboot)'"),
            ("a\u{1b}[2J", r"'a\u{1b}[2J'"),
        ] {
            assert_eq!(shell_word(name), word);
        }
    }
}
