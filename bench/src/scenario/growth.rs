//! What a job costs as the backlog grows: it must not depend on it.

use anyhow::Result;

use crate::calls::Call;
use crate::contender::{Contender, Floor, Ours, Plain};
use crate::report::{Sample, short};
use crate::scenario::{Backlog, Bench, SMALL, drained, fill};

pub(crate) const SCENARIO: &str = "growth";
pub(crate) const NOTE: &str = "a call is one claim of 512; completions are beside it.";
const BACKLOGS: [u64; 4] = [10_000, 100_000, 1_000_000, 5_000_000];
/// Jobs drained of each backlog: all of the smallest.
const DRAINED: u64 = 10_000;
const BATCH: usize = 512;
/// Filling takes long from here on: one run must do.
const LARGE: u64 = 1_000_000;

pub(crate) async fn run(bench: &mut Bench) -> Result<()> {
    for backlog in BACKLOGS {
        let runs = if backlog >= LARGE { 1 } else { bench.runs_of_long_cases() };
        for _ in 0..runs {
            one::<Ours>(bench, backlog).await?;
            one::<Plain>(bench, backlog).await?;
            one::<Floor>(bench, backlog).await?;
        }
    }
    Ok(())
}

async fn one<C: Contender>(bench: &mut Bench, backlog: u64) -> Result<()> {
    let case = format!("backlog of {}", short(backlog as f64));
    bench.say(format!("{SCENARIO}: {case}: {}", C::NAME));
    let place = bench.lab.place().await?;
    let contender = C::install(&place, 1).await?;
    fill(&contender, 1, backlog, SMALL).await?;
    C::settle(&place).await?;
    let part = Backlog { jobs: DRAINED, queues: 1, batch: BATCH };
    let (cost, calls) = drained(&bench.lab, &place, &contender, part).await?;
    let sample = Sample::new(SCENARIO, case, C::NAME, cost).with_calls(Call::Claim, &calls);
    bench.take(sample.with("backlog", backlog as f64));
    bench.lab.clear(place).await
}
