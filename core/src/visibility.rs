//! Which positions a claim must look at again, though producers never wait for one another.
//!
//! Positions become visible out of order: a producer may hold position 7 open while 8 commits. A
//! claimer remembers the snapshot of its last claim and, for some of its own transactions, the last
//! position that was drawn before that transaction got its id. A transaction id that PostgreSQL gave
//! *us* is the only sound witness: whoever drew a position before we read the sequence has a smaller
//! id, because every producer takes its id first. So whatever became visible since the last claim
//! belongs to the ids that were open then and are finished now, and lies above the newest sample
//! whose id is no larger than the smallest of those. `correctness/` and the explorer of
//! `awa-model-tests` hold the proof obligations.

use alloc::vec::Vec;
use core::fmt;

use crate::ids::{LaneSeq, Xid};
use crate::limits::SAMPLES_KEPT_MAX;

/// A statement's snapshot: what `pg_current_snapshot()` says.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Snapshot {
    /// Every id below is finished.
    pub xmin: Xid,
    /// Ids from here on are invisible. Not the next id to be given.
    pub xmax: Xid,
    /// Ids in `xmin..xmax` that were open, ascending.
    pub open: Vec<Xid>,
}

impl Snapshot {
    /// Whether a transaction with `id`, if it committed, is visible.
    #[must_use]
    pub fn sees(&self, id: Xid) -> bool {
        id < self.xmin || (id < self.xmax && self.open.binary_search(&id).is_err())
    }

    /// The smallest id that may have finished between this snapshot and `later`.
    #[must_use]
    pub fn first_finished_until(&self, later: &Self) -> Xid {
        let finished = self.open.iter().copied().filter(|id| later.sees(*id));
        finished.min().map_or(self.xmax, |id| id.min(self.xmax))
    }

    /// Reads the text form `xmin:xmax:id,id`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(':');
        let xmin = Xid(parts.next()?.parse().ok()?);
        let xmax = Xid(parts.next()?.parse().ok()?);
        let list = parts.next()?;
        let mut open = Vec::new();
        for id in list.split(',').filter(|id| !id.is_empty()) {
            open.push(Xid(id.parse().ok()?));
        }
        parts.next().is_none().then_some(Self { xmin, xmax, open })
    }
}

impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:", self.xmin.0, self.xmax.0)?;
        for (i, id) in self.open.iter().enumerate() {
            write!(f, "{}{}", if i == 0 { "" } else { "," }, id.0)?;
        }
        Ok(())
    }
}

/// All positions up to `position` had been drawn when a transaction was given the id `xid`:
/// whoever drew one of them has a smaller id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sample {
    /// The sequence's last value, read before the id was given.
    pub position: LaneSeq,
    /// The id of the reader's own transaction.
    pub xid: Xid,
}

/// What one process knows about one lane between two claims. Dropped whole on any connection error
/// and whenever the sequence is seen to go back: then the next claim looks at every position.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Window {
    /// The last committed claim's snapshot; `None` before the first.
    pub seen: Option<Snapshot>,
    /// In that snapshot every row up to here was claimed; `None`: every row.
    pub frontier: Option<LaneSeq>,
    /// Ascending in both fields; at most [`SAMPLES_KEPT_MAX`].
    pub samples: Vec<Sample>,
}

impl Window {
    /// The position above which a claim in the snapshot `now` must look: nothing at or below it is
    /// visible and unclaimed. Rendered once, in `awa-sqlgen`.
    #[must_use]
    pub fn low(&self, now: &Snapshot) -> LaneSeq {
        let Some(seen) = &self.seen else { return LaneSeq(0) };
        let from = seen.first_finished_until(now);
        let late = self.newest_below(from);
        self.frontier.map_or(late, |f| f.min(late))
    }

    /// Positions up to here are settled in the snapshot `now`: whoever drew them has finished, so
    /// evidence may cover them whether or not a row has them.
    #[must_use]
    pub fn settled(&self, now: &Snapshot) -> LaneSeq {
        self.newest_below(now.xmin)
    }

    fn newest_below(&self, id: Xid) -> LaneSeq {
        let sound = self.samples.iter().filter(|s| s.xid <= id);
        sound.map(|s| s.position).max().unwrap_or(LaneSeq(0))
    }

    /// Whether the last position drawn, read now as `position`, shows that the sequence went back
    /// since: a failover or a restore. Nothing remembered holds in another history.
    #[must_use]
    pub fn is_of_another_history(&self, position: LaneSeq) -> bool {
        self.samples.last().is_some_and(|s| position < s.position)
            || self.frontier.is_some_and(|f| position < f)
    }

    /// The window after a claim whose COMMIT was confirmed. `last` is the last position taken where
    /// a bound stopped the claim; `sample` is there where its transaction was given an id.
    #[must_use]
    pub fn after_claim(
        mut self,
        seen: Snapshot,
        last: Option<LaneSeq>,
        sample: Option<Sample>,
    ) -> Self {
        if let Some(new) = sample {
            if self.is_of_another_history(new.position) {
                return Self::default();
            }
            self.samples.push(new);
            if self.samples.len() > SAMPLES_KEPT_MAX {
                self.thin();
            }
        }
        self.seen = Some(seen);
        self.frontier = last;
        self
    }

    /// The window after a poll in the snapshot `seen` that found nothing unclaimed above its low bound.
    #[must_use]
    pub fn after_poll(self, seen: Snapshot) -> Self {
        self.after_claim(seen, None, None)
    }

    /// Halves the older samples. Dropping one only lowers a bound, which is always safe.
    fn thin(&mut self) {
        let keep_new = self.samples.len() / 2;
        let mut at = 0;
        self.samples.retain(|_| {
            at += 1;
            at > keep_new || at % 2 == 1
        });
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.seen, self.frontier) {
            (None, _) => f.write_str("from the start"),
            (Some(seen), None) => write!(f, "since {seen}"),
            (Some(seen), Some(frontier)) => write!(f, "since {seen} or {frontier}"),
        }
    }
}
