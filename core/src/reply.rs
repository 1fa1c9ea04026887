//! What a step answers. Expected contention is a reply, not an error.
#![allow(missing_docs, reason = "a variant's own text says what its fields are")]

use alloc::vec::Vec;

use crate::ids::{JobId, LaneId, LaneSeq, ReceiptId, Xid};
use crate::job::{
    ClaimedJob, JobRow, Lane, Location, OverdueAttempt, QueueCounts, SlotLoad, TerminalRef,
    TerminalSurvey,
};
use crate::ring::{RingView, Segment, Slot};
use crate::time::Instant;
use crate::visibility::Snapshot;

/// The answer to one [`crate::Step`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reply {
    /// The lock is held until the transaction ends.
    Locked,
    /// The step did nothing and the transaction can only be rolled back.
    Refused(Refusal),
    /// The ring, from one statement.
    RingObserved(RingView),
    /// `Some(witness)`: something stands in the way.
    Probed { held_by: Option<i64> },
    /// How many claims there are, open or not.
    ClaimsCounted { claims: i64 },
    /// The first reading of what prune will do.
    Surveyed(TerminalSurvey),
    /// Rows inserted into the destination; the sum of the deltas appended with them.
    Carried { rows: i64, deltas: i64 },
    /// What the fold's own scan added to the permanent counts.
    Folded { other: i64, failed: i64 },
    /// Emptied.
    Truncated,
    /// Written.
    Marked,
    /// The queue ring's slots, by number.
    LoadsObserved(Vec<SlotLoad>),
    /// Slots, ascending.
    SlotsFound(Vec<Slot>),
    /// Deltas read, and their sum.
    DeltasFolded { rows: i64, sum: i64 },
    /// Rows of retryable history that the new counters count, and the counters' sum.
    Rebuilt { rows: i64, sum: i64 },
    /// Exact counts; `None` if the queue was never declared.
    Counted(Option<QueueCounts>),
    /// A cumulative count; `None` if the queue was never declared.
    PrunedFailed(Option<i64>),
    /// Lanes, by priority and shard.
    LanesFound(Vec<Lane>),
    /// New job ids, in the order of the jobs.
    Enqueued(Vec<JobId>),
    /// The open segment, which may be stale as soon as it is read.
    CursorRead(Segment),
    /// How many rows were copied.
    Copied(u64),
    /// Jobs promoted, with their lanes.
    Promoted(Vec<(JobId, LaneId)>),
    /// The clock, and the `run_at` of the next deferred job.
    NextDue { now: Instant, due: Option<Instant> },
    /// Told, or nobody listens.
    Woken,
    /// The last position drawn.
    PositionRead(LaneSeq),
    /// What a claim took.
    Claimed(Claimed),
    /// The own transaction's id.
    OwnXid(Option<Xid>),
    /// The snapshot of a poll, and the lanes that hold something to claim, ascending.
    Polled { seen: Snapshot, holding: Vec<LaneId> },
    /// Attempts that should be over, those that are overdue for longest first.
    Overdue(Vec<OverdueAttempt>),
    /// The attempts that this step closed, ascending; any other one named was not open to it.
    Closed(Vec<ReceiptId>),
    /// Where the job is; `None`: nowhere that is retained.
    Located(Option<Location>),
    /// Rows that fit.
    Matched(Vec<TerminalRef>),
    /// The jobs that the step moved, ascending, with their lanes.
    Moved(Vec<(JobId, LaneId)>),
    /// The job, if it is retained.
    JobLoaded(Option<JobRow>),
    /// A page.
    JobsListed(Vec<JobRow>),
    /// The body of a job that was to be loaded or listed is nowhere; none is made up (`R026-03`).
    BodyMissing { job: JobId },
}

/// The reply to `ClaimReady`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Claimed {
    /// The snapshot in which rows were chosen.
    pub seen: Snapshot,
    /// Whether a bound (rows or bytes) may have left rows behind.
    pub bounded: bool,
    /// The last position taken.
    pub last: Option<LaneSeq>,
    /// When the attempts began.
    pub attempted_at: Instant,
    /// When they must be over, if they must.
    pub deadline_at: Option<Instant>,
    /// The jobs, in lane order.
    pub jobs: Vec<ClaimedJob>,
}

/// Why a step did nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refusal {
    /// Someone held a lock for longer than the step may wait.
    LockTimeout,
    /// PostgreSQL broke a deadlock, or refused to serialise the caller's own transaction.
    Conflict,
}

impl core::fmt::Display for Refusal {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::LockTimeout => "a lock was not to be had in time",
            Self::Conflict => "PostgreSQL undid it to resolve a conflict",
        })
    }
}
