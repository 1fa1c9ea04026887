//! An operator drives failed jobs again, or throws them away: by queue, by kind or one by one.
//!
//! The scan goes through retryable history by job id, a piece a transaction, so that no lock is
//! held over a million rows (law 13, H34). [`RetryFailed`] and [`DiscardFailed`] hand out the
//! pieces and add up what they did.

use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::mem;

use super::enqueue::lanes_of;
use super::replies::{Replies, Stop, balance, counted, len};
use super::{Machine, Turn};
use crate::fault::{Field, UserError};
use crate::ids::{JobId, LaneId};
use crate::job::{TerminalFilter, TerminalRef, in_range};
use crate::limits::MOVE_ROWS_MAX;
use crate::reply::{Refusal, Reply};
use crate::step::Step;

/// What is done with the rows that fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Verb {
    Retry,
    Discard,
}

/// One piece of a scan: a transaction that finds rows and then moves those that are still there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MovePiece {
    verb: Verb,
    filter: TerminalFilter,
    after: Option<JobId>,
    limit: i64,
    stage: Stage,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Unstarted,
    Matching,
    Moving(Found),
    Over,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Found {
    matched: i64,
    last: JobId,
    full: bool,
    pruned_failed: Option<i64>,
}

/// What a piece did. [`RetryFailed::take`] and [`DiscardFailed::take`] take it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PieceOutcome {
    /// The piece is committed.
    Moved {
        /// Jobs that fitted, each counted once.
        matched: i64,
        /// Jobs that were moved, with their lanes: fewer where some raced (`R032-09`) or lack a body.
        moved: Vec<(JobId, LaneId)>,
        /// Where the next piece goes on; `None`: this was the last.
        next: Option<JobId>,
        /// Failures of the queue that left the ring past the floor, ever; for a queue only.
        pruned_failed: Option<i64>,
    },
    /// The queue was never declared.
    UnknownQueue {
        /// Its name.
        queue: String,
    },
}

type PieceTurn = Turn<Result<PieceOutcome, Refusal>>;

impl MovePiece {
    fn match_step(&self) -> Step {
        Step::MatchTerminal { filter: self.filter.clone(), after: self.after, limit: self.limit }
    }

    fn move_step(&self, rows: Vec<TerminalRef>) -> Step {
        match self.verb {
            Verb::Retry => Step::RetryTerminal { rows },
            Verb::Discard => Step::DiscardTerminal { rows },
        }
    }

    fn advance(&mut self, r: &mut Replies) -> Result<PieceTurn, Stop> {
        match mem::replace(&mut self.stage, Stage::Over) {
            Stage::Unstarted | Stage::Over => Err(r.unasked()),
            Stage::Matching => {
                let rows = r.matched("MatchTerminal")?;
                let pruned_failed = match &self.filter {
                    TerminalFilter::Queue(queue) => {
                        let Some(count) = r.pruned_failed("ReadPrunedFailed")? else {
                            let queue = queue.to_string();
                            return Ok(Turn::Rollback(Ok(PieceOutcome::UnknownQueue { queue })));
                        };
                        counted("pruned failures", count)?;
                        Some(count)
                    }
                    TerminalFilter::Job(_) | TerminalFilter::Kind(_) => None,
                };
                self.go_on(rows, pruned_failed)
            }
            Stage::Moving(found) => {
                let moved = r.moved(match self.verb {
                    Verb::Retry => "RetryTerminal",
                    Verb::Discard => "DiscardTerminal",
                })?;
                balance(
                    "jobs moved beyond those that fit",
                    0,
                    (len(&moved) - found.matched).max(0),
                )?;
                Ok(Turn::Commit(Ok(PieceOutcome::Moved {
                    matched: found.matched,
                    moved,
                    next: found.full.then_some(found.last),
                    pruned_failed: found.pruned_failed,
                })))
            }
        }
    }

    fn go_on(
        &mut self,
        mut rows: Vec<TerminalRef>,
        pruned_failed: Option<i64>,
    ) -> Result<PieceTurn, Stop> {
        let Some(last) = rows.last().map(|row| row.job) else {
            let nothing =
                PieceOutcome::Moved { matched: 0, moved: Vec::new(), next: None, pruned_failed };
            return Ok(Turn::Rollback(Ok(nothing)));
        };
        // The scan comes to an end, and counts no job in two pieces, only if its pages go up.
        let falls = rows.windows(2).filter(|pair| pair[1].job < pair[0].job).count() as i64;
        let repeated = rows.iter().filter(|row| self.after >= Some(row.job)).count() as i64;
        balance("rows matched out of the order of their jobs", 0, falls + repeated)?;
        balance("rows matched beyond the limit", 0, (len(&rows) - self.limit).max(0))?;
        let full = len(&rows) == self.limit;
        rows.dedup_by_key(|row| row.job);
        self.stage = Stage::Moving(Found { matched: len(&rows), last, full, pruned_failed });
        Ok(Turn::Last(vec![self.move_step(rows)]))
    }
}

impl Machine for MovePiece {
    type Outcome = Result<PieceOutcome, Refusal>;

    fn start(&mut self) -> PieceTurn {
        self.stage = Stage::Matching;
        let mut steps = vec![self.match_step()];
        if let TerminalFilter::Queue(queue) = &self.filter {
            steps.push(Step::ReadPrunedFailed { queue: queue.clone() });
        }
        Turn::Ask(steps)
    }

    fn resume(&mut self, replies: Vec<Reply>) -> PieceTurn {
        Replies::read(replies, |r| self.advance(r)).unwrap_or_else(|stop| stop.turn(Err))
    }
}

/// A scan on its way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Scan {
    verb: Verb,
    filter: TerminalFilter,
    after: Option<JobId>,
    left: i64,
    matched: i64,
    moved: Vec<(JobId, LaneId)>,
    pruned_failed: Option<i64>,
}

impl Scan {
    fn new(verb: Verb, filter: TerminalFilter, limit: i64) -> Result<Self, UserError> {
        let left = in_range(Field::Limit, limit, 1, i64::MAX)?;
        let (after, matched, moved, pruned_failed) = (None, 0, Vec::new(), None);
        Ok(Self { verb, filter, after, left, matched, moved, pruned_failed })
    }

    fn next(&self) -> Option<MovePiece> {
        (self.left > 0).then(|| MovePiece {
            verb: self.verb,
            filter: self.filter.clone(),
            after: self.after,
            limit: self.left.min(MOVE_ROWS_MAX),
            stage: Stage::Unstarted,
        })
    }

    fn take(&mut self, did: PieceOutcome) -> Result<(), UserError> {
        match did {
            PieceOutcome::Moved { matched, moved, next, pruned_failed } => {
                self.matched += matched;
                self.moved.extend(moved);
                self.pruned_failed = pruned_failed;
                self.after = next.or(self.after);
                self.left = if next.is_some() { self.left - matched } else { 0 };
                Ok(())
            }
            PieceOutcome::UnknownQueue { queue } => {
                self.left = 0;
                Err(UserError::UnknownQueue { queue })
            }
        }
    }

    fn jobs(&self) -> Vec<JobId> {
        self.moved.iter().map(|(job, _)| *job).collect()
    }
}

/// What retrying did (`R032-09`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RetryFailedOutcome {
    /// The jobs that wait in their lanes again.
    pub retried: Vec<JobId>,
    /// The jobs that the scan found, each once. More than were retried: the others raced with
    /// somebody, were pruned in between, or have lost their bodies.
    pub matched: i64,
    /// Failures of the queue that left the ring past the floor, ever, and can't be retried; `None`
    /// unless asked by queue, because the count knows no kind.
    pub pruned_failed_count: Option<i64>,
}

/// What discarding did.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DiscardOutcome {
    /// The jobs that are gone.
    pub discarded: Vec<JobId>,
    /// The jobs that the scan found, each once.
    pub matched: i64,
}

macro_rules! scan {
    ($(#[$doc:meta])* $name:ident, $verb:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        pub struct $name(Scan);

        impl $name {
            /// Up to `limit` jobs of those that `filter` means, smallest id first. Of a queue or a
            /// kind only failed ones; one job by its id also if it was cancelled.
            ///
            /// # Errors
            /// `limit` is less than 1.
            pub fn new(filter: TerminalFilter, limit: i64) -> Result<Self, UserError> {
                Scan::new(Verb::$verb, filter, limit).map(Self)
            }

            /// The next transaction, if anything is left to look at. One that was refused or lost
            /// is given again.
            #[must_use]
            pub fn next(&self) -> Option<MovePiece> {
                self.0.next()
            }

            /// Takes in what the machine that `next` gave has done.
            ///
            /// # Errors
            /// The queue was never declared.
            pub fn take(&mut self, did: PieceOutcome) -> Result<(), UserError> {
                self.0.take(did)
            }
        }
    };
}

scan! {
    /// Puts failed jobs back into their lanes with all their attempts before them. Run each machine
    /// that [`RetryFailed::next`] gives and hand what it did to [`RetryFailed::take`].
    RetryFailed, Retry
}

scan! {
    /// Deletes failed jobs from history: also the way out for one whose body is lost (H30). Run each
    /// machine that [`DiscardFailed::next`] gives and hand what it did to [`DiscardFailed::take`].
    DiscardFailed, Discard
}

impl RetryFailed {
    /// The lanes that have jobs again, ascending: what [`super::enqueue::Wake::lanes`] takes.
    #[must_use]
    pub fn lanes(&self) -> Vec<LaneId> {
        lanes_of(&self.0.moved)
    }

    /// What was done so far.
    #[must_use]
    pub fn outcome(&self) -> RetryFailedOutcome {
        let (retried, matched) = (self.0.jobs(), self.0.matched);
        RetryFailedOutcome { retried, matched, pruned_failed_count: self.0.pruned_failed }
    }
}

impl DiscardFailed {
    /// What was done so far.
    #[must_use]
    pub fn outcome(&self) -> DiscardOutcome {
        DiscardOutcome { discarded: self.0.jobs(), matched: self.0.matched }
    }
}
