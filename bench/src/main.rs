//! Measures Awa beside a plain `SKIP LOCKED` table and the floor, on a private server, in one run.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout)]

mod calls;
mod chart;
mod contender;
mod gate;
mod lab;
mod meter;
mod report;
mod scenario;
mod timed;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Parser, ValueEnum};

use lab::Lab;
use report::Report;
use scenario::Bench;

/// Measures Awa beside a plain SKIP LOCKED table and the floor. Figures are medians of several runs.
#[derive(Parser)]
#[command(name = "awa-bench", version)]
struct Options {
    /// What to measure.
    #[arg(required = true, value_enum)]
    scenarios: Vec<Scenario>,
    /// Jobs of a measurement; expensive cases take a part of it.
    #[arg(long, default_value_t = 100_000)]
    jobs: u64,
    /// Runs of each case of enqueue, drain, worker, steady and failing. The others' cases take minutes and a
    /// third of it, rounded up; the largest of them one.
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Where report.json and the charts go.
    #[arg(long, default_value = "target/bench")]
    out: PathBuf,
    /// PostgreSQL's major version; any that is there unless told.
    #[arg(long)]
    postgres: Option<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Scenario {
    /// Everything below.
    All,
    /// Ways in.
    Enqueue,
    /// Claim and complete by storage calls.
    Drain,
    /// The worker runtime.
    Worker,
    /// Offered rates: latency.
    Steady,
    /// Jobs that fail, jobs that take the general path.
    Failing,
    /// Cost a job as the backlog grows.
    Growth,
    /// Emptying a slot, with failures to carry.
    Prune,
    /// Failures rewritten while the ring turns.
    Carry,
    /// Folding pending counts.
    Rollup,
    /// Exact counts, by what is retained.
    Counts,
    /// A worker that has nothing to do.
    Idle,
    /// Counts that don't depend on the machine, against the limits of bench/limits.json. Runs alone.
    Gate,
    /// The same counts in the form of bench/limits.json. Runs alone.
    Limits,
}

impl Scenario {
    const EACH: [Self; 11] = [
        Self::Enqueue,
        Self::Drain,
        Self::Worker,
        Self::Steady,
        Self::Failing,
        Self::Growth,
        Self::Prune,
        Self::Carry,
        Self::Rollup,
        Self::Counts,
        Self::Idle,
    ];

    /// Those that it stands for.
    fn each(self) -> Vec<Self> {
        if self == Self::All { Self::EACH.to_vec() } else { vec![self] }
    }

    async fn run(self, bench: &mut Bench) -> Result<()> {
        match self {
            Self::Enqueue => scenario::enqueue::run(bench).await,
            Self::Drain => scenario::drain::run(bench).await,
            Self::Worker => scenario::worker::run(bench).await,
            Self::Steady => scenario::steady::run(bench).await,
            Self::Failing => scenario::failing::run(bench).await,
            Self::Growth => scenario::growth::run(bench).await,
            Self::Prune => scenario::prune::run(bench).await,
            Self::Carry => scenario::carry::run(bench).await,
            Self::Rollup => scenario::rollup::run(bench).await,
            Self::Counts => scenario::counts::run(bench).await,
            Self::Idle => scenario::idle::run(bench).await,
            Self::All | Self::Gate | Self::Limits => anyhow::bail!("gate and limits run alone"),
        }
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let options = Options::parse();
    match options.scenarios[..] {
        [Scenario::Gate] => return gate::run(&Lab::quiet(options.postgres).await?).await,
        [Scenario::Limits] => return gate::print(&Lab::quiet(options.postgres).await?).await,
        _ => {}
    }
    let progress = indicatif::ProgressBar::new_spinner();
    let lab = Lab::start(options.postgres).await?;
    let conditions = lab.conditions().await?;
    let (jobs, runs) = (options.jobs.max(1), options.runs.max(1));
    let report = Report { conditions, samples: Vec::new() };
    let mut bench = Bench { lab, jobs, runs, report, progress };
    for scenario in options.scenarios.into_iter().flat_map(Scenario::each) {
        let ran = scenario.run(&mut bench).await;
        // What was measured stays, whatever becomes of the rest.
        write(&bench.report, &options.out)?;
        ran?;
    }
    bench.progress.finish_and_clear();
    println!("{}", bench.report.text());
    Ok(())
}

/// Writes report.json and a chart of each scenario.
fn write(report: &Report, directory: &Path) -> Result<()> {
    std::fs::create_dir_all(directory).context("making the directory of --out")?;
    let json = serde_json::to_string_pretty(report)?;
    std::fs::write(directory.join("report.json"), json).context("writing report.json")?;
    chart::write(report, directory)
}
