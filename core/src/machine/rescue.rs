//! Attempts that outlived their deadline are ended: their worker died, or lost its way. What they leave
//! is a failure like any other: tried again after the backoff, or terminal with the last attempt
//! (H06, H18).

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::mem;

use super::replies::{Replies, Stop, balance, len};
use super::{Machine, Turn};
use crate::fault::{Field, UserError};
use crate::ids::{BatchId, ReceiptId};
use crate::job::{Ending, Exit, OverdueAttempt, in_range};
use crate::limits::RESCUE_ROWS_MAX;
use crate::reply::{Refusal, Reply};
use crate::rules::{AfterFailure, after_failure};
use crate::step::Step;

/// What a rescued attempt is said to have died of.
const PAST_DEADLINE: &str = "the attempt was not over by its deadline";

/// Ends overdue attempts, a piece a transaction. It holds the fence that every other way out holds
/// (`R026-08`), and decides again under it: one that was completed meanwhile is left alone (H11).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rescue {
    limit: i64,
    stage: Stage,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Unstarted,
    Finding,
    Closing { found: i64 },
    Over,
}

/// What a rescue did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rescued {
    /// The attempts that it ended, ascending.
    pub closed: Vec<ReceiptId>,
    /// Overdue attempts that it found; the others ended by themselves meanwhile.
    pub found: i64,
}

type RescueTurn = Turn<Result<Rescued, Refusal>>;

impl Rescue {
    /// Up to `limit` attempts, those that are overdue for longest first.
    ///
    /// # Errors
    /// `limit` lies outside 1 to [`RESCUE_ROWS_MAX`].
    pub fn new(limit: i64) -> Result<Self, UserError> {
        let limit = in_range(Field::Limit, limit, 1, RESCUE_ROWS_MAX)?;
        Ok(Self { limit, stage: Stage::Unstarted })
    }

    fn advance(&mut self, r: &mut Replies) -> Result<RescueTurn, Stop> {
        match mem::replace(&mut self.stage, Stage::Over) {
            Stage::Unstarted | Stage::Over => Err(r.unasked()),
            Stage::Finding => {
                let overdue = r.overdue("FindOverdue")?;
                balance(
                    "overdue attempts beyond the limit",
                    0,
                    (len(&overdue) - self.limit).max(0),
                )?;
                if overdue.is_empty() {
                    return Ok(Turn::Rollback(Ok(Rescued::default())));
                }
                self.stage = Stage::Closing { found: len(&overdue) };
                let batches: BTreeSet<BatchId> = overdue.iter().map(|o| o.receipt.batch).collect();
                let mut exits: Vec<Exit> = overdue.iter().map(exit).collect();
                exits.sort_by_key(|e| e.receipt.id());
                Ok(Turn::Last(vec![
                    Step::Fence { batches: batches.into_iter().collect() },
                    Step::CloseAttempts { exits },
                ]))
            }
            Stage::Closing { found } => {
                r.locked("Fence")?;
                let closed = r.closed("CloseAttempts")?;
                balance("attempts ended beyond those found", 0, (len(&closed) - found).max(0))?;
                Ok(Turn::Commit(Ok(Rescued { closed, found })))
            }
        }
    }
}

fn exit(overdue: &OverdueAttempt) -> Exit {
    let error = String::from(PAST_DEADLINE);
    let ending = match after_failure(overdue.attempt, overdue.max_attempts, None) {
        AfterFailure::Retry(delay) => Ending::Retry { error, delay },
        AfterFailure::Terminal => Ending::Failed { error },
    };
    Exit { receipt: overdue.receipt, ending }
}

impl Machine for Rescue {
    type Outcome = Result<Rescued, Refusal>;

    fn start(&mut self) -> RescueTurn {
        self.stage = Stage::Finding;
        Turn::Ask(vec![Step::FindOverdue { limit: self.limit }])
    }

    fn resume(&mut self, replies: Vec<Reply>) -> RescueTurn {
        Replies::read(replies, |r| self.advance(r)).unwrap_or_else(|stop| stop.turn(Err))
    }
}
