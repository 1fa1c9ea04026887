//! A ring moves on: its open segment is sealed and the next pruned slot opened.

use alloc::vec;
use alloc::vec::Vec;
use core::mem;

use super::replies::{Replies, Stop};
use super::{Machine, Turn};
use crate::ids::Generation;
use crate::reply::{Refusal, Reply};
use crate::ring::{Ring, RingView, Segment};
use crate::step::Step;

/// Rotates one ring. Takes the ring first, as prune does (`R032-13`), so that the destination of a
/// carry cannot move under it (H25).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rotate {
    ring: Ring,
    only: Option<Segment>,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Unstarted,
    Observing,
    Moving { sealed: Segment, opened: Segment },
    Over,
}

/// What became of a ring that was to rotate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RotateOutcome {
    /// It moved on.
    Rotated {
        /// What was open.
        sealed: Segment,
        /// What is open now.
        opened: Segment,
    },
    /// Somebody else rotated before.
    AlreadyRotated {
        /// What is open.
        current: Segment,
    },
    /// No slot stands ready: prune first. New rows go to the open segment meanwhile.
    RingFull {
        /// What is open and stays so.
        current: Segment,
    },
}

type RotateTurn = Turn<Result<RotateOutcome, Refusal>>;

impl Rotate {
    /// Rotates `ring`, whatever is open in it.
    #[must_use]
    pub const fn ring(ring: Ring) -> Self {
        Self { ring, only: None, stage: Stage::Unstarted }
    }

    /// Rotates `ring` if `segment` is still open in it: two that decided on the same observation
    /// rotate once.
    #[must_use]
    pub const fn away_from(ring: Ring, segment: Segment) -> Self {
        Self { ring, only: Some(segment), stage: Stage::Unstarted }
    }

    fn advance(&mut self, r: &mut Replies) -> Result<RotateTurn, Stop> {
        match mem::replace(&mut self.stage, Stage::Over) {
            Stage::Unstarted | Stage::Over => Err(r.unasked()),
            Stage::Observing => {
                r.locked("LockRing")?;
                let view = r.ring(self.ring)?;
                Ok(self.decide(&view))
            }
            Stage::Moving { sealed, opened } => {
                r.marked("Rotate")?;
                Ok(Turn::Commit(Ok(RotateOutcome::Rotated { sealed, opened })))
            }
        }
    }

    fn decide(&mut self, view: &RingView) -> RotateTurn {
        let current = view.current;
        if self.only.is_some_and(|only| only != current) {
            return Turn::Rollback(Ok(RotateOutcome::AlreadyRotated { current }));
        }
        let Some(next) = view.next_pruned() else {
            return Turn::Rollback(Ok(RotateOutcome::RingFull { current }));
        };
        let generation = Generation(current.generation.0 + 1);
        let opened = Segment { slot: next.slot, generation };
        self.stage = Stage::Moving { sealed: current, opened };
        Turn::Last(vec![Step::Rotate { ring: self.ring, seal: current, open: opened }])
    }
}

impl Machine for Rotate {
    type Outcome = Result<RotateOutcome, Refusal>;

    fn start(&mut self) -> RotateTurn {
        self.stage = Stage::Observing;
        Turn::Ask(vec![Step::LockRing { ring: self.ring }, Step::ObserveRing { ring: self.ring }])
    }

    fn resume(&mut self, replies: Vec<Reply>) -> RotateTurn {
        Replies::read(replies, |r| self.advance(r)).unwrap_or_else(|stop| stop.turn(Err))
    }
}
