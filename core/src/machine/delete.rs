//! The compatibility delete of one success (`R026-17`). A compact success is hidden and its receipt
//! stays closed; one on the general path leaves retryable history with its negative delta
//! (`R026-22`). Neither touches the ready row (`R026-19`).

use alloc::vec;
use alloc::vec::Vec;
use core::mem;

use super::replies::{Replies, Stop, balance};
use super::{Machine, Turn};
use crate::ids::JobId;
use crate::job::Location;
use crate::reply::{Refusal, Reply};
use crate::state::JobState;
use crate::step::Step;

/// Deletes one completed job from public history.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DeleteCompleted {
    job: JobId,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Unstarted,
    Looking,
    Deleting(&'static str),
    Over,
}

/// What became of a job that was to be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeleteOutcome {
    /// It is gone from public history.
    Deleted,
    /// It is in this state and stays.
    NotCompleted(JobState),
    /// No job that is retained has this id; perhaps somebody else was faster.
    NotFound,
}

type DeleteTurn = Turn<Result<DeleteOutcome, Refusal>>;

impl DeleteCompleted {
    /// Deletes `job`, if it is completed.
    #[must_use]
    pub const fn new(job: JobId) -> Self {
        Self { job, stage: Stage::Unstarted }
    }

    fn advance(&mut self, r: &mut Replies) -> Result<DeleteTurn, Stop> {
        match mem::replace(&mut self.stage, Stage::Over) {
            Stage::Unstarted | Stage::Over => Err(r.unasked()),
            Stage::Looking => {
                let found = r.located("LocateJob")?;
                Ok(self.delete(found))
            }
            Stage::Deleting(step) => {
                let moved = r.moved(step)?;
                let others = moved.iter().filter(|(job, _)| *job != self.job).count();
                balance("other jobs that a delete took", 0, others as i64)?;
                let gone =
                    if moved.is_empty() { DeleteOutcome::NotFound } else { DeleteOutcome::Deleted };
                Ok(Turn::Commit(Ok(gone)))
            }
        }
    }

    fn delete(&mut self, found: Option<Location>) -> DeleteTurn {
        let Some(found) = found else { return Turn::Rollback(Ok(DeleteOutcome::NotFound)) };
        let step = match found {
            Location::Compact(at) => {
                Step::HideCompleted { slot: at.slot, lane: at.lane, lane_seq: at.lane_seq }
            }
            Location::Terminal { state: JobState::Completed, row } => {
                Step::DiscardTerminal { rows: vec![row] }
            }
            Location::Ready(_)
            | Location::Deferred { .. }
            | Location::Running(_)
            | Location::Terminal { .. } => {
                return Turn::Rollback(Ok(DeleteOutcome::NotCompleted(found.state())));
            }
        };
        self.stage = Stage::Deleting(step.name());
        Turn::Last(vec![step])
    }
}

impl Machine for DeleteCompleted {
    type Outcome = Result<DeleteOutcome, Refusal>;

    fn start(&mut self) -> DeleteTurn {
        self.stage = Stage::Looking;
        Turn::Ask(vec![Step::LocateJob { job: self.job }])
    }

    fn resume(&mut self, replies: Vec<Reply>) -> DeleteTurn {
        Replies::read(replies, |r| self.advance(r)).unwrap_or_else(|stop| stop.turn(Err))
    }
}
