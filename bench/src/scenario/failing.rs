//! Jobs that fail for good, jobs that are not eligible for the compact path, and failures that are held.

use anyhow::Result;
use awa::core::ClaimedJob;
use awa::core::machine::close::Finished;
use awa::{Job, Ring};
use serde_json::json;

use crate::contender::{Contender, KIND, Ours, args, queue_name};
use crate::report::Sample;
use crate::scenario::{Bench, SMALL, drain, fill, measured};

const SCENARIO: &str = "failing";
const BATCH: usize = 512;
/// Rows of one COPY.
const FILL_ROWS: u64 = 10_000;
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
    let jobs = bench.jobs;
    fill_mixed(&contender, jobs, case.general).await?;
    let cost = measured(&bench.lab, &place, jobs, || async {
        match case.fails {
            None if case.general.is_none() => drain(&contender, 1, BATCH, jobs).await,
            fails => end_all(&contender, jobs, fails).await,
        }
    })
    .await?;
    bench.take(Sample::new(SCENARIO, case.name, Ours::NAME, cost));
    bench.lab.clear(place).await
}

/// Fails jobs for good and turns the ring once, as a service that has been running would find them.
pub(crate) async fn hold(contender: &Ours, failures: u64) -> Result<()> {
    fill(contender, 1, failures, SMALL).await?;
    end_all(contender, failures, Some(1)).await?;
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

/// Claims and ends jobs; one in `fails` fails for good, the others succeed on the path that they may.
async fn end_all(contender: &Ours, jobs: u64, fails: Option<u64>) -> Result<()> {
    let mut claimers = contender.claimers(1).await?;
    let mut completer = contender.completer().await?;
    let mut number = 0_u64;
    while number < jobs {
        let limit = BATCH.min((jobs - number) as usize);
        let claimed = claimers[0].claim_jobs(limit).await?;
        anyhow::ensure!(!claimed.is_empty(), "{number} of {jobs} jobs were there");
        let ended = claimed.iter().map(|job| {
            number += 1;
            end(job, fails.is_some_and(|every| number.is_multiple_of(every)))
        });
        completer.finish(ended.collect()).await?;
    }
    Ok(())
}

fn end(job: &ClaimedJob, fails: bool) -> Finished {
    if fails {
        Finished::failed_for_good(job, b"the far end said no")
    } else {
        Finished::completed(job)
    }
}
