//! Who holds what, who waits for whom.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use awa_core::{BatchId, JobId, LaneId, LaneSeq, QueueName, ReceiptId, Ring, Slot};

/// A connection to the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u8);

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "session {}", self.0)
    }
}

/// The parents whose children the rings empty, in the registry's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Rel {
    Ready,
    Tombstones,
    Evidence,
    Compact,
    Hidden,
    Done,
    Deltas,
    Leases,
    Claims,
    ClosureBatches,
    Closures,
}

impl Rel {
    pub(crate) const fn of_ring(ring: Ring) -> &'static [Self] {
        match ring {
            Ring::Queue => &[
                Self::Ready,
                Self::Tombstones,
                Self::Evidence,
                Self::Compact,
                Self::Hidden,
                Self::Done,
                Self::Deltas,
            ],
            Ring::Lease => &[Self::Leases],
            Ring::Claim => &[Self::Claims, Self::ClosureBatches, Self::Closures],
        }
    }

    pub(crate) fn ring(self) -> Ring {
        match self {
            Self::Leases => Ring::Lease,
            Self::Claims | Self::ClosureBatches | Self::Closures => Ring::Claim,
            Self::Ready
            | Self::Tombstones
            | Self::Evidence
            | Self::Compact
            | Self::Hidden
            | Self::Done
            | Self::Deltas => Ring::Queue,
        }
    }
}

/// What can be locked: rows and advisory keys (only `Exclusive`), children, counters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Key {
    Ring(Ring),
    Slot(Ring, Slot),
    Lane(LaneId),
    Fence(BatchId),
    Child(Rel, Slot),
    LiveCounts,
    /// The folded counters of one slot.
    Counters(Slot),
    Rollup(LaneId),
    Trust,
    Queue(QueueName),
    Deferred(JobId),
    /// A row of retryable history, or what hides a compact success.
    Terminal(LaneId, LaneSeq),
    Closure(ReceiptId),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Mode {
    AccessShare,
    RowExclusive,
    Share,
    /// `ACCESS EXCLUSIVE`, `FOR UPDATE` or an advisory lock.
    Exclusive,
}

impl Mode {
    fn excludes(self, other: Self) -> bool {
        match (self, other) {
            (Self::Exclusive, _) | (_, Self::Exclusive) => true,
            (Self::Share, Self::RowExclusive) | (Self::RowExclusive, Self::Share) => true,
            (Self::AccessShare | Self::RowExclusive, Self::AccessShare | Self::RowExclusive)
            | (Self::Share, Self::Share | Self::AccessShare)
            | (Self::AccessShare, Self::Share) => false,
        }
    }
}

/// Held to the end of the transaction. A wait keeps what its statement has already got, as in
/// PostgreSQL; waits do not queue, so any order of grants can be explored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Locks {
    held: BTreeMap<Key, BTreeSet<(SessionId, Mode)>>,
    waiting: BTreeMap<SessionId, BTreeSet<SessionId>>,
}

impl Locks {
    /// Takes the lock, or names who is in the way.
    pub(crate) fn take(
        &mut self,
        s: SessionId,
        key: Key,
        mode: Mode,
    ) -> Result<(), Vec<SessionId>> {
        let holders = self.held.entry(key).or_default();
        let others = holders.iter().filter(|(by, held)| *by != s && held.excludes(mode));
        let on: BTreeSet<SessionId> = others.map(|(by, _)| *by).collect();
        if on.is_empty() {
            holders.insert((s, mode));
            return Ok(());
        }
        Err(on.into_iter().collect())
    }

    pub(crate) fn held_by_other(&self, s: SessionId, key: &Key) -> bool {
        self.held.get(key).is_some_and(|holders| holders.iter().any(|(by, _)| *by != s))
    }

    /// Notes that `s` waits; `false` if that closes a circle.
    pub(crate) fn waits(&mut self, s: SessionId, on: &[SessionId]) -> bool {
        let mut reached: BTreeSet<SessionId> = on.iter().copied().collect();
        loop {
            let next = reached.iter().filter_map(|by| self.waiting.get(by)).flatten().copied();
            let wider: BTreeSet<SessionId> = next.chain(reached.iter().copied()).collect();
            if wider.len() == reached.len() {
                break;
            }
            reached = wider;
        }
        if reached.contains(&s) {
            return false;
        }
        self.waiting.insert(s, on.iter().copied().collect());
        true
    }

    pub(crate) fn goes_on(&mut self, s: SessionId) {
        self.waiting.remove(&s);
    }

    /// The end of the transaction.
    pub(crate) fn release(&mut self, s: SessionId) {
        self.waiting.remove(&s);
        self.held.values_mut().for_each(|holders| holders.retain(|(by, _)| *by != s));
        self.held.retain(|_, holders| !holders.is_empty());
        self.waiting.values_mut().for_each(|on| {
            on.remove(&s);
        });
        self.waiting.retain(|_, on| !on.is_empty());
    }
}
