//! The worker runtime with handlers that do nothing, beside the baselines drained by hand.

use anyhow::{Context, Result};
use awa::Worker;

use crate::calls::Call;
use crate::contender::{Contender, Floor, Ours, Plain, queue_name};
use crate::report::Sample;
use crate::scenario::{Backlog, Bench, SMALL, drained, fill, measured};

pub(crate) const SCENARIO: &str = "worker";
pub(crate) const NOTE: &str = "the worker makes its calls itself, and none of them is timed. The baselines are \
    drained by hand: a call is one claim of 512.";
/// Jobs of a queue that run at a time: few, and more than a claim brings.
const CONCURRENCIES: [u32; 2] = [64, 1_024];
/// How the baselines are drained: as large as the worker's own claims.
const BATCH: usize = 512;

pub(crate) async fn run(bench: &mut Bench) -> Result<()> {
    for concurrency in CONCURRENCIES {
        for _ in 0..bench.runs {
            ours(bench, concurrency).await?;
            baseline::<Plain>(bench, concurrency).await?;
            baseline::<Floor>(bench, concurrency).await?;
        }
    }
    Ok(())
}

fn case(concurrency: u32) -> String {
    format!("no-op handlers, concurrency {concurrency}")
}

async fn ours(bench: &mut Bench, concurrency: u32) -> Result<()> {
    bench.say(format!("{SCENARIO}: {}", case(concurrency)));
    let place = bench.lab.place().await?;
    let contender = Ours::install(&place, 1).await?;
    fill(&contender, 1, bench.jobs, SMALL).await?;
    let jobs = bench.jobs;
    let cost = measured(&bench.lab, &place, jobs, || async {
        let worker = Worker::new(contender.client().await?)
            .queue(&queue_name(0), concurrency)?
            .fallback(|_attempt| async { Ok(()) })
            .start()
            .await?;
        let mut watch = worker.watch();
        watch.wait_for(|stats| stats.completed >= jobs).await.context("the worker ended")?;
        let stats = worker.shutdown(std::time::Duration::from_secs(10)).await?;
        anyhow::ensure!(stats.completed == jobs, "{stats:?}");
        Ok(())
    })
    .await?;
    bench.take(Sample::new(SCENARIO, case(concurrency), Ours::NAME, cost));
    bench.lab.clear(place).await
}

async fn baseline<C: Contender>(bench: &mut Bench, concurrency: u32) -> Result<()> {
    bench.say(format!("{SCENARIO}: {}: {}", case(concurrency), C::NAME));
    let place = bench.lab.place().await?;
    let contender = C::install(&place, 1).await?;
    fill(&contender, 1, bench.jobs, SMALL).await?;
    C::settle(&place).await?;
    let backlog = Backlog { jobs: bench.jobs, queues: 1, batch: BATCH };
    let (cost, calls) = drained(&bench.lab, &place, &contender, backlog).await?;
    let sample = Sample::new(SCENARIO, case(concurrency), C::NAME, cost);
    bench.take(sample.with_calls(Call::Claim, &calls));
    bench.lab.clear(place).await
}
