//! Offered rates: jobs come on a schedule of their own, whatever happens to those before them, and a
//! job's time runs from when it was to be enqueued. That is what coordinated omission would hide.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use awa::{Client, Job, Worker};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::contender::{Contender, KIND, Ours, queue_name};
use crate::report::{Latency, Sample, histogram};
use crate::scenario::failing::hold;
use crate::scenario::{Bench, measured};

const SCENARIO: &str = "steady";
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

/// Times of one kind, from many tasks.
#[derive(Clone)]
struct Times(Arc<Mutex<Histogram<u64>>>);

impl Times {
    fn new() -> Self {
        Self(Arc::new(Mutex::new(histogram())))
    }

    fn record(&self, micros: u64) {
        let mut times = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        times.saturating_record(micros);
    }

    fn latency(&self) -> Latency {
        Latency::of(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

pub(crate) async fn run(bench: &mut Bench) -> Result<()> {
    for case in CASES {
        for _ in 0..bench.runs {
            one(bench, case).await?;
        }
    }
    Ok(())
}

async fn one(bench: &mut Bench, case: Case) -> Result<()> {
    bench.say(format!("{SCENARIO}: {}", case.name));
    let place = bench.lab.place().await?;
    let contender = Ours::install(&place, 1).await?;
    if case.held > 0 {
        hold(&contender, case.held).await?;
    }
    let pin = if case.pinned { Some(place.pin().await?) } else { None };
    let ticks = (SPAN.as_micros() / case.tick.as_micros()) as u64;
    let jobs = ticks * case.batch;
    let (picked_up, enqueued) = (Times::new(), Times::new());
    let cost = measured(&bench.lab, &place, jobs, || {
        let (picked_up, enqueued) = (picked_up.clone(), enqueued.clone());
        let contender = &contender;
        async move {
            let (worker, offered) = (contender.client().await?, contender.client().await?);
            let begun = Instant::now();
            let worker = work(worker, begun, picked_up).await?;
            offer(&offered, case, ticks, begun, enqueued).await?;
            let mut watch = worker.watch();
            watch.wait_for(|stats| stats.completed >= jobs).await.context("the worker ended")?;
            worker.shutdown(Duration::from_secs(10)).await?;
            Ok(())
        }
    })
    .await?;
    drop(pin);
    let sample = Sample::new(SCENARIO, case.name, Ours::NAME, cost)
        .with_latency(picked_up.latency())
        .with("enqueue p50 ms", enqueued.latency().p50)
        .with("enqueue p99 ms", enqueued.latency().p99);
    bench.take(sample);
    bench.lab.clear(place).await
}

/// Works the queue and records, for each job, how long after its due time its handler began.
async fn work(client: Client, begun: Instant, picked_up: Times) -> Result<awa::Working> {
    let worker = Worker::new(client)
        .queue(&queue_name(0), CONCURRENCY)?
        .handler(KIND, move |_attempt, due: Due| {
            let now = begun.elapsed().as_micros() as u64;
            picked_up.record(now.saturating_sub(due.at));
            async { Ok(()) }
        })
        .start()
        .await?;
    Ok(worker)
}

/// Starts a transaction each tick, whether or not those before it have ended.
async fn offer(
    client: &Client,
    case: Case,
    ticks: u64,
    begun: Instant,
    enqueued: Times,
) -> Result<()> {
    // The worker's first claims have to do with a new connection, not with the rate.
    let first = begun + Duration::from_millis(500);
    let mut under_way = JoinSet::new();
    for tick in 0..ticks {
        let due = first + case.tick * tick as u32;
        tokio::time::sleep_until(due).await;
        let at = (due - begun).as_micros() as u64;
        let client = client.clone();
        let enqueued = enqueued.clone();
        under_way.spawn(async move {
            let job = || Ok(Job::new(KIND, &Due { at })?.queue(&queue_name(0))?);
            let jobs = (0..case.batch).map(|_| job()).collect::<Result<Vec<_>>>()?;
            client.enqueue_many(jobs).await?;
            enqueued.record((begun.elapsed().as_micros() as u64).saturating_sub(at));
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
