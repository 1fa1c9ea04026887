//! An operator takes back a job that no worker has (`R026-18`).
//!
//! Where the job is is found out without a lock; then the lane's lock is taken, which claims take
//! too (law 10), and it is looked at again (H13). A job on the move is followed a few times.

use alloc::vec;
use alloc::vec::Vec;
use core::mem;

use super::replies::{Replies, Stop, balance, len};
use super::{Machine, Turn};
use crate::ids::{JobId, LaneId};
use crate::job::Location;
use crate::reply::{Refusal, Reply};
use crate::state::JobState;
use crate::step::Step;

/// How often one cancel looks where its job is. Deferred, promoted, claimed and deferred again is
/// three moves, and each of them takes other transactions to commit between two of our statements.
const LOOKS_MAX: u8 = 4;

/// Cancels one job.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cancel {
    job: JobId,
    looks: u8,
    locked: Option<LaneId>,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Unstarted,
    Looking,
    /// The lane is being locked, and the job looked for in the same flush.
    Locking(LaneId),
    Tombstoning,
    Undeferring,
    Over,
}

/// What became of a job that was to be cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CancelOutcome {
    /// It is cancelled, and was not before.
    Cancelled,
    /// A worker has it; its attempt goes on (H12).
    Running,
    /// It had ended before, and this is how.
    AlreadyEnded(JobState),
    /// No job that is retained has this id.
    NotFound,
    /// It was somewhere else each time; try again.
    KeptMoving,
}

type CancelTurn = Turn<Result<CancelOutcome, Refusal>>;

impl Cancel {
    /// Cancels `job`.
    #[must_use]
    pub const fn new(job: JobId) -> Self {
        Self { job, looks: 0, locked: None, stage: Stage::Unstarted }
    }

    fn advance(&mut self, r: &mut Replies) -> Result<CancelTurn, Stop> {
        match mem::replace(&mut self.stage, Stage::Over) {
            Stage::Unstarted | Stage::Over => Err(r.unasked()),
            Stage::Looking => {
                let found = r.located("LocateJob")?;
                Ok(self.follow(found))
            }
            Stage::Locking(lane) => {
                r.locked("LockLane")?;
                self.locked = Some(lane);
                let found = r.located("LocateJob")?;
                Ok(self.follow(found))
            }
            // Whoever could have spent the position needs the lock that this transaction holds.
            Stage::Tombstoning => {
                let moved = r.moved("TombstoneReady")?;
                self.check(&moved)?;
                balance("positions spent under their lane's lock", 1, len(&moved))?;
                Ok(Turn::Commit(Ok(CancelOutcome::Cancelled)))
            }
            Stage::Undeferring => {
                let moved = r.moved("CancelDeferred")?;
                self.check(&moved)?;
                if moved.is_empty() {
                    return Ok(self.look());
                }
                Ok(Turn::Commit(Ok(CancelOutcome::Cancelled)))
            }
        }
    }

    fn check(&self, moved: &[(JobId, LaneId)]) -> Result<(), Stop> {
        let others = moved.iter().filter(|(job, _)| *job != self.job).count();
        Ok(balance("other jobs that a cancel took", 0, others as i64)?)
    }

    fn look(&mut self) -> CancelTurn {
        if self.looks == LOOKS_MAX {
            return Turn::Rollback(Ok(CancelOutcome::KeptMoving));
        }
        self.looks += 1;
        self.stage = Stage::Looking;
        Turn::Ask(vec![Step::LocateJob { job: self.job }])
    }

    fn follow(&mut self, found: Option<Location>) -> CancelTurn {
        let Some(found) = found else { return Turn::Rollback(Ok(CancelOutcome::NotFound)) };
        match found {
            Location::Ready(at) => match self.locked {
                Some(lane) if lane == at.lane => {
                    self.stage = Stage::Tombstoning;
                    Turn::Last(vec![Step::TombstoneReady {
                        slot: at.slot,
                        lane: at.lane,
                        lane_seq: at.lane_seq,
                    }])
                }
                // Two lane locks in one transaction would be taken in no fixed order.
                Some(_) => Turn::Rollback(Ok(CancelOutcome::KeptMoving)),
                None => self.lock(at.lane),
            },
            Location::Deferred { .. } => {
                self.stage = Stage::Undeferring;
                Turn::Ask(vec![Step::CancelDeferred { job: self.job }])
            }
            Location::Running(_) => Turn::Rollback(Ok(CancelOutcome::Running)),
            Location::Compact(_) | Location::Terminal { .. } => {
                Turn::Rollback(Ok(CancelOutcome::AlreadyEnded(found.state())))
            }
        }
    }

    fn lock(&mut self, lane: LaneId) -> CancelTurn {
        if self.looks == LOOKS_MAX {
            return Turn::Rollback(Ok(CancelOutcome::KeptMoving));
        }
        self.looks += 1;
        self.stage = Stage::Locking(lane);
        Turn::Ask(vec![Step::LockLane { lane }, Step::LocateJob { job: self.job }])
    }
}

impl Machine for Cancel {
    type Outcome = Result<CancelOutcome, Refusal>;

    fn start(&mut self) -> CancelTurn {
        self.look()
    }

    fn resume(&mut self, replies: Vec<Reply>) -> CancelTurn {
        Replies::read(replies, |r| self.advance(r)).unwrap_or_else(|stop| stop.turn(Err))
    }
}
