//! A sealed slot is emptied: what can still be retried is carried to the open segment, what is
//! dropped is folded into the permanent counts, and the rest is truncated, all in one transaction
//! (`R032-12`).
//!
//! The ring's lock comes first and is held to the end (`R032-13`), then the slot's row, then the
//! children (`R032-14`). Gates are seen before any lock on a child, so that a slot in use costs
//! nobody anything; again when writers are out; and again under the exclusive lock. Everything that
//! costs in proportion to rows happens while readers and claims go on (law 14); with the exclusive
//! lock held, nothing is left to do but TRUNCATE and COMMIT. COMMIT is withheld unless the survey,
//! the rows that the carry inserted, the deltas appended with them and the fold's own scan agree.
//!
//! The claim ring's gate costs the more the more attempts were closed one by one. It is asked before
//! the lock; under the lock it is enough that there are as many claims as before it was asked, since
//! claims and closures only grow. Where a claim came meanwhile, of a transaction that had looked for
//! the open slot before this one was sealed, the gate is asked again.

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::mem;
use core::num::NonZeroU32;

use super::replies::{Held, Replies, Stop, balance, counted, probes, sum};
use super::{Machine, Turn};
use crate::fault::Fault;
use crate::ids::Generation;
use crate::job::TerminalSurvey;
use crate::limits::LOCK_TIMEOUT_MS;
use crate::reply::{Refusal, Reply};
use crate::ring::{Ring, RingView, Segment, Slot, SlotState};
use crate::rules::{Cutoff, Floor};
use crate::step::{Gate, Step};

/// The usual wait for an exclusive lock; never zero, which PostgreSQL takes for "for ever".
pub(super) const LOCK_TIMEOUT_DEFAULT: NonZeroU32 =
    NonZeroU32::new(LOCK_TIMEOUT_MS).expect("not zero");

/// Prunes one slot of one ring.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Prune {
    ring: Ring,
    slot: Option<Slot>,
    floor: Floor,
    timeout_ms: NonZeroU32,
    stage: Stage,
}

/// What became of a ring that was to be pruned (`R032-15`). Only `Pruned` changed anything.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PruneOutcome {
    /// No slot is sealed.
    Noop,
    /// The slot that was named is not sealed; `None`: the ring has no such slot. The open slot is
    /// never pruned.
    NotSealed {
        /// The slot.
        slot: Slot,
        /// What it is.
        state: Option<SlotState>,
    },
    /// Somebody held a lock for too long (`R032-14`).
    Blocked {
        /// The slot.
        slot: Slot,
    },
    /// Something in the slot is still in use.
    SkippedActive {
        /// The slot.
        slot: Slot,
        /// What was found.
        reason: Gate,
        /// The first of it: see [`Gate`].
        witness: i64,
    },
    /// The slot holds what no prune may drop and none can carry. It stays as it is until an operator
    /// has discarded the rows (H30); other slots go on.
    Faulty {
        /// The slot.
        slot: Slot,
        /// What is wrong.
        fault: Fault,
    },
    /// The slot is empty and can be opened again.
    Pruned {
        /// The slot.
        slot: Slot,
        /// The turn that it was in.
        generation: Generation,
        /// Failures inside the floor, now in the open segment; 0 for the lease and the claim ring.
        carried_failed_rows: i64,
        /// Failures past the floor, now in the permanent count.
        folded_failed: i64,
        /// Successes and cancellations, now in the permanent count.
        folded_other: i64,
    },
}

/// The slot that is pruned, and what was true of the ring when its lock was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Victim {
    pub(super) segment: Segment,
    to: Segment,
    pub(super) cutoff: Option<Cutoff>,
}

/// What the rows were found to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Books {
    carried: i64,
    failed: i64,
    other: i64,
}

/// What was asked last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Unstarted,
    Observing,
    Gating(Victim),
    Surveying(Victim),
    Moving(Victim, Books),
    Excluding(Victim, Books),
    /// The claim ring: its claims, counted before they were proved to be closed.
    Counting(Victim),
    Recounting(Victim, i64),
    Regating(Victim),
    Truncating(Victim, Books),
    Over,
}

impl Stage {
    const fn victim(self) -> Option<Victim> {
        match self {
            Self::Unstarted | Self::Observing | Self::Over => None,
            Self::Gating(victim)
            | Self::Surveying(victim)
            | Self::Moving(victim, _)
            | Self::Excluding(victim, _)
            | Self::Counting(victim)
            | Self::Recounting(victim, _)
            | Self::Regating(victim)
            | Self::Truncating(victim, _) => Some(victim),
        }
    }
}

impl fmt::Display for PruneOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Noop => f.write_str("nothing to prune: no slot is sealed"),
            Self::NotSealed { slot, state: Some(state) } => {
                write!(f, "{slot} is {state}, not sealed")
            }
            Self::NotSealed { slot, state: None } => write!(f, "the ring has no {slot}"),
            Self::Blocked { slot } => {
                write!(f, "{slot} is blocked: a lock was not to be had in time")
            }
            Self::SkippedActive { slot, reason, witness } => {
                write!(f, "{slot} is in use: {reason}, the first is {witness}")
            }
            Self::Faulty { slot, fault } => write!(f, "{slot} stays as it is: {fault}"),
            Self::Pruned { slot, generation, carried_failed_rows, folded_failed, folded_other } => {
                write!(
                    f,
                    "{slot} {generation} is pruned: {carried_failed_rows} failures carried, \
                 {folded_failed} failures and {folded_other} other jobs folded"
                )
            }
        }
    }
}

type PruneTurn = Turn<Result<PruneOutcome, Refusal>>;

impl Prune {
    /// Prunes the oldest sealed slot of `ring` (`R032-01`). Failures younger than `floor` are carried;
    /// the lease and the claim ring hold none.
    #[must_use]
    pub const fn oldest(ring: Ring, floor: Floor) -> Self {
        Self { ring, slot: None, floor, timeout_ms: LOCK_TIMEOUT_DEFAULT, stage: Stage::Unstarted }
    }

    /// Prunes `slot`: the next one where the oldest is held (law 7).
    #[must_use]
    pub const fn slot(ring: Ring, slot: Slot, floor: Floor) -> Self {
        let mut one = Self::oldest(ring, floor);
        one.slot = Some(slot);
        one
    }

    /// The same, waiting `timeout_ms` at most for each lock on the slot's children.
    #[must_use]
    pub const fn waiting(mut self, timeout_ms: NonZeroU32) -> Self {
        self.timeout_ms = timeout_ms;
        self
    }

    pub(super) const fn ring(&self) -> Ring {
        self.ring
    }

    /// What must not be found in `slot`, in the order of a job's life. Each gate has a snapshot of its
    /// own, and claims go on between them: a job that moves on is met by the next gate only if the
    /// next is the one that it moves to (`correctness/storage/broken/gates-swapped.cfg`).
    pub(super) fn gates(&self, slot: Slot) -> Vec<Gate> {
        match self.ring {
            Ring::Queue => {
                vec![Gate::PendingReady(slot), Gate::OpenReceipts(slot), Gate::ActiveLeases(slot)]
            }
            Ring::Lease => vec![Gate::HeldLeases(slot)],
            Ring::Claim => vec![Gate::OpenClaims(slot)],
        }
    }

    /// The slot to prune in a ring that looks so, or what to say instead.
    pub(super) fn choose(&self, view: &RingView) -> Result<Victim, PruneOutcome> {
        let chosen = match self.slot {
            None => view.sealed_oldest_first().first().copied().ok_or(PruneOutcome::Noop)?,
            Some(slot) => {
                let found = view.slot(slot).copied();
                let sealed = found.filter(|s| s.state == SlotState::Sealed);
                let state = found.map(|s| s.state);
                sealed.ok_or(PruneOutcome::NotSealed { slot, state })?
            }
        };
        let cutoff = self.floor.cutoff(view.now);
        Ok(Victim { segment: chosen.segment(), to: view.current, cutoff })
    }

    fn advance(&mut self, stage: Stage, r: &mut Replies) -> Result<PruneTurn, Stop> {
        match stage {
            Stage::Unstarted | Stage::Over => Err(r.unasked()),
            Stage::Observing => {
                r.locked("LockRing")?;
                let view = r.ring(self.ring)?;
                Ok(match self.choose(&view) {
                    Ok(victim) => self.gate(victim),
                    Err(outcome) => Turn::Rollback(Ok(outcome)),
                })
            }
            Stage::Gating(victim) => {
                r.locked("LockSlot")?;
                let held = r.first_held(&self.gates(victim.segment.slot))?;
                Ok(skipped(victim, held).unwrap_or_else(|| match self.ring {
                    Ring::Queue => self.survey(victim),
                    Ring::Lease | Ring::Claim => self.exclude(victim, Books::default()),
                }))
            }
            Stage::Surveying(victim) => {
                r.locked("ExcludeWriters")?;
                let held = r.first_held(&self.gates(victim.segment.slot))?;
                let found = r.surveyed("SurveyTerminal")?;
                if let Some(turn) = skipped(victim, held) {
                    return Ok(turn);
                }
                self.carry_and_fold(victim, found)
            }
            Stage::Moving(victim, books) => {
                if books.carried > 0 {
                    let (rows, deltas) = r.carried("CarryForward")?;
                    balance("rows carried, of those surveyed", books.carried, rows)?;
                    balance("deltas of the rows carried", rows, deltas)?;
                }
                let (other, failed) = r.folded("FoldRollup")?;
                balance("failures folded, of those surveyed", books.failed, failed)?;
                balance("other rows folded, of those surveyed", books.other, other)?;
                Ok(self.exclude(victim, books))
            }
            Stage::Excluding(victim, books) => {
                r.locked("Exclude")?;
                let held = r.first_held(&self.gates(victim.segment.slot))?;
                Ok(skipped(victim, held).unwrap_or_else(|| self.truncate(victim, books)))
            }
            Stage::Counting(victim) => self.counted(victim, r),
            Stage::Recounting(victim, claims) => self.recounted(victim, claims, r),
            Stage::Regating(victim) => {
                let held = r.first_held(&self.gates(victim.segment.slot))?;
                let books = Books::default();
                Ok(skipped(victim, held).unwrap_or_else(|| self.truncate(victim, books)))
            }
            Stage::Truncating(victim, books) => {
                r.truncated("Truncate")?;
                r.marked("MarkPruned")?;
                Ok(Turn::Commit(Ok(PruneOutcome::Pruned {
                    slot: victim.segment.slot,
                    generation: victim.segment.generation,
                    carried_failed_rows: books.carried,
                    folded_failed: books.failed,
                    folded_other: books.other,
                })))
            }
        }
    }

    fn gate(&mut self, victim: Victim) -> PruneTurn {
        let slot = victim.segment.slot;
        let mut steps = vec![Step::LockSlot { ring: self.ring, slot }];
        self.stage = match self.ring {
            Ring::Queue | Ring::Lease => Stage::Gating(victim),
            Ring::Claim => {
                steps.push(Step::CountClaims { slot });
                Stage::Counting(victim)
            }
        };
        steps.extend(probes(&self.gates(slot)));
        Turn::Ask(steps)
    }

    fn counted(&mut self, victim: Victim, r: &mut Replies) -> Result<PruneTurn, Stop> {
        let slot = victim.segment.slot;
        r.locked("LockSlot")?;
        let claims = r.claims_counted("CountClaims")?;
        let held = r.first_held(&self.gates(slot))?;
        counted("claims", claims)?;
        if let Some(turn) = skipped(victim, held) {
            return Ok(turn);
        }
        self.stage = Stage::Recounting(victim, claims);
        let exclude = Step::Exclude { ring: self.ring, slot, timeout_ms: self.timeout_ms.get() };
        Ok(Turn::Ask(vec![exclude, Step::CountClaims { slot }]))
    }

    fn recounted(
        &mut self,
        victim: Victim,
        claims: i64,
        r: &mut Replies,
    ) -> Result<PruneTurn, Stop> {
        r.locked("Exclude")?;
        if r.claims_counted("CountClaims")? == claims {
            return Ok(self.truncate(victim, Books::default()));
        }
        self.stage = Stage::Regating(victim);
        Ok(Turn::Ask(probes(&self.gates(victim.segment.slot)).collect()))
    }

    /// Writers out, readers and claims in. A gate that passes now stays passed: no row can come, and
    /// evidence and closures only grow.
    fn survey(&mut self, victim: Victim) -> PruneTurn {
        let slot = victim.segment.slot;
        self.stage = Stage::Surveying(victim);
        let mut steps = vec![Step::ExcludeWriters { slot, timeout_ms: self.timeout_ms.get() }];
        steps.extend(probes(&self.gates(slot)));
        steps.push(Step::SurveyTerminal { slot, cutoff: victim.cutoff });
        Turn::Ask(steps)
    }

    fn carry_and_fold(&mut self, victim: Victim, found: TerminalSurvey) -> Result<PruneTurn, Stop> {
        let (slot, cutoff) = (victim.segment.slot, victim.cutoff);
        let books = booked(found)?;
        if found.bodies_missing > 0 {
            let fault = Fault::BodyMissing { rows: found.bodies_missing };
            return Ok(Turn::Rollback(Ok(PruneOutcome::Faulty { slot, fault })));
        }
        let mut steps = Vec::with_capacity(2);
        match cutoff {
            Some(cutoff) if books.carried > 0 => {
                steps.push(Step::CarryForward { from: slot, to: victim.to, cutoff });
            }
            Some(_) => {}
            None => balance("failures to carry without a floor", 0, books.carried)?,
        }
        steps.push(Step::FoldRollup { slot, cutoff });
        self.stage = Stage::Moving(victim, books);
        Ok(Turn::Ask(steps))
    }

    fn exclude(&mut self, victim: Victim, books: Books) -> PruneTurn {
        let slot = victim.segment.slot;
        self.stage = Stage::Excluding(victim, books);
        let timeout_ms = self.timeout_ms.get();
        let mut steps = vec![Step::Exclude { ring: self.ring, slot, timeout_ms }];
        steps.extend(probes(&self.gates(slot)));
        Turn::Ask(steps)
    }

    fn truncate(&mut self, victim: Victim, books: Books) -> PruneTurn {
        let (ring, slot) = (self.ring, victim.segment.slot);
        self.stage = Stage::Truncating(victim, books);
        Turn::Last(vec![Step::Truncate { ring, slot }, Step::MarkPruned { ring, slot }])
    }
}

fn skipped(victim: Victim, held: Held) -> Option<PruneTurn> {
    let slot = victim.segment.slot;
    let skip = |(reason, witness)| PruneOutcome::SkippedActive { slot, reason, witness };
    held.map(|held| Turn::Rollback(Ok(skip(held))))
}

/// What the survey says that carry and fold must do.
fn booked(found: TerminalSurvey) -> Result<Books, Fault> {
    let TerminalSurvey { carried, bodies_missing, failed, other, compact } = found;
    counted("failures inside the floor", carried)?;
    counted("bodies missing", bodies_missing)?;
    counted("failures past the floor", failed)?;
    counted("other rows of retryable history", other)?;
    counted("compact successes", compact)?;
    Ok(Books { carried, failed, other: sum("terminal rows of a slot", other, compact)? })
}

impl Machine for Prune {
    type Outcome = Result<PruneOutcome, Refusal>;

    fn start(&mut self) -> PruneTurn {
        self.stage = Stage::Observing;
        Turn::Ask(vec![Step::LockRing { ring: self.ring }, Step::ObserveRing { ring: self.ring }])
    }

    fn resume(&mut self, replies: Vec<Reply>) -> PruneTurn {
        let stage = mem::replace(&mut self.stage, Stage::Over);
        let slot = stage.victim().map(|victim| victim.segment.slot);
        Replies::read(replies, |r| self.advance(stage, r)).unwrap_or_else(|stop| {
            stop.turn(|refusal| match slot {
                Some(slot) => Ok(PruneOutcome::Blocked { slot }),
                None => Err(refusal),
            })
        })
    }
}
