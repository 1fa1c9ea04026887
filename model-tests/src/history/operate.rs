//! The operator's and the maintainer's operations.

use awa_core::machine::cancel::{Cancel, CancelOutcome};
use awa_core::machine::delete::{DeleteCompleted, DeleteOutcome};
use awa_core::machine::prune::{Prune, PruneOutcome};
use awa_core::machine::rebuild::{Distrust, Rebuild};
use awa_core::machine::retry::{DiscardFailed, RetryFailed};
use awa_core::machine::rollup::{FindRollups, RollupOutcome, RollupPlan, RollupTick};
use awa_core::machine::rotate::{Rotate, RotateOutcome};
use awa_core::rules::Floor;
use awa_core::{Kind, Ring, Slot, Span, TerminalFilter};

use super::op::{Scope, Which};
use super::play::{Player, Said, Wrong, listed, numbered, queue_name};
use super::{Acts, Storage};
use crate::ledger::{self, Pruned, Retried, State};

/// More than any history has.
const ALL: i64 = 1_000_000;

/// The value, or what kept it from coming, handed on.
macro_rules! heard {
    ($asked:expr) => {
        match $asked {
            Ok(value) => value,
            Err(trouble) => return Ok(Err(trouble)),
        }
    };
}
pub(super) use heard;

impl<S: Storage> Player<S> {
    pub(super) fn cancel(&mut self, which: Which, acts: &mut Acts) -> Said {
        let Some(job) = self.which(which) else { return Ok(Ok("no job".to_owned())) };
        let outcome = heard!(self.ask(Cancel::new(job), acts));
        let now = self.clock();
        let (told, said) = match outcome {
            CancelOutcome::Cancelled => (Some(State::Cancelled), format!("{job} is cancelled")),
            CancelOutcome::Running => (None, format!("{job} is running")),
            CancelOutcome::AlreadyEnded(state) => (None, format!("{job} is {state}")),
            CancelOutcome::NotFound => (None, format!("{job} is not found")),
            CancelOutcome::KeptMoving => return Err(Wrong(format!("{job} kept moving, alone"))),
        };
        self.owe(|ledger| ledger.cancel(job.0 as u64, now, told))?;
        Ok(Ok(said))
    }

    pub(super) fn delete(&mut self, which: Which, acts: &mut Acts) -> Said {
        let Some(job) = self.which(which) else { return Ok(Ok("no job".to_owned())) };
        Ok(Ok(match heard!(self.ask(DeleteCompleted::new(job), acts)) {
            DeleteOutcome::Deleted => {
                self.owe(|ledger| ledger.delete_completed(&[job.0 as u64]))?;
                format!("{job} is deleted")
            }
            DeleteOutcome::NotCompleted(state) => {
                self.not_in(job.0, State::Completed)?;
                format!("{job} is {state}")
            }
            DeleteOutcome::NotFound => {
                self.not_in(job.0, State::Completed)?;
                format!("{job} is not found")
            }
        }))
    }

    fn not_in(&self, job: i64, state: State) -> Result<(), Wrong> {
        if !self.planted && self.ledger.state(job as u64) == Some(state) {
            return Err(Wrong(format!("job {job} is {state:?} and was refused")));
        }
        Ok(())
    }

    fn filter(&self, scope: Scope) -> Result<Option<(TerminalFilter, ledger::Scope)>, Wrong> {
        Ok(match scope {
            Scope::One(which) => self
                .which(which)
                .map(|job| (TerminalFilter::Job(job), ledger::Scope::One(job.0 as u64))),
            Scope::Kind(kind) => {
                let name = Kind::new(kind.encode_utf8(&mut [0; 4]))?;
                Some((TerminalFilter::Kind(name), ledger::Scope::Kind(numbered(kind))))
            }
            Scope::Queue(queue) => {
                let name = queue_name(queue)?;
                Some((TerminalFilter::Queue(name), ledger::Scope::Queue(numbered(queue))))
            }
        })
    }

    pub(super) fn retry(&mut self, scope: Scope, acts: &mut Acts) -> Said {
        let Some((filter, scope)) = self.filter(scope)? else { return Ok(Ok("no job".to_owned())) };
        let mut scan = RetryFailed::new(filter, ALL)?;
        while let Some(piece) = scan.next() {
            let did = heard!(self.ask(piece, acts));
            scan.take(did)?;
        }
        let outcome = scan.outcome();
        let report = Retried {
            jobs: outcome.retried.iter().map(|job| job.0 as u64).collect(),
            matched: outcome.matched,
            pruned_failed: outcome.pruned_failed_count,
        };
        if !self.planted {
            self.owe(|ledger| ledger.retry(scope, &report, true))?;
        }
        let mut said = format!(
            "{} of {} again",
            listed(outcome.retried.iter().map(|job| job.0)),
            outcome.matched
        );
        if let Some(pruned) = outcome.pruned_failed_count {
            said += &format!("; {pruned} pruned past the floor");
        }
        Ok(Ok(said))
    }

    pub(super) fn discard(&mut self, scope: Scope, acts: &mut Acts) -> Said {
        let Some((filter, _)) = self.filter(scope)? else { return Ok(Ok("no job".to_owned())) };
        let mut scan = DiscardFailed::new(filter, ALL)?;
        while let Some(piece) = scan.next() {
            let did = heard!(self.ask(piece, acts));
            scan.take(did)?;
        }
        let discarded = scan.outcome().discarded;
        if !self.planted {
            let jobs: Vec<u64> = discarded.iter().map(|job| job.0 as u64).collect();
            self.owe(|ledger| ledger.discard(&jobs))?;
        }
        Ok(Ok(format!("discarded {}", listed(discarded.iter().map(|job| job.0)))))
    }

    pub(super) fn rotate(&mut self, ring: Ring, acts: &mut Acts) -> Said {
        Ok(Ok(match heard!(self.ask(Rotate::ring(ring), acts)) {
            RotateOutcome::Rotated { sealed, opened } => format!("{sealed} sealed, {opened} open"),
            RotateOutcome::AlreadyRotated { current } => format!("{current} is open already"),
            RotateOutcome::RingFull { current } => format!("full: {current} stays open"),
        }))
    }

    pub(super) fn prune(
        &mut self,
        ring: Ring,
        slot: Option<Slot>,
        keep_s: Option<u64>,
        acts: &mut Acts,
    ) -> Said {
        let floor = Floor::new(keep_s.map_or(Span::FOREVER, Span::from_secs));
        let prune = slot.map_or(Prune::oldest(ring, floor), |slot| Prune::slot(ring, slot, floor));
        let outcome = heard!(self.ask(prune, acts));
        match &outcome {
            PruneOutcome::Pruned { carried_failed_rows, folded_failed, folded_other, .. } => {
                if !self.planted {
                    let now = self.clock();
                    let report = Pruned {
                        vanished: self.vanished()?,
                        carried: *carried_failed_rows,
                        other: *folded_other,
                        failed: *folded_failed,
                    };
                    self.owe(|ledger| ledger.prune(now, keep_s, &report))?;
                }
            }
            PruneOutcome::Faulty { .. } if !self.planted => {
                return Err(Wrong(format!("prune: {outcome}")));
            }
            PruneOutcome::Noop
            | PruneOutcome::NotSealed { .. }
            | PruneOutcome::Blocked { .. }
            | PruneOutcome::SkippedActive { .. }
            | PruneOutcome::Faulty { .. } => {}
        }
        Ok(Ok(outcome.to_string()))
    }

    pub(super) fn rollup(&mut self, acts: &mut Acts) -> Said {
        let slots = match heard!(self.ask(FindRollups, acts)) {
            RollupPlan::Slots(slots) => slots,
            RollupPlan::Deferred { .. } => {
                return Ok(Ok("put off: the horizon is pinned".to_owned()));
            }
        };
        let mut tick = RollupTick::new(slots);
        let mut said = Vec::new();
        while let Some(rollup) = tick.next_rollup() {
            let outcome = heard!(self.ask(rollup, acts));
            tick.take(outcome);
            said.push(match outcome {
                RollupOutcome::Folded { slot, rows: _, sum } => format!("{slot}: sum {sum} folded"),
                RollupOutcome::Deferred { .. } => "the horizon is pinned".to_owned(),
                RollupOutcome::SkippedActive { slot, reason, witness } => {
                    format!("{slot}: {reason}, the first is {witness}")
                }
                RollupOutcome::NotSealed { slot, .. } => format!("{slot} is not sealed"),
                RollupOutcome::Blocked { slot } => format!("{slot} is blocked"),
            });
        }
        Ok(Ok(if said.is_empty() { "nothing to fold".to_owned() } else { said.join("; ") }))
    }

    pub(super) fn rebuild(&mut self, acts: &mut Acts) -> Said {
        let rebuilt = heard!(self.ask(Rebuild::default(), acts));
        Ok(Ok(format!("{} rows counted", rebuilt.rows)))
    }

    pub(super) fn distrust(&mut self, acts: &mut Acts) -> Said {
        heard!(self.ask(Distrust {}, acts));
        Ok(Ok("the counters are not trusted".to_owned()))
    }
}
