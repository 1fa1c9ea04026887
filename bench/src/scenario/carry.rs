//! How often a failure inside the floor is rewritten while the ring turns twenty times, and what that costs
//! each job. The ring is driven as hard as it goes: a slot is pruned as soon as the next one is wanted, which
//! the shipped policy would not do to slots that carry much beside what they drop.

use std::time::Duration;

use anyhow::{Result, bail};
use awa::{Client, PruneOutcome, Ring, limits};

use crate::calls::Times;
use crate::contender::{Contender, Ours, Producer, args, queue_name};
use crate::report::Sample;
use crate::scenario::history::{Ending, forget_claims, rotate};
use crate::scenario::{Bench, SMALL, measured};

pub(crate) const SCENARIO: &str = "carry";
pub(crate) const NOTE: &str =
    "a call is one prune of the queue ring. Awa's own housekeeping: no baseline has it.";
const WRAPS: u64 = 20;
/// Segments between two looks at the claim ring.
const CLAIMS_KEPT: u64 = 8;

/// Of how many jobs one fails for good, and how much that is.
const FAILING: [(u64, &str); 2] = [(100, "1 % fail"), (1_000, "0.1 % fail")];

#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    one_in: u64,
    /// The log that a job wrote where nothing was carried: then all is carried now.
    without: Option<f64>,
}

pub(crate) async fn run(bench: &mut Bench) -> Result<()> {
    for (one_in, name) in FAILING {
        for _ in 0..bench.runs_of_long_cases() {
            let without = one(bench, Case { name, one_in, without: None }).await?;
            one(bench, Case { name, one_in, without: Some(without) }).await?;
        }
    }
    Ok(())
}

/// Gives the log that a job wrote.
async fn one(bench: &mut Bench, case: Case) -> Result<f64> {
    let (floor, what) = match case.without {
        None => (Duration::ZERO, "no floor"),
        Some(_) => (Duration::MAX, "all carried"),
    };
    let name = format!("{}, {what}", case.name);
    bench.say(format!("{SCENARIO}: {name}"));
    let place = bench.lab.place().await?;
    let ours = Ours::install(&place, 1).await?;
    let each = (bench.jobs / 50).max(case.one_in);
    let failures = each / case.one_in;
    let segments = WRAPS * limits::QUEUE_SLOTS as u64;
    let mut carried = 0;
    let mut held = 0;
    let prunes = Times::new();
    let cost = measured(&bench.lab, &place, each * segments, || async {
        let client = ours.client().await?;
        let mut producer = ours.producer().await?;
        let mut ending = Ending::of(&ours, 1).await?;
        for segment in 0..segments {
            producer.copy(0, (0..each).map(|n| args(SMALL, segment * each + n)).collect()).await?;
            ending.end(0, each, failures).await?;
            carried += next_segment(&client, floor, &prunes).await?;
            if segment % CLAIMS_KEPT == 0 {
                forget_claims(&client).await?;
            }
        }
        held = client.counts(&queue_name(0)).await?.failed;
        Ok(())
    })
    .await?;
    let failed = (failures * segments) as f64;
    let wal = cost.each(cost.wal_bytes);
    let (jobs, carried) = (cost.jobs as f64, carried as f64);
    let mut sample = Sample::new(SCENARIO, name, Ours::NAME, cost)
        .with_latency(prunes.latency())
        .with("carries a failure", carried / failed)
        .with("carries a job", carried / jobs)
        .with("failures held", held as f64);
    if let Some(without) = case.without.filter(|_| carried > 0.0) {
        sample = sample.with("WAL B a carried row", (wal - without) * jobs / carried);
    }
    bench.take(sample);
    bench.lab.clear(place).await?;
    Ok(wal)
}

/// Opens the next segment, and prunes for it if that must be. Gives how many failures were carried.
async fn next_segment(client: &Client, floor: Duration, prunes: &Times) -> Result<i64> {
    let mut carried = 0;
    while !rotate(client, Ring::Queue).await? {
        match prunes.time(client.prune_oldest(floor)).await? {
            PruneOutcome::Pruned { carried_failed_rows, .. } => carried += carried_failed_rows,
            other => bail!("{other}"),
        }
    }
    Ok(carried)
}
