//! What the tables hold: the columns of v026, with what a lane's number stands for kept once.

use std::sync::Arc;

use awa_core::{
    Attempt, BatchId, Bucket, Generation, Instant, JobId, JobState, LaneId, LaneSeq, Place,
    Priority, QueueName, Receipt, ReceiptId, Ring, RunLease, Segment, Shard, Slot, SlotState,
    Snapshot, Xid,
};

use super::table::{Ranges, Table};

macro_rules! row {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty),* $(,)? })*) => { $(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub(crate) struct $name { $(pub(crate) $field: $type),* }
    )* };
}

row! {
    /// What a job keeps through all its moves, save its errors. JSON as `jsonb` prints it.
    Body { kind: String, args: String, max_attempts: i16, run_at: Instant, created_at: Instant,
        payload: Option<String> }
    QueueRow { queue: QueueName, shards: i16 }
    LaneRow { lane: LaneId, queue: QueueName, priority: Priority, shard: Shard }
    Cursor { ring: Ring, current: Segment, slots: i32 }
    SlotRow { ring: Ring, slot: Slot, generation: Generation, state: SlotState,
        opened_at: Instant, sealed_at: Option<Instant> }
    Ready { lane: LaneId, seq: LaneSeq, at: Segment, job: JobId, attempt: Attempt,
        run_lease: RunLease, body: Arc<Body> }
    /// A spent position without an attempt, or a compact success that is hidden.
    Tombstone { at: Segment, lane: LaneId, seq: LaneSeq, job: JobId }
    /// `spent_to`: no position of the lane up to there can ever hold an unclaimed row.
    Evidence { at: Segment, lane: LaneId, n: i32, batch: Option<BatchId>, ranges: Ranges,
        spent_to: LaneSeq }
    /// Narrow without `body`; then `payload` says where it differs from the ready row's.
    Done { at: Segment, lane: LaneId, seq: LaneSeq, job: JobId, state: JobState, attempt: Attempt,
        run_lease: RunLease, attempted_at: Option<Instant>, finalized_at: Instant, kind: String,
        payload: Option<String>, body: Option<Arc<Body>> }
    Delta { at: Segment, lane: LaneId, bucket: Bucket, state: JobState, delta: i64 }
    /// One attempt of a batch.
    Taken { seq: LaneSeq, job: JobId, run_lease: RunLease, attempt: Attempt }
    Claim { slot: Slot, batch: BatchId, ready: Segment, lane: LaneId, claimed_at: Instant,
        deadline_at: Option<Instant>, jobs: Vec<Taken> }
    Compact { at: Segment, lane: LaneId, claim_slot: Slot, finalized_at: Instant,
        jobs: Vec<(Taken, Instant)> }
    ClosureBatch { slot: Slot, batch: BatchId, ready: Segment, receipts: Vec<ReceiptId> }
    Closure { slot: Slot, batch: BatchId, receipt: ReceiptId, ready: Segment }
    Lease { at: Segment, claim_slot: Slot, job: JobId, run_lease: RunLease, receipt: ReceiptId,
        ready: Segment, lane: LaneId, seq: LaneSeq, state: JobState }
    Progress { job: JobId, run_lease: RunLease }
    Deferred { run_at: Instant, job: JobId, lane: LaneId, state: JobState, attempt: Attempt,
        run_lease: RunLease, attempted_at: Option<Instant>, body: Arc<Body> }
    Folded { slot: Slot, lane: LaneId, bucket: Bucket, state: JobState, count: i64 }
    Rollup { lane: LaneId, other: i64, failed: i64 }
    Trust { trusted: bool }
}

macro_rules! tables {
    ($($name:ident: $row:ty),* $(,)?) => {
        /// Every table of an installation.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
        pub(crate) struct Tables { $(pub(crate) $name: Table<$row>),* }

        impl Tables {
            pub(crate) fn end(&mut self, by: Xid, committed: bool, tidy: Option<&Snapshot>) {
                $(self.$name.end(by, committed, tidy);)*
            }
        }
    };
}

tables! {
    queues: QueueRow, lanes: LaneRow, cursors: Cursor, slots: SlotRow, ready: Ready,
    tombstones: Tombstone, evidence: Evidence, done: Done, compact: Compact, hidden: Tombstone,
    deltas: Delta, claims: Claim, closure_batches: ClosureBatch, closures: Closure,
    leases: Lease, progress: Progress, deferred: Deferred, folded: Folded, rollups: Rollup,
    trust: Trust,
}

impl Claim {
    /// The receipt of its job at the zero-based `place`.
    ///
    /// # Panics
    /// No claim has so many jobs.
    pub(crate) fn receipt(&self, place: usize) -> Receipt {
        let Taken { job, run_lease, .. } = self.jobs[place];
        let index = Place::new(place as i64 + 1).unwrap_or_else(|error| panic!("{error}"));
        Receipt { claim_slot: self.slot, batch: self.batch, index, job, run_lease }
    }
}

impl Done {
    pub(crate) fn new(
        ready: (Segment, LaneId, LaneSeq),
        ends: (JobState, Instant),
        job: JobId,
    ) -> Self {
        let ((at, lane, seq), (state, finalized_at)) = (ready, ends);
        let (attempt, run_lease) = (Attempt(0), RunLease(0));
        let kind = String::new();
        Self {
            at,
            lane,
            seq,
            job,
            state,
            attempt,
            run_lease,
            attempted_at: None,
            finalized_at,
            kind,
            payload: None,
            body: None,
        }
    }
}
