//! Offered rates: jobs come on a schedule of their own, whatever happens to those before them, and a
//! job's time runs from when it was to be enqueued. That is what coordinated omission would hide.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use awa::{Client, ClientOptions, Job, Worker};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::calls::Times;
use crate::contender::{Contender, KIND, Ours, Plain, PlainWorker, queue_name};
use crate::meter::Cost;
use crate::report::Sample;
use crate::scenario::failing::hold;
use crate::scenario::{Bench, measured};

pub(crate) const SCENARIO: &str = "steady";
pub(crate) const NOTE: &str = "a call is a job's way from when it was to be enqueued to where its handler begins. The plain table's worker claims \
    up to 512, completes them in one update and waits by LISTEN; its producers NOTIFY in their transaction.";
const SPAN: Duration = Duration::from_secs(10);
const CONCURRENCY: u32 = 1_024;
const HELD: u64 = 100_000;

#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    /// Jobs of a tick, which is one transaction.
    batch: u64,
    tick: Duration,
    pinned: bool,
    held: u64,
}

const TICK_SLOW: Duration = Duration::from_millis(2);
const TICK_FAST: Duration = Duration::from_millis(10);

const CASES: [Case; 4] = [
    Case { name: "500/s, one a transaction", batch: 1, tick: TICK_SLOW, pinned: false, held: 0 },
    Case {
        name: "10,000/s, 100 a transaction",
        batch: 100,
        tick: TICK_FAST,
        pinned: false,
        held: 0,
    },
    Case {
        name: "10,000/s, 100 a transaction, a snapshot pinned",
        batch: 100,
        tick: TICK_FAST,
        pinned: true,
        held: 0,
    },
    Case {
        name: "10,000/s, 100 a transaction, 100,000 failures held",
        batch: 100,
        tick: TICK_FAST,
        pinned: false,
        held: HELD,
    },
];

/// When the job was to be enqueued, in microseconds since the run's begin.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Due {
    at: u64,
}

pub(crate) async fn run(bench: &mut Bench) -> Result<()> {
    for case in CASES {
        for _ in 0..bench.runs {
            ours(bench, case).await?;
            // What a plain table holds of failures is not what Awa carries.
            if case.held == 0 {
                plain(bench, case).await?;
            }
        }
    }
    Ok(())
}

/// One run's offer, and what became of it.
#[derive(Clone)]
struct Offer {
    case: Case,
    ticks: u64,
    /// From when a job was to be enqueued to where its handler began.
    picked_up: Times,
    /// From when a job was to be enqueued to the COMMIT.
    enqueued: Times,
}

impl Offer {
    fn of(case: Case) -> Self {
        let ticks = (SPAN.as_micros() / case.tick.as_micros()) as u64;
        Self { case, ticks, picked_up: Times::new(), enqueued: Times::new() }
    }

    fn jobs(&self) -> u64 {
        self.ticks * self.case.batch
    }

    /// A handler begins now.
    fn pick_up(&self, begun: Instant, due: Due) {
        self.picked_up.record(begun.elapsed().saturating_sub(Duration::from_micros(due.at)));
    }

    /// Starts a transaction each tick, whether or not those before it have ended. `send` is told which tick
    /// it is.
    async fn make<F, Fut>(&self, begun: Instant, send: F) -> Result<()>
    where
        F: Fn(u64, Due) -> Fut,
        Fut: Future<Output = Result<()>> + Send + 'static,
    {
        // The worker's first claims have to do with a new connection, not with the rate.
        let first = begun + Duration::from_millis(500);
        let mut under_way = JoinSet::new();
        for tick in 0..self.ticks {
            let due = first + self.case.tick * tick as u32;
            tokio::time::sleep_until(due).await;
            let sent = send(tick, Due { at: (due - begun).as_micros() as u64 });
            let enqueued = self.enqueued.clone();
            under_way.spawn(async move {
                sent.await?;
                enqueued.record(due.elapsed());
                anyhow::Ok(())
            });
            while let Some(done) = under_way.try_join_next() {
                done??;
            }
        }
        while let Some(done) = under_way.join_next().await {
            done??;
        }
        Ok(())
    }

    fn sample(&self, contender: &str, cost: Cost) -> Sample {
        let mut sample = Sample::new(SCENARIO, self.case.name, contender, cost)
            .with_latency(self.picked_up.latency());
        if let Some(enqueued) = self.enqueued.latency() {
            sample = sample
                .with("enqueue p50 ms", enqueued.p50)
                .with("enqueue p99 ms", enqueued.p99)
                .with("enqueue p99.9 ms", enqueued.p999);
        }
        sample
    }
}

async fn ours(bench: &mut Bench, case: Case) -> Result<()> {
    bench.say(format!("{SCENARIO}: {}: {}", case.name, Ours::NAME));
    let place = bench.lab.place().await?;
    let contender = Ours::install(&place, 1).await?;
    if case.held > 0 {
        hold(&contender, case.held).await?;
    }
    let pin = if case.pinned { Some(place.pin().await?) } else { None };
    let offer = Offer::of(case);
    let jobs = offer.jobs();
    let cost = measured(&bench.lab, &place, jobs, || async {
        let (worker, client) = (contender.client().await?, contender.client().await?);
        let begun = Instant::now();
        let worker = work(worker, begun, offer.clone()).await?;
        offer.make(begun, |_tick, due| enqueue(client.clone(), case.batch, due)).await?;
        let mut watch = worker.watch();
        watch.wait_for(|stats| stats.completed >= jobs).await.context("the worker ended")?;
        worker.shutdown(Duration::from_secs(10)).await?;
        Ok(())
    })
    .await?;
    drop(pin);
    bench.take(offer.sample(Ours::NAME, cost));
    bench.lab.clear(place).await
}

async fn enqueue(client: Client, jobs: u64, due: Due) -> Result<()> {
    let job = || Ok(Job::new(KIND, &due)?.queue(&queue_name(0))?);
    client.enqueue_many((0..jobs).map(|_| job()).collect::<Result<Vec<_>>>()?).await?;
    Ok(())
}

/// Works the queue and records, for each job, how long after its due time its handler began.
async fn work(client: Client, begun: Instant, offer: Offer) -> Result<awa::Working> {
    let worker = Worker::new(client)
        .queue(&queue_name(0), CONCURRENCY)?
        .handler(KIND, move |_attempt, due: Due| {
            offer.pick_up(begun, due);
            async { Ok(()) }
        })
        .start()
        .await?;
    Ok(worker)
}

async fn plain(bench: &mut Bench, case: Case) -> Result<()> {
    bench.say(format!("{SCENARIO}: {}: {}", case.name, Plain::NAME));
    let place = bench.lab.place().await?;
    let contender = Plain::install(&place, 1).await?;
    let pin = if case.pinned { Some(place.pin().await?) } else { None };
    let offer = Offer::of(case);
    let jobs = offer.jobs();
    let cost = measured(&bench.lab, &place, jobs, || async {
        let worker = PlainWorker::of(&contender).await?;
        // As many as Awa's client has.
        let producers = contender.notifying(ClientOptions::default().connections).await?;
        let begun = Instant::now();
        let worked = offer.clone();
        let working = tokio::spawn(worker.work(jobs, move |args| {
            worked.pick_up(begun, serde_json::from_str(args)?);
            Ok(())
        }));
        let send = |tick, due| {
            let producer = Arc::clone(&producers[tick as usize % producers.len()]);
            async move {
                let args = serde_json::to_string(&due)?;
                producer.enqueue(vec![args; case.batch as usize]).await
            }
        };
        offer.make(begun, send).await?;
        working.await?
    })
    .await?;
    drop(pin);
    bench.take(offer.sample(Plain::NAME, cost));
    bench.lab.clear(place).await
}
