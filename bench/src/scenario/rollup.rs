//! Folding a sealed slot's pending deltas into the counters. Readers of counts wait while the fold holds the
//! slot's deltas exclusively.

use anyhow::{Result, bail, ensure};
use awa::core::ClaimedJob;
use awa::core::machine::rollup::{Rollup, RollupOutcome};
use awa::{Ring, Slot, limits};

use crate::contender::{Contender, Ours, failure};
use crate::lab::Place;
use crate::report::{Sample, short};
use crate::scenario::history::{forget_claims, rotate};
use crate::scenario::{Bench, SMALL, fill, measured};
use crate::timed::{Watched, ms, watched};

pub(crate) const SCENARIO: &str = "rollup";
pub(crate) const NOTE: &str = "units are deltas; a call is one run of the machine. Awa's own housekeeping: no baseline has it.";

/// So many deltas are written by flushes that fail so many jobs of each of so many queues: each flush writes
/// one for each lane and bucket that it meets, and the buckets of consecutive jobs differ.
#[derive(Clone, Copy)]
struct Case {
    deltas: u64,
    queues: usize,
    /// At most as many as there are buckets.
    jobs_of_each: u64,
}

const CASES: [Case; 3] = [
    Case { deltas: 1, queues: 1, jobs_of_each: 1 },
    Case { deltas: 1_000, queues: 1, jobs_of_each: BUCKETS },
    Case { deltas: 100_000, queues: 50, jobs_of_each: BUCKETS },
];
const BUCKETS: u64 = limits::COUNTER_BUCKETS as u64;

pub(crate) async fn run(bench: &mut Bench) -> Result<()> {
    for case in CASES {
        for _ in 0..bench.runs_of_long_cases() {
            one(bench, case).await?;
        }
    }
    Ok(())
}

async fn one(bench: &mut Bench, case: Case) -> Result<()> {
    let (deltas, queues) = (short(case.deltas as f64), case.queues);
    let name =
        format!("{deltas} deltas, {queues} {}", if queues == 1 { "queue" } else { "queues" });
    bench.say(format!("{SCENARIO}: {name}"));
    let place = bench.lab.place().await?;
    let ours = Ours::install(&place, queues).await?;
    append(&ours, case).await?;
    let mut folded = None;
    let cost = measured(&bench.lab, &place, case.deltas, || async {
        folded = Some(roll_up(&place, &ours, case.deltas).await?);
        Ok(())
    })
    .await?;
    let mut sample = Sample::new(SCENARIO, name, Ours::NAME, cost);
    if let Some(folded) = folded {
        sample = sample
            .with_latency(folded.times.latency())
            .with("total ms", ms(folded.times.total()))
            .with("exclusive ms", ms(folded.waited));
    }
    bench.take(sample);
    bench.lab.clear(place).await
}

/// Fails as many jobs as there are to be deltas, and seals the slot.
async fn append(ours: &Ours, case: Case) -> Result<()> {
    let client = ours.client().await?;
    let each = case.deltas / case.queues as u64;
    // A queue's jobs take positions in a row: eight of them have eight buckets.
    fill(ours, case.queues, each, SMALL).await?;
    let mut waiting = Vec::new();
    for mut claimer in ours.claimers(case.queues).await? {
        let mut claimed = Vec::new();
        while (claimed.len() as u64) < each {
            claimed.extend(claimer.claim_jobs(usize::from(limits::CLAIM_ROWS_MAX)).await?);
        }
        waiting.push(claimed);
    }
    let mut completer = ours.completer().await?;
    let chunks = |jobs: &Vec<ClaimedJob>| jobs.chunks(case.jobs_of_each as usize).count();
    for flush in 0..waiting.first().map_or(0, chunks) {
        let jobs = waiting.iter().filter_map(|of| of.chunks(case.jobs_of_each as usize).nth(flush));
        completer.finish(jobs.flatten().map(failure).collect()).await?;
    }
    rotate(&client, Ring::Queue).await?;
    forget_claims(&client).await
}

async fn roll_up(place: &Place, ours: &Ours, deltas: u64) -> Result<Watched<()>> {
    let client = ours.client().await?;
    let excluded = ("ExcludeDeltas", "queue_terminal_count_deltas_0");
    let Watched { outcome, times, waited } =
        watched(place, &client, Rollup::new(Slot(0)), excluded).await?;
    match outcome.map_err(|refusal| anyhow::anyhow!("refused: {refusal}"))? {
        RollupOutcome::Folded { rows, sum, .. } => {
            ensure!(
                rows == deltas as i64,
                "{rows} deltas were pending, of {sum} jobs, not {deltas}"
            );
            Ok(Watched { outcome: (), times, waited })
        }
        other => bail!("{other:?}"),
    }
}
