//! The closed list of what the engine can ask of its storage.
//!
//! One name, five homes: the variant here, a `.sql` file and its snapshot in `awa-sqlgen`,
//! `World::apply`, and the action of the TLA+ model where it has one. A test compares the sets.
//! Every step runs in its own READ COMMITTED statement: it sees what had committed when it began.
#![allow(missing_docs, reason = "a variant's own text says what its fields are")]

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::ids::{BatchId, JobId, LaneId, LaneSeq};
use crate::job::{Exit, ListFilter, NewJob, Receipt, TerminalFilter, TerminalRef};
use crate::names::QueueName;
use crate::ring::{Ring, Segment, Slot};
use crate::rules::Cutoff;
use crate::time::{Instant, Span};
use crate::visibility::Window;

/// One set operation on the storage. Arguments are ids, instants and small closed rules.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    // --- Rings ---
    /// Take the ring's cursor for the rest of the transaction: rotation and prune exclude one
    /// another through it (`R032-13`). Waits. Answered by `Locked`.
    LockRing { ring: Ring },
    /// Read the ring and the clock. Answered by `RingObserved`.
    ObserveRing { ring: Ring },
    /// Take the slot's row for the rest of the transaction (`R032-14`). Waits. `Locked`.
    LockSlot { ring: Ring, slot: Slot },
    /// Keep writers out of the queue slot's ready rows, retryable history and hidden completions;
    /// readers and claims go on. `Locked` or `Refused`.
    ExcludeWriters { slot: Slot, timeout_ms: u32 },
    /// Keep everyone out of all children of the slot, in the registry's order. `Locked` or `Refused`.
    Exclude { ring: Ring, slot: Slot, timeout_ms: u32 },
    /// Ask whether something stands in the way. `Probed`.
    Probe { gate: Gate },
    /// Count the claims in the claim ring's slot. Until a prune they can only grow more, and what
    /// closes a receipt stays: while their number is the same, a slot that was proved to hold nothing
    /// open holds nothing open. `ClaimsCounted`.
    CountClaims { slot: Slot },
    /// Count what prune would do to the queue slot's terminal rows: the first of the two readings
    /// that must agree before COMMIT. `Surveyed`.
    SurveyTerminal { slot: Slot, cutoff: Option<Cutoff> },
    /// Insert a wide copy of every failure inside the floor into the segment `to`, under its own
    /// position, and append its delta there (`R032-03` to `R032-05`). `Carried`.
    CarryForward { from: Slot, to: Segment, cutoff: Cutoff },
    /// Add what is about to be truncated, less what is carried, to the permanent counts, by scanning
    /// the rows themselves (`R032-06`). `Folded`.
    FoldRollup { slot: Slot, cutoff: Option<Cutoff> },
    /// Truncate every child of the slot and forget its folded counters. `Truncated`.
    Truncate { ring: Ring, slot: Slot },
    /// Write the state `pruned`: only after `Exclude` and `Truncate` in this transaction. `Marked`.
    MarkPruned { ring: Ring, slot: Slot },
    /// Seal one segment, open the next and move the cursor. `Marked`.
    Rotate { ring: Ring, seal: Segment, open: Segment },
    /// Measure the ring's slots for its policy; the cutoff says what the queue ring would carry.
    /// `LoadsObserved`.
    ObserveLoads { ring: Ring, cutoff: Option<Cutoff> },

    // --- Terminal counters ---
    /// Which slots have pending deltas (`R026-24`). `SlotsFound`.
    FindDeltas,
    /// Keep everyone out of the slot's pending deltas. `Locked` or `Refused`.
    ExcludeDeltas { slot: Slot, timeout_ms: u32 },
    /// Add the slot's pending deltas to its folded counters, in key order. `DeltasFolded`.
    FoldDeltas { slot: Slot },
    /// Truncate the slot's pending deltas, once they are in the folded counters. `Truncated`.
    TruncateDeltas { slot: Slot },
    /// Keep writers out of retryable history and everyone out of all counters. `Locked` or `Refused`.
    ExcludeCounters { timeout_ms: u32 },
    /// Recompute the folded counters from retryable history (`R026-26`): pending deltas are in them, and
    /// must be truncated in the same transaction. `Rebuilt`.
    RebuildCounters,
    /// Say whether folded counters and pending deltas can be trusted (`R026-26`). `Marked`.
    SetTrust { trusted: bool },
    /// The exact counts of a queue, in this one statement (`R026-23`). `Counted`.
    ReadCounts { queue: QueueName },
    /// How many failures of the queue left the ring past the floor, ever (`R032-08`). `PrunedFailed`.
    ReadPrunedFailed { queue: QueueName },

    // --- Queues and enqueue ---
    /// Make the queue's lanes, those that are missing. `LanesFound`.
    DeclareQueue { queue: QueueName, shards: i16 },
    /// The queue's lanes; none if it was never declared. `LanesFound`.
    FindLanes { queue: QueueName },
    /// Append jobs to their lanes in the open segment, which may be stale (law 3 of visibility:
    /// transaction id first, positions second, rows third). `Enqueued`, in the order of `jobs`.
    EnqueueReady { jobs: Vec<NewJob> },
    /// The open segment of the queue ring, without a lock. `CursorRead`.
    ReadCursor,
    /// The same as `EnqueueReady` as a bulk copy into a segment read before. `Copied`.
    CopyReady { to: Segment, jobs: Vec<NewJob> },
    /// Keep jobs until their `run_at`. `Enqueued`, in the order of `jobs`.
    EnqueueDeferred { jobs: Vec<(NewJob, Instant)> },
    /// Move up to `limit` due jobs to fresh positions in their lanes, oldest `run_at` first, stepping
    /// over rows that another promotion holds. `Promoted`.
    PromoteDue { limit: i64 },
    /// When the next deferred job is due. `NextDue`.
    ReadNextDue,
    /// Tell sleeping workers that these lanes have jobs. `Woken`.
    Wake { lanes: Vec<LaneId> },

    // --- Claim ---
    /// Take the lane for the rest of the transaction: claim, cancel and move exclude one another
    /// (law 10). A statement of its own, before the one that decides. Waits. `Locked`.
    LockLane { lane: LaneId },
    /// The last position drawn by anyone, 0 if none was. Before this transaction has an id. `PositionRead`.
    ReadPosition,
    /// Take unclaimed visible rows above the window's low bound in lane order, up to `limit` rows or
    /// `bytes_max` bytes of args, and write their evidence and receipts (`R026-05`, `R026-09`).
    /// An empty claim writes nothing. `Claimed`.
    ClaimReady { lane: LaneId, window: Window, limit: u16, bytes_max: i64, deadline: Option<Span> },
    /// The id that this transaction was given, if it was. `OwnXid`.
    ReadOwnXid,
    /// Which of these lanes hold an unclaimed visible row above their window's low bound: one
    /// statement for all lanes of a worker that waits (H43). Reads only. `Polled`.
    PollLanes { lanes: Vec<(LaneId, Window)> },

    // --- Ways out of an attempt ---
    /// Take the fences of these claims for the rest of the transaction, in ascending order
    /// (`R026-08`, law 8). Waits. `Locked`.
    Fence { batches: Vec<BatchId> },
    /// Close attempts as successes on the compact path; those whose proof fails, that are closed or
    /// that have a materialised lease are left alone (`R026-04`, `R026-05`, `R026-27`). `Closed`.
    CompleteCompact { receipts: Vec<Receipt> },
    /// Close attempts on the general path: retryable history with its delta, or deferral; stale ones
    /// are left alone. `Closed`.
    CloseAttempts { exits: Vec<Exit> },
    /// Close attempts that their worker stopped, and append their jobs to their lanes again in the open
    /// segment, the attempt not counted: due as before, with the same errors. Stale ones and those
    /// whose body is missing are left alone. `Closed`.
    HandBack { receipts: Vec<Receipt> },

    /// Open attempts whose deadline has passed, up to `limit`, those that are overdue for longest
    /// first (`R026-14`). `Overdue`.
    FindOverdue { limit: i64 },

    // --- Operators ---
    /// Where the job is. `Located`.
    LocateJob { job: JobId },
    /// Spend an unclaimed position and write the job's wide `cancelled` row (`R026-18`); nothing if
    /// the row was claimed meanwhile. Under `LockLane`. `Moved`.
    TombstoneReady { slot: Slot, lane: LaneId, lane_seq: LaneSeq },
    /// Take a deferred job away and write its wide `cancelled` row (`R026-18`). `Moved`.
    CancelDeferred { job: JobId },
    /// Retryable history that fits, oldest job first; rows beyond `after` only. `Matched`.
    MatchTerminal { filter: TerminalFilter, after: Option<JobId>, limit: i64 },
    /// Move these rows to fresh positions in their lanes with `attempt` 0 and append their negative
    /// deltas; rows that are gone or whose body is missing stay out (`R026-19`, `R026-22`). `Moved`.
    RetryTerminal { rows: Vec<TerminalRef> },
    /// Delete these rows from retryable history and append their negative deltas. `Moved`.
    DiscardTerminal { rows: Vec<TerminalRef> },
    /// Hide a compact success; its receipt stays closed (`R026-17`). `Moved`.
    HideCompleted { slot: Slot, lane: LaneId, lane_seq: LaneSeq },
    /// The whole job. `JobLoaded` or `BodyMissing`.
    LoadJob { job: JobId },
    /// A page of jobs. `JobsListed` or `BodyMissing`.
    ListJobs { filter: ListFilter },
}

/// What can stand in the way of prune or rollup. Gates ignore generation (law 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Gate {
    /// A ready row of the queue slot that no evidence covers. The witness is its position.
    PendingReady(Slot),
    /// A receipt for a ready row of the queue slot that nothing closes (`R026-13`). The witness is
    /// the receipt. Proved by sets: a receipt closed twice closes no other.
    OpenReceipts(Slot),
    /// A materialised lease for a ready row of the queue slot. The witness is the job.
    ActiveLeases(Slot),
    /// A receipt in the claim ring's slot that nothing closes. The witness is the receipt.
    OpenClaims(Slot),
    /// A lease in the lease ring's slot. The witness is the job.
    HeldLeases(Slot),
    /// Another backend pins the MVCC horizon (`R026-25`). The witness is its process id.
    PinnedHorizon,
}

impl Step {
    /// The step's name, as its `.sql` file and the model call it.
    #[must_use]
    #[allow(clippy::too_many_lines, reason = "one arm a variant")]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::LockRing { .. } => "LockRing",
            Self::ObserveRing { .. } => "ObserveRing",
            Self::LockSlot { .. } => "LockSlot",
            Self::ExcludeWriters { .. } => "ExcludeWriters",
            Self::Exclude { .. } => "Exclude",
            Self::Probe { gate } => gate.step_name(),
            Self::CountClaims { .. } => "CountClaims",
            Self::SurveyTerminal { .. } => "SurveyTerminal",
            Self::CarryForward { .. } => "CarryForward",
            Self::FoldRollup { .. } => "FoldRollup",
            Self::Truncate { .. } => "Truncate",
            Self::MarkPruned { .. } => "MarkPruned",
            Self::Rotate { .. } => "Rotate",
            Self::ObserveLoads { .. } => "ObserveLoads",
            Self::FindDeltas => "FindDeltas",
            Self::ExcludeDeltas { .. } => "ExcludeDeltas",
            Self::FoldDeltas { .. } => "FoldDeltas",
            Self::TruncateDeltas { .. } => "TruncateDeltas",
            Self::ExcludeCounters { .. } => "ExcludeCounters",
            Self::RebuildCounters => "RebuildCounters",
            Self::SetTrust { .. } => "SetTrust",
            Self::ReadCounts { .. } => "ReadCounts",
            Self::ReadPrunedFailed { .. } => "ReadPrunedFailed",
            Self::DeclareQueue { .. } => "DeclareQueue",
            Self::FindLanes { .. } => "FindLanes",
            Self::EnqueueReady { .. } => "EnqueueReady",
            Self::ReadCursor => "ReadCursor",
            Self::CopyReady { .. } => "CopyReady",
            Self::EnqueueDeferred { .. } => "EnqueueDeferred",
            Self::PromoteDue { .. } => "PromoteDue",
            Self::ReadNextDue => "ReadNextDue",
            Self::Wake { .. } => "Wake",
            Self::LockLane { .. } => "LockLane",
            Self::ReadPosition => "ReadPosition",
            Self::ClaimReady { .. } => "ClaimReady",
            Self::ReadOwnXid => "ReadOwnXid",
            Self::PollLanes { .. } => "PollLanes",
            Self::Fence { .. } => "Fence",
            Self::CompleteCompact { .. } => "CompleteCompact",
            Self::CloseAttempts { .. } => "CloseAttempts",
            Self::HandBack { .. } => "HandBack",
            Self::FindOverdue { .. } => "FindOverdue",
            Self::LocateJob { .. } => "LocateJob",
            Self::TombstoneReady { .. } => "TombstoneReady",
            Self::CancelDeferred { .. } => "CancelDeferred",
            Self::MatchTerminal { .. } => "MatchTerminal",
            Self::RetryTerminal { .. } => "RetryTerminal",
            Self::DiscardTerminal { .. } => "DiscardTerminal",
            Self::HideCompleted { .. } => "HideCompleted",
            Self::LoadJob { .. } => "LoadJob",
            Self::ListJobs { .. } => "ListJobs",
        }
    }
}

impl Step {
    /// Whether it does right in a transaction whose snapshot is older than itself (law 16).
    ///
    /// Appending does: a row may go to a segment that was sealed or pruned meanwhile, because claims
    /// read every slot and gates ignore generation, and a position is drawn when it is asked for,
    /// whatever the snapshot. Lanes, once made, stay. All else reads what a TRUNCATE may have emptied
    /// for every snapshot, or decides by what was true before it took its lock.
    #[must_use]
    pub const fn fits_any_snapshot(&self) -> bool {
        match self {
            Self::FindLanes { .. }
            | Self::EnqueueReady { .. }
            | Self::ReadCursor
            | Self::CopyReady { .. }
            | Self::EnqueueDeferred { .. }
            | Self::Wake { .. }
            | Self::ReadOwnXid => true,
            Self::LockRing { .. }
            | Self::ObserveRing { .. }
            | Self::LockSlot { .. }
            | Self::ExcludeWriters { .. }
            | Self::Exclude { .. }
            | Self::Probe { .. }
            | Self::CountClaims { .. }
            | Self::SurveyTerminal { .. }
            | Self::CarryForward { .. }
            | Self::FoldRollup { .. }
            | Self::Truncate { .. }
            | Self::MarkPruned { .. }
            | Self::Rotate { .. }
            | Self::ObserveLoads { .. }
            | Self::FindDeltas
            | Self::ExcludeDeltas { .. }
            | Self::FoldDeltas { .. }
            | Self::TruncateDeltas { .. }
            | Self::ExcludeCounters { .. }
            | Self::RebuildCounters
            | Self::SetTrust { .. }
            | Self::ReadCounts { .. }
            | Self::ReadPrunedFailed { .. }
            | Self::DeclareQueue { .. }
            | Self::PromoteDue { .. }
            | Self::ReadNextDue
            | Self::LockLane { .. }
            | Self::ReadPosition
            | Self::ClaimReady { .. }
            | Self::PollLanes { .. }
            | Self::Fence { .. }
            | Self::CompleteCompact { .. }
            | Self::CloseAttempts { .. }
            | Self::HandBack { .. }
            | Self::FindOverdue { .. }
            | Self::LocateJob { .. }
            | Self::TombstoneReady { .. }
            | Self::CancelDeferred { .. }
            | Self::MatchTerminal { .. }
            | Self::RetryTerminal { .. }
            | Self::DiscardTerminal { .. }
            | Self::HideCompleted { .. }
            | Self::LoadJob { .. }
            | Self::ListJobs { .. } => false,
        }
    }
}

impl Gate {
    /// The name of the step that probes this gate.
    #[must_use]
    pub const fn step_name(self) -> &'static str {
        match self {
            Self::PendingReady(_) => "ProbePendingReady",
            Self::OpenReceipts(_) => "ProbeOpenReceipts",
            Self::ActiveLeases(_) => "ProbeActiveLeases",
            Self::OpenClaims(_) => "ProbeOpenClaims",
            Self::HeldLeases(_) => "ProbeHeldLeases",
            Self::PinnedHorizon => "ProbePinnedHorizon",
        }
    }
}

impl fmt::Display for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PendingReady(s) => write!(f, "pending ready rows in {s}"),
            Self::OpenReceipts(s) => write!(f, "open receipts of {s}"),
            Self::ActiveLeases(s) => write!(f, "active leases of {s}"),
            Self::OpenClaims(s) => write!(f, "open claims in {s}"),
            Self::HeldLeases(s) => write!(f, "leases in {s}"),
            Self::PinnedHorizon => f.write_str("a pinned horizon"),
        }
    }
}

impl fmt::Display for Step {
    #[allow(clippy::too_many_lines, reason = "one arm a variant")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LockRing { ring } => write!(f, "lock the {ring} ring"),
            Self::ObserveRing { ring } => write!(f, "observe the {ring} ring"),
            Self::LockSlot { ring, slot } => write!(f, "lock {slot} of the {ring} ring"),
            Self::ExcludeWriters { slot, timeout_ms } => {
                write!(f, "keep writers out of {slot}, waiting {timeout_ms} ms at most")
            }
            Self::Exclude { ring, slot, timeout_ms } => {
                write!(
                    f,
                    "keep everyone out of {slot} of the {ring} ring, waiting {timeout_ms} ms at most"
                )
            }
            Self::Probe { gate } => write!(f, "probe for {gate}"),
            Self::CountClaims { slot } => write!(f, "count the claims in {slot}"),
            Self::SurveyTerminal { slot, cutoff } => {
                write!(f, "survey the terminal rows of {slot}, {}", Floored(*cutoff))
            }
            Self::CarryForward { from, to, cutoff } => {
                write!(f, "carry failures of {from} to {to}, {cutoff}")
            }
            Self::FoldRollup { slot, cutoff } => {
                write!(f, "fold the terminal rows of {slot} into the rollups, {}", Floored(*cutoff))
            }
            Self::Truncate { ring, slot } => write!(f, "truncate {slot} of the {ring} ring"),
            Self::MarkPruned { ring, slot } => write!(f, "mark {slot} of the {ring} ring pruned"),
            Self::Rotate { ring, seal, open } => {
                write!(f, "rotate the {ring} ring: seal {seal}, open {open}")
            }
            Self::ObserveLoads { ring, cutoff } => {
                write!(f, "measure the slots of the {ring} ring, {}", Floored(*cutoff))
            }
            Self::FindDeltas => f.write_str("find slots with pending deltas"),
            Self::ExcludeDeltas { slot, timeout_ms } => {
                write!(
                    f,
                    "keep everyone out of the deltas of {slot}, waiting {timeout_ms} ms at most"
                )
            }
            Self::FoldDeltas { slot } => write!(f, "fold the deltas of {slot}"),
            Self::TruncateDeltas { slot } => write!(f, "truncate the deltas of {slot}"),
            Self::ExcludeCounters { timeout_ms } => {
                write!(f, "keep everyone out of the counters, waiting {timeout_ms} ms at most")
            }
            Self::RebuildCounters => f.write_str("rebuild the counters"),
            Self::SetTrust { trusted: true } => f.write_str("trust the counters"),
            Self::SetTrust { trusted: false } => f.write_str("distrust the counters"),
            Self::ReadCounts { queue } => write!(f, "count queue {queue}"),
            Self::ReadPrunedFailed { queue } => write!(f, "read pruned failures of queue {queue}"),
            Self::DeclareQueue { queue, shards } => {
                write!(f, "declare queue {queue} with {shards} shards")
            }
            Self::FindLanes { queue } => write!(f, "find the lanes of queue {queue}"),
            Self::EnqueueReady { jobs } => write!(f, "enqueue {} jobs", jobs.len()),
            Self::ReadCursor => f.write_str("read the cursor"),
            Self::CopyReady { to, jobs } => write!(f, "copy {} jobs to {to}", jobs.len()),
            Self::EnqueueDeferred { jobs } => write!(f, "defer {} jobs", jobs.len()),
            Self::PromoteDue { limit } => write!(f, "promote up to {limit} due jobs"),
            Self::ReadNextDue => f.write_str("read when the next job is due"),
            Self::Wake { lanes } => write!(f, "wake {}", Listed(lanes)),
            Self::LockLane { lane } => write!(f, "lock {lane}"),
            Self::ReadPosition => f.write_str("read the last position"),
            Self::ClaimReady { lane, window, limit, bytes_max, deadline } => {
                write!(f, "claim up to {limit} jobs or {bytes_max} bytes of {lane} {window}")?;
                deadline.map_or(Ok(()), |d| write!(f, ", due in {d}"))
            }
            Self::ReadOwnXid => f.write_str("read the own transaction id"),
            Self::PollLanes { lanes } => write!(f, "poll {} lanes", lanes.len()),
            Self::Fence { batches } => write!(f, "fence {}", Listed(batches)),
            Self::CompleteCompact { receipts } => {
                write!(f, "complete {} attempts compactly", receipts.len())
            }
            Self::CloseAttempts { exits } => write!(f, "close {} attempts", exits.len()),
            Self::HandBack { receipts } => write!(f, "hand back {} attempts", receipts.len()),
            Self::FindOverdue { limit } => write!(f, "find up to {limit} overdue attempts"),
            Self::LocateJob { job } => write!(f, "locate {job}"),
            Self::TombstoneReady { slot, lane, lane_seq } => {
                write!(f, "tombstone {lane} {lane_seq} in {slot}")
            }
            Self::CancelDeferred { job } => write!(f, "cancel deferred {job}"),
            Self::MatchTerminal { filter, after, limit } => {
                write!(f, "match up to {limit} terminal rows of {}", Filtered(filter))?;
                after.map_or(Ok(()), |a| write!(f, " after {a}"))
            }
            Self::RetryTerminal { rows } => write!(f, "retry {} terminal rows", rows.len()),
            Self::DiscardTerminal { rows } => write!(f, "discard {} terminal rows", rows.len()),
            Self::HideCompleted { slot, lane, lane_seq } => {
                write!(f, "hide the success {lane} {lane_seq} in {slot}")
            }
            Self::LoadJob { job } => write!(f, "load {job}"),
            Self::ListJobs { filter } => {
                write!(f, "list up to {} {} jobs", filter.limit, filter.state)?;
                filter.queue.as_ref().map_or(Ok(()), |q| write!(f, " of queue {q}"))?;
                filter.kind.as_ref().map_or(Ok(()), |k| write!(f, " of kind {k}"))?;
                filter.before.map_or(Ok(()), |b| write!(f, " before {b}"))
            }
        }
    }
}

struct Floored(Option<Cutoff>);

impl fmt::Display for Floored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(cutoff) => cutoff.fmt(f),
            None => f.write_str("no floor"),
        }
    }
}

struct Filtered<'a>(&'a TerminalFilter);

impl fmt::Display for Filtered<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            TerminalFilter::Job(job) => job.fmt(f),
            TerminalFilter::Kind(kind) => write!(f, "kind {kind}"),
            TerminalFilter::Queue(queue) => write!(f, "queue {queue}"),
        }
    }
}

struct Listed<'a, T>(&'a [T]);

impl<T: fmt::Display> fmt::Display for Listed<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, item) in self.0.iter().enumerate() {
            write!(f, "{}{item}", if i == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

/// A plan as text: one step a line.
#[must_use]
pub fn plan_text(steps: &[Step]) -> String {
    let mut text = String::new();
    for step in steps {
        use fmt::Write as _;
        // Writing to a String can't fail.
        let _ = writeln!(text, "{step}");
    }
    text
}
