//! What must be true of committed rows, whatever happened; and rows that no step can write, for
//! tests of what must happen when they are there.

use std::collections::{BTreeMap, BTreeSet};

use awa_core::{
    Attempt, JobId, JobState, LaneId, LaneSeq, Location, QueueCounts, QueueName, Receipt,
    ReceiptId, Ring, Segment, Slot, SlotState, Window,
};

use super::World;
use super::job::ready_of;
use super::rows::{Done as DoneRow, Lease, Progress};
use super::table::{SETTLED, View};
use crate::explore::Broken;

/// The names of the invariants.
pub mod invariant {
    /// A narrow or compact terminal fact has its ready row beside it (`R026-02`, `R026-20`).
    pub const TERMINAL_HAS_RETAINED_READY_BODY: &str = "TerminalHasRetainedReadyBody";
    /// A job is in one place at most.
    pub const NO_JOB_TWICE: &str = "NoJobTwice";
    /// Trusted counters and pending deltas say what a scan says (`R026-26`), row by row.
    pub const COUNTS_EXACT: &str = "CountsExact";
    /// A receipt closes once (law 9).
    pub const CLOSED_ONCE: &str = "ClosedOnce";
    /// A ring has one open slot, the cursor's.
    pub const ONE_OPEN_SLOT: &str = "OneOpenSlot";
    /// A pruned slot holds what stale producers put there and what followed, nothing else (law 6).
    pub const PRUNED_IS_EMPTY_OF_LIVE: &str = "PrunedIsEmptyOfLive";
    /// Every job ever enqueued, and not deleted, is counted somewhere (H36).
    pub const CONSERVATION: &str = "Conservation";
    /// Nothing at or below a window's low bound can be claimed (see [`super::World::check_window`]), nor
    /// anything up to where evidence says that all is spent.
    pub const NOTHING_PASSED_OVER: &str = "NothingPassedOver";
}

fn holds(holds: bool, name: &'static str, detail: impl FnOnce() -> String) -> Result<(), Broken> {
    if holds { Ok(()) } else { Err(Broken { name, detail: detail() }) }
}

impl World {
    /// Checks all invariants over what is committed, but what a claimer remembers.
    ///
    /// # Errors
    /// The first that doesn't hold.
    pub fn check_invariants(&self) -> Result<(), Broken> {
        let view = self.committed();
        self.check_spent(&view)?;
        self.check_bodies(&view)?;
        self.check_closures(&view)?;
        self.check_places(&view)?;
        self.check_counts(&view)?;
        for ring in Ring::ALL {
            self.check_ring(&view, ring)?;
        }
        Ok(())
    }

    /// Checks that no job of the lane was passed over by a claimer who knows this of it and has
    /// committed every claim.
    ///
    /// # Errors
    /// The first job that was.
    pub fn check_window(&self, lane: LaneId, window: &Window) -> Result<(), Broken> {
        let view = self.committed();
        let low = window.low(&view.snapshot);
        let spent = self.covered(&view, lane);
        let mut rows = self.tables.ready.seen(&view).filter(|r| r.lane == lane && r.seq <= low);
        let passed = rows.find(|r| !spent.has(r.seq.0)).map(|r| r.seq);
        holds(passed.is_none(), invariant::NOTHING_PASSED_OVER, || {
            format!("{lane} {passed:?} is unclaimed, the window is {window}, its bound {low}")
        })
    }

    fn check_spent(&self, view: &View) -> Result<(), Broken> {
        let mut bounds: BTreeMap<LaneId, LaneSeq> = BTreeMap::new();
        for e in self.tables.evidence.seen(view) {
            let bound = bounds.entry(e.lane).or_insert(e.spent_to);
            *bound = e.spent_to.max(*bound);
        }
        for (lane, bound) in bounds {
            let spent = self.covered(view, lane);
            let mut rows =
                self.tables.ready.seen(view).filter(|r| r.lane == lane && r.seq <= bound);
            let passed = rows.find(|r| !spent.has(r.seq.0)).map(|r| r.seq);
            holds(passed.is_none(), invariant::NOTHING_PASSED_OVER, || {
                format!(
                    "{lane} {passed:?} is unclaimed, evidence says that all up to {bound} is spent"
                )
            })?;
        }
        Ok(())
    }

    fn check_bodies(&self, view: &View) -> Result<(), Broken> {
        let bodies = self.bodies(view);
        let narrow = self.tables.done.seen(view).filter(|d| d.body.is_none());
        let compact = self.tables.compact.seen(view);
        let facts = narrow.map(|d| (d.at, d.lane, d.seq));
        let facts =
            facts.chain(compact.flat_map(|c| c.jobs.iter().map(|(t, _)| (c.at, c.lane, t.seq))));
        for (at, lane, seq) in facts {
            let body = ready_of(&bodies, at, lane, seq);
            holds(body.is_some(), invariant::TERMINAL_HAS_RETAINED_READY_BODY, || {
                format!("{lane} {seq} in {at} has no ready row")
            })?;
        }
        Ok(())
    }

    fn check_places(&self, view: &View) -> Result<(), Broken> {
        let mut at: BTreeMap<JobId, Location> = BTreeMap::new();
        for place in self.places(view) {
            let other = at.insert(place.job, place.at);
            holds(other.is_none(), invariant::NO_JOB_TWICE, || {
                format!("{} is at {other:?} and at {:?}", place.job, place.at)
            })?;
        }
        let pruned: i64 = self.tables.rollups.seen(view).map(|r| r.other + r.failed).sum();
        let (due, counted) = (self.enqueued - self.deleted, at.len() as i64 + pruned);
        holds(due == counted, invariant::CONSERVATION, || {
            format!("{} enqueued, {} deleted, {counted} counted", self.enqueued, self.deleted)
        })
    }

    fn check_counts(&self, view: &View) -> Result<(), Broken> {
        if !self.trusts(view) {
            return Ok(());
        }
        let (mut told, scanned) = (self.told_counters(view), self.scan_counters(view));
        told.retain(|_, n| *n != 0);
        holds(told == scanned, invariant::COUNTS_EXACT, || {
            format!("told {told:?}, scanned {scanned:?}")
        })?;
        let queues: Vec<QueueName> =
            self.tables.queues.seen(view).map(|q| q.queue.clone()).collect();
        for queue in queues {
            let [told, scanned] = [true, false].map(|trusted| self.counts(view, &queue, trusted));
            holds(told == scanned, invariant::COUNTS_EXACT, || {
                format!("{queue}: told {told:?}, scanned {scanned:?}")
            })?;
        }
        Ok(())
    }

    fn check_closures(&self, view: &View) -> Result<(), Broken> {
        let mut closed: BTreeSet<ReceiptId> = BTreeSet::new();
        let batches = self.tables.closure_batches.seen(view).flat_map(|c| c.receipts.clone());
        for receipt in batches.chain(self.tables.closures.seen(view).map(|c| c.receipt)) {
            let once = closed.insert(receipt);
            holds(once, invariant::CLOSED_ONCE, || format!("{receipt} is closed twice"))?;
        }
        Ok(())
    }

    fn check_ring(&self, view: &View, ring: Ring) -> Result<(), Broken> {
        let slots: Vec<_> = self.tables.slots.seen(view).filter(|r| r.ring == ring).collect();
        let open = slots.iter().filter(|r| r.state == SlotState::Open);
        let open: Vec<_> =
            open.map(|r| Segment { slot: r.slot, generation: r.generation }).collect();
        holds(open == [self.open(view, ring)], invariant::ONE_OPEN_SLOT, || {
            format!("{ring}: open {open:?}, the cursor is at {:?}", self.open(view, ring))
        })?;
        for r in slots.iter().filter(|r| r.state == SlotState::Pruned) {
            let stray = self.stray(view, ring, r.slot);
            holds(stray.is_none(), invariant::PRUNED_IS_EMPTY_OF_LIVE, || {
                format!("{} of the {ring} ring is pruned but holds {stray:?}", r.slot)
            })?;
        }
        Ok(())
    }

    /// A row in a slot that came to it neither from a stale producer nor after one.
    fn stray(&self, view: &View, ring: Ring, slot: Slot) -> Option<String> {
        let t = &self.tables;
        let rows: BTreeSet<(LaneId, LaneSeq)> =
            t.ready.seen(view).filter(|r| r.at.slot == slot).map(|r| (r.lane, r.seq)).collect();
        let done = t.done.seen(view).filter(|d| d.at.slot == slot);
        let done = done.filter(|d| !rows.contains(&(d.lane, d.seq))).map(|d| format!("{d:?}"));
        let compact = t.compact.seen(view).filter(|c| c.at.slot == slot);
        let compact = compact
            .filter(|c| c.jobs.iter().any(|(t, _)| !rows.contains(&(c.lane, t.seq))))
            .map(|c| format!("{c:?}"));
        let evidence = t.evidence.seen(view).filter(|e| e.at.slot == slot);
        let evidence = evidence
            .filter(|e| !rows.iter().any(|(lane, seq)| *lane == e.lane && e.ranges.has(seq.0)))
            .map(|e| format!("{e:?}"));
        let leases = t.leases.seen(view).filter(|l| l.at.slot == slot).map(|l| format!("{l:?}"));
        let claims = t.claims.seen(view).filter(|c| c.slot == slot).map(|c| format!("{c:?}"));
        match ring {
            Ring::Queue => done.chain(compact).chain(evidence).next(),
            Ring::Lease => leases.into_iter().next(),
            Ring::Claim => claims.into_iter().next(),
        }
    }

    /// The exact counts of a queue by a scan of what is committed; `None` if it isn't declared.
    #[must_use]
    pub fn scanned_counts(&self, queue: &QueueName) -> Option<QueueCounts> {
        self.counts(&self.committed(), queue, false)
    }

    /// Jobs ever enqueued, and jobs that an operator deleted, committed.
    #[must_use]
    pub const fn tally(&self) -> (i64, i64) {
        (self.enqueued, self.deleted)
    }

    /// A materialised lease of an open attempt, and its progress.
    pub fn plant_lease(&mut self, at: Segment, receipt: &Receipt, state: JobState) {
        let view = self.committed();
        let claim = self.tables.claims.seen(&view).find(|c| c.batch == receipt.batch).cloned();
        let Some(claim) = claim else { return };
        let (job, run_lease) = (receipt.job, receipt.run_lease);
        self.tables.progress.insert(SETTLED, Progress { job, run_lease });
        let lease = Lease {
            at,
            claim_slot: receipt.claim_slot,
            job,
            run_lease,
            receipt: receipt.id(),
            ready: claim.ready,
            lane: claim.lane,
            seq: claim.jobs[usize::from(receipt.index.get()) - 1].seq,
            state,
        };
        self.tables.leases.insert(SETTLED, lease);
    }

    /// A narrow failure that no attempt left, with its delta: an orphan (H30), or one that stands
    /// where a carry wants to go (H31).
    pub fn plant_failure(&mut self, at: Segment, lane: LaneId, seq: LaneSeq, job: JobId) {
        let ends = (JobState::Failed, self.now);
        let kind = "planted".to_owned();
        let row = DoneRow { attempt: Attempt(1), kind, ..DoneRow::new((at, lane, seq), ends, job) };
        self.delta(SETTLED, &row, 1);
        self.tables.done.insert(SETTLED, row);
    }
}
