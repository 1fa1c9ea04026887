//! What can be said on the command line.

use std::path::PathBuf;
use std::time::Duration;

use awa::core::{JobState, Ring};
use clap::{Args, Parser, Subcommand, ValueEnum};

/// A job queue that lives inside the PostgreSQL a service already runs.
#[derive(Debug, Parser)]
#[command(
    name = "awa",
    version,
    after_help = "Exit codes: 0 done; 1 failed; 2 wrong usage; 3 not allowed \
in this state, nothing changed; 4 no such job; 65 malformed input, nothing written."
)]
pub(crate) struct Options {
    /// Where the database is: `postgresql://..` or `key=value ..`; else $DATABASE_URL.
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) database_url: Option<String>,
    /// The schema that holds the installation.
    #[arg(long, global = true, default_value = "awa")]
    pub(crate) schema: String,
    /// Answer in JSON, one value on standard output.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show the whole life of a few thousand jobs on a real server.
    Demo(Demo),
    /// Bring the schema to this version.
    Migrate {
        /// Print what would run on an empty database, and run nothing.
        #[arg(long)]
        sql: bool,
    },
    /// Declare a queue, or add the shards that it lacks.
    DeclareQueue {
        /// Its name.
        queue: String,
        /// Parallel lanes for each priority; 1 keeps strict order.
        #[arg(long, default_value_t = 1)]
        shards: i64,
    },
    /// Enqueue jobs from NDJSON, all or none.
    Enqueue {
        /// The file; `-` for standard input.
        #[arg(default_value = "-")]
        file: PathBuf,
        /// The queue of lines that name none.
        #[arg(long, default_value = "default")]
        queue: String,
    },
    /// Work queues, handing each job to a command.
    Work(Work),
    /// Show a queue's exact counts.
    Counts {
        /// The queues.
        #[arg(required = true)]
        queues: Vec<String>,
    },
    /// List jobs, newest first.
    List(List),
    /// Show one job whole.
    Show {
        /// Its id.
        job: i64,
    },
    /// Cancel a job that waits.
    Cancel {
        /// Its id.
        job: i64,
    },
    /// Retry one failed or cancelled job.
    Retry {
        /// Its id.
        job: i64,
    },
    /// Retry all failed jobs of a queue or of a kind.
    RetryFailed(Which),
    /// Delete failed jobs from history.
    DiscardFailed(Which),
    /// Open the next slot of a ring.
    Rotate {
        /// Which ring.
        #[arg(long, value_enum, default_value_t = RingName::Queue)]
        ring: RingName,
    },
    /// Prune the oldest sealed slot of a ring.
    Prune(Prune),
    /// Recompute the terminal counters from history and trust them again.
    RebuildCounts,
    /// Say what would be done, and do nothing.
    Explain {
        /// Of what.
        #[command(subcommand)]
        what: Explain,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Explain {
    /// The very plan that a prune would follow now.
    Prune(Prune),
}

#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Leave the server up and print how to connect.
    #[arg(long)]
    pub(crate) keep: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Work {
    /// The queues.
    #[arg(required = true)]
    pub(crate) queues: Vec<String>,
    /// Run by `sh -c` for each job, with its args on standard input and AWA_JOB_ID, AWA_KIND and
    /// AWA_ATTEMPT in its environment. Exit 0 completes the job, 75 retries it later, anything else
    /// fails it for good with the end of what it wrote to standard error.
    #[arg(long, value_name = "CMD")]
    pub(crate) exec: String,
    /// Jobs of each queue at a time.
    #[arg(long, default_value_t = 4)]
    pub(crate) concurrency: u32,
    /// End when the queues are drained instead of waiting for more.
    #[arg(long)]
    pub(crate) drain: bool,
    /// Seconds after which an attempt must be over.
    #[arg(long, default_value_t = 900)]
    pub(crate) deadline_s: u64,
    #[command(flatten)]
    pub(crate) retention: Retention,
}

#[derive(Debug, Args)]
pub(crate) struct List {
    /// Only jobs in this state.
    #[arg(long, value_parser = state)]
    pub(crate) state: JobState,
    /// Only this queue's.
    #[arg(long)]
    pub(crate) queue: Option<String>,
    /// Only this kind's.
    #[arg(long)]
    pub(crate) kind: Option<String>,
    /// Only jobs with a smaller id: the last of the page before.
    #[arg(long)]
    pub(crate) before: Option<i64>,
    /// Rows of a page.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub(crate) limit: u16,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Which {
    /// Of this queue.
    #[arg(long)]
    pub(crate) queue: Option<String>,
    /// Of this kind, in all queues.
    #[arg(long)]
    pub(crate) kind: Option<String>,
    /// This one.
    #[arg(long)]
    pub(crate) job: Option<i64>,
}

#[derive(Debug, Args)]
pub(crate) struct Prune {
    /// Which ring.
    #[arg(long, value_enum, default_value_t = RingName::Queue)]
    pub(crate) ring: RingName,
    /// This slot instead of the oldest sealed one.
    #[arg(long)]
    pub(crate) slot: Option<i32>,
    #[command(flatten)]
    pub(crate) retention: Retention,
}

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Retention {
    /// Seconds for which a failed job stays retryable at least; 0 switches the floor off.
    #[arg(long, default_value_t = 72 * 3600, value_name = "SECONDS")]
    pub(crate) failed_retention_s: u64,
}

impl Retention {
    pub(crate) fn span(self) -> Duration {
        Duration::from_secs(self.failed_retention_s)
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum RingName {
    /// Bodies and history.
    Queue,
    /// Materialised leases.
    Lease,
    /// Claims.
    Claim,
}

impl From<RingName> for Ring {
    fn from(name: RingName) -> Self {
        match name {
            RingName::Queue => Self::Queue,
            RingName::Lease => Self::Lease,
            RingName::Claim => Self::Claim,
        }
    }
}

fn state(word: &str) -> Result<JobState, String> {
    JobState::from_word(word).ok_or_else(|| {
        let words: Vec<_> = JobState::ALL.iter().map(|s| s.as_str()).collect();
        format!("one of {}", words.join(", "))
    })
}
