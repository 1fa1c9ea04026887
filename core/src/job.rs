//! Jobs as they travel between a caller, a lane and history.

use alloc::string::String;

use crate::fault::{Field, UserError};
use crate::ids::{
    Attempt, BatchId, JobId, LaneId, LaneSeq, Place, Priority, ReceiptId, RunLease, Shard,
};
use crate::json;
use crate::limits;
use crate::names::{Kind, QueueName};
use crate::ring::Slot;
use crate::rules::BodyTraits;
use crate::state::JobState;
use crate::time::{Instant, Span};

/// A lane and what it stands for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane {
    /// Its number.
    pub lane: LaneId,
    /// Its priority within the queue.
    pub priority: Priority,
    /// Its shard within the priority.
    pub shard: Shard,
}

/// A job to be enqueued, checked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NewJob {
    /// The lane that it waits in.
    pub lane: LaneId,
    /// What it is for.
    pub kind: Kind,
    /// Its args as JSON text.
    pub args: String,
    /// Attempts that it is given, 1 to [`limits::ATTEMPTS_MAX`].
    pub max_attempts: i16,
    /// Metadata and tags as a JSON object with the keys `metadata` and `tags`; `None` when it has neither.
    pub payload: Option<String>,
}

impl NewJob {
    /// A job of `kind` for `lane`; `args` is JSON text.
    ///
    /// # Errors
    /// Names the field: args that are no JSON or too big, `max_attempts` out of range.
    pub fn new(
        lane: LaneId,
        kind: Kind,
        args: String,
        max_attempts: i64,
        payload: Option<String>,
    ) -> Result<Self, UserError> {
        json::check(&args)?;
        if let Some(text) = &payload {
            json::check_field(Field::Metadata, text)?;
        }
        let max = limits::ATTEMPTS_MAX;
        let max_attempts = in_range(Field::MaxAttempts, max_attempts, 1, max.into())? as i16;
        Ok(Self { lane, kind, args, max_attempts, payload })
    }
}

/// `value`, if it lies in `min..=max`.
///
/// # Errors
/// Names the field and its range.
pub fn in_range(field: Field, value: i64, min: i64, max: i64) -> Result<i64, UserError> {
    if (min..=max).contains(&value) {
        Ok(value)
    } else {
        Err(UserError::OutOfRange { field, value, min, max })
    }
}

/// What a claim gives to a worker for one job.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClaimedJob {
    /// The attempt's identity: what closes it.
    pub receipt: Receipt,
    /// Its kind.
    pub kind: String,
    /// Its args as JSON text.
    pub args: String,
    /// The number of this attempt, from 1.
    pub attempt: Attempt,
    /// Attempts that it is given.
    pub max_attempts: i16,
    /// When it was to run.
    pub run_at: Instant,
    /// When it was first enqueued.
    pub created_at: Instant,
    /// What decides how its success may be stored (`R026-15`).
    pub traits: BodyTraits,
    /// Metadata, tags and earlier errors as JSON text, where there are any.
    pub payload: Option<String>,
}

/// The identity of one attempt, as the claim returned it (`R026-06`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Receipt {
    /// The claim ring's slot that holds the claim.
    pub claim_slot: Slot,
    /// The claim that took the job.
    pub batch: BatchId,
    /// Its place in the batch.
    pub index: Place,
    /// The job.
    pub job: JobId,
    /// The job's lease for this attempt.
    pub run_lease: RunLease,
}

impl Receipt {
    /// The receipt's own number.
    #[must_use]
    pub const fn id(&self) -> ReceiptId {
        ReceiptId::of(self.batch, self.index)
    }
}

/// How an attempt ended, on the general path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Exit {
    /// Which attempt.
    pub receipt: Receipt,
    /// How.
    pub ending: Ending,
}

/// The endings that the general path knows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Ending {
    /// It succeeded.
    Completed,
    /// It failed, and the job with it.
    Failed {
        /// Storable text: see [`json::keep_error_text`].
        error: String,
    },
    /// It failed; the job is tried again, `delay` from the database's now.
    Retry {
        /// Storable text.
        error: String,
        /// Time until the next attempt may begin.
        delay: Span,
    },
}

/// Names one row of retryable history. It survives a carry: the position moves along.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TerminalRef {
    /// The job.
    pub job: JobId,
    /// Its lane.
    pub lane: LaneId,
    /// Its position when it ended.
    pub lane_seq: LaneSeq,
}

/// Where a job is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Location {
    /// In its lane, unclaimed.
    Ready(ReadyRef),
    /// Waiting for its `run_at`.
    Deferred {
        /// `Scheduled` or `Retryable`.
        state: JobState,
    },
    /// Claimed and open.
    Running(ReadyRef),
    /// Succeeded, stored compactly; not retryable (`R026-17`).
    Compact(ReadyRef),
    /// In retryable history.
    Terminal {
        /// `Completed`, `Failed` or `Cancelled`.
        state: JobState,
        /// The row.
        row: TerminalRef,
    },
}

impl Location {
    /// The job's state. A job that waits for an outside event is `Running` here.
    #[must_use]
    pub const fn state(&self) -> JobState {
        match self {
            Self::Ready(_) => JobState::Available,
            Self::Deferred { state } | Self::Terminal { state, .. } => *state,
            Self::Running(_) => JobState::Running,
            Self::Compact(_) => JobState::Completed,
        }
    }
}

/// A ready row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReadyRef {
    /// The queue ring's slot that holds it.
    pub slot: Slot,
    /// Its lane.
    pub lane: LaneId,
    /// Its position.
    pub lane_seq: LaneSeq,
}

/// Which terminal rows an operator means.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TerminalFilter {
    /// One job, failed or cancelled.
    Job(JobId),
    /// Failed jobs of a kind, over all queues.
    Kind(Kind),
    /// Failed jobs of a queue.
    Queue(QueueName),
}

/// A whole job, wherever it is (`R026-03`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct JobRow {
    /// Its number.
    pub job: JobId,
    /// What it is.
    pub state: JobState,
    /// Its queue.
    pub queue: String,
    /// Its priority.
    pub priority: Priority,
    /// Its shard.
    pub shard: Shard,
    /// Its kind.
    pub kind: String,
    /// Attempts made since it was last enqueued or retried.
    pub attempt: Attempt,
    /// Claims made in its whole life.
    pub run_lease: RunLease,
    /// Attempts that it is given.
    pub max_attempts: i16,
    /// When it was, or is, to run.
    pub run_at: Instant,
    /// When it was first enqueued.
    pub created_at: Instant,
    /// When its last attempt began.
    pub attempted_at: Option<Instant>,
    /// When it ended.
    pub finalized_at: Option<Instant>,
    /// Its args as JSON text; a list leaves them out (H40).
    pub args: Option<String>,
    /// Metadata, tags and errors as JSON text; a list leaves them out.
    pub payload: Option<String>,
}

/// Which jobs a list shows: retained jobs of one state, newest id first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ListFilter {
    /// Only this queue's.
    pub queue: Option<QueueName>,
    /// Only this kind's.
    pub kind: Option<Kind>,
    /// Only jobs in this state.
    pub state: JobState,
    /// Only jobs with a smaller id: the last of the page before.
    pub before: Option<JobId>,
    /// Rows of a page, at least 1.
    pub limit: u16,
}

/// Exact counts of one queue, as one statement saw them (`R026-23`, `R032-08`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct QueueCounts {
    /// In a lane, unclaimed.
    pub available: i64,
    /// Waiting for the first `run_at`.
    pub scheduled: i64,
    /// Waiting for the next attempt.
    pub retryable: i64,
    /// Claimed and open.
    pub running: i64,
    /// Open, waiting for an outside event.
    pub waiting_external: i64,
    /// Retained successes, those hidden by a delete left out.
    pub completed: i64,
    /// Retained failures: all of them can be retried.
    pub failed: i64,
    /// Retained cancellations.
    pub cancelled: i64,
    /// Successes and cancellations that left the ring, ever.
    pub pruned_other: i64,
    /// Failures that left the ring past the floor, ever: no longer retryable.
    pub pruned_failed: i64,
}

impl QueueCounts {
    /// All terminal facts that are still retained.
    #[must_use]
    pub const fn terminal_retained(&self) -> i64 {
        self.completed + self.failed + self.cancelled
    }

    /// Every job that the queue accounts for; with what was discarded, every job ever enqueued (H36).
    #[must_use]
    pub const fn total(&self) -> i64 {
        self.available
            + self.scheduled
            + self.retryable
            + self.running
            + self.waiting_external
            + self.terminal_retained()
            + self.pruned_other
            + self.pruned_failed
    }

    /// The fields with their names, in the order of a job's life.
    #[must_use]
    pub const fn named(&self) -> [(&'static str, i64); 10] {
        [
            ("available", self.available),
            ("scheduled", self.scheduled),
            ("retryable", self.retryable),
            ("running", self.running),
            ("waiting_external", self.waiting_external),
            ("completed", self.completed),
            ("failed", self.failed),
            ("cancelled", self.cancelled),
            ("pruned_other", self.pruned_other),
            ("pruned_failed", self.pruned_failed),
        ]
    }
}

/// What one slot of a ring holds, as far as it can be told cheaply: what the ring's policy goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct SlotLoad {
    /// The slot.
    pub slot: Slot,
    /// Bytes of all its children, indexes included.
    pub bytes: i64,
    /// Whether it holds anything that a prune would drop: any row but failures inside the floor.
    pub has_droppable: bool,
    /// About how many rows a prune would drop, jobs of compact batches included. 0 if unknown.
    pub droppable_hint: i64,
    /// About how many failures inside the floor a prune would carry; too many is safe and only
    /// postpones. 0 in the lease and the claim ring, which carry nothing.
    pub carried_hint: i64,
    /// When the newest terminal fact of the slot was finalised, as far as that is cheap to tell: jobs
    /// of a slot may end long after it was sealed. Without it, history counts from the sealing.
    /// `None` in the lease and the claim ring, which hold no history.
    pub newest_fact_at: Option<Instant>,
}

/// An attempt that should be over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OverdueAttempt {
    /// Which attempt.
    pub receipt: Receipt,
    /// Its number, from 1.
    pub attempt: Attempt,
    /// Attempts that its job is given.
    pub max_attempts: i16,
}

/// What prune will do to the terminal rows of a slot, read before it does it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct TerminalSurvey {
    /// Failures inside the floor.
    pub carried: i64,
    /// Of those, narrow ones whose ready row is gone (H30).
    pub bodies_missing: i64,
    /// Failures past the floor.
    pub failed: i64,
    /// Other rows of retryable history.
    pub other: i64,
    /// Compact successes, those hidden by a delete left out.
    pub compact: i64,
}
