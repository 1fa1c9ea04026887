//! The ways out of an attempt that a worker takes: success, failure, retry, and back into the lane.
//!
//! [`Finish`] takes a batch of finished attempts to its end in at most three transactions: the
//! compact path for the successes that it may store, one for the attempts that are handed back, and
//! the general path for everything else and for what those two left. One job that isn't eligible
//! takes only itself off the compact path (`R026-15`, H45).

use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;
use core::mem;

use super::replies::{Replies, Stop, balance, len};
use super::{Machine, Turn};
use crate::ids::{BatchId, ReceiptId};
use crate::job::{ClaimedJob, Ending, Exit, Receipt};
use crate::json::keep_error_text;
use crate::limits::ATTEMPTS_MAX;
use crate::reply::{Refusal, Reply};
use crate::rules::{AfterFailure, BodyTraits, after_failure, is_compact_eligible};
use crate::step::Step;
use crate::time::Span;

/// An attempt whose handler has returned.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Finished {
    /// Which attempt.
    pub receipt: Receipt,
    /// What its job carries.
    pub traits: BodyTraits,
    /// How it ended.
    pub ending: Ending,
    /// Whether its worker stopped it: the attempt is not counted, and `ending` is only for a job
    /// that can't go back to its lane because its body is gone.
    pub interrupted: bool,
}

impl Finished {
    const fn ended(job: &ClaimedJob, ending: Ending) -> Self {
        Self { receipt: job.receipt, traits: job.traits, ending, interrupted: false }
    }

    /// A success.
    #[must_use]
    pub const fn completed(job: &ClaimedJob) -> Self {
        Self::ended(job, Ending::Completed)
    }

    /// A failure: tried again after `delay`, or after the usual backoff where none is asked for,
    /// until the job's attempts are used up (H18, H20). `error` may be any bytes: it is made
    /// storable.
    #[must_use]
    pub fn failed(job: &ClaimedJob, error: &[u8], delay: Option<Span>) -> Self {
        let error = keep_error_text(error);
        let ending = match after_failure(job.attempt, job.max_attempts, delay) {
            AfterFailure::Retry(delay) => Ending::Retry { error, delay },
            AfterFailure::Terminal => Ending::Failed { error },
        };
        Self::ended(job, ending)
    }

    /// A failure that trying again won't mend.
    #[must_use]
    pub fn failed_for_good(job: &ClaimedJob, error: &[u8]) -> Self {
        Self::ended(job, Ending::Failed { error: keep_error_text(error) })
    }

    /// An attempt that its worker hands back because it shuts down (H60). The job is not to blame:
    /// it is back in its lane at once, the attempt is not counted and leaves no error, so that no
    /// number of shutdowns can use up the attempts that a job is given. What tells of it is the
    /// job's run lease, which counts every claim. `why` is kept only of a job whose body is gone
    /// and which therefore can't go on.
    #[must_use]
    pub fn handed_back(job: &ClaimedJob, why: &str) -> Self {
        let error = keep_error_text(why.as_bytes());
        let ending = if job.attempt.0 < ATTEMPTS_MAX {
            Ending::Retry { error, delay: Span::ZERO }
        } else {
            Ending::Failed { error }
        };
        Self { interrupted: true, ..Self::ended(job, ending) }
    }

    fn is_compact(&self) -> bool {
        self.ending == Ending::Completed && is_compact_eligible(self.traits) && !self.interrupted
    }
}

/// Which way out (`R026-27`, `R026-29`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Path {
    /// Successes, stored a group a row.
    Compact,
    /// Back into the lane, with nothing stored.
    HandBack,
    /// Anything, stored a job a row.
    General,
}

/// Closes attempts on one path: a transaction of one flush.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Close {
    path: Path,
    exits: Vec<Exit>,
    receipts: Vec<Receipt>,
}

/// What closing did.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Closed {
    /// The path that was taken.
    pub path: Path,
    /// The attempts that were closed, ascending.
    pub closed: Vec<ReceiptId>,
    /// The others, ascending: on the general path those that are stale (H15), on the two others
    /// those that the general path must look at (`R026-28`, `R026-29`).
    pub left: Vec<Receipt>,
}

impl Close {
    /// Closes these attempts as successes on the compact path. An attempt named twice is closed
    /// once (H14).
    #[must_use]
    pub fn compact(receipts: Vec<Receipt>) -> Self {
        Self::all_alike(Path::Compact, receipts)
    }

    /// Gives the jobs of these attempts back to their lanes, the attempts not counted. An attempt
    /// named twice is closed once.
    #[must_use]
    pub fn hand_back(receipts: Vec<Receipt>) -> Self {
        Self::all_alike(Path::HandBack, receipts)
    }

    fn all_alike(path: Path, mut receipts: Vec<Receipt>) -> Self {
        receipts.sort_by_key(Receipt::id);
        receipts.dedup_by_key(|r| r.id());
        Self { path, exits: Vec::new(), receipts }
    }

    /// Closes these attempts on the general path. Of an attempt named twice, the first ending holds.
    #[must_use]
    pub fn general(mut exits: Vec<Exit>) -> Self {
        exits.sort_by_key(|e| e.receipt.id());
        exits.dedup_by_key(|e| e.receipt.id());
        let receipts = exits.iter().map(|e| e.receipt).collect();
        Self { path: Path::General, exits, receipts }
    }

    fn settle(&mut self, r: &mut Replies) -> Result<Turn<Result<Closed, Refusal>>, Stop> {
        r.locked("Fence")?;
        let closed = r.closed(match self.path {
            Path::Compact => "CompleteCompact",
            Path::HandBack => "HandBack",
            Path::General => "CloseAttempts",
        })?;
        let ids: BTreeSet<ReceiptId> = closed.iter().copied().collect();
        let named = mem::take(&mut self.receipts);
        let left: Vec<_> = named.iter().filter(|n| !ids.contains(&n.id())).copied().collect();
        balance(
            "attempts closed and left, of those named",
            len(&named),
            len(&closed) + len(&left),
        )?;
        Ok(Turn::Commit(Ok(Closed { path: self.path, closed, left })))
    }
}

impl Machine for Close {
    type Outcome = Result<Closed, Refusal>;

    fn start(&mut self) -> Turn<Self::Outcome> {
        if self.receipts.is_empty() {
            let nothing = Closed { path: self.path, closed: Vec::new(), left: Vec::new() };
            return Turn::Commit(Ok(nothing));
        }
        let batches: BTreeSet<BatchId> = self.receipts.iter().map(|r| r.batch).collect();
        let fence = Step::Fence { batches: batches.into_iter().collect() };
        Turn::Last(vec![
            fence,
            match self.path {
                Path::Compact => Step::CompleteCompact { receipts: self.receipts.clone() },
                Path::HandBack => Step::HandBack { receipts: self.receipts.clone() },
                Path::General => Step::CloseAttempts { exits: mem::take(&mut self.exits) },
            },
        ])
    }

    fn resume(&mut self, replies: Vec<Reply>) -> Turn<Self::Outcome> {
        Replies::read(replies, |r| self.settle(r)).unwrap_or_else(|stop| stop.turn(Err))
    }
}

/// A batch of finished attempts on its way. Run each machine that [`Finish::next`] gives and hand
/// what it did to [`Finish::take`]; a machine that was refused or lost is given again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Finish {
    compact: Vec<Receipt>,
    /// Handed back; each with how it ends if it can't be.
    interrupted: Vec<Exit>,
    general: Vec<Exit>,
    outcome: FinishOutcome,
}

/// What became of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct FinishOutcome {
    /// Attempts that ended as they said, those that were handed back among them.
    pub closed: Vec<ReceiptId>,
    /// Attempts that were no longer open to it: rescued, cancelled, or closed before (H15). An
    /// attempt that the batch named twice is here for its second ending (H14).
    pub stale: Vec<ReceiptId>,
}

impl Finish {
    /// Gives each attempt its path (`R026-15`). Of an attempt named twice, the first ending holds.
    #[must_use]
    pub fn new(batch: Vec<Finished>) -> Self {
        let mut plan = Self {
            compact: Vec::with_capacity(batch.len()),
            interrupted: Vec::new(),
            general: Vec::new(),
            outcome: FinishOutcome::default(),
        };
        let mut seen = BTreeSet::new();
        for attempt in batch {
            if !seen.insert(attempt.receipt.id()) {
                plan.outcome.stale.push(attempt.receipt.id());
            } else if attempt.is_compact() {
                plan.compact.push(attempt.receipt);
            } else {
                let exits =
                    if attempt.interrupted { &mut plan.interrupted } else { &mut plan.general };
                exits.push(Exit { receipt: attempt.receipt, ending: attempt.ending });
            }
        }
        plan
    }

    /// The next transaction, if anything is left to do.
    #[must_use]
    pub fn next(&self) -> Option<Close> {
        if !self.compact.is_empty() {
            Some(Close::compact(self.compact.clone()))
        } else if !self.interrupted.is_empty() {
            Some(Close::hand_back(self.interrupted.iter().map(|exit| exit.receipt).collect()))
        } else if !self.general.is_empty() {
            Some(Close::general(self.general.clone()))
        } else {
            None
        }
    }

    /// Takes in what the machine that [`Finish::next`] gave has done.
    pub fn take(&mut self, did: Closed) {
        self.outcome.closed.extend(did.closed);
        match did.path {
            Path::Compact => {
                self.compact.clear();
                let success = |receipt| Exit { receipt, ending: Ending::Completed };
                self.general.extend(did.left.into_iter().map(success));
            }
            Path::HandBack => {
                let left = |exit: &Exit| did.left.contains(&exit.receipt);
                self.general.extend(mem::take(&mut self.interrupted).into_iter().filter(left));
            }
            Path::General => {
                self.general.clear();
                self.outcome.stale.extend(did.left.iter().map(Receipt::id));
            }
        }
    }

    /// What became of the batch, once [`Finish::next`] has nothing more.
    #[must_use]
    pub fn into_outcome(self) -> FinishOutcome {
        self.outcome
    }
}
