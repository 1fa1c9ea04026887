//! Terminal rows as the engine itself writes them: by COPY, claims and completions.

use anyhow::{Context, Result, bail, ensure};
use awa::core::machine::close::Finished;
use awa::{Client, Job, PruneOutcome, Ring, RotateOutcome, limits};
use std::time::Duration;

use crate::contender::{Contender, KIND, Ours, args, failure, queue_name};
use crate::scenario::{FILL_ROWS, SMALL};

/// Claims and ends jobs of one queue after another, on connections that stay.
pub(crate) struct Ending {
    claimers: Vec<<Ours as Contender>::Claimer>,
    completer: <Ours as Contender>::Completer,
}

impl Ending {
    pub(crate) async fn of(ours: &Ours, queues: usize) -> Result<Self> {
        Ok(Self { claimers: ours.claimers(queues).await?, completer: ours.completer().await? })
    }

    /// Claims `jobs` jobs that lie ready in a queue, 4096 at a time, and ends them. `failures` of them fail for
    /// good, spread evenly; the others succeed on the compact path.
    pub(crate) async fn end(&mut self, queue: usize, jobs: u64, failures: u64) -> Result<()> {
        ensure!(failures <= jobs, "{failures} of {jobs} jobs can't fail");
        let claimer = self.claimers.get_mut(queue).context("the queue has a claimer")?;
        let mut done = 0;
        while done < jobs {
            let limit = u64::from(limits::CLAIM_ROWS_MAX).min(jobs - done) as usize;
            let claimed = claimer.claim_jobs(limit).await?;
            ensure!(!claimed.is_empty(), "only {done} of {jobs} jobs lay ready");
            let batch = claimed.iter().enumerate().map(|(nth, job)| {
                let number = done + nth as u64;
                let failed = (number + 1) * failures / jobs > number * failures / jobs;
                if failed { failure(job) } else { Finished::completed(job) }
            });
            self.completer.finish(batch.collect()).await?;
            done += claimed.len() as u64;
        }
        Ok(())
    }
}

/// Appends `jobs` jobs by COPY. They go to the queues in turn, one by one: each queue's positions have gaps
/// where the other queues' jobs lie.
pub(crate) async fn interleave(client: &Client, queues: usize, jobs: u64) -> Result<()> {
    let mut filled = 0;
    while filled < jobs {
        let rows = FILL_ROWS.min(jobs - filled);
        let batch = (filled..filled + rows).map(|n| {
            let queue = queue_name(n as usize % queues);
            Ok(Job::from_json(KIND, args(SMALL, n))?.queue(&queue)?)
        });
        client.copy(batch.collect::<Result<Vec<_>>>()?).await?;
        filled += rows;
    }
    Ok(())
}

/// Seals the open slot of a ring and opens the next; gives `false` where the ring is full.
pub(crate) async fn rotate(client: &Client, ring: Ring) -> Result<bool> {
    match client.rotate(ring).await? {
        RotateOutcome::Rotated { .. } => Ok(true),
        RotateOutcome::RingFull { .. } => Ok(false),
        RotateOutcome::AlreadyRotated { .. } => bail!("somebody else rotates the {ring} ring"),
    }
}

/// What maintenance does to the claim ring all the time: claims that are closed are forgotten.
pub(crate) async fn forget_claims(client: &Client) -> Result<()> {
    ensure!(rotate(client, Ring::Claim).await?, "the claim ring is full");
    match client.prune(Ring::Claim, None, Duration::ZERO).await? {
        PruneOutcome::Pruned { .. } => Ok(()),
        other => bail!("{other}"),
    }
}
