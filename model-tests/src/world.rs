//! The World: an interpreter of [`Step`] with PostgreSQL's concurrency semantics, as far as the
//! engine relies on them. It judges PostgreSQL (same steps, same replies, same table dump) and is
//! itself judged by the [`crate::ledger::Ledger`].
//!
//! What it has: transactions, one READ COMMITTED snapshot a statement, transaction ids that are
//! given at the first write, locks held to the end of the transaction, `TRUNCATE` that no snapshot
//! survives, sequences that never go back, crashes. What it has not: time that passes by itself,
//! sizes in bytes of anything but args, and queues of waiting lock requests.
//!
//! It is a plain value: equal Worlds behave alike, whatever way led to them.

mod attempt;
mod check;
mod dump;
mod job;
mod json;
mod lane;
mod lock;
mod mutation;
mod operator;
mod prune;
mod ring;
mod rows;
mod session;
mod table;

use std::collections::BTreeMap;

use awa_core::{Generation, Segment, limits};
use awa_core::{Instant, LaneSeq, Refusal, Reply, Ring, Slot, SlotState, Step, Xid};

pub use check::invariant;
pub use lane::Stage;
pub use lock::SessionId;
pub use mutation::Mutation;
use rows::{Cursor, SlotRow, Tables, Trust};
use session::Txn;

/// What became of a statement.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Applied {
    /// It ran. After [`Reply::Refused`] the transaction is undone and can only be rolled back.
    Reply(Reply),
    /// It has not begun: these sessions hold what it needs. Apply it again, roll back, or, where
    /// its wait is bounded, [`World::expire`] it.
    Waits {
        /// Ascending.
        on: Vec<SessionId>,
    },
    /// It failed, which no machine expects. The transaction is undone and can only be rolled back.
    Raised(Raised),
}

/// An error that PostgreSQL or the driver would raise.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Raised {
    /// A row with this key exists (H31).
    DuplicateKey(String),
    /// Not JSON.
    BadJson(String),
}

/// What a bounded lock request does while someone is in its way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Patience {
    /// It times out at once.
    #[default]
    None,
    /// It waits until it is applied again, or [`World::expire`]d.
    Patient,
}

/// Why a statement didn't run.
#[derive(Clone, Debug)]
pub(crate) enum Stop {
    Waits(Vec<SessionId>),
    Refused(Refusal),
    Raised(Raised),
}

pub(crate) type Done<T> = Result<T, Stop>;

/// The database. See the module's documentation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    /// The database's clock: it moves when a test moves it.
    pub now: Instant,
    /// What bounded lock requests do.
    pub patience: Patience,
    /// In which way the protocol is broken on purpose.
    pub mutation: Mutation,
    sessions: BTreeMap<SessionId, Txn>,
    locks: lock::Locks,
    tables: Tables,
    next_xid: u64,
    /// The largest id of a finished transaction.
    latest_completed: u64,
    last_position: i64,
    last_batch: i64,
    last_lane: i64,
    /// Committed: jobs ever enqueued, and jobs that an operator deleted.
    enqueued: i64,
    deleted: i64,
}

impl Default for World {
    /// An installation with rings of the sizes that migrations make.
    fn default() -> Self {
        Self::new(limits::QUEUE_SLOTS, limits::LEASE_SLOTS, limits::CLAIM_SLOTS)
    }
}

impl World {
    /// A fresh installation with rings of these sizes, at 2020-01-01.
    #[must_use]
    pub fn new(queue_slots: i32, lease_slots: i32, claim_slots: i32) -> Self {
        let mut world = Self {
            now: Instant::from_unix_us(1_577_836_800_000_000),
            patience: Patience::None,
            mutation: Mutation::None,
            sessions: BTreeMap::new(),
            locks: lock::Locks::default(),
            tables: Tables::default(),
            next_xid: 1,
            latest_completed: 0,
            last_position: 0,
            last_batch: 0,
            last_lane: 0,
            enqueued: 0,
            deleted: 0,
        };
        let (by, opened_at) = (table::SETTLED, world.now);
        for (ring, slots) in Ring::ALL.into_iter().zip([queue_slots, lease_slots, claim_slots]) {
            for number in 0..slots {
                let slot = Slot(number);
                let (generation, state) =
                    if number == 0 { (1, SlotState::Open) } else { (0, SlotState::Pruned) };
                let generation = Generation(generation);
                let row = SlotRow { ring, slot, generation, state, opened_at, sealed_at: None };
                world.tables.slots.insert(by, row);
            }
            let current = Segment { slot: Slot(0), generation: Generation(1) };
            world.tables.cursors.insert(by, Cursor { ring, current, slots });
        }
        world.tables.trust.insert(by, Trust { trusted: true });
        world
    }

    /// Runs one statement in the session's transaction, if nobody stands in its way.
    ///
    /// # Panics
    /// The session has no transaction, or one that can only be rolled back.
    pub fn apply(&mut self, s: SessionId, step: &Step) -> Applied {
        let ran = self.run(s, step);
        self.answer(s, ran)
    }

    fn run(&mut self, s: SessionId, step: &Step) -> Done<Reply> {
        self.usable(s);
        self.keep_snapshot(s);
        match step {
            Step::LockRing { ring } => self.lock_ring(s, *ring),
            Step::ObserveRing { ring } => Ok(self.observe_ring(s, *ring)),
            Step::LockSlot { ring, slot } => self.lock_slot(s, *ring, *slot),
            Step::ExcludeWriters { slot, timeout_ms: _ } => self.exclude_writers(s, *slot),
            Step::Exclude { ring, slot, timeout_ms: _ } => self.exclude(s, *ring, *slot),
            Step::Probe { gate } => self.probe(s, *gate),
            Step::CountClaims { slot } => self.count_claims(s, *slot),
            Step::SurveyTerminal { slot, cutoff } => self.survey(s, *slot, *cutoff),
            Step::CarryForward { from, to, cutoff } => self.carry(s, *from, *to, *cutoff),
            Step::FoldRollup { slot, cutoff } => self.fold_rollup(s, *slot, *cutoff),
            Step::Truncate { ring, slot } => self.truncate(s, *ring, *slot),
            Step::MarkPruned { ring, slot } => self.mark_pruned(s, *ring, *slot),
            Step::Rotate { ring, seal, open } => self.rotate(s, *ring, *seal, *open),
            Step::ObserveLoads { ring, cutoff } => self.observe_loads(s, *ring, *cutoff),
            Step::FindDeltas => self.find_deltas(s),
            Step::ExcludeDeltas { slot, timeout_ms: _ } => self.exclude_deltas(s, *slot),
            Step::FoldDeltas { slot } => self.fold_deltas(s, *slot),
            Step::TruncateDeltas { slot } => self.truncate_deltas(s, *slot),
            Step::ExcludeCounters { timeout_ms: _ } => self.exclude_counters(s),
            Step::RebuildCounters => self.rebuild_counters(s),
            Step::SetTrust { trusted } => self.set_trust(s, *trusted),
            Step::ReadCounts { queue } => self.read_counts(s, queue),
            Step::ReadPrunedFailed { queue } => Ok(self.read_pruned_failed(s, queue)),
            Step::DeclareQueue { queue, shards } => self.declare_queue(s, queue, *shards),
            Step::FindLanes { queue } => Ok(Reply::LanesFound(self.lanes_of(&self.view(s), queue))),
            Step::EnqueueReady { jobs } => self.enqueue(s, None, jobs).map(Reply::Enqueued),
            Step::ReadCursor => Ok(Reply::CursorRead(self.open(&self.view(s), Ring::Queue))),
            Step::CopyReady { to, jobs } => {
                self.enqueue(s, Some(*to), jobs).map(|ids| Reply::Copied(ids.len() as u64))
            }
            Step::EnqueueDeferred { jobs } => self.enqueue_deferred(s, jobs),
            Step::PromoteDue { limit } => self.promote(s, *limit),
            Step::ReadNextDue => Ok(self.next_due(s)),
            Step::Wake { lanes: _ } => Ok(Reply::Woken),
            Step::LockLane { lane } => self.lock_lane(s, *lane),
            Step::ReadPosition => Ok(Reply::PositionRead(LaneSeq(self.last_position))),
            Step::ClaimReady { lane, window, limit, bytes_max, deadline } => {
                self.claim(s, (*lane, window), (*limit, *bytes_max), *deadline)
            }
            Step::ReadOwnXid => Ok(Reply::OwnXid(self.own_xid(s))),
            Step::PollLanes { lanes } => self.poll(s, lanes),
            Step::Fence { batches } => self.fence(s, batches),
            Step::CompleteCompact { receipts } => self.complete_compact(s, receipts),
            Step::CloseAttempts { exits } => self.close_attempts(s, exits),
            Step::HandBack { receipts } => self.hand_back(s, receipts),
            Step::FindOverdue { limit } => self.find_overdue(s, *limit),
            Step::LocateJob { job } => self.locate(s, *job),
            Step::TombstoneReady { slot, lane, lane_seq } => {
                self.tombstone(s, *slot, *lane, *lane_seq)
            }
            Step::CancelDeferred { job } => self.cancel_deferred(s, *job),
            Step::MatchTerminal { filter, after, limit } => {
                self.match_terminal(s, filter, *after, *limit)
            }
            Step::RetryTerminal { rows } => self.retry_terminal(s, rows),
            Step::DiscardTerminal { rows } => self.discard_terminal(s, rows),
            Step::HideCompleted { slot, lane, lane_seq } => self.hide(s, *slot, *lane, *lane_seq),
            Step::LoadJob { job } => self.load(s, *job),
            Step::ListJobs { filter } => self.list(s, filter),
        }
    }

    /// The next id, given to the transaction unless it has one.
    fn xid(&mut self, s: SessionId) -> Xid {
        if let Some(xid) = self.own(s) {
            return xid;
        }
        let xid = Xid(self.next_xid);
        self.next_xid += 1;
        self.txn(s).xid = Some(xid);
        xid
    }

    /// Draws a position: it is gone even if the transaction is undone.
    fn draw_position(&mut self) -> LaneSeq {
        self.last_position += 1;
        LaneSeq(self.last_position)
    }
}
