//! Emptying a sealed slot of the queue ring: rows in it against failures carried out of it.
//!
//! The prune is a connection's first one of that slot, as a leader's is until the ring has turned: its
//! statements are prepared in it.

use std::time::Duration;

use anyhow::{Result, bail};
use awa::core::machine::prune::{Prune, PruneOutcome};
use awa::core::rules::Floor;
use awa::{Ring, Slot};

use crate::contender::{Contender, Ours};
use crate::report::{Sample, short};
use crate::scenario::history::{claimer, end, forget_claims, rotate};
use crate::scenario::{Bench, SMALL, fill, measured};
use crate::timed::{Timed, Times, ms};

const SCENARIO: &str = "prune";
/// Rows of a slot.
const ROWS: [u64; 2] = [100_000, 1_000_000];
/// Failures among them. The last is for those who asked for so many jobs.
const FAILURES: [u64; 5] = [0, 1_000, 10_000, 100_000, 1_000_000];
/// Failures of any age are carried.
const FLOOR: Duration = Duration::MAX;

pub(crate) async fn run(bench: &mut Bench) -> Result<()> {
    for rows in ROWS {
        for failures in FAILURES {
            if failures > rows || failures > bench.jobs.max(100_000) {
                continue;
            }
            for _ in 0..bench.runs {
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
    end(&ours, &mut claimer(&ours).await?, rows, failures).await?;
    let client = ours.client().await?;
    rotate(&client, Ring::Queue).await?;
    forget_claims(&client).await?;
    drop(client);
    let mut times = None;
    let cost = measured(&bench.lab, &place, rows, || async {
        times = Some(prune(&ours, rows, failures).await?);
        Ok(())
    })
    .await?;
    let wal = cost.wal_bytes;
    let mut sample = Sample::new(SCENARIO, case, Ours::NAME, cost);
    if let Some(times) = times {
        sample = sample
            .with("total ms", ms(Some(times.total())))
            .with("exclusive ms", ms(times.from("Exclude")));
        if failures > 0 {
            let moving = ms(times.of("CarryForward")) / 1e3;
            sample = sample
                .with("carried/s", failures as f64 / moving)
                .with("WAL B a carried row", wal / failures as f64);
        }
    }
    bench.take(sample);
    bench.lab.clear(place).await
}

async fn prune(ours: &Ours, rows: u64, failures: u64) -> Result<Times> {
    let client = ours.client().await?;
    let prune = Prune::slot(Ring::Queue, Slot(0), Floor::new(FLOOR.into()));
    let (outcome, times) = client.run(Timed::new(prune)).await?;
    let (carried, folded) = (failures as i64, (rows - failures) as i64);
    match outcome.map_err(|refusal| anyhow::anyhow!("refused: {refusal}"))? {
        PruneOutcome::Pruned { carried_failed_rows, folded_failed: 0, folded_other, .. }
            if carried_failed_rows == carried && folded_other == folded =>
        {
            Ok(times)
        }
        other => bail!("{other}; {carried} were to be carried and {folded} folded"),
    }
}
