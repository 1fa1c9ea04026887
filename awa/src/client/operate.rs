//! Looking and operating.

use std::time::Duration;

use awa_driver::Error;
use awa_driver::core::fault::Field;
use awa_driver::core::machine::cancel::{Cancel, CancelOutcome};
use awa_driver::core::machine::close::{Finish, Finished};
use awa_driver::core::machine::delete::{DeleteCompleted, DeleteOutcome};
use awa_driver::core::machine::explain::ExplainPrune;
use awa_driver::core::machine::promote::{Promote, Promoted};
use awa_driver::core::machine::prune::{Prune, PruneOutcome};
use awa_driver::core::machine::read::{CountQueue, ListJobs, LoadJob, MeasureRing, ObserveRing};
use awa_driver::core::machine::rebuild::{Rebuild, Rebuilt};
use awa_driver::core::machine::rescue::{Rescue, Rescued};
use awa_driver::core::machine::retry::{
    DiscardFailed, DiscardOutcome, RetryFailed, RetryFailedOutcome,
};
use awa_driver::core::machine::rollup::{FindRollups, RollupOutcome, RollupPlan, RollupTick};
use awa_driver::core::machine::rotate::{Rotate, RotateOutcome};
use awa_driver::core::rules::Floor;
use awa_driver::core::{
    Instant, JobId, JobRow, Kind, ListFilter, QueueCounts, QueueName, Ring, RingView, Segment,
    Slot, SlotLoad, TerminalFilter, UserError, in_range,
};

use crate::client::Client;
use crate::handler::Attempt;

impl Client {
    /// The exact counts of a queue, from one statement (`R026-23`).
    ///
    /// # Errors
    /// The queue is not declared.
    pub async fn counts(&self, queue: &str) -> Result<QueueCounts, Error> {
        let queue = QueueName::new(queue)?;
        let counts = self.run_settled(CountQueue { queue: queue.clone() }).await?;
        counts.ok_or_else(|| UserError::UnknownQueue { queue: queue.as_str().to_owned() }.into())
    }

    /// The whole job, if it is retained.
    ///
    /// # Errors
    /// PostgreSQL's.
    pub async fn load(&self, job: JobId) -> Result<Option<JobRow>, Error> {
        self.run_settled(LoadJob { job }).await
    }

    /// A page of jobs, newest id first, without args.
    ///
    /// # Errors
    /// The filter's queue is not declared; its limit is 0.
    pub async fn list(&self, filter: ListFilter) -> Result<Vec<JobRow>, Error> {
        in_range(Field::Limit, filter.limit.into(), 1, u16::MAX.into())?;
        if let Some(queue) = &filter.queue {
            self.lanes(queue).await?;
        }
        self.run_settled(ListJobs { filter }).await
    }

    /// A ring as it is now.
    ///
    /// # Errors
    /// PostgreSQL's.
    pub async fn ring(&self, ring: Ring) -> Result<RingView, Error> {
        self.run_settled(ObserveRing { ring }).await
    }

    /// A ring and what its slots hold.
    ///
    /// # Errors
    /// PostgreSQL's.
    pub async fn measure(
        &self,
        ring: Ring,
        failed_retention: Duration,
    ) -> Result<(RingView, Vec<SlotLoad>), Error> {
        self.run_settled(MeasureRing::new(ring, Floor::new(failed_retention.into()))).await
    }

    /// The database's clock.
    ///
    /// # Errors
    /// PostgreSQL's.
    pub async fn clock(&self) -> Result<Instant, Error> {
        Ok(self.ring(Ring::Queue).await?.now)
    }

    /// Cancels a job that is available, scheduled or retryable; says what it is otherwise.
    ///
    /// # Errors
    /// PostgreSQL's.
    pub async fn cancel(&self, job: JobId) -> Result<CancelOutcome, Error> {
        self.run_settled(Cancel::new(job)).await
    }

    /// Hands an attempt back before its handler has ended, as a shutdown does (H60): for a handler that
    /// must stop early and is not to blame its job. What the handler gives after that is refused as
    /// stale. `false`: the attempt had ended otherwise before, by a rescue for example.
    ///
    /// # Errors
    /// PostgreSQL's. Where the outcome is unknown it may be called again.
    pub async fn hand_back(&self, attempt: &Attempt, why: &str) -> Result<bool, Error> {
        let mut plan = Finish::new(vec![Finished::handed_back(&attempt.claimed, why)]);
        while let Some(close) = plan.next() {
            let did = self.run_settled(close).await?;
            plan.take(did);
        }
        Ok(!plan.into_outcome().closed.is_empty())
    }

    /// Hides a completed job from public history; its receipt stays closed (`R026-17`).
    ///
    /// # Errors
    /// PostgreSQL's.
    pub async fn delete_completed(&self, job: JobId) -> Result<DeleteOutcome, Error> {
        self.run_settled(DeleteCompleted::new(job)).await
    }

    /// Retries one failed or cancelled job. `retried` is empty if it is neither.
    ///
    /// # Errors
    /// PostgreSQL's.
    pub async fn retry(&self, job: JobId) -> Result<RetryFailedOutcome, Error> {
        self.retry_failed(TerminalFilter::Job(job)).await
    }

    /// Retries all failed jobs of a kind, in all queues (`R032-09`).
    ///
    /// # Errors
    /// PostgreSQL's.
    pub async fn retry_failed_by_kind(&self, kind: &str) -> Result<RetryFailedOutcome, Error> {
        self.retry_failed(TerminalFilter::Kind(Kind::new(kind)?)).await
    }

    /// Retries all failed jobs of a queue, and says how many were pruned past retention (`R032-09`).
    ///
    /// # Errors
    /// The queue is not declared.
    pub async fn retry_failed_by_queue(&self, queue: &str) -> Result<RetryFailedOutcome, Error> {
        self.retry_failed(TerminalFilter::Queue(QueueName::new(queue)?)).await
    }

    async fn retry_failed(&self, filter: TerminalFilter) -> Result<RetryFailedOutcome, Error> {
        let mut scan = RetryFailed::new(filter, i64::MAX)?;
        while let Some(piece) = scan.next() {
            let did = self.run_settled(piece).await?;
            scan.take(did)?;
        }
        self.wake(scan.lanes());
        Ok(scan.outcome())
    }

    /// Deletes failed jobs from history: one by id (failed or cancelled), or all failed ones of a kind
    /// or queue.
    ///
    /// # Errors
    /// The queue is not declared.
    pub async fn discard_failed(&self, filter: TerminalFilter) -> Result<DiscardOutcome, Error> {
        let mut scan = DiscardFailed::new(filter, i64::MAX)?;
        while let Some(piece) = scan.next() {
            let did = self.run_settled(piece).await?;
            scan.take(did)?;
        }
        Ok(scan.outcome())
    }

    /// Moves due jobs into their lanes, up to `limit`. Gives how many.
    ///
    /// # Errors
    /// `limit` is out of bounds.
    pub async fn promote_due(&self, limit: i64) -> Result<usize, Error> {
        Ok(self.promote_piece(limit).await?.jobs.len())
    }

    pub(crate) async fn promote_piece(&self, limit: i64) -> Result<Promoted, Error> {
        let promoted = self.run_settled(Promote::new(limit)?).await?;
        self.wake(promoted.jobs.iter().map(|(_, lane)| *lane).collect());
        Ok(promoted)
    }

    /// Ends overdue attempts, up to `limit`: a failure like any other.
    ///
    /// # Errors
    /// `limit` is out of bounds.
    pub async fn rescue_overdue(&self, limit: i64) -> Result<Rescued, Error> {
        self.run_settled(Rescue::new(limit)?).await
    }

    /// Opens the next pruned slot of a ring.
    ///
    /// # Errors
    /// PostgreSQL's.
    pub async fn rotate(&self, ring: Ring) -> Result<RotateOutcome, Error> {
        self.run_settled(Rotate::ring(ring)).await
    }

    /// The same if `from` is still open: two that decided on one observation rotate once.
    pub(crate) async fn rotate_away_from(
        &self,
        ring: Ring,
        from: Segment,
    ) -> Result<RotateOutcome, Error> {
        self.run_settled(Rotate::away_from(ring, from)).await
    }

    /// Prunes the oldest sealed slot of the queue ring. Failures younger than `failed_retention` are
    /// carried; zero switches the floor off (`R032-01`).
    ///
    /// # Errors
    /// [`Error::as_fault`] if the books don't balance.
    pub async fn prune_oldest(&self, failed_retention: Duration) -> Result<PruneOutcome, Error> {
        self.prune(Ring::Queue, None, failed_retention).await
    }

    /// Prunes a slot of a ring, or its oldest sealed one.
    ///
    /// # Errors
    /// As for [`Client::prune_oldest`].
    pub async fn prune(
        &self,
        ring: Ring,
        slot: Option<Slot>,
        failed_retention: Duration,
    ) -> Result<PruneOutcome, Error> {
        self.run_settled(prune_of(ring, slot, failed_retention)).await
    }

    /// The very plan that a prune would follow now, as text. Nothing is executed and no lock taken.
    ///
    /// # Errors
    /// PostgreSQL's.
    pub async fn explain_prune(
        &self,
        ring: Ring,
        slot: Option<Slot>,
        failed_retention: Duration,
    ) -> Result<String, Error> {
        self.run_settled(ExplainPrune::new(prune_of(ring, slot, failed_retention))).await
    }

    /// Folds the pending counter deltas of sealed slots until a bounded number is folded; slots that
    /// somebody holds are stepped over (`R026-24`).
    ///
    /// # Errors
    /// PostgreSQL's.
    pub async fn rollup(&self) -> Result<Vec<RollupOutcome>, Error> {
        let slots = match self.run_settled(FindRollups).await? {
            RollupPlan::Deferred { pinned_by } => {
                return Ok(vec![RollupOutcome::Deferred { pinned_by }]);
            }
            RollupPlan::Slots(slots) => slots,
        };
        let mut tick = RollupTick::new(slots);
        while let Some(rollup) = tick.next_rollup() {
            tick.take(self.run_settled(rollup).await?);
        }
        Ok(tick.into_outcomes())
    }

    /// Recomputes the terminal counters from history and trusts them again (`R026-26`).
    ///
    /// # Errors
    /// [`Error::as_fault`] if the books don't balance.
    pub async fn rebuild_counts(&self) -> Result<Rebuilt, Error> {
        self.run_settled(Rebuild::default()).await
    }
}

fn prune_of(ring: Ring, slot: Option<Slot>, failed_retention: Duration) -> Prune {
    let floor = Floor::new(failed_retention.into());
    match slot {
        Some(slot) => Prune::slot(ring, slot, floor),
        None => Prune::oldest(ring, floor),
    }
}
