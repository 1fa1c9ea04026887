//! Jobs that fail for good, jobs that are not eligible for the compact path, and failures that are held.

use anyhow::Result;
use awa::{Job, Ring};
use serde_json::json;

use crate::calls::Call;
use crate::contender::{Clocked, Contender, Ender, KIND, Ours, Plain, args, queue_name};
use crate::lab::Place;
use crate::report::Sample;
use crate::scenario::{Backlog, Bench, FILL_ROWS, SMALL, drained, end_all, fill, measured};

pub(crate) const SCENARIO: &str = "failing";
pub(crate) const NOTE: &str = "a call is one claim of 512; the ends of its jobs are beside it. The floor can't say that a job failed.";
const BATCH: usize = 512;
/// Failures that are held while others are worked.
const HELD: u64 = 100_000;

/// One in so many, or none.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    fails: Option<u64>,
    general: Option<u64>,
    held: u64,
}

const CASES: [Case; 6] = [
    Case { name: "all succeed", fails: None, general: None, held: 0 },
    Case { name: "1 % fail", fails: Some(100), general: None, held: 0 },
    Case { name: "10 % fail", fails: Some(10), general: None, held: 0 },
    Case { name: "all fail", fails: Some(1), general: None, held: 0 },
    Case {
        name: "10 % not eligible for the compact path",
        fails: None,
        general: Some(10),
        held: 0,
    },
    Case { name: "all succeed, 100,000 failures held", fails: None, general: None, held: HELD },
];

impl Case {
    /// The plain table has one path, and what it holds of failures is not what Awa carries.
    fn has_baseline(&self) -> bool {
        self.general.is_none() && self.held == 0
    }
}

pub(crate) async fn run(bench: &mut Bench) -> Result<()> {
    for case in CASES {
        for _ in 0..bench.runs {
            ours(bench, case).await?;
            if case.has_baseline() {
                plain(bench, case).await?;
            }
        }
    }
    Ok(())
}

async fn ours(bench: &mut Bench, case: Case) -> Result<()> {
    bench.say(format!("{SCENARIO}: {}: {}", case.name, Ours::NAME));
    let place = bench.lab.place().await?;
    let contender = Ours::install(&place, 1).await?;
    if case.held > 0 {
        hold(&contender, case.held).await?;
    }
    fill_mixed(&contender, bench.jobs, case.general).await?;
    ended(bench, &place, &contender, case).await?;
    bench.lab.clear(place).await
}

async fn plain(bench: &mut Bench, case: Case) -> Result<()> {
    bench.say(format!("{SCENARIO}: {}: {}", case.name, Plain::NAME));
    let place = bench.lab.place().await?;
    let contender = Plain::install(&place, 1).await?;
    fill(&contender, 1, bench.jobs, SMALL).await?;
    Plain::settle(&place).await?;
    ended(bench, &place, &contender, case).await?;
    bench.lab.clear(place).await
}

/// Takes a sample of ending all jobs as the case says.
async fn ended<C>(bench: &mut Bench, place: &Place, contender: &C, case: Case) -> Result<()>
where
    C: Contender,
    C::Completer: Ender<C::Taken>,
{
    let jobs = bench.jobs;
    let (cost, calls) = if case.fails.is_none() && case.general.is_none() {
        drained(&bench.lab, place, contender, Backlog { jobs, queues: 1, batch: BATCH }).await?
    } else {
        let (clocked, calls) = Clocked::new(contender);
        let ending = || end_all(&clocked, jobs, BATCH, case.fails);
        (measured(&bench.lab, place, jobs, ending).await?, calls)
    };
    bench.take(Sample::new(SCENARIO, case.name, C::NAME, cost).with_calls(Call::Claim, &calls));
    Ok(())
}

/// Fails jobs for good and turns the ring once, as a service that has been running would find them.
pub(crate) async fn hold(contender: &Ours, failures: u64) -> Result<()> {
    fill(contender, 1, failures, SMALL).await?;
    end_all(contender, failures, BATCH, Some(1)).await?;
    contender.client().await?.rotate(Ring::Queue).await?;
    Ok(())
}

/// Jobs of which one in `general` bears metadata, and so does not end on the compact path.
async fn fill_mixed(contender: &Ours, jobs: u64, general: Option<u64>) -> Result<()> {
    let Some(every) = general else { return fill(contender, 1, jobs, SMALL).await };
    let client = contender.client().await?;
    let mut filled = 0;
    while filled < jobs {
        let rows = FILL_ROWS.min(jobs - filled);
        let mut batch = Vec::new();
        for number in filled..filled + rows {
            let job = Job::from_json(KIND, args(SMALL, number))?.queue(&queue_name(0))?;
            batch.push(if number % every == 0 {
                job.metadata("origin", json!("bench"))?
            } else {
                job
            });
        }
        client.copy(batch).await?;
        filled += rows;
    }
    Ok(())
}
