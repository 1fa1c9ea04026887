//! The questions. Each is asked of all contenders in turn, run by run, so that a noisy minute hits all.

pub(crate) mod carry;
pub(crate) mod counts;
pub(crate) mod drain;
pub(crate) mod enqueue;
pub(crate) mod failing;
pub(crate) mod growth;
mod history;
pub(crate) mod idle;
pub(crate) mod prune;
pub(crate) mod rollup;
pub(crate) mod steady;
pub(crate) mod worker;

use std::future::Future;

use anyhow::Result;
use indicatif::ProgressBar;

use crate::contender::{Claimer, Completer, Contender, Producer, args};
use crate::lab::{Lab, Place};
use crate::meter::{Cost, Meter};
use crate::report::Sample;

/// Args of a small job, as in the budgets.
pub(crate) const SMALL: usize = 28;
/// Rows of one COPY when a queue is filled.
const FILL_ROWS: u64 = 10_000;
/// Claims that may wait for their completion.
const PIPELINE: usize = 4;

/// A run under way: the server, how much is asked, what was found.
pub(crate) struct Bench {
    pub(crate) lab: Lab,
    pub(crate) jobs: u64,
    pub(crate) runs: usize,
    pub(crate) samples: Vec<Sample>,
    pub(crate) progress: ProgressBar,
}

impl Bench {
    /// Takes a sample and says so to who watches.
    pub(crate) fn take(&mut self, sample: Sample) {
        let rate = crate::report::short(sample.cost.rate());
        self.progress.println(format!(
            "{}: {}: {} {rate}/s, {:.1} µs server, {:.0} B WAL",
            sample.scenario,
            sample.case,
            sample.contender,
            sample.cost.each(sample.cost.server_cpu_us),
            sample.cost.each(sample.cost.wal_bytes),
        ));
        self.samples.push(sample);
    }

    /// Says what is being done.
    pub(crate) fn say(&self, what: impl Into<String>) {
        self.progress.set_message(what.into());
        self.progress.tick();
    }
}

/// Measures `work`. Whatever connects to the place must be gone when it returns.
pub(crate) async fn measured<F, Fut>(lab: &Lab, place: &Place, jobs: u64, work: F) -> Result<Cost>
where
    F: FnOnce() -> Fut,
    Fut: Future<Output = Result<()>>,
{
    let meter = Meter::start(lab, place).await?;
    let done = work().await;
    let stopped = meter.stop(lab)?;
    done?;
    stopped.read(lab, place, jobs).await
}

/// Appends `jobs` jobs to each queue.
pub(crate) async fn fill<C: Contender>(
    contender: &C,
    queues: usize,
    jobs: u64,
    bytes: usize,
) -> Result<()> {
    let mut producer = contender.producer().await?;
    for queue in 0..queues {
        let mut filled = 0;
        while filled < jobs {
            let rows = FILL_ROWS.min(jobs - filled);
            let batch = (filled..filled + rows).map(|n| args(bytes, n)).collect();
            producer.copy(queue, batch).await?;
            filled += rows;
        }
    }
    Ok(())
}

/// Claims and completes up to `jobs` jobs: one task claims, queue by queue, another completes.
pub(crate) async fn drain<C: Contender>(
    contender: &C,
    queues: usize,
    batch: usize,
    jobs: u64,
) -> Result<()> {
    let mut claimers = contender.claimers(queues).await?;
    let mut completer = contender.completer().await?;
    let (claimed, mut waiting) = tokio::sync::mpsc::channel(PIPELINE);
    let completing = tokio::spawn(async move {
        while let Some(taken) = waiting.recv().await {
            completer.complete(taken).await?;
        }
        anyhow::Ok(())
    });
    let mut done = 0;
    'all: while !claimers.is_empty() {
        let mut place = 0;
        while place < claimers.len() {
            let limit = batch.min((jobs - done) as usize);
            match claimers[place].claim(limit).await? {
                Some((taken, count)) => {
                    done += count as u64;
                    if claimed.send(taken).await.is_err() {
                        break 'all;
                    }
                    place += 1;
                }
                None => drop(claimers.swap_remove(place)),
            }
            if done >= jobs {
                break 'all;
            }
        }
    }
    drop((claimed, claimers));
    completing.await??;
    anyhow::ensure!(done == jobs, "{done} of {jobs} jobs were drained");
    Ok(())
}
