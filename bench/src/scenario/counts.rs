//! Exact counts of a queue while jobs flow through it, against how many terminal rows are retained; and with
//! other queues' jobs between this queue's, so that its evidence has gaps.
//!
//! Processor time is that of the session that counts and of processes that it started, and nobody else's.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use awa::tokio_postgres::{self, Statement};
use awa::{Client, Ring};

use crate::calls::Times;
use crate::contender::{
    Claimer, Completer, Contender, Ours, Plain, Producer, SCHEMA, args, queue_name,
};
use crate::lab::{Place, connect};
use crate::meter::{Cost, ended, on_cpu};
use crate::report::{Sample, short};
use crate::scenario::history::{Ending, forget_claims, interleave, rotate};
use crate::scenario::{Bench, SMALL};

pub(crate) const SCENARIO: &str = "counts";
pub(crate) const NOTE: &str =
    "units and calls are exact counts of one queue. The floor keeps no state to count.";
/// Terminal rows that are retained.
const RETAINED: [u64; 4] = [10_000, 100_000, 1_000_000, 5_000_000];
/// Writing that history takes long: one run must do.
const LARGE: u64 = 5_000_000;
/// Queues whose jobs alternate, and the terminal rows of all of them.
const ALTERNATING: [(usize, u64); 3] = [(2, 1_000_000), (64, 1_000_000), (2, LARGE)];
/// Jobs that come before the next claims, where they are claimed as they come.
const COMING: u64 = 1_024;
/// Calls of a sample, unless they take too long.
const CALLS: u64 = 300;
const PATIENCE: Duration = Duration::from_secs(20);
/// Between two calls: counting is not all that the server does.
const PAUSE: Duration = Duration::from_millis(20);
/// Jobs flow at 500 a second.
const FLOW_BATCH: u64 = 50;
const FLOW_EVERY: Duration = Duration::from_millis(100);
/// Segments of history, and the least rows of one.
const SEGMENTS: u64 = 12;
const SEGMENT_MIN: u64 = 100_000;
const HISTORY: &str = include_str!("../../sql/plain/history.sql");
const COUNT: &str = include_str!("../../sql/plain/count.sql");
/// How the session that counts is found among the server's.
const COUNTING: &str = "counting";

/// Counts the first queue's jobs.
trait Counter: Sized {
    /// On a connection of its own.
    async fn open(place: &Place) -> Result<Self>;
    /// Gives the completed ones.
    async fn completed(&self) -> Result<i64>;
}

struct OurCounter(Client);
struct PlainCounter(tokio_postgres::Client, Statement);

impl Counter for OurCounter {
    async fn open(place: &Place) -> Result<Self> {
        Ok(Self(Client::connect(&counting(place), SCHEMA).await?))
    }

    async fn completed(&self) -> Result<i64> {
        Ok(self.0.counts(&queue_name(0)).await?.completed)
    }
}

impl Counter for PlainCounter {
    async fn open(place: &Place) -> Result<Self> {
        let sql = connect(&counting(place)).await?;
        let count = sql.prepare(COUNT).await?;
        Ok(Self(sql, count))
    }

    async fn completed(&self) -> Result<i64> {
        let rows = self.0.query(&self.1, &[&queue_name(0)]).await?;
        let completed = rows.iter().find(|row| row.get::<_, &str>(0) == "completed");
        Ok(completed.map_or(0, |row| row.get(1)))
    }
}

fn counting(place: &Place) -> String {
    format!("{} application_name={COUNTING}", place.url)
}

pub(crate) async fn run(bench: &mut Bench) -> Result<()> {
    for rows in RETAINED {
        let case = format!("{} retained", short(rows as f64));
        for _ in 0..bench.runs_of(rows) {
            ours(bench, &case, History { rows, queues: 1, at_once: u64::MAX }).await?;
            plain(bench, &case, rows).await?;
        }
    }
    for (queues, rows) in ALTERNATING {
        let name = format!("{} retained of {queues} alternating queues", short(rows as f64));
        for (how, at_once) in [("late", u64::MAX), ("as they come", COMING)] {
            // So many come slowly.
            if rows >= LARGE && at_once == COMING {
                continue;
            }
            let case = format!("{name}, claimed {how}");
            for _ in 0..bench.runs_of(rows) {
                ours(bench, &case, History { rows, queues, at_once }).await?;
            }
        }
    }
    Ok(())
}

impl Bench {
    fn runs_of(&self, rows: u64) -> usize {
        if rows >= LARGE { 1 } else { self.runs_of_long_cases() }
    }
}

/// What was done before anything is counted.
#[derive(Clone, Copy)]
struct History {
    rows: u64,
    queues: usize,
    /// Jobs that are appended before the next claims: evidence of positions that came since the last claim
    /// can't be as compact as that of older ones.
    at_once: u64,
}

async fn ours(bench: &mut Bench, case: &str, history: History) -> Result<()> {
    let History { rows, queues, at_once } = history;
    bench.say(format!("{SCENARIO}: {case}: {}", Ours::NAME));
    let place = bench.lab.place().await?;
    let contender = Ours::install(&place, queues).await?;
    let client = contender.client().await?;
    let segment = (rows / SEGMENTS).max(SEGMENT_MIN);
    let mut ending = Ending::of(&contender, queues).await?;
    let (mut filled, mut of_first) = (0, 0);
    while filled < rows {
        let end = (filled + segment).min(rows);
        while filled < end {
            let more = at_once.min(end - filled);
            interleave(&client, queues, more).await?;
            for queue in 0..queues {
                // Where they don't divide, the first queues have one more.
                let of_queue = (more + (queues - 1 - queue) as u64) / queues as u64;
                ending.end(queue, of_queue, 0).await?;
            }
            filled += more;
            of_first += more.div_ceil(queues as u64);
        }
        if filled < rows {
            ensure!(rotate(&client, Ring::Queue).await?, "the queue ring is full");
        }
        forget_claims(&client).await?;
    }
    drop((client, ending));
    // Processes that end while others are measured would count with them.
    place.alone().await?;
    let sample = counted::<Ours, OurCounter>(bench, &place, &contender, case, of_first).await?;
    // Only what is alike makes a line.
    bench.take(if queues == 1 { sample.with("retained rows", rows as f64) } else { sample });
    bench.lab.clear(place).await
}

async fn plain(bench: &mut Bench, case: &str, rows: u64) -> Result<()> {
    bench.say(format!("{SCENARIO}: {case}: {}", Plain::NAME));
    let place = bench.lab.place().await?;
    let contender = Plain::install(&place, 1).await?;
    place.sql.execute(HISTORY, &[&queue_name(0), &(rows as i64)]).await?;
    Plain::settle(&place).await?;
    let sample = counted::<Plain, PlainCounter>(bench, &place, &contender, case, rows).await?;
    bench.take(sample.with("retained rows", rows as f64));
    bench.lab.clear(place).await
}

/// Counts while jobs flow. Every count must be at least what it was before: nothing is dropped meanwhile.
async fn counted<C: Contender, K: Counter>(
    bench: &Bench,
    place: &Place,
    contender: &C,
    case: &str,
    retained: u64,
) -> Result<Sample> {
    let stop = Arc::new(AtomicBool::new(false));
    let flowing = tokio::spawn(flow(contender.clone(), Arc::clone(&stop)));
    let counter = K::open(place).await?;
    // Plans are made, and pages read, before anything is measured.
    let mut least = counter.completed().await?;
    ensure!(least >= retained as i64, "{least} of {retained} completed jobs are counted");
    let session = session(place).await?;
    let postmaster = bench.lab.pid()?;
    let before = cpu(session, postmaster)?;
    let begun = Instant::now();
    let times = Times::new();
    let mut calls = 0;
    while calls < CALLS && begun.elapsed() < PATIENCE {
        let completed = times.time(counter.completed()).await?;
        ensure!(completed >= least, "{completed} completed jobs, {least} before");
        least = completed;
        calls += 1;
        // The measurement itself: the calls come from time to time.
        tokio::time::sleep(PAUSE).await;
    }
    let server_cpu_us = (cpu(session, postmaster)? - before).as_secs_f64() * 1e6;
    let seconds = begun.elapsed().as_secs_f64();
    stop.store(true, Ordering::Relaxed);
    flowing.await??;
    let flown = least - retained as i64;
    let client_cpu_us = f64::NAN;
    let cost = Cost { jobs: calls, seconds, server_cpu_us, client_cpu_us, ..Cost::default() };
    Ok(Sample::new(SCENARIO, case, C::NAME, cost)
        .with_latency(times.latency())
        .with("flowing/s", flown as f64 / seconds))
}

/// Enqueues, claims and completes a few jobs at a time until told to stop.
async fn flow<C: Contender>(contender: C, stop: Arc<AtomicBool>) -> Result<()> {
    let mut producer = contender.producer().await?;
    let mut claimer = contender.claimers(1).await?.pop().context("a claimer was asked for")?;
    let mut completer = contender.completer().await?;
    let mut ticks = tokio::time::interval(FLOW_EVERY);
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        ticks.tick().await;
        let batch = (number..number + FLOW_BATCH).map(|n| args(SMALL, n)).collect();
        producer.enqueue(0, batch).await?;
        number += FLOW_BATCH;
        while let Some((taken, _)) = claimer.claim(FLOW_BATCH as usize).await? {
            completer.complete(taken).await?;
        }
    }
    Ok(())
}

/// The server's process that counts.
async fn session(place: &Place) -> Result<i32> {
    let query = "select pid from pg_stat_activity where application_name = $1";
    Ok(place.sql.query_one(query, &[&COUNTING]).await.context("one session counts")?.get(0))
}

/// Time of the session, and of the server's processes that have ended: a session's parallel workers.
fn cpu(session: i32, postmaster: u32) -> Result<Duration> {
    let session = u32::try_from(session).context("a process id")?;
    Ok(on_cpu(session).context("the session has ended")? + ended(postmaster)?)
}
