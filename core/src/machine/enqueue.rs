//! Ways in. Producers never wait for one another: no lock lies on their path (law 1), and telling
//! the workers is left to [`Wake`], which is sent after the COMMIT. PostgreSQL serialises the
//! commits of transactions that notify, so a NOTIFY among these steps would make every producer
//! wait for the flush of the one before (H44, H61).

use alloc::vec;
use alloc::vec::Vec;
use core::mem;

use super::replies::{Replies, Stop, balance, len, one_step};
use super::{Machine, Turn};
use crate::fault::{Field, UserError};
use crate::ids::{JobId, LaneId};
use crate::job::{NewJob, in_range};
use crate::limits::ENQUEUE_ROWS_MAX;
use crate::reply::{Refusal, Reply};
use crate::step::Step;
use crate::time::Instant;

/// What enqueuing did.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Enqueued {
    /// The jobs' ids, in the order in which the jobs were given.
    pub jobs: Vec<JobId>,
    /// The lanes that have new jobs, ascending: what [`Wake`] takes. Empty where the jobs wait for
    /// a time first.
    pub lanes: Vec<LaneId>,
}

/// Appends jobs to their lanes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Enqueue {
    jobs: Vec<NewJob>,
    count: i64,
    lanes: Vec<LaneId>,
}

impl Enqueue {
    /// These jobs, in this order in each lane.
    ///
    /// # Errors
    /// More than [`ENQUEUE_ROWS_MAX`] jobs.
    pub fn new(jobs: Vec<NewJob>) -> Result<Self, UserError> {
        let count = within_bounds(&jobs)?;
        let lanes = distinct(jobs.iter().map(|job| job.lane).collect());
        Ok(Self { jobs, count, lanes })
    }

    /// Takes out the steps, for a transaction that the caller owns: run them there and give their
    /// replies to [`Machine::resume`]. COMMIT is then the caller's, and so is [`Wake`] after it.
    /// No steps: there is nothing to enqueue. The steps are given once.
    pub fn take_steps(&mut self) -> Vec<Step> {
        let jobs = mem::take(&mut self.jobs);
        if jobs.is_empty() { Vec::new() } else { vec![Step::EnqueueReady { jobs }] }
    }
}

impl Machine for Enqueue {
    type Outcome = Result<Enqueued, Refusal>;

    fn start(&mut self) -> Turn<Self::Outcome> {
        begin(self.take_steps())
    }

    fn resume(&mut self, replies: Vec<Reply>) -> Turn<Self::Outcome> {
        Replies::read(replies, |r| {
            let jobs = r.enqueued("EnqueueReady")?;
            balance("ids of enqueued jobs", self.count, len(&jobs))?;
            Ok(Turn::Commit(Ok(Enqueued { jobs, lanes: mem::take(&mut self.lanes) })))
        })
        .unwrap_or_else(|stop| stop.turn(Err))
    }
}

/// What a bulk copy did. It gives no ids.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Copied {
    /// How many jobs were appended.
    pub rows: u64,
    /// The lanes that have new jobs, ascending.
    pub lanes: Vec<LaneId>,
}

/// Appends jobs to their lanes by COPY, for many at a time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EnqueueCopy {
    jobs: Vec<NewJob>,
    count: i64,
    lanes: Vec<LaneId>,
    copying: bool,
}

impl EnqueueCopy {
    /// These jobs, in this order in each lane.
    ///
    /// # Errors
    /// More than [`ENQUEUE_ROWS_MAX`] jobs.
    pub fn new(jobs: Vec<NewJob>) -> Result<Self, UserError> {
        let count = within_bounds(&jobs)?;
        let lanes = distinct(jobs.iter().map(|job| job.lane).collect());
        Ok(Self { jobs, count, lanes, copying: false })
    }

    fn advance(&mut self, r: &mut Replies) -> Result<Turn<Result<Copied, Refusal>>, Stop> {
        if !self.copying {
            // The segment may be sealed or pruned before the rows lie in it: claims read every slot.
            let to = r.cursor_read("ReadCursor")?;
            self.copying = true;
            return Ok(Turn::Last(vec![Step::CopyReady { to, jobs: mem::take(&mut self.jobs) }]));
        }
        let rows = r.copied("CopyReady")?;
        balance("copied jobs", self.count, i64::try_from(rows).unwrap_or(i64::MAX))?;
        Ok(Turn::Commit(Ok(Copied { rows, lanes: mem::take(&mut self.lanes) })))
    }
}

impl Machine for EnqueueCopy {
    type Outcome = Result<Copied, Refusal>;

    fn start(&mut self) -> Turn<Self::Outcome> {
        if self.count == 0 {
            return Turn::Commit(Ok(Copied { rows: 0, lanes: Vec::new() }));
        }
        Turn::Ask(vec![Step::ReadCursor])
    }

    fn resume(&mut self, replies: Vec<Reply>) -> Turn<Self::Outcome> {
        Replies::read(replies, |r| self.advance(r)).unwrap_or_else(|stop| stop.turn(Err))
    }
}

/// Keeps jobs until their time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EnqueueDeferred {
    jobs: Vec<(NewJob, Instant)>,
    count: i64,
}

impl EnqueueDeferred {
    /// These jobs, each with its `run_at` on the database's clock. One that lies in the past is
    /// promoted by the next [`super::promote::Promote`].
    ///
    /// # Errors
    /// More than [`ENQUEUE_ROWS_MAX`] jobs.
    pub fn new(jobs: Vec<(NewJob, Instant)>) -> Result<Self, UserError> {
        let count = within_bounds(&jobs)?;
        Ok(Self { jobs, count })
    }

    /// As [`Enqueue::take_steps`].
    pub fn take_steps(&mut self) -> Vec<Step> {
        let jobs = mem::take(&mut self.jobs);
        if jobs.is_empty() { Vec::new() } else { vec![Step::EnqueueDeferred { jobs }] }
    }
}

impl Machine for EnqueueDeferred {
    type Outcome = Result<Enqueued, Refusal>;

    fn start(&mut self) -> Turn<Self::Outcome> {
        begin(self.take_steps())
    }

    fn resume(&mut self, replies: Vec<Reply>) -> Turn<Self::Outcome> {
        Replies::read(replies, |r| {
            let jobs = r.enqueued("EnqueueDeferred")?;
            balance("ids of deferred jobs", self.count, len(&jobs))?;
            Ok(Turn::Commit(Ok(Enqueued { jobs, lanes: Vec::new() })))
        })
        .unwrap_or_else(|stop| stop.turn(Err))
    }
}

/// Enqueues jobs that are due and jobs that wait, in one transaction.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EnqueueAll {
    ready: Enqueue,
    deferred: EnqueueDeferred,
}

/// What enqueuing both kinds did.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EnqueuedAll {
    /// The jobs that wait in their lanes.
    pub ready: Enqueued,
    /// The jobs that wait for a time.
    pub deferred: Enqueued,
}

impl EnqueueAll {
    /// `ready` jobs in this order in each lane, and `deferred` ones each with its `run_at`.
    ///
    /// # Errors
    /// More than [`ENQUEUE_ROWS_MAX`] jobs of a kind.
    pub fn new(ready: Vec<NewJob>, deferred: Vec<(NewJob, Instant)>) -> Result<Self, UserError> {
        Ok(Self { ready: Enqueue::new(ready)?, deferred: EnqueueDeferred::new(deferred)? })
    }

    fn settle(&mut self, r: &mut Replies) -> Result<Turn<Result<EnqueuedAll, Refusal>>, Stop> {
        let ready = if self.ready.count > 0 { r.enqueued("EnqueueReady")? } else { Vec::new() };
        let has_deferred = self.deferred.count > 0;
        let deferred = if has_deferred { r.enqueued("EnqueueDeferred")? } else { Vec::new() };
        balance("ids of enqueued jobs", self.ready.count, len(&ready))?;
        balance("ids of deferred jobs", self.deferred.count, len(&deferred))?;
        let lanes = mem::take(&mut self.ready.lanes);
        Ok(Turn::Commit(Ok(EnqueuedAll {
            ready: Enqueued { jobs: ready, lanes },
            deferred: Enqueued { jobs: deferred, lanes: Vec::new() },
        })))
    }
}

impl Machine for EnqueueAll {
    type Outcome = Result<EnqueuedAll, Refusal>;

    fn start(&mut self) -> Turn<Self::Outcome> {
        let mut steps = self.ready.take_steps();
        steps.extend(self.deferred.take_steps());
        if steps.is_empty() {
            let none = || Enqueued { jobs: Vec::new(), lanes: Vec::new() };
            return Turn::Commit(Ok(EnqueuedAll { ready: none(), deferred: none() }));
        }
        Turn::Last(steps)
    }

    fn resume(&mut self, replies: Vec<Reply>) -> Turn<Self::Outcome> {
        Replies::read(replies, |r| self.settle(r)).unwrap_or_else(|stop| stop.turn(Err))
    }
}

one_step! {
    /// Tells sleeping workers that lanes have jobs. A transaction of its own, after the one that
    /// enqueued, promoted or retried.
    pub struct Wake {
        lanes: Vec<LaneId>,
    }
    asks |m| Step::Wake { lanes: m.lanes.clone() };
    reads |r| r.woken("Wake")? => ();
}

impl Wake {
    /// These lanes, each once; `None` where there is nobody to tell.
    #[must_use]
    pub fn lanes(lanes: Vec<LaneId>) -> Option<Self> {
        let lanes = distinct(lanes);
        (!lanes.is_empty()).then_some(Self { lanes })
    }
}

/// The lanes of jobs that a step moved, ascending: what [`Wake::lanes`] takes.
#[must_use]
pub fn lanes_of(moved: &[(JobId, LaneId)]) -> Vec<LaneId> {
    distinct(moved.iter().map(|(_, lane)| *lane).collect())
}

/// Without steps there is nothing to enqueue.
fn begin(steps: Vec<Step>) -> Turn<Result<Enqueued, Refusal>> {
    if steps.is_empty() {
        return Turn::Commit(Ok(Enqueued { jobs: Vec::new(), lanes: Vec::new() }));
    }
    Turn::Last(steps)
}

fn within_bounds<T>(jobs: &[T]) -> Result<i64, UserError> {
    in_range(Field::Jobs, len(jobs), 0, ENQUEUE_ROWS_MAX as i64)
}

fn distinct(mut lanes: Vec<LaneId>) -> Vec<LaneId> {
    lanes.sort_unstable();
    lanes.dedup();
    lanes
}
