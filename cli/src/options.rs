//! What can be said on the command line.

use std::path::PathBuf;
use std::time::Duration;

use awa::core::{JobState, Ring, limits};
use clap::{Args, Parser, Subcommand, ValueEnum};

const EXIT_CODES: &str = "\
Exit codes:
  0   done
  1   failed: the server, a file or the command itself is at fault
  2   wrong usage
  3   not allowed in the state that the job, slot or ring is in; nothing was changed
  4   no such job
  65  the input is malformed, or names a queue or schema that is not there; nothing was
      written

Errors are said on standard error, also with --json. AWA_LOG=warn, info, debug or trace
in the environment says more there.";
const COMMON: &str = "Options of every command";

/// A job queue that lives inside the PostgreSQL a service already runs.
#[derive(Debug, Parser)]
#[command(
    name = "awa",
    version,
    after_help = EXIT_CODES
)]
pub(crate) struct Options {
    /// Where the database is: `postgresql://..` or `key=value ..`; else $DATABASE_URL.
    #[arg(long, global = true, value_name = "URL", help_heading = COMMON)]
    pub(crate) database_url: Option<String>,
    /// The schema that holds the installation.
    #[arg(long, global = true, default_value = "awa", help_heading = COMMON)]
    pub(crate) schema: String,
    /// Answer in JSON, one value on standard output.
    #[arg(long, global = true, help_heading = COMMON)]
    pub(crate) json: bool,
    /// Say nothing of progress on standard error.
    #[arg(long, short, global = true, help_heading = COMMON)]
    pub(crate) quiet: bool,
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
        /// Parallel lanes for each priority, 1 to 64; 1 keeps strict order.
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(i64).range(1..=SHARDS_MAX))]
        shards: i64,
    },
    /// Enqueue jobs from NDJSON, all or none.
    #[command(after_help = crate::ndjson::HELP)]
    Enqueue {
        /// The file; `-` for standard input.
        #[arg(default_value = "-")]
        file: PathBuf,
        /// The queue of lines that name none. Queues must be declared before.
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
    /// List jobs, newest first, without their args.
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
#[command(after_help = WORK_HELP)]
pub(crate) struct Work {
    /// The queues.
    #[arg(required = true)]
    pub(crate) queues: Vec<String>,
    /// Run by `sh -c` for each job, with its args on standard input and AWA_JOB_ID, AWA_KIND and
    /// AWA_ATTEMPT in its environment; how it ends decides, see below.
    #[arg(long, value_name = "CMD", value_parser = command)]
    pub(crate) exec: String,
    /// Jobs of each queue at a time, 1 to 10000.
    #[arg(
        long,
        value_name = "JOBS",
        default_value_t = 4,
        value_parser = clap::value_parser!(u32).range(1..=10_000)
    )]
    pub(crate) concurrency: u32,
    /// End when no job of the queues is available or running; scheduled and retryable ones stay.
    #[arg(long)]
    pub(crate) drain: bool,
    /// Seconds after which an attempt must be over, 1 to 31536000: then its command is killed and the
    /// attempt fails.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 900,
        value_parser = clap::value_parser!(u64).range(1..=365 * 86_400)
    )]
    pub(crate) deadline_s: u64,
    #[command(flatten)]
    pub(crate) retention: Retention,
}

const SHARDS_MAX: i64 = limits::SHARDS_MAX as i64;

const WORK_HELP: &str = "\
How the command ends decides what becomes of the job:
  0          it is completed
  75         it is tried again later, while it has attempts left
  126, 127   the same, and standard error says so: by the shell's convention the
             command could not be run
  otherwise  it failed for good, a command that a signal ended included; but one
             that SIGHUP, SIGINT or SIGTERM ended is tried again as for 75 (a shell
             that waited for it says 129, 130 or 143)

The end of what the command writes to standard error is kept as the attempt's
error. Its standard output is dropped. Whatever it leaves running in its process
group is killed when it ends.

SIGINT (Ctrl-C), SIGTERM and SIGHUP stop the worker: it claims nothing more, waits
up to 30 s for commands that run, then kills them and hands their jobs back. A
second one does that at once. The exit code is 0 in either case, whatever became of
the jobs. A third ends the worker without handing back, with exit code 1: those jobs
are tried again when their deadline is over.";

#[derive(Debug, Args)]
pub(crate) struct List {
    /// Only jobs in this state: available, scheduled, retryable, running, waiting_external, completed,
    /// failed or cancelled.
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
    /// Rows of a page, 1 to 10000.
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

fn command(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        return Err("an empty command would complete every job; say what to run".to_owned());
    }
    Ok(text.to_owned())
}

fn state(word: &str) -> Result<JobState, String> {
    JobState::from_word(word).ok_or_else(|| {
        let words: Vec<_> = JobState::ALL.iter().map(|s| s.as_str()).collect();
        format!("one of {}", words.join(", "))
    })
}
