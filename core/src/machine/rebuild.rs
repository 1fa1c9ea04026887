//! The terminal counters, made anew from retryable history (`R026-26`, H38).

use alloc::vec;
use alloc::vec::Vec;
use core::mem;
use core::num::NonZeroU32;

use super::prune::LOCK_TIMEOUT_DEFAULT;
use super::replies::{Replies, Stop, balance, counted, one_step};
use super::{Machine, Turn};
use crate::reply::{Refusal, Reply};
use crate::ring::Ring;
use crate::step::Step;

/// Recomputes the folded counters, truncates the pending deltas and trusts both again. Takes the queue
/// ring first, so that no prune and no rollup is under way in it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rebuild {
    timeout_ms: NonZeroU32,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Unstarted,
    Excluding,
    Counting,
    Trusting { rows: i64, cleared: usize },
    Over,
}

/// What rebuilding did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rebuilt {
    /// Rows of retryable history that the new counters count.
    pub rows: i64,
}

type RebuildTurn = Turn<Result<Rebuilt, Refusal>>;

impl Default for Rebuild {
    fn default() -> Self {
        Self::waiting(LOCK_TIMEOUT_DEFAULT)
    }
}

impl Rebuild {
    /// Waits `timeout_ms` at most for those that write history: longer than usual may be wanted
    /// here, and holds up everybody who ends a job on the general path.
    #[must_use]
    pub const fn waiting(timeout_ms: NonZeroU32) -> Self {
        Self { timeout_ms, stage: Stage::Unstarted }
    }

    fn advance(&mut self, r: &mut Replies) -> Result<RebuildTurn, Stop> {
        match mem::replace(&mut self.stage, Stage::Over) {
            Stage::Unstarted | Stage::Over => Err(r.unasked()),
            Stage::Excluding => {
                r.locked("LockRing")?;
                r.locked("ExcludeCounters")?;
                self.stage = Stage::Counting;
                Ok(Turn::Ask(vec![Step::RebuildCounters, Step::FindDeltas]))
            }
            Stage::Counting => {
                let (rows, sum) = r.rebuilt("RebuildCounters")?;
                counted("rows of retryable history", rows)?;
                balance("sum of the rebuilt counters", rows, sum)?;
                let pending = r.slots_found("FindDeltas")?;
                self.stage = Stage::Trusting { rows, cleared: pending.len() };
                // What the new counters count must not be added again; the locks of ExcludeCounters
                // are those that TRUNCATE wants.
                let clear = |slot| Step::TruncateDeltas { slot };
                let mut steps: Vec<Step> = pending.into_iter().map(clear).collect();
                steps.push(Step::SetTrust { trusted: true });
                Ok(Turn::Last(steps))
            }
            Stage::Trusting { rows, cleared } => {
                for _ in 0..cleared {
                    r.truncated("TruncateDeltas")?;
                }
                r.marked("SetTrust")?;
                Ok(Turn::Commit(Ok(Rebuilt { rows })))
            }
        }
    }
}

impl Machine for Rebuild {
    type Outcome = Result<Rebuilt, Refusal>;

    fn start(&mut self) -> RebuildTurn {
        self.stage = Stage::Excluding;
        let timeout_ms = self.timeout_ms.get();
        Turn::Ask(vec![Step::LockRing { ring: Ring::Queue }, Step::ExcludeCounters { timeout_ms }])
    }

    fn resume(&mut self, replies: Vec<Reply>) -> RebuildTurn {
        Replies::read(replies, |r| self.advance(r)).unwrap_or_else(|stop| stop.turn(Err))
    }
}

one_step! {
    /// Stops trusting the counters: exact counts scan history until [`Rebuild`] has run (`R026-23`).
    pub struct Distrust {}
    asks |_m| Step::SetTrust { trusted: false };
    reads |r| r.marked("SetTrust")? => ();
}
