//! Awa, by the calls that its own worker makes.

use anyhow::{Context, Result, ensure};
use awa::core::machine::claim::{Claim, ClaimOutcome};
use awa::core::machine::close::{Close, Finish, Finished};
use awa::core::machine::declare::FindLanes;
use awa::core::{ClaimedJob, LaneId, QueueName, Window};
use awa::tokio_postgres::{Config, NoTls};
use awa::{Client, ClientOptions, Job, limits};

use crate::contender::{
    Claimer, Completer, Contender, ERROR, Ender, KIND, Producer, apart, queue_name,
};
use crate::lab::Place;

/// Where it is installed.
pub(crate) const SCHEMA: &str = "awa";

#[derive(Clone)]
pub(crate) struct Ours {
    url: String,
}

pub(crate) struct OurProducer {
    client: Client,
}

pub(crate) struct OurClaimer {
    client: Client,
    lane: LaneId,
    window: Window,
}

pub(crate) struct OurCompleter {
    client: Client,
}

/// Jobs with the args that `args` gives, in a queue.
pub(crate) fn jobs(queue: usize, args: Vec<String>) -> Result<Vec<Job>> {
    let queue = queue_name(queue);
    args.into_iter()
        .map(|args| Ok(Job::from_json(KIND, args)?.queue(&queue)?))
        .collect::<Result<_>>()
}

/// Where a queue's jobs of the usual priority wait.
pub(crate) async fn lane(client: &Client, queue: usize) -> Result<LaneId> {
    let found = client.run(FindLanes { queue: QueueName::new(&queue_name(queue))? }).await?;
    let lanes = found.map_err(|refusal| anyhow::anyhow!("refused: {refusal}"))?;
    let usual = i64::from(limits::PRIORITY_DEFAULT);
    let lane = lanes.iter().find(|lane| i64::from(lane.priority.0) == usual);
    Ok(lane.context("the queue has no lane of the usual priority")?.lane)
}

impl Ours {
    /// A handle with connections of its own.
    pub(crate) async fn client(&self) -> Result<Client> {
        Ok(Client::connect(&self.url, SCHEMA).await?)
    }
}

impl Contender for Ours {
    const NAME: &'static str = "awa";
    type Taken = Vec<ClaimedJob>;
    type Producer = OurProducer;
    type Claimer = OurClaimer;
    type Completer = OurCompleter;

    async fn install(place: &Place, queues: usize) -> Result<Self> {
        awa::migrate(&place.url, SCHEMA).await?;
        let client = Client::connect(&place.url, SCHEMA).await?;
        for queue in 0..queues {
            client.declare_queue(&queue_name(queue), 1).await?;
        }
        Ok(Self { url: place.url.clone() })
    }

    async fn settle(_place: &Place) -> Result<()> {
        Ok(())
    }

    async fn producer(&self) -> Result<OurProducer> {
        Ok(OurProducer { client: self.client().await? })
    }

    async fn producers(&self, count: usize, one_process: bool) -> Result<Vec<OurProducer>> {
        if !one_process {
            return apart(self, count).await;
        }
        let options = ClientOptions { connections: count, ..ClientOptions::default() };
        let config: Config = self.url.parse()?;
        let client = Client::connect_with(config, NoTls, SCHEMA, options).await?;
        Ok((0..count).map(|_| OurProducer { client: client.clone() }).collect())
    }

    async fn claimers(&self, queues: usize) -> Result<Vec<OurClaimer>> {
        let client = self.client().await?;
        let mut claimers = Vec::new();
        for queue in 0..queues {
            let lane = lane(&client, queue).await?;
            claimers.push(OurClaimer { client: client.clone(), lane, window: Window::default() });
        }
        Ok(claimers)
    }

    async fn completer(&self) -> Result<OurCompleter> {
        Ok(OurCompleter { client: self.client().await? })
    }
}

impl Producer for OurProducer {
    async fn enqueue(&mut self, queue: usize, args: Vec<String>) -> Result<()> {
        self.client.enqueue_many(jobs(queue, args)?).await?;
        Ok(())
    }

    async fn copy(&mut self, queue: usize, args: Vec<String>) -> Result<()> {
        self.client.copy(jobs(queue, args)?).await?;
        Ok(())
    }
}

impl OurClaimer {
    /// The jobs themselves, for scenarios that end them otherwise.
    pub(crate) async fn claim_jobs(&mut self, limit: usize) -> Result<Vec<ClaimedJob>> {
        let window = std::mem::take(&mut self.window);
        let bytes = limits::CLAIM_BYTES_MAX;
        let claim = Claim::new(self.lane, window, limit as i64, bytes, None)?;
        match self.client.run(claim).await? {
            ClaimOutcome::Claimed { jobs, window, .. } => {
                self.window = window;
                Ok(jobs)
            }
            ClaimOutcome::Refused { refusal, .. } => {
                anyhow::bail!("a claim was refused: {refusal}")
            }
        }
    }
}

impl Claimer<Vec<ClaimedJob>> for OurClaimer {
    async fn claim(&mut self, limit: usize) -> Result<Option<(Vec<ClaimedJob>, usize)>> {
        let jobs = self.claim_jobs(limit).await?;
        let count = jobs.len();
        Ok((count > 0).then_some((jobs, count)))
    }
}

impl Completer<Vec<ClaimedJob>> for OurCompleter {
    async fn complete(&mut self, taken: Vec<ClaimedJob>) -> Result<()> {
        let count = taken.len();
        let receipts = taken.iter().map(|job| job.receipt).collect();
        let closed = self.client.run(Close::compact(receipts)).await?;
        let closed = closed.map_err(|refusal| anyhow::anyhow!("refused: {refusal}"))?;
        ensure!(closed.closed.len() == count, "{} of {count} were completed", closed.closed.len());
        Ok(())
    }
}

impl Ender<Vec<ClaimedJob>> for OurCompleter {
    async fn end(
        &mut self,
        taken: Vec<ClaimedJob>,
        fails: impl Fn(usize) -> bool + Send,
    ) -> Result<()> {
        let ended = |(nth, job)| if fails(nth) { failure(job) } else { Finished::completed(job) };
        self.finish(taken.iter().enumerate().map(ended).collect()).await
    }
}

/// An attempt that failed for good.
pub(crate) fn failure(job: &ClaimedJob) -> Finished {
    Finished::failed_for_good(job, ERROR.as_bytes())
}

impl OurCompleter {
    /// Ends attempts in any way.
    pub(crate) async fn finish(&mut self, batch: Vec<Finished>) -> Result<()> {
        let count = batch.len();
        let mut plan = Finish::new(batch);
        while let Some(close) = plan.next() {
            let did = self.client.run(close).await?;
            plan.take(did.map_err(|refusal| anyhow::anyhow!("refused: {refusal}"))?);
        }
        let closed = plan.into_outcome().closed.len();
        ensure!(closed == count, "{closed} of {count} attempts ended");
        Ok(())
    }
}
