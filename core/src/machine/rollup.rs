//! Pending deltas of sealed slots are folded into the counters (`R026-24`). Exact counts don't
//! depend on it: they add what is pending.
//!
//! [`FindRollups`] finds the slots, [`RollupTick`] hands out a [`Rollup`] for each: a slot that is held
//! is stepped over (law 7), so that no number of held slots hides those behind them.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::mem;
use core::num::NonZeroU32;

use super::prune::LOCK_TIMEOUT_DEFAULT;
use super::replies::{Held, Replies, Stop, counted, probes};
use super::{Machine, Turn};
use crate::limits::ROLLUP_SLOTS_MAX;
use crate::reply::{Refusal, Reply};
use crate::ring::{Ring, RingView, Slot, SlotState};
use crate::step::{Gate, Step};

/// Finds what can be rolled up, without a lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FindRollups;

/// What can be rolled up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RollupPlan {
    /// These slots, one [`Rollup`] each, in this order: all sealed slots with pending deltas, oldest
    /// segment first (`R026-24`); some may turn out to be held. Often none. [`RollupTick`] keeps to
    /// what one tick may fold.
    Slots(Vec<Slot>),
    /// Nothing now: this backend pins the MVCC horizon (`R026-25`).
    Deferred {
        /// Its process id.
        pinned_by: i64,
    },
}

/// An empty old prefix of the ring hides nothing behind it (`R026-24`).
fn candidates(view: &RingView, pending: &[Slot]) -> Vec<Slot> {
    let sealed = view.sealed_oldest_first().into_iter().map(|s| s.slot);
    sealed.filter(|slot| pending.contains(slot)).collect()
}

/// One tick: the slots of a plan are tried in order until [`ROLLUP_SLOTS_MAX`] are folded (`R026-31`).
/// Run each machine that [`RollupTick::next_rollup`] gives and hand its outcome to [`RollupTick::take`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RollupTick {
    left: VecDeque<Slot>,
    outcomes: Vec<RollupOutcome>,
    folded: usize,
}

impl RollupTick {
    /// A tick over the slots of a [`RollupPlan::Slots`].
    #[must_use]
    pub fn new(slots: Vec<Slot>) -> Self {
        Self { left: slots.into(), outcomes: Vec::new(), folded: 0 }
    }

    /// The next slot to try, if the tick goes on.
    #[must_use]
    pub fn next_rollup(&mut self) -> Option<Rollup> {
        if self.folded == ROLLUP_SLOTS_MAX {
            return None;
        }
        self.left.pop_front().map(Rollup::new)
    }

    /// Takes in what became of the slot that was tried last. A pinned horizon ends the tick: it is
    /// pinned for every slot.
    pub fn take(&mut self, outcome: RollupOutcome) {
        match outcome {
            RollupOutcome::Folded { .. } => self.folded += 1,
            RollupOutcome::Deferred { .. } => self.left.clear(),
            RollupOutcome::SkippedActive { .. }
            | RollupOutcome::NotSealed { .. }
            | RollupOutcome::Blocked { .. } => {}
        }
        self.outcomes.push(outcome);
    }

    /// What became of each slot that was tried, in order.
    #[must_use]
    pub fn into_outcomes(self) -> Vec<RollupOutcome> {
        self.outcomes
    }
}

impl Machine for FindRollups {
    type Outcome = Result<RollupPlan, Refusal>;

    fn start(&mut self) -> Turn<Self::Outcome> {
        Turn::Last(vec![
            Step::Probe { gate: Gate::PinnedHorizon },
            Step::ObserveRing { ring: Ring::Queue },
            Step::FindDeltas,
        ])
    }

    fn resume(&mut self, replies: Vec<Reply>) -> Turn<Self::Outcome> {
        Replies::read(replies, |r| {
            let pinned_by = r.probed(Gate::PinnedHorizon.step_name())?;
            let view = r.ring(Ring::Queue)?;
            let pending = r.slots_found("FindDeltas")?;
            Ok(Turn::Commit(Ok(match pinned_by {
                Some(pinned_by) => RollupPlan::Deferred { pinned_by },
                None => RollupPlan::Slots(candidates(&view, &pending)),
            })))
        })
        .unwrap_or_else(|stop| stop.turn(Err))
    }
}

/// Rolls up one slot. Takes the queue ring, then the slot, as prune does: of a prune and a rollup
/// of one slot, one comes after the other, and neither waits for the other with a lock that the
/// other wants.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rollup {
    slot: Slot,
    timeout_ms: NonZeroU32,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Unstarted,
    Observing,
    Gating,
    Excluding,
    Folding,
    Over,
}

/// What became of a slot that was to be rolled up. Only `Folded` changed anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RollupOutcome {
    /// Its deltas are folded.
    Folded {
        /// The slot.
        slot: Slot,
        /// Deltas that were pending.
        rows: i64,
        /// What they add up to.
        sum: i64,
    },
    /// This backend pins the MVCC horizon: updating counters now would leave dead rows behind
    /// (`R026-25`).
    Deferred {
        /// Its process id.
        pinned_by: i64,
    },
    /// More deltas are to come in it (`R026-24`).
    SkippedActive {
        /// The slot.
        slot: Slot,
        /// What was found.
        reason: Gate,
        /// The first of it.
        witness: i64,
    },
    /// It isn't sealed any more; `None`: the ring has no such slot.
    NotSealed {
        /// The slot.
        slot: Slot,
        /// What it is.
        state: Option<SlotState>,
    },
    /// A lock was not to be had in time.
    Blocked {
        /// The slot.
        slot: Slot,
    },
}

type RollupTurn = Turn<Result<RollupOutcome, Refusal>>;

impl Rollup {
    /// Rolls up `slot`, waiting as long as usual for its lock.
    #[must_use]
    pub const fn new(slot: Slot) -> Self {
        Self { slot, timeout_ms: LOCK_TIMEOUT_DEFAULT, stage: Stage::Unstarted }
    }

    /// The same, waiting `timeout_ms` at most for the exclusive lock.
    #[must_use]
    pub const fn waiting(mut self, timeout_ms: NonZeroU32) -> Self {
        self.timeout_ms = timeout_ms;
        self
    }

    /// Gates that are cheap to see and don't need the exclusive lock (`R026-24`).
    const fn gates_before(&self) -> [Gate; 2] {
        [Gate::ActiveLeases(self.slot), Gate::PendingReady(self.slot)]
    }

    fn advance(&mut self, r: &mut Replies) -> Result<RollupTurn, Stop> {
        let slot = self.slot;
        match mem::replace(&mut self.stage, Stage::Over) {
            Stage::Unstarted | Stage::Over => Err(r.unasked()),
            Stage::Observing => {
                r.locked("LockRing")?;
                let view = r.ring(Ring::Queue)?;
                let pinned_by = r.probed(Gate::PinnedHorizon.step_name())?;
                Ok(self.decide(&view, pinned_by))
            }
            Stage::Gating => {
                r.locked("LockSlot")?;
                let held = r.first_held(&self.gates_before())?;
                if let Some(turn) = skipped(slot, held) {
                    return Ok(turn);
                }
                self.stage = Stage::Excluding;
                let timeout_ms = self.timeout_ms.get();
                let mut steps = vec![Step::ExcludeDeltas { slot, timeout_ms }];
                steps.extend(probes(&[Gate::OpenReceipts(slot)]));
                Ok(Turn::Ask(steps))
            }
            Stage::Excluding => {
                r.locked("ExcludeDeltas")?;
                let held = r.first_held(&[Gate::OpenReceipts(slot)])?;
                if let Some(turn) = skipped(slot, held) {
                    return Ok(turn);
                }
                self.stage = Stage::Folding;
                Ok(Turn::Last(vec![Step::FoldDeltas { slot }, Step::TruncateDeltas { slot }]))
            }
            Stage::Folding => {
                let (rows, sum) = r.deltas_folded("FoldDeltas")?;
                r.truncated("TruncateDeltas")?;
                counted("folded deltas", rows)?;
                Ok(Turn::Commit(Ok(RollupOutcome::Folded { slot, rows, sum })))
            }
        }
    }

    fn decide(&mut self, view: &RingView, pinned_by: Option<i64>) -> RollupTurn {
        let slot = self.slot;
        let state = view.slot(slot).map(|s| s.state);
        if state != Some(SlotState::Sealed) {
            return Turn::Rollback(Ok(RollupOutcome::NotSealed { slot, state }));
        }
        if let Some(pinned_by) = pinned_by {
            return Turn::Rollback(Ok(RollupOutcome::Deferred { pinned_by }));
        }
        self.stage = Stage::Gating;
        let mut steps = vec![Step::LockSlot { ring: Ring::Queue, slot }];
        steps.extend(probes(&self.gates_before()));
        Turn::Ask(steps)
    }
}

fn skipped(slot: Slot, held: Held) -> Option<RollupTurn> {
    let skip = |(reason, witness)| RollupOutcome::SkippedActive { slot, reason, witness };
    held.map(|held| Turn::Rollback(Ok(skip(held))))
}

impl Machine for Rollup {
    type Outcome = Result<RollupOutcome, Refusal>;

    fn start(&mut self) -> RollupTurn {
        self.stage = Stage::Observing;
        Turn::Ask(vec![
            Step::LockRing { ring: Ring::Queue },
            Step::ObserveRing { ring: Ring::Queue },
            Step::Probe { gate: Gate::PinnedHorizon },
        ])
    }

    fn resume(&mut self, replies: Vec<Reply>) -> RollupTurn {
        let slot = self.slot;
        Replies::read(replies, |r| self.advance(r))
            .unwrap_or_else(|stop| stop.turn(|_| Ok(RollupOutcome::Blocked { slot })))
    }
}
