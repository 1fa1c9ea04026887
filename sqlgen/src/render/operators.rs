//! Statements of the operators steps.

use awa_core::{JobId, JobState, LaneId, LaneSeq, ListFilter, Slot, TerminalFilter, TerminalRef};
use postgres_types::ToSql;

use super::{Cached, Named, sql};
use crate::Statement;
use crate::param::Params;
use crate::template::Template;

/// Texts that no argument changes.
pub(super) const FIXED: &[Named] =
    &[LOCATE_JOB, CANCEL_DEFERRED, RETRY_TERMINAL, DISCARD_TERMINAL, LOAD_JOB];

const LOCATE_JOB: Named = sql!("LocateJob");
const CANCEL_DEFERRED: Named = sql!("CancelDeferred");
const RETRY_TERMINAL: Named = sql!("RetryTerminal");
const DISCARD_TERMINAL: Named = sql!("DiscardTerminal");
const LOAD_JOB: Named = sql!("LoadJob");

pub(super) fn locate_job(sql: &Cached, job: JobId) -> Statement {
    sql.bind(LOCATE_JOB, vec![Box::new(job.0)])
}

pub(super) fn load_job(sql: &Cached, job: JobId) -> Statement {
    sql.bind(LOAD_JOB, vec![Box::new(job.0)])
}

pub(super) fn tombstone_ready(
    sql: &Cached,
    slot: Slot,
    lane: LaneId,
    lane_seq: LaneSeq,
) -> Statement {
    sql.bind_slot(sql!("TombstoneReady"), slot, position(lane, lane_seq))
}

pub(super) fn hide_completed(
    sql: &Cached,
    slot: Slot,
    lane: LaneId,
    lane_seq: LaneSeq,
) -> Statement {
    sql.bind_slot(sql!("HideCompleted"), slot, position(lane, lane_seq))
}

pub(super) fn cancel_deferred(sql: &Cached, job: JobId) -> Statement {
    sql.bind(CANCEL_DEFERRED, vec![Box::new(job.0)])
}

pub(super) fn match_terminal(
    sql: &Cached,
    filter: &TerminalFilter,
    after: Option<JobId>,
    limit: i64,
) -> Statement {
    let (spelling, value): (_, Box<dyn ToSql + Sync + Send>) = match filter {
        TerminalFilter::Job(job) => ("job", Box::new(job.0)),
        TerminalFilter::Kind(kind) => ("kind", Box::new(kind.as_str().to_owned())),
        TerminalFilter::Queue(queue) => ("queue", Box::new(queue.as_str().to_owned())),
    };
    let params: Params = vec![value, Box::new(after.map(|job| job.0)), Box::new(limit)];
    sql.bind(spelled(sql!("MatchTerminal"), spelling), params)
}

pub(super) fn retry_terminal(sql: &Cached, rows: &[TerminalRef]) -> Statement {
    sql.bind(RETRY_TERMINAL, references(rows))
}

pub(super) fn discard_terminal(sql: &Cached, rows: &[TerminalRef]) -> Statement {
    sql.bind(DISCARD_TERMINAL, references(rows))
}

pub(super) fn list_jobs(sql: &Cached, filter: &ListFilter) -> Statement {
    let (spelling, names_state) = match filter.state {
        JobState::Available => ("available", false),
        JobState::Scheduled | JobState::Retryable => ("deferred", true),
        JobState::Running | JobState::WaitingExternal => ("running", true),
        JobState::Completed => ("completed", false),
        JobState::Failed | JobState::Cancelled => ("terminal", true),
    };
    let mut params: Params = vec![
        Box::new(filter.queue.as_ref().map(|queue| queue.as_str().to_owned())),
        Box::new(filter.kind.as_ref().map(|kind| kind.as_str().to_owned())),
        Box::new(filter.before.map(|job| job.0)),
        Box::new(i64::from(filter.limit)),
    ];
    if names_state {
        params.push(Box::new(filter.state.as_str()));
    }
    sql.bind(spelled(sql!("ListJobs"), spelling), params)
}

fn position(lane: LaneId, lane_seq: LaneSeq) -> Params {
    vec![Box::new(lane.0), Box::new(lane_seq.0)]
}

fn references(rows: &[TerminalRef]) -> Params {
    let jobs: Vec<i64> = rows.iter().map(|row| row.job.0).collect();
    let lanes: Vec<i64> = rows.iter().map(|row| row.lane.0).collect();
    let positions: Vec<i64> = rows.iter().map(|row| row.lane_seq.0).collect();
    vec![Box::new(jobs), Box::new(lanes), Box::new(positions)]
}

/// One of the spellings of a statement whose file has several, each under a line `-- [spelling]`.
fn spelled((name, text): Named, spelling: &str) -> Named {
    let mut parts = text.0.split("\n-- [").skip(1);
    let part =
        parts.find_map(|part| part.strip_prefix(spelling)?.strip_prefix(']')?.split_once('\n'));
    (name, Template(part.map_or("", |(_, text)| text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_is_there() {
        for spelling in ["job", "kind", "queue"] {
            assert!(spelled(sql!("MatchTerminal"), spelling).1.0.contains("done_entries"));
        }
        for spelling in ["available", "deferred", "running", "completed", "terminal"] {
            assert!(spelled(sql!("ListJobs"), spelling).1.0.contains("order by"), "{spelling}");
        }
    }
}
