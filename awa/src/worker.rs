//! Claims jobs, runs handlers and stores how they ended. The decisions are `awa-core`'s scheduler and
//! batcher; this room owns tasks and timers.

mod claims;
mod completions;
mod listen;
mod run;
mod variables;

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use awa_driver::Error;
use awa_driver::core::fault::{Field, UserError};
use awa_driver::core::runtime::batcher::BatcherConfig;
use awa_driver::core::runtime::scheduler::SchedulerConfig;
use awa_driver::core::{QueueName, in_range, limits};
use serde::de::DeserializeOwned;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::client::Client;
use crate::handler::{Attempt, Failure, Handlers};
use crate::maintenance::{Maintenance, MaintenanceService};

/// Attempts must be over after this long, unless a worker says otherwise: a worker that dies gives its
/// jobs back no later.
const DEADLINE_DEFAULT: Duration = Duration::from_secs(15 * 60);

/// Ends that the server does not take are given up so long after the last that it took.
const STORE_PATIENCE: Duration = Duration::from_secs(10);
/// A clock that counts a century from now needs no check for more.
const FOREVER: Duration = Duration::from_secs(100 * 366 * 86_400);

/// A worker to be started: which queues, how many jobs at a time, which handlers.
pub struct Worker {
    client: Client,
    queues: BTreeMap<QueueName, u32>,
    handlers: Handlers,
    claim_rows: u16,
    deadline: Option<Duration>,
    maintenance: Option<Maintenance>,
}

/// What a worker has done since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerStats {
    /// Jobs claimed.
    pub claimed: u64,
    /// Attempts that succeeded, stored.
    pub completed: u64,
    /// Attempts that failed, stored.
    pub failed: u64,
    /// Attempts that were stopped by a shutdown and given back to their lanes (H60).
    pub handed_back: u64,
    /// Attempts whose end was refused: rescued or cancelled meanwhile (H15).
    pub stale: u64,
    /// Attempts whose end the server would not store.
    pub rejected: u64,
}

impl WorkerStats {
    /// Attempts that were claimed and of which nothing is known to be stored.
    fn unstored(&self) -> u64 {
        let known = self.completed + self.failed + self.handed_back + self.stale + self.rejected;
        self.claimed.saturating_sub(known)
    }
}

impl Worker {
    /// A worker on the installation of `client`, with maintenance.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self {
            client,
            queues: BTreeMap::new(),
            handlers: Handlers::default(),
            claim_rows: limits::CLAIM_ROWS_DEFAULT,
            deadline: Some(DEADLINE_DEFAULT),
            maintenance: Some(Maintenance::default()),
        }
    }

    /// Works a declared queue, up to `concurrency` jobs of it at a time.
    ///
    /// # Errors
    /// The name or the number is out of bounds.
    pub fn queue(mut self, name: &str, concurrency: u32) -> Result<Self, UserError> {
        in_range(Field::Concurrency, concurrency.into(), 1, u32::MAX.into())?;
        self.queues.insert(QueueName::new(name)?, concurrency);
        Ok(self)
    }

    /// Runs `handler` for jobs of `kind`, with their args read as `A`. Args that don't fit fail the job
    /// for good. A panic fails the attempt.
    #[must_use]
    pub fn handler<A, F, Fut>(mut self, kind: &str, handler: F) -> Self
    where
        A: DeserializeOwned + Send,
        F: Fn(Attempt, A) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        self.handlers.typed(kind, handler);
        self
    }

    /// Runs `handler` for jobs of every kind that has none of its own.
    #[must_use]
    pub fn fallback<F, Fut>(mut self, handler: F) -> Self
    where
        F: Fn(Attempt) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        self.handlers.other(handler);
        self
    }

    /// Claims up to `rows` jobs at a time, 1 to 4096; 512 unless told otherwise (`R026-31`).
    ///
    /// # Errors
    /// Out of range.
    pub fn claim_batch_size(mut self, rows: i64) -> Result<Self, UserError> {
        let max = limits::CLAIM_ROWS_MAX.into();
        self.claim_rows = in_range(Field::Limit, rows, 1, max)? as u16;
        Ok(self)
    }

    /// Attempts must be over `deadline` after they began: then the handler is stopped and the attempt
    /// fails, and a worker that died gives its jobs back. `None`: never.
    #[must_use]
    pub fn deadline(mut self, deadline: Option<Duration>) -> Self {
        self.deadline = deadline;
        self
    }

    /// Takes part in maintenance as told; `None`: other processes must.
    #[must_use]
    pub fn maintenance(mut self, maintenance: Option<Maintenance>) -> Self {
        self.maintenance = maintenance;
        self
    }

    /// Starts working. Dropping what it gives stops at once, as a crash would; jobs are then rescued.
    ///
    /// How the ends of attempts are gathered before they are stored can be said in the environment
    /// (`R026-31`); a variable that is not set means its default.
    ///
    /// | variable | meaning | range | default |
    /// |---|---|---|---|
    /// | `AWA_COMPLETION_BATCH_SIZE` | ends that are stored together at most | 1 to 4096 | 512 |
    /// | `AWA_COMPLETION_FLUSH_MS` | milliseconds that an end waits for company | 0 to 10000 | 1 |
    /// | `AWA_COMPLETION_SHARDS` | flushes that are under way at a time | 1 to 64 | 1; 4 from 512 jobs at a time on |
    ///
    /// # Errors
    /// A queue is not declared; the server can't be reached; [`UserError::Variable`].
    pub async fn start(self) -> Result<Working, Error> {
        let batching = variables::batching(|name| std::env::var_os(name))?;
        let workers_max = self.queues.values().fold(0_u32, |sum, n| sum.saturating_add(*n));
        let (drain, draining) = watch::channel(None);
        let (stats, _) = watch::channel(WorkerStats::default());
        let stats = Arc::new(stats);
        let (events, inbox) = mpsc::unbounded_channel();
        let seed = self.client.seed();
        let batching = BatcherConfig::told(batching, workers_max, seed);

        let (finished, flusher) =
            completions::start(self.client.clone(), batching, Arc::clone(&stats));
        let mut scheduler = SchedulerConfig::for_workers(workers_max, seed);
        scheduler.claim_rows = self.claim_rows;
        let plan = claims::Plan {
            client: self.client.clone(),
            scheduler,
            queues: self.queues,
            runner: run::Runner {
                handlers: Arc::new(self.handlers),
                finished,
                events: events.clone(),
                deadline: self.deadline,
            },
            deadline: self.deadline,
            stats: Arc::clone(&stats),
        };
        let queues = plan.queues.keys().cloned().collect();
        let claimer = claims::start(plan, inbox, draining).await?;
        let listener = tokio::spawn(listen::listen(self.client.clone(), events));
        let client = self.client.clone();
        let maintenance = self.maintenance.map(|m| MaintenanceService::start(self.client, m));
        Ok(Working { client, queues, drain, stats, claimer, flusher, listener, maintenance })
    }
}

/// A worker at work.
pub struct Working {
    client: Client,
    queues: Vec<QueueName>,
    drain: watch::Sender<Option<tokio::time::Instant>>,
    stats: Arc<watch::Sender<WorkerStats>>,
    claimer: JoinHandle<()>,
    flusher: JoinHandle<()>,
    listener: JoinHandle<()>,
    maintenance: Option<MaintenanceService>,
}

impl Working {
    /// What was done so far.
    #[must_use]
    pub fn stats(&self) -> WorkerStats {
        *self.stats.borrow()
    }

    /// What was done, each time that it changes.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<WorkerStats> {
        self.stats.subscribe()
    }

    /// The maintenance that this worker takes part in.
    #[must_use]
    pub fn maintenance(&self) -> Option<&MaintenanceService> {
        self.maintenance.as_ref()
    }

    /// Claims nothing more, lets handlers finish until `grace` is over, stops those that still run and
    /// hands their jobs back, stores all ends, and stops (H60).
    ///
    /// A job that is handed back is in its lane at once, and other workers are told. The attempt is not
    /// counted and leaves no error: however often a service is deployed, that uses up none of a job's
    /// attempts. Its run lease still counts every claim. A worker that dies instead is noticed by the
    /// attempt's deadline, and that attempt counts as a failed one.
    ///
    /// Ends that the server does not take are tried for ten seconds after the last that it took; then they
    /// are given up, and their jobs are tried again when their deadlines have passed. A grace of a century
    /// or more is for ever.
    ///
    /// # Errors
    /// Ends were given up, or a task of the worker's panicked.
    pub async fn shutdown(mut self, grace: Duration) -> Result<WorkerStats, ShutdownError> {
        let deadline = tokio::time::Instant::now() + grace.min(FOREVER);
        // The claimer is there to hear it until it has ended.
        let _ = self.drain.send(Some(deadline));
        let ended = self.ended(deadline).await;
        self.listener.abort();
        // Where the server takes no ends, it need not be asked for more.
        ended?;
        if self.stats.borrow().handed_back > 0 {
            self.wake_others().await;
        }
        if let Some(maintenance) = self.maintenance.take() {
            maintenance.shutdown().await;
        }
        Ok(*self.stats.borrow())
    }

    /// Waits for the claimer with its handlers, and for the flusher, while ends are taken.
    async fn ended(&mut self, deadline: tokio::time::Instant) -> Result<(), ShutdownError> {
        let mut progress = self.stats.subscribe();
        let mut give_up_at = deadline + STORE_PATIENCE;
        let both = async {
            let claimer = (&mut self.claimer).await;
            // The last sender of finished attempts went with the claimer and its handlers.
            claimer.and((&mut self.flusher).await)
        };
        tokio::pin!(both);
        loop {
            tokio::select! {
                ended = &mut both => {
                    return ended.map_err(|error| ShutdownError(Cause::Panicked(error)));
                }
                // The sender is this worker's own, so that it is a change.
                _ = progress.changed() => {
                    give_up_at = give_up_at.max(tokio::time::Instant::now() + STORE_PATIENCE);
                }
                () = tokio::time::sleep_until(give_up_at) => break,
            }
        }
        // What is dropped with the worker stops where it is.
        Err(ShutdownError(Cause::GivenUp { unstored: self.stats.borrow().unstored() }))
    }

    /// A wake that is lost costs the others a poll interval.
    async fn wake_others(&self) {
        for queue in &self.queues {
            if let Err(error) = self.client.wake_queue(queue.as_str()).await {
                tracing::warn!(%error, %queue, "jobs were handed back and nobody was told");
            }
        }
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.claimer.abort();
        self.flusher.abort();
        self.listener.abort();
    }
}

/// A worker that did not end as it should.
#[derive(Debug)]
pub struct ShutdownError(Cause);

#[derive(Debug)]
enum Cause {
    Panicked(tokio::task::JoinError),
    GivenUp { unstored: u64 },
}

impl ShutdownError {
    /// Attempts whose ends the server did not take before they were given up: their jobs are tried again
    /// when their deadlines have passed. `None` where a task panicked instead.
    #[must_use]
    pub fn unstored(&self) -> Option<u64> {
        match &self.0 {
            Cause::Panicked(_) => None,
            Cause::GivenUp { unstored } => Some(*unstored),
        }
    }
}

impl std::fmt::Display for ShutdownError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Cause::Panicked(error) => write!(f, "a task of the worker ended early: {error}"),
            Cause::GivenUp { unstored } => write!(
                f,
                "the server did not take how attempts ended: {unstored} are given up, and their jobs are \
                 tried again when their deadlines have passed"
            ),
        }
    }
}

impl std::error::Error for ShutdownError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.0 {
            Cause::Panicked(error) => Some(error),
            Cause::GivenUp { .. } => None,
        }
    }
}
