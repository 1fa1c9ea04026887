//! Reads of one statement, and the two that need the clock first.

use alloc::vec;
use alloc::vec::Vec;

use super::replies::{Replies, Stop, counted, one_step};
use super::{Machine, Turn};
use crate::fault::Fault;
use crate::ids::JobId;
use crate::job::{JobRow, ListFilter, QueueCounts, SlotLoad};
use crate::names::QueueName;
use crate::reply::{Refusal, Reply};
use crate::ring::{Ring, RingView};
use crate::rules::Floor;
use crate::step::Step;

one_step! {
    /// The exact counts of a queue; `None` if it was never declared (`R026-23`, `R032-08`).
    pub struct CountQueue {
        /// The queue.
        pub queue: QueueName,
    }
    asks |m| Step::ReadCounts { queue: m.queue.clone() };
    reads |r| checked(r.queue_counted("ReadCounts")?)? => Option<QueueCounts>;
}

/// A count below zero is a fault of the books, and shown as one (law 12).
fn checked(counts: Option<QueueCounts>) -> Result<Option<QueueCounts>, Fault> {
    for (what, value) in counts.iter().flat_map(QueueCounts::named) {
        counted(what, value)?;
    }
    Ok(counts)
}

one_step! {
    /// How many failures of a queue left the ring past the floor, ever; `None` if it was never
    /// declared (`R032-08`).
    pub struct CountPrunedFailed {
        /// The queue.
        pub queue: QueueName,
    }
    asks |m| Step::ReadPrunedFailed { queue: m.queue.clone() };
    reads |r| {
        let count = r.pruned_failed("ReadPrunedFailed")?;
        count.map_or(Ok(()), |n| counted("pruned failures", n))?;
        count
    } => Option<i64>;
}

one_step! {
    /// One job, wherever it is (`R026-03`); `None` if it is not retained.
    pub struct LoadJob {
        /// The job.
        pub job: JobId,
    }
    asks |m| Step::LoadJob { job: m.job };
    reads |r| r.job_loaded("LoadJob")? => Option<JobRow>;
}

one_step! {
    /// A page of jobs, newest id first, without their args (H40).
    pub struct ListJobs {
        /// Which jobs.
        pub filter: ListFilter,
    }
    asks |m| Step::ListJobs { filter: m.filter.clone() };
    reads |r| r.jobs_listed("ListJobs")? => Vec<JobRow>;
}

one_step! {
    /// A ring and the database's clock.
    pub struct ObserveRing {
        /// The ring.
        pub ring: Ring,
    }
    asks |m| Step::ObserveRing { ring: m.ring };
    reads |r| r.ring_observed("ObserveRing")? => RingView;
}

/// A ring and what its slots hold, for the ring's policy (law 15).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MeasureRing {
    ring: Ring,
    floor: Floor,
    view: Option<RingView>,
}

impl MeasureRing {
    /// With failures inside `floor` counted as not droppable.
    #[must_use]
    pub const fn new(ring: Ring, floor: Floor) -> Self {
        Self { ring, floor, view: None }
    }

    fn advance(&mut self, r: &mut Replies) -> Result<Turn<<Self as Machine>::Outcome>, Stop> {
        match self.view.take() {
            None => {
                let view = r.ring(self.ring)?;
                let cutoff = self.floor.cutoff(view.now);
                self.view = Some(view);
                Ok(Turn::Last(vec![Step::ObserveLoads { ring: self.ring, cutoff }]))
            }
            Some(view) => {
                let loads = r.loads_observed("ObserveLoads")?;
                Ok(Turn::Commit(Ok((view, loads))))
            }
        }
    }
}

impl Machine for MeasureRing {
    type Outcome = Result<(RingView, Vec<SlotLoad>), Refusal>;

    fn start(&mut self) -> Turn<Self::Outcome> {
        Turn::Ask(vec![Step::ObserveRing { ring: self.ring }])
    }

    fn resume(&mut self, replies: Vec<Reply>) -> Turn<Self::Outcome> {
        Replies::read(replies, |r| self.advance(r)).unwrap_or_else(|stop| stop.turn(Err))
    }
}
