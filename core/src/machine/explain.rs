//! What a prune would do now, said before it is done.

use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::mem;

use super::prune::{Prune, Victim};
use super::replies::{Replies, Stop, probes};
use super::walk::walk;
use super::{Machine, Turn};
use crate::job::TerminalSurvey;
use crate::reply::{Refusal, Reply};
use crate::ring::{Ring, RingView};
use crate::step::{Gate, Step};

/// What was seen, without a lock, of all that a prune asks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Observed {
    /// The ring.
    pub view: RingView,
    /// The gates that were found held, each with its witness.
    pub held: Vec<(Gate, i64)>,
    /// The terminal rows of the slot; nothing for the lease and the claim ring.
    pub survey: TerminalSurvey,
}

/// The plan of `prune` in a database that looks as `seen`: the machine itself is run, against these
/// answers. One step a line, a line for each turn, the outcome last.
#[must_use]
pub fn explain(prune: Prune, seen: &Observed) -> String {
    let said = |outcome: &<Prune as Machine>::Outcome| match outcome {
        Ok(outcome) => outcome.to_string(),
        Err(refusal) => refusal.to_string(),
    };
    walk(prune, |step| seen.answer(step), said)
}

impl Observed {
    /// What a database that stays as it was seen answers to the steps of a prune. Any other step gets
    /// `Locked`, which no machine takes for anything but a lock.
    fn answer(&self, step: &Step) -> Reply {
        let found = &self.survey;
        if let Step::ObserveRing { .. } = step {
            Reply::RingObserved(self.view.clone())
        } else if let Step::Probe { gate } = step {
            let held = self.held.iter().find(|(held, _)| held == gate);
            Reply::Probed { held_by: held.map(|(_, witness)| *witness) }
        } else if let Step::CountClaims { .. } = step {
            Reply::ClaimsCounted { claims: 0 }
        } else if let Step::SurveyTerminal { .. } = step {
            Reply::Surveyed(*found)
        } else if let Step::CarryForward { .. } = step {
            Reply::Carried { rows: found.carried, deltas: found.carried }
        } else if let Step::FoldRollup { .. } = step {
            let other = found.other.saturating_add(found.compact);
            Reply::Folded { other, failed: found.failed }
        } else if let Step::Truncate { .. } = step {
            Reply::Truncated
        } else if let Step::MarkPruned { .. } = step {
            Reply::Marked
        } else {
            Reply::Locked
        }
    }
}

/// Observes what `prune` would, takes no lock, and gives the plan as text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ExplainPrune {
    prune: Prune,
    stage: Stage,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Unstarted,
    Observing,
    Surveying(RingView, Victim),
    Over,
}

type ExplainTurn = Turn<Result<String, Refusal>>;

impl ExplainPrune {
    /// Explains `prune`, which must not have been started.
    #[must_use]
    pub const fn new(prune: Prune) -> Self {
        Self { prune, stage: Stage::Unstarted }
    }

    fn advance(&mut self, r: &mut Replies) -> Result<ExplainTurn, Stop> {
        match mem::replace(&mut self.stage, Stage::Over) {
            Stage::Unstarted | Stage::Over => Err(r.unasked()),
            Stage::Observing => {
                let view = r.ring(self.prune.ring())?;
                let Ok(victim) = self.prune.choose(&view) else {
                    return Ok(self.told(view, Vec::new(), TerminalSurvey::default()));
                };
                let slot = victim.segment.slot;
                let mut steps: Vec<Step> = probes(&self.prune.gates(slot)).collect();
                match self.prune.ring() {
                    Ring::Queue => {
                        steps.push(Step::SurveyTerminal { slot, cutoff: victim.cutoff });
                    }
                    Ring::Lease | Ring::Claim => {}
                }
                self.stage = Stage::Surveying(view, victim);
                Ok(Turn::Last(steps))
            }
            Stage::Surveying(view, victim) => {
                let mut held = Vec::new();
                for gate in self.prune.gates(victim.segment.slot) {
                    held.extend(r.probed(gate.step_name())?.map(|witness| (gate, witness)));
                }
                let survey = match self.prune.ring() {
                    Ring::Queue => r.surveyed("SurveyTerminal")?,
                    Ring::Lease | Ring::Claim => TerminalSurvey::default(),
                };
                Ok(self.told(view, held, survey))
            }
        }
    }

    fn told(&self, view: RingView, held: Vec<(Gate, i64)>, survey: TerminalSurvey) -> ExplainTurn {
        Turn::Commit(Ok(explain(self.prune.clone(), &Observed { view, held, survey })))
    }
}

impl Machine for ExplainPrune {
    type Outcome = Result<String, Refusal>;

    fn start(&mut self) -> ExplainTurn {
        self.stage = Stage::Observing;
        Turn::Ask(vec![Step::ObserveRing { ring: self.prune.ring() }])
    }

    fn resume(&mut self, replies: Vec<Reply>) -> ExplainTurn {
        Replies::read(replies, |r| self.advance(r)).unwrap_or_else(|stop| stop.turn(Err))
    }
}
