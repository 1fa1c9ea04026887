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
use std::io::IsTerminal;

use anyhow::{Context, Result};
use indicatif::ProgressBar;

use crate::calls::Calls;
use crate::contender::{Claimer, Clocked, Completer, Contender, Ender, Producer, args};
use crate::lab::{Lab, Place};
use crate::meter::{Cost, Meter};
use crate::report::{Report, Sample};

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
    /// Of a case that takes seconds.
    pub(crate) runs: usize,
    /// What was found so far.
    pub(crate) report: Report,
    pub(crate) progress: ProgressBar,
}

impl Bench {
    /// Takes a sample and says so to who watches.
    pub(crate) fn take(&mut self, sample: Sample) {
        let rate = crate::report::short(sample.cost.rate());
        let line = format!(
            "{}: {}: {} {rate}/s, {:.1} µs server, {:.0} B WAL",
            sample.scenario,
            sample.case,
            sample.contender,
            sample.cost.each(sample.cost.server_cpu_us),
            sample.cost.each(sample.cost.wal_bytes),
        );
        // A bar that is not drawn prints nothing either.
        if std::io::stderr().is_terminal() {
            self.progress.println(line);
        } else {
            eprintln!("{line}");
        }
        self.report.samples.push(sample);
    }

    /// Runs of a case that takes minutes, most of them for what is filled before anything is measured: a third
    /// of the others' runs, rounded up.
    pub(crate) fn runs_of_long_cases(&self) -> usize {
        self.runs.div_ceil(3)
    }

    /// Says what is being done.
    pub(crate) fn say(&self, what: impl Into<String>) {
        self.progress.set_message(what.into());
        self.progress.tick();
    }
}

/// What a scenario's units and calls are, and whom Awa is beside.
pub(crate) fn note(scenario: &str) -> &'static str {
    match scenario {
        enqueue::SCENARIO => enqueue::NOTE,
        drain::SCENARIO => drain::NOTE,
        worker::SCENARIO => worker::NOTE,
        steady::SCENARIO => steady::NOTE,
        failing::SCENARIO => failing::NOTE,
        growth::SCENARIO => growth::NOTE,
        prune::SCENARIO => prune::NOTE,
        carry::SCENARIO => carry::NOTE,
        rollup::SCENARIO => rollup::NOTE,
        counts::SCENARIO => counts::NOTE,
        idle::SCENARIO => idle::NOTE,
        _ => "",
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

/// Measures [`drain`], with the times of its calls.
pub(crate) async fn drained<C: Contender>(
    lab: &Lab,
    place: &Place,
    contender: &C,
    backlog: Backlog,
) -> Result<(Cost, Calls)> {
    let (clocked, calls) = Clocked::new(contender);
    let cost = measured(lab, place, backlog.jobs, || drain(&clocked, backlog)).await?;
    Ok((cost, calls))
}

/// What lies ready, and how it is claimed.
#[derive(Clone, Copy)]
pub(crate) struct Backlog {
    /// How many are drained, of all queues.
    pub(crate) jobs: u64,
    pub(crate) queues: usize,
    /// The most of a claim.
    pub(crate) batch: usize,
}

/// Claims and completes jobs: one task claims, queue by queue, another completes.
async fn drain<C: Contender>(contender: &C, backlog: Backlog) -> Result<()> {
    let Backlog { jobs, queues, batch } = backlog;
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

/// Claims and ends the jobs of one queue, one claim after the other; one job in `fails` fails for good.
async fn end_all<C>(contender: &C, jobs: u64, batch: usize, fails: Option<u64>) -> Result<()>
where
    C: Contender,
    C::Completer: Ender<C::Taken>,
{
    let mut claimer = contender.claimers(1).await?.pop().context("a claimer was asked for")?;
    let mut completer = contender.completer().await?;
    let mut ended = 0_u64;
    while ended < jobs {
        let limit = batch.min((jobs - ended) as usize);
        let claimed = claimer.claim(limit).await?;
        let (taken, count) =
            claimed.with_context(|| format!("{ended} of {jobs} jobs were there"))?;
        let failed =
            |nth| fails.is_some_and(|every| (ended + nth as u64 + 1).is_multiple_of(every));
        completer.end(taken, failed).await?;
        ended += count as u64;
    }
    Ok(())
}
