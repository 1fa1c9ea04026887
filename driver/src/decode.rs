//! From what a statement answered to the step's reply: one arm a variant.

mod cold;
mod hot;

use awa_core::{Reply, Step};
use tokio_postgres::Row;

/// What came back for one statement.
#[derive(Debug)]
pub(crate) enum Answer {
    /// Rows of a prepared statement.
    Rows(Vec<Row>),
    /// A script ended without an error.
    Done,
    /// Rows that a COPY took.
    Copied(u64),
}

/// A reply that doesn't have the shape that its statement promises.
#[derive(Debug)]
pub(crate) struct Misshapen {
    /// What was wrong.
    pub(crate) what: String,
}

impl From<tokio_postgres::Error> for Misshapen {
    fn from(e: tokio_postgres::Error) -> Self {
        Self { what: e.to_string() }
    }
}

pub(crate) fn decode(step: &Step, answer: Answer) -> Result<Reply, Misshapen> {
    match step {
        Step::LockRing { .. }
        | Step::LockSlot { .. }
        | Step::ExcludeWriters { .. }
        | Step::Exclude { .. }
        | Step::ExcludeDeltas { .. }
        | Step::ExcludeCounters { .. }
        | Step::LockLane { .. }
        | Step::Fence { .. } => Ok(Reply::Locked),
        Step::Truncate { .. } | Step::TruncateDeltas { .. } => Ok(Reply::Truncated),
        Step::Wake { .. } => Ok(Reply::Woken),
        Step::ObserveRing { ring } => cold::ring_observed(*ring, &rows(answer)?),
        Step::Probe { .. } => cold::probed(&rows(answer)?),
        Step::CountClaims { .. } => cold::claims_counted(&rows(answer)?),
        Step::SurveyTerminal { .. } => cold::surveyed(&rows(answer)?),
        Step::CarryForward { .. } => cold::carried(&rows(answer)?),
        Step::FoldRollup { .. } => cold::folded(&rows(answer)?),
        Step::MarkPruned { .. } | Step::Rotate { .. } | Step::SetTrust { .. } => {
            cold::marked(&rows(answer)?)
        }
        Step::ObserveLoads { .. } => cold::loads_observed(&rows(answer)?),
        Step::FindDeltas => cold::slots_found(&rows(answer)?),
        Step::FoldDeltas { .. } => cold::deltas_folded(&rows(answer)?),
        Step::RebuildCounters => cold::rebuilt(&rows(answer)?),
        Step::ReadCounts { .. } => cold::counted(&rows(answer)?),
        Step::ReadPrunedFailed { .. } => cold::pruned_failed(&rows(answer)?),
        Step::DeclareQueue { .. } | Step::FindLanes { .. } => hot::lanes_found(&rows(answer)?),
        Step::EnqueueReady { .. } | Step::EnqueueDeferred { .. } => hot::enqueued(&rows(answer)?),
        Step::ReadCursor => hot::cursor_read(&rows(answer)?),
        Step::CopyReady { .. } => hot::copied(&answer),
        Step::PromoteDue { .. } => hot::promoted(&rows(answer)?),
        Step::ReadNextDue => hot::next_due(&rows(answer)?),
        Step::ReadPosition => hot::position_read(&rows(answer)?),
        Step::ClaimReady { .. } => hot::claimed(&rows(answer)?),
        Step::ReadOwnXid => hot::own_xid(&rows(answer)?),
        Step::PollLanes { .. } => hot::polled(&rows(answer)?),
        Step::CompleteCompact { .. } | Step::CloseAttempts { .. } | Step::HandBack { .. } => {
            hot::closed(&rows(answer)?)
        }
        Step::FindOverdue { .. } => cold::overdue(&rows(answer)?),
        Step::LocateJob { .. } => cold::located(&rows(answer)?),
        Step::MatchTerminal { .. } => cold::matched(&rows(answer)?),
        Step::TombstoneReady { .. }
        | Step::CancelDeferred { .. }
        | Step::RetryTerminal { .. }
        | Step::DiscardTerminal { .. }
        | Step::HideCompleted { .. } => cold::moved(&rows(answer)?),
        Step::LoadJob { .. } => cold::job_loaded(&rows(answer)?),
        Step::ListJobs { .. } => cold::jobs_listed(&rows(answer)?),
    }
}

fn rows(answer: Answer) -> Result<Vec<Row>, Misshapen> {
    match answer {
        Answer::Rows(rows) => Ok(rows),
        Answer::Done | Answer::Copied(_) => Err(Misshapen { what: "no rows came back".to_owned() }),
    }
}
