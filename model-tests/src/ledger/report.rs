//! What an implementation reports to the Ledger, and the rules that a report can break.

use std::collections::BTreeMap;
use std::fmt;

/// The unit of order: within a lane, and only there, claims keep the order of enqueues.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Lane {
    /// Queue, by number.
    pub queue: u32,
    /// Priority that the job was enqueued with; an aged priority is output only.
    pub priority: i16,
    /// Enqueue shard.
    pub shard: i16,
}

/// Where a job is. Every job that was ever enqueued is in exactly one of these (H36).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum State {
    /// Committed and waiting to be claimed.
    Available,
    /// Waiting for its first `run_at`.
    Scheduled,
    /// An attempt failed, another is due at `run_at`.
    Retryable,
    /// An attempt is live.
    Running,
    /// An attempt is live and waits for an external callback.
    Waiting,
    /// Succeeded; its fact is retained.
    Completed,
    /// Failed for good; its fact is retained.
    Failed,
    /// Cancelled; its fact is retained.
    Cancelled,
    /// Completed or cancelled, and folded by a prune.
    PrunedOther,
    /// Failed, and folded by a prune.
    PrunedFailed,
    /// Moved to the dead-letter queue.
    Dlq,
    /// Discarded, or deleted after it completed.
    Deleted,
}

/// Number of jobs in each state, as a queue's counts are reported; an absent state counts zero.
/// Signed, so that a negative count can be reported and is rejected.
pub type Counts = BTreeMap<State, i64>;

/// What the caller of a single-job transition was told: the state that the job is in now, or `None`
/// if it was refused (the attempt is stale, or the state does not allow it).
pub type Told = Option<State>;

/// A job as a producer hands it over.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NewJob {
    /// Identity, never used again.
    pub job: u64,
    /// Lane of this and of every later entry.
    pub lane: Lane,
    /// Kind, by number.
    pub kind: u32,
    /// Digest of the whole immutable body.
    pub body: u64,
    /// Attempts allowed before a failure is terminal, at least 1.
    pub max_attempts: i16,
    /// `Some` schedules the job for that instant (µs) instead of making it available.
    pub run_at_us: Option<i64>,
}

/// One job of a claim, as the worker received it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Claimed {
    /// Identity.
    pub job: u64,
    /// Attempt, one-based.
    pub attempt: i16,
    /// Lease of this attempt; larger than any that the job had before.
    pub run_lease: i64,
    /// Digest of the body that was handed out.
    pub body: u64,
}

/// Which jobs a retry is about.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Scope {
    /// One job, failed or cancelled.
    One(u64),
    /// The failed jobs of a kind.
    Kind(u32),
    /// The failed jobs of a queue.
    Queue(u32),
}

/// What a retry reported (R032-09).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Retried {
    /// Jobs that are available again.
    pub jobs: Vec<u64>,
    /// Unique jobs that the scan matched before.
    pub matched: i64,
    /// Cumulative failed jobs pruned from the queue; `None` unless the scope is a queue.
    pub pruned_failed: Option<i64>,
}

/// What a prune reported.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Pruned {
    /// Jobs whose terminal fact is no longer retained anywhere.
    pub vanished: Vec<u64>,
    /// Failed rows carried forward.
    pub carried: i64,
    /// Rows folded as not failed.
    pub other: i64,
    /// Rows folded as failed.
    pub failed: i64,
}

/// One row of the whole list of retained jobs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Seen {
    /// Identity.
    pub job: u64,
    /// State shown.
    pub state: State,
    /// Attempts begun since the last enqueue or retry.
    pub attempt: i16,
    /// Digest of the body shown.
    pub body: u64,
}

/// One line a rule: name, what it names, and the sentence, which is also its documentation.
macro_rules! rules {
    ($($rule:ident($($field:ident: $kind:ty),*) $sentence:literal)*) => {
        /// The rule that a report broke, with a sentence naming the job.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Violation { $(#[doc = $sentence] $rule($($kind),*),)* }

        impl fmt::Display for Violation {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self { $(Self::$rule($($field),*) => write!(f, $sentence),)* }
            }
        }
    };
}

rules! {
    TransactionReused(txn: u64) "transaction {txn} began twice"
    TransactionUnknown(txn: u64) "transaction {txn} ended but is not open"
    JobReused(job: u64) "job {job} was enqueued twice"
    ListedTwice(op: &'static str, job: u64) "{op} lists job {job} twice (H28)"
    WrongState(op: &'static str, job: u64, state: Option<State>) "{op} may not take job {job}: its state is {state:?}"
    OverLimit(op: &'static str, limit: usize, n: usize) "{op} took {n} jobs, its limit is {limit}"
    LeftBehind(op: &'static str, job: u64) "{op} left job {job} behind, which qualified"
    WrongLane(job: u64, own: Lane, lane: Lane) "job {job} of {own:?} was claimed from {lane:?}"
    OutOfOrder(job: u64, earlier: u64) "job {job} was claimed before job {earlier}, whose enqueue committed before its own began"
    WrongAttempt(job: u64, own: i16, n: i16) "job {job} had {own} attempts, attempt {n} was reported"
    LeaseNotFresh(job: u64, last: Option<i64>, lease: i64) "job {job} got lease {lease}, not above its last, {last:?}"
    BodyChanged(job: u64, own: u64, body: u64) "job {job} has body {own:x}, body {body:x} was reported (H16)"
    StaleAccepted(job: u64, lease: i64) "job {job}: lease {lease} is not live, yet its exit counted (H14, H15)"
    WrongOutcome(job: u64, due: State, told: Told) "job {job} must become {due:?}, {told:?} was reported (None: refused)"
    NotDue(job: u64, run_at: i64, now: i64) "job {job} is due at {run_at} µs, it was promoted at {now} µs"
    OutOfScope(job: u64) "retry took job {job}, which its scope does not match"
    WrongMatched(due: i64, n: i64) "retry matches {due} jobs, {n} were reported (R032-09)"
    WrongPrunedFailed(due: Option<i64>, n: Option<i64>) "retry must report {due:?} failed jobs pruned, not {n:?} (R032-09)"
    InsideFloor(job: u64, at: i64, now: i64) "failed job {job}, final at {at} µs, vanished at {now} µs, inside the floor (R032-02)"
    WrongFold(due: (i64, i64), n: (i64, i64)) "prune must fold (other, failed) = {due:?}, it folded {n:?} (R032-06)"
    WrongCarry(held: i64, n: i64) "the floor holds {held} failed jobs, prune carried {n} (R032-02)"
    NotConserved(queue: u32, own: i128, n: i128) "queue {queue}: {own} jobs were enqueued, {n} are accounted for (H36)"
    WrongCount(queue: u32, state: State, own: i64, n: i64) "queue {queue}: {own} jobs are {state:?}, {n} were reported (H36)"
    WrongShown(job: u64, own: Option<State>, shown: Option<State>) "job {job} is in state {own:?}, it was shown in {shown:?}"
}

impl std::error::Error for Violation {}

/// The Ledger's judgement of a report.
pub type Judged = Result<(), Violation>;
