//! The operations that the gate measures.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use awa::core::machine::claim::{Claim, ClaimOutcome};
use awa::core::machine::close::{Finish, Finished};
use awa::core::machine::enqueue::{EnqueueAll, EnqueueCopy};
use awa::core::machine::poll::PollLanes;
use awa::core::machine::prune::{Prune, PruneOutcome};
use awa::core::machine::read::CountQueue;
use awa::core::machine::rotate::Rotate;
use awa::core::rules::Floor;
use awa::core::{ClaimedJob, Kind, LaneId, NewJob, QueueName, Window};
use awa::{Ring, limits};

use super::{Observer, Toll};
use crate::contender::{Contender, KIND, Ours, args, lane, queue_name};
use crate::lab::Lab;
use crate::scenario::SMALL;

/// Jobs of a batch, and what a COPY holds.
const BATCH: u64 = 512;
const COPIED: u64 = 10_000;
/// How often an operation is repeated: enough that what comes once in a while shows as its share.
const TIMES: u64 = 32;

/// All of them, in the order of a job's life.
pub(super) async fn all(lab: &Lab) -> Result<Vec<(String, Toll)>> {
    let place = lab.place().await?;
    place.sql.batch_execute("create extension pg_stat_statements").await?;
    let contender = Ours::install(&place, 1).await?;
    let client = contender.client().await?;
    let lane = lane(&client, 0).await?;
    let mut bench = Gate {
        observer: Observer::new(&place, client).await?,
        lane,
        window: Window::default(),
        taken: Vec::new(),
    };
    bench.ways_in().await?;
    bench.life("1", 1).await?;
    bench.life("512", BATCH).await?;
    bench.failures().await?;
    bench.looking().await?;
    bench.prune().await?;
    let taken = std::mem::take(&mut bench.taken);
    drop((bench, contender));
    lab.clear(place).await?;
    Ok(taken)
}

struct Gate<'a> {
    observer: Observer<'a>,
    lane: LaneId,
    window: Window,
    taken: Vec<(String, Toll)>,
}

impl Gate<'_> {
    fn jobs(&self, count: u64) -> Result<Vec<NewJob>> {
        let attempts = i64::from(limits::ATTEMPTS_DEFAULT);
        let job = |n| Ok(NewJob::new(self.lane, Kind::new(KIND)?, args(SMALL, n), attempts, None)?);
        (0..count).map(job).collect()
    }

    async fn enqueue(&self, count: u64) -> Result<()> {
        let jobs = self.jobs(count)?;
        let done = self.observer.run(EnqueueAll::new(jobs, Vec::new())?).await?;
        done.map(|_| ()).map_err(|refusal| anyhow::anyhow!("refused: {refusal}"))
    }

    async fn claim(&mut self, limit: u64) -> Result<Vec<ClaimedJob>> {
        let window = std::mem::take(&mut self.window);
        let bytes = limits::CLAIM_BYTES_MAX;
        let claim = Claim::new(self.lane, window, limit as i64, bytes, None)?;
        match self.observer.run(claim).await? {
            ClaimOutcome::Claimed { jobs, window, .. } => {
                self.window = window;
                Ok(jobs)
            }
            ClaimOutcome::Refused { refusal, .. } => anyhow::bail!("refused: {refusal}"),
        }
    }

    async fn finish(&self, batch: Vec<Finished>) -> Result<()> {
        let mut plan = Finish::new(batch);
        while let Some(close) = plan.next() {
            let did = self.observer.run(close).await?;
            plan.take(did.map_err(|refusal| anyhow::anyhow!("refused: {refusal}"))?);
        }
        ensure!(plan.into_outcome().stale.is_empty(), "an attempt was not open");
        Ok(())
    }

    fn record(&mut self, name: impl Into<String>, toll: Toll) {
        self.taken.push((name.into(), toll));
    }

    /// The first of each kind prepares its statement and grows what it writes to; it is not counted.
    async fn ways_in(&mut self) -> Result<()> {
        for (name, count) in [("enqueue 1", 1), ("enqueue 512", BATCH)] {
            self.enqueue(count).await?;
            let before = self.observer.begin().await?;
            for _ in 0..TIMES {
                self.enqueue(count).await?;
            }
            let toll = self.observer.end(before, TIMES, TIMES * count).await?;
            self.record(name, toll);
        }
        let before = self.observer.begin().await?;
        let jobs = self.jobs(COPIED)?;
        let done = self.observer.run(EnqueueCopy::new(jobs)?).await?;
        done.map_err(|refusal| anyhow::anyhow!("refused: {refusal}"))?;
        let toll = self.observer.end(before, 1, COPIED).await?;
        self.record("copy 10000", toll);
        Ok(())
    }

    async fn life(&mut self, size: &str, limit: u64) -> Result<()> {
        self.fill((TIMES + 1) * limit).await?;
        let first = self.claim(limit).await?;
        self.finish(first.iter().map(Finished::completed).collect()).await?;
        let before = self.observer.begin().await?;
        let mut claims = Vec::new();
        for _ in 0..TIMES {
            claims.push(self.claim(limit).await?);
        }
        ensure!(claims.iter().all(|jobs| jobs.len() as u64 == limit), "a claim came short");
        let toll = self.observer.end(before, TIMES, TIMES * limit).await?;
        self.record(format!("claim {size}"), toll);

        let before = self.observer.begin().await?;
        for jobs in &claims {
            self.finish(jobs.iter().map(Finished::completed).collect()).await?;
        }
        let toll = self.observer.end(before, TIMES, TIMES * limit).await?;
        self.record(format!("complete {size}"), toll);
        Ok(())
    }

    async fn fill(&self, count: u64) -> Result<()> {
        let mut filled = 0;
        while filled < count {
            let rows = COPIED.min(count - filled);
            let done = self.observer.run(EnqueueCopy::new(self.jobs(rows)?)?).await?;
            done.map_err(|refusal| anyhow::anyhow!("refused: {refusal}"))?;
            filled += rows;
        }
        Ok(())
    }

    async fn failures(&mut self) -> Result<()> {
        const FAILED: u64 = 8;
        self.fill((FAILED + 1) * BATCH).await?;
        let fail = |job: &ClaimedJob| Finished::failed_for_good(job, b"the far end said no");
        let first = self.claim(BATCH).await?;
        self.finish(first.iter().map(fail).collect()).await?;
        let mut claims = Vec::new();
        for _ in 0..FAILED {
            claims.push(self.claim(BATCH).await?);
        }
        let before = self.observer.begin().await?;
        for jobs in &claims {
            self.finish(jobs.iter().map(fail).collect()).await?;
        }
        let toll = self.observer.end(before, FAILED, FAILED * BATCH).await?;
        self.record("fail 512", toll);
        Ok(())
    }

    /// What changes nothing: the figures a job are those of one operation.
    async fn looking(&mut self) -> Result<()> {
        loop {
            let left = self.claim(BATCH).await?;
            if left.is_empty() {
                break;
            }
            self.finish(left.iter().map(Finished::completed).collect()).await?;
        }
        let before = self.observer.begin().await?;
        for _ in 0..TIMES {
            ensure!(self.claim(BATCH).await?.is_empty(), "the lane is empty");
        }
        let toll = self.observer.end(before, TIMES, TIMES).await?;
        self.record("claim of an empty lane", toll);

        let poll = PollLanes { lanes: vec![(self.lane, self.window.clone())] };
        self.observer.run(poll.clone()).await?.map_err(|refusal| anyhow::anyhow!("{refusal}"))?;
        let before = self.observer.begin().await?;
        for _ in 0..TIMES {
            let polled = self.observer.run(poll.clone()).await?;
            polled.map_err(|refusal| anyhow::anyhow!("refused: {refusal}"))?;
        }
        let toll = self.observer.end(before, TIMES, TIMES).await?;
        self.record("poll of an empty lane", toll);

        let count = CountQueue { queue: QueueName::new(&queue_name(0))? };
        self.observer.run(count.clone()).await?.map_err(|refusal| anyhow::anyhow!("{refusal}"))?;
        let before = self.observer.begin().await?;
        for _ in 0..TIMES {
            let counted = self.observer.run(count.clone()).await?;
            counted.map_err(|refusal| anyhow::anyhow!("refused: {refusal}"))?;
        }
        let toll = self.observer.end(before, TIMES, TIMES).await?;
        self.record("exact counts", toll);
        Ok(())
    }

    /// The figures a job are those of a row that is carried.
    async fn prune(&mut self) -> Result<()> {
        let before = self.observer.begin().await?;
        let rotated = self.observer.run(Rotate::ring(Ring::Queue)).await?;
        rotated.map_err(|refusal| anyhow::anyhow!("refused: {refusal}"))?;
        let toll = self.observer.end(before, 1, 1).await?;
        self.record("rotate", toll);

        let floor = Floor::new(Duration::from_secs(3600).into());
        let before = self.observer.begin().await?;
        let pruned = self.observer.run(Prune::oldest(Ring::Queue, floor)).await?;
        let pruned = pruned.map_err(|refusal| anyhow::anyhow!("refused: {refusal}"))?;
        let PruneOutcome::Pruned { carried_failed_rows: carried, .. } = pruned else {
            anyhow::bail!("{pruned}");
        };
        let carried = u64::try_from(carried).context("a count of rows")?;
        ensure!(carried > 0, "nothing was carried");
        let toll = self.observer.end(before, 1, carried).await?;
        self.record("prune, by carried row", toll);
        Ok(())
    }
}
