//! Ways in.

use awa_driver::Error;
use awa_driver::core::fault::Field;
use awa_driver::core::machine::declare::lane_of;
use awa_driver::core::machine::enqueue::{EnqueueAll, EnqueueCopy, Enqueued};
use awa_driver::core::{Instant, JobId, NewJob, QueueName, Shard, UserError};
use awa_driver::tokio_postgres::Transaction;

use crate::client::Client;
use crate::job::{Due, Job};

/// Jobs by when they are due, and how to put their ids back in order.
#[derive(Default)]
struct Split {
    now: Vec<NewJob>,
    later: Vec<(NewJob, Instant)>,
    /// Whether the job at this place is due now.
    order: Vec<bool>,
}

impl Client {
    /// Enqueues one job in a transaction of its own and wakes a worker.
    ///
    /// # Errors
    /// The queue is not declared; see also [`Error::is_unknown`].
    pub async fn enqueue(&self, job: Job) -> Result<JobId, Error> {
        let jobs = self.enqueue_many(vec![job]).await?;
        // One job in, one id out: the machine has checked it.
        jobs.first().copied().ok_or_else(|| UserError::Empty { field: Field::Jobs }.into())
    }

    /// Enqueues jobs in one transaction, all or none. Ids come in the order given; jobs of a lane are
    /// claimed in it.
    ///
    /// # Errors
    /// As for [`Client::enqueue`].
    pub async fn enqueue_many(&self, jobs: Vec<Job>) -> Result<Vec<JobId>, Error> {
        let Split { now, later, order } = self.split(jobs).await?;
        let done = self.run_settled(EnqueueAll::new(now, later)?).await?;
        self.wake(done.ready.lanes.clone());
        Ok(in_order(&order, done.ready, done.deferred))
    }

    /// Enqueues jobs as a part of the caller's transaction: they exist if it commits. Workers find them
    /// when they next poll, or at once if [`Client::wake_queue`] is called after the COMMIT; NOTIFY inside
    /// the transaction would make producers wait for one another's commits.
    ///
    /// # Errors
    /// As for [`Client::enqueue`]; the transaction can then only be rolled back.
    pub async fn enqueue_in(
        &self,
        transaction: &Transaction<'_>,
        jobs: Vec<Job>,
    ) -> Result<Vec<JobId>, Error> {
        let Split { now, later, order } = self.split(jobs).await?;
        let machine = EnqueueAll::new(now, later)?;
        let done = self.embedded().drive(transaction, machine).await?;
        let done = done.map_err(|refusal| Error::refused("enqueue", refusal))?;
        Ok(in_order(&order, done.ready, done.deferred))
    }

    /// Enqueues jobs that are all due now by COPY, for many at a time. Gives no ids.
    ///
    /// # Errors
    /// As for [`Client::enqueue`]; a job with a time of its own is refused.
    pub async fn copy(&self, jobs: Vec<Job>) -> Result<u64, Error> {
        let Split { now, later, order: _ } = self.split(jobs).await?;
        if !later.is_empty() {
            return Err(UserError::NotDue { jobs: later.len() }.into());
        }
        let done = self.run_settled(EnqueueCopy::new(now)?).await?;
        self.wake(done.lanes);
        Ok(done.rows)
    }

    async fn split(&self, jobs: Vec<Job>) -> Result<Split, Error> {
        let waits = jobs.iter().any(|job| job.due != Due::Now);
        let clock = if waits { Some(self.clock().await?) } else { None };
        let mut split = Split::default();
        for job in jobs {
            let due = match (job.due, clock) {
                (Due::At(at), Some(now)) => (at > now).then_some(at),
                (Due::After(span), Some(now)) => (!span.is_zero()).then(|| now.after(span)),
                (Due::Now | Due::At(_) | Due::After(_), _) => None,
            };
            let placed = self.placed(job).await?;
            split.order.push(due.is_none());
            match due {
                Some(at) => split.later.push((placed, at)),
                None => split.now.push(placed),
            }
        }
        Ok(split)
    }

    async fn placed(&self, job: Job) -> Result<NewJob, Error> {
        let (priority, shard) = (job.priority.into(), Shard(job.shard));
        let lanes = self.lanes(&job.queue).await?;
        let lane = match lane_of(&job.queue, &lanes, priority, shard) {
            // Added since the lanes were looked up, perhaps.
            Err(UserError::UnknownShard { .. }) => {
                let lanes = self.find_lanes(&job.queue).await?;
                lane_of(&job.queue, &lanes, priority, shard)?
            }
            known => known?,
        };
        let payload = job.payload();
        Ok(NewJob::new(lane, job.kind, job.args, job.max_attempts.into(), payload)?)
    }

    /// Tells workers that a queue has jobs: after the COMMIT of a transaction that used
    /// [`Client::enqueue_in`] or the SQL function.
    ///
    /// # Errors
    /// The queue is not declared.
    pub async fn wake_queue(&self, queue: &str) -> Result<(), Error> {
        let lanes = self.lanes(&QueueName::new(queue)?).await?;
        self.wake(lanes.iter().map(|l| l.lane).collect());
        self.wakes_sent().await;
        Ok(())
    }
}

fn in_order(order: &[bool], ready: Enqueued, deferred: Enqueued) -> Vec<JobId> {
    let (mut now, mut later) = (ready.jobs.into_iter(), deferred.jobs.into_iter());
    order.iter().filter_map(|is_now| if *is_now { now.next() } else { later.next() }).collect()
}
