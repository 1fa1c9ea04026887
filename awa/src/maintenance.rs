//! What keeps an installation in shape: promote, rescue, rotate, prune, roll up. One process leads;
//! the decisions are `awa-core`'s election, duties and ring policy.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use awa_driver::Error;
use awa_driver::core::machine::prune::PruneOutcome;
use awa_driver::core::machine::rollup::RollupOutcome;
use awa_driver::core::machine::rotate::RotateOutcome;
use awa_driver::core::rules::Floor;
use awa_driver::core::runtime::duties::{Duties, DutiesConfig, Duty, DutyReport};
use awa_driver::core::runtime::leader::{Election, ElectionAction, ElectionConfig};
use awa_driver::core::runtime::policy::{
    HeldReason, RingAction, RingObservation, RingPolicy, RingPolicyConfig, RingReport,
};
use awa_driver::core::{Instant, Ring, Segment, limits};
use awa_driver::leadership::Leadership;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::client::Client;
use crate::clock::HostClock;

/// How long a leader waits to hear that its session lives.
const CONFIRM_WITHIN: Duration = Duration::from_secs(10);

/// How an installation is kept in shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Maintenance {
    /// A failed job stays retryable for at least this long (`R032-11`).
    pub failed_retention: Duration,
    /// Completed history is kept for about this long, if the ring has room for it.
    pub completed_retention: Duration,
}

impl Default for Maintenance {
    fn default() -> Self {
        Self {
            failed_retention: Floor::DEFAULT.span().into(),
            completed_retention: RingPolicyConfig::COMPLETED_RETENTION_DEFAULT.into(),
        }
    }
}

/// What maintenance has done and seen, while this process leads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MaintenanceStats {
    /// Whether this process leads.
    pub leading: bool,
    /// Jobs promoted.
    pub promoted: u64,
    /// Attempts ended for being past their deadline.
    pub rescued: u64,
    /// Segments opened.
    pub rotated: u64,
    /// Slots pruned.
    pub pruned: u64,
    /// Failed rows carried: divided by failures, how often a row was rewritten.
    pub carried_failed_rows: u64,
    /// Slots rolled up.
    pub rolled_up: u64,
    /// The rings as last seen.
    pub rings: BTreeMap<Ring, RingReport>,
}

/// Maintenance under way.
pub struct MaintenanceService {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
    stats: Arc<watch::Sender<MaintenanceStats>>,
}

impl MaintenanceService {
    /// Takes part in the election, and leads when elected.
    #[must_use]
    pub fn start(client: Client, maintenance: Maintenance) -> Self {
        let (stop, stopped) = watch::channel(false);
        let stats = Arc::new(watch::channel(MaintenanceStats::default()).0);
        let seed = client.seed();
        let shared = Arc::new(Shared {
            policies: Mutex::new(policies(maintenance)),
            client,
            maintenance,
            stats: Arc::clone(&stats),
        });
        let leader = Leader {
            election: Election::new(ElectionConfig::new(seed)),
            duties: Duties::new(DutiesConfig::new(seed)),
            held: None,
            working: JoinSet::new(),
            clock: HostClock::start(),
            shared,
        };
        Self { stop, task: tokio::spawn(leader.run(stopped)), stats }
    }

    /// What was done and seen so far.
    #[must_use]
    pub fn stats(&self) -> MaintenanceStats {
        self.stats.borrow().clone()
    }

    /// The same, each time that it changes.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<MaintenanceStats> {
        self.stats.subscribe()
    }

    /// Finishes duties under way and gives leadership up.
    pub async fn shutdown(mut self) {
        self.stop.send_replace(true);
        if let Err(error) = (&mut self.task).await {
            tracing::error!(%error, "maintenance ended early");
        }
    }
}

impl Drop for MaintenanceService {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn policies(maintenance: Maintenance) -> BTreeMap<Ring, RingPolicy> {
    let floor = Floor::new(maintenance.failed_retention.into());
    let slots = limits::QUEUE_SLOTS as usize;
    let queue = RingPolicyConfig::queue(slots, maintenance.completed_retention.into(), floor);
    let config = |ring| match ring {
        Ring::Queue => queue,
        Ring::Lease | Ring::Claim => RingPolicyConfig::transient(),
    };
    Ring::ALL.into_iter().map(|ring| (ring, RingPolicy::new(config(ring)))).collect()
}

struct Shared {
    client: Client,
    maintenance: Maintenance,
    policies: Mutex<BTreeMap<Ring, RingPolicy>>,
    stats: Arc<watch::Sender<MaintenanceStats>>,
}

struct Leader {
    election: Election,
    duties: Duties,
    held: Option<Leadership>,
    working: JoinSet<(Duty, Result<DutyReport, Error>)>,
    clock: HostClock,
    shared: Arc<Shared>,
}

impl Leader {
    async fn run(mut self, mut stopped: watch::Receiver<bool>) {
        let mut stopping = false;
        loop {
            self.stand().await;
            while let Some(duty) = self.duties.poll(self.clock.now()) {
                let shared = Arc::clone(&self.shared);
                self.working.spawn(async move { (duty, shared.work(duty).await) });
            }
            if self.election.is_out() && self.duties.running() == 0 {
                return;
            }
            let wakes = [self.election.next_wake(), self.duties.next_wake()];
            let wake = self.clock.at(wakes.into_iter().flatten().min());
            tokio::select! {
                Some(done) = self.working.join_next() => self.done(done),
                // An owner that is gone stops it too.
                _ = stopped.changed(), if !stopping => {
                    stopping = true;
                    self.election.resign();
                }
                () = lost(&mut self.held) => {
                    tracing::info!("the leader's session ended");
                    self.held = None;
                    self.election.handle_lost(self.clock.now());
                }
                () = tokio::time::sleep_until(wake) => {}
            }
        }
    }

    fn done(&mut self, done: Result<(Duty, Result<DutyReport, Error>), tokio::task::JoinError>) {
        let now = self.clock.now();
        match done {
            Ok((duty, Ok(report))) => self.duties.handle_done(duty, report, now),
            Ok((duty, Err(error))) => {
                tracing::warn!(?duty, %error, "a duty failed");
                self.duties.handle_failed(duty, now);
            }
            Err(error) => tracing::error!(%error, "a duty panicked; it is not done again"),
        }
    }

    /// Does what the election says.
    async fn stand(&mut self) {
        while let Some(action) = self.election.poll(self.clock.now()) {
            match action {
                ElectionAction::TryAcquire => self.try_acquire().await,
                ElectionAction::Lead => {
                    self.duties.lead(self.clock.now());
                    self.lead(true);
                }
                ElectionAction::Confirm => {
                    let lives = match &self.held {
                        // No answer in time is as good as no session.
                        Some(held) => {
                            let confirmed = tokio::time::timeout(CONFIRM_WITHIN, held.confirm());
                            confirmed.await.unwrap_or(false)
                        }
                        None => false,
                    };
                    if lives {
                        self.election.handle_confirmed(self.clock.now());
                    } else {
                        self.held = None;
                        self.election.handle_lost(self.clock.now());
                    }
                }
                ElectionAction::StepDown => {
                    self.duties.step_down();
                    self.lead(false);
                }
                ElectionAction::Release => {
                    // Closing the connection gives the lock up.
                    self.held = None;
                    self.election.handle_released();
                }
            }
        }
    }

    async fn try_acquire(&mut self) {
        let sessions = self.shared.client.sessions();
        match Leadership::try_acquire(sessions.connector(), sessions.sql()).await {
            Ok(held) => {
                self.election.handle_try_result(held.is_some(), self.clock.now());
                self.held = held;
            }
            Err(error) => {
                tracing::debug!(%error, "can't stand for election");
                self.election.handle_failed(self.clock.now());
            }
        }
    }

    fn lead(&self, leading: bool) {
        self.shared.stats.send_modify(|s| s.leading = leading);
    }
}

/// Ends when leadership that is held is lost.
async fn lost(held: &mut Option<Leadership>) {
    match held {
        Some(held) => held.lost().await,
        None => std::future::pending().await,
    }
}

impl Shared {
    async fn work(&self, duty: Duty) -> Result<DutyReport, Error> {
        match duty {
            Duty::Promote => self.promote().await,
            Duty::Rescue => self.rescue().await,
            Duty::TendRings => self.tend_rings().await,
            Duty::Rollup => self.roll_up().await,
        }
    }

    async fn promote(&self) -> Result<DutyReport, Error> {
        let promoted = self.client.promote_piece(limits::MOVE_ROWS_MAX).await?;
        let done = promoted.jobs.len() as u64;
        self.stats.send_if_modified(|s| {
            s.promoted += done;
            done > 0
        });
        let more = done == limits::MOVE_ROWS_MAX.unsigned_abs();
        Ok(DutyReport { done, more, next_due: promoted.idle_for() })
    }

    async fn rescue(&self) -> Result<DutyReport, Error> {
        let rescued = self.client.rescue_overdue(limits::RESCUE_ROWS_MAX).await?;
        let done = rescued.closed.len() as u64;
        self.stats.send_if_modified(|s| {
            s.rescued += done;
            done > 0
        });
        let more = rescued.found == limits::RESCUE_ROWS_MAX;
        Ok(DutyReport { done, more, next_due: None })
    }

    async fn roll_up(&self) -> Result<DutyReport, Error> {
        let outcomes = self.client.rollup().await?;
        for outcome in &outcomes {
            if let RollupOutcome::Deferred { pinned_by } = outcome {
                tracing::debug!(pinned_by, "a rollup is put off: the horizon is pinned");
            }
        }
        let folded = |o: &&RollupOutcome| matches!(o, RollupOutcome::Folded { .. });
        let done = outcomes.iter().filter(folded).count() as u64;
        self.stats.send_if_modified(|s| {
            s.rolled_up += done;
            done > 0
        });
        Ok(DutyReport { done, more: false, next_due: None })
    }

    async fn tend_rings(&self) -> Result<DutyReport, Error> {
        let mut done = 0;
        let mut next_due: Option<awa_driver::core::Span> = None;
        for ring in Ring::ALL {
            // A ring has at most so many slots to prune and one to open; the bound is for a policy
            // that would never be content.
            for _ in 0..=limits::QUEUE_SLOTS {
                let observed = self.observe(ring).await?;
                let now = observed.view.now;
                match self.decide(ring, &observed)? {
                    RingAction::Nothing { until } | RingAction::Full { until, .. } => {
                        let wait = until.since(now);
                        next_due = Some(next_due.map_or(wait, |due| due.min(wait)));
                        break;
                    }
                    RingAction::Rotate => done += self.rotate(ring, observed.view.current).await?,
                    RingAction::Prune { slots, wanted } => {
                        done += self.prune(ring, &slots, wanted, now).await?;
                    }
                }
            }
        }
        Ok(DutyReport { done, more: false, next_due })
    }

    async fn observe(&self, ring: Ring) -> Result<RingObservation, Error> {
        let (view, loads) = self.client.measure(ring, self.maintenance.failed_retention).await?;
        Ok(RingObservation { view, loads })
    }

    fn decide(&self, ring: Ring, observed: &RingObservation) -> Result<RingAction, Error> {
        let mut policies = self.policies.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(policy) = policies.get_mut(&ring) else {
            return Ok(RingAction::Nothing { until: Instant::LAST });
        };
        let decided = policy.decide(observed);
        let report = policy.report(observed);
        drop(policies);
        self.stats.send_if_modified(|s| s.rings.insert(ring, report.clone()) != Some(report));
        decided.map_err(|fault| Error::fault("decide about a ring", fault))
    }

    async fn rotate(&self, ring: Ring, from: Segment) -> Result<u64, Error> {
        match self.client.rotate_away_from(ring, from).await? {
            RotateOutcome::Rotated { sealed, opened } => {
                tracing::info!(%ring, %sealed, %opened, "rotated");
                self.stats.send_modify(|s| s.rotated += 1);
                Ok(1)
            }
            RotateOutcome::AlreadyRotated { .. } | RotateOutcome::RingFull { .. } => Ok(0),
        }
    }

    async fn prune(
        &self,
        ring: Ring,
        slots: &[Segment],
        wanted: usize,
        now: Instant,
    ) -> Result<u64, Error> {
        let mut done = 0;
        for segment in slots {
            if done as usize == wanted {
                break;
            }
            let slot = Some(segment.slot);
            let tried = self.client.prune(ring, slot, self.maintenance.failed_retention).await;
            let held = match tried {
                Ok(outcome) => {
                    tracing::info!(%ring, "{outcome}");
                    done += u64::from(matches!(outcome, PruneOutcome::Pruned { .. }));
                    self.held_by(&outcome)
                }
                // A key that is taken or books that don't balance are this slot's: others go on (H31).
                Err(error) if error.is_content() || error.as_fault().is_some() => {
                    tracing::error!(%ring, %segment, %error, "a slot can't be pruned");
                    Some(HeldReason::Faulty)
                }
                Err(error) => return Err(error),
            };
            let mut policies = self.policies.lock().unwrap_or_else(PoisonError::into_inner);
            match (policies.get_mut(&ring), held) {
                (Some(policy), Some(reason)) => policy.handle_held(*segment, reason, now),
                (Some(policy), None) => policy.handle_pruned(*segment),
                (None, _) => {}
            }
        }
        Ok(done)
    }

    /// Why a slot is to be stepped over; counts what was done to one that was not.
    fn held_by(&self, outcome: &PruneOutcome) -> Option<HeldReason> {
        match outcome {
            PruneOutcome::Pruned { carried_failed_rows, .. } => {
                let carried = carried_failed_rows.unsigned_abs();
                self.stats.send_modify(|s| {
                    s.pruned += 1;
                    s.carried_failed_rows += carried;
                });
                None
            }
            PruneOutcome::Noop | PruneOutcome::NotSealed { .. } => None,
            PruneOutcome::Blocked { .. } => Some(HeldReason::Contended),
            PruneOutcome::SkippedActive { .. } => Some(HeldReason::Active),
            PruneOutcome::Faulty { .. } => Some(HeldReason::Faulty),
        }
    }
}
