//! Emptying a sealed slot of the queue ring: rows in it against failures carried out of it.
//!
//! The prune is a connection's first one of that slot, as a leader's is until the ring has turned: its
//! statements are prepared in it.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use awa::core::machine::prune::{Prune, PruneOutcome};
use awa::core::rules::Floor;
use awa::{Client, Ring, Slot};

use crate::contender::{Contender, Ours};
use crate::lab::Place;
use crate::report::{Sample, short};
use crate::scenario::history::{Ending, rotate};
use crate::scenario::{Bench, SMALL, fill, measured};
use crate::timed::{Watched, ms, watched};

pub(crate) const SCENARIO: &str = "prune";
pub(crate) const NOTE: &str =
    "units are rows; a call is one run of the machine. Awa's own housekeeping: no baseline has it.";
/// Rows of a slot.
const ROWS: [u64; 2] = [100_000, 1_000_000];
/// Failures among them.
const FAILURES: [u64; 5] = [0, 1_000, 10_000, 100_000, 1_000_000];
/// Failing so many takes long: one run must do.
const LARGE: u64 = 1_000_000;
/// Failures of any age are carried.
const FLOOR: Duration = Duration::MAX;

pub(crate) async fn run(bench: &mut Bench) -> Result<()> {
    for rows in ROWS {
        for failures in FAILURES {
            if failures > rows {
                continue;
            }
            let runs = if failures >= LARGE { 1 } else { bench.runs_of_long_cases() };
            for _ in 0..runs {
                one(bench, rows, failures).await?;
            }
        }
    }
    Ok(())
}

async fn one(bench: &mut Bench, rows: u64, failures: u64) -> Result<()> {
    let case = format!("{} rows, {} carried", short(rows as f64), short(failures as f64));
    bench.say(format!("{SCENARIO}: {case}"));
    let place = bench.lab.place().await?;
    let ours = Ours::install(&place, 1).await?;
    fill(&ours, 1, rows, SMALL).await?;
    Ending::of(&ours, 1).await?.end(0, rows, failures).await?;
    let client = ours.client().await?;
    rotate(&client, Ring::Queue).await?;
    rotate(&client, Ring::Claim).await?;
    let claims = emptied(&place, &client, Ring::Claim, "lease_claim_batches_0").await?.1;
    drop(client);
    let mut pruned = None;
    let cost = measured(&bench.lab, &place, rows, || async {
        let client = ours.client().await?;
        pruned = Some(emptied(&place, &client, Ring::Queue, "ready_entries_0").await?);
        Ok(())
    })
    .await?;
    let wal = cost.wal_bytes;
    let mut sample = Sample::new(SCENARIO, case, Ours::NAME, cost)
        .with("claim ring: exclusive ms", ms(claims.waited));
    if let Some((carried, watched)) = pruned {
        ensure!(carried == failures as i64, "{carried} of {failures} failures were carried");
        let times = watched.times;
        sample = sample
            .with_latency(times.latency())
            .with("total ms", ms(times.total()))
            .with("exclusive ms", ms(watched.waited));
        if let Some(moving) = times.of("CarryForward") {
            sample = sample
                .with("carried/s", failures as f64 / moving.as_secs_f64())
                .with("WAL B a carried row", wal / failures as f64);
        }
    }
    bench.take(sample);
    bench.lab.clear(place).await
}

/// Prunes the first slot of a ring while `table` is watched. Gives how many failures were carried.
async fn emptied(
    place: &Place,
    client: &Client,
    ring: Ring,
    table: &str,
) -> Result<(i64, Watched<()>)> {
    let prune = Prune::slot(ring, Slot(0), Floor::new(FLOOR.into()));
    let Watched { outcome, times, waited } =
        watched(place, client, prune, ("Exclude", table)).await?;
    match outcome.map_err(|refusal| anyhow::anyhow!("refused: {refusal}"))? {
        PruneOutcome::Pruned { carried_failed_rows, .. } => {
            Ok((carried_failed_rows, Watched { outcome: (), times, waited }))
        }
        other => bail!("{other}"),
    }
}
