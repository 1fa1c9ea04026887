//! Each command: a call on `awa`, and what it came to in words.

mod enqueue;
mod work;

use std::process::ExitCode;
use std::time::Duration;

use awa::core::{JobId, Ring, Slot};
use awa::{
    CancelOutcome, Client, Kind, ListFilter, PruneOutcome, QueueName, RotateOutcome, TerminalFilter,
};
use serde::Serialize;
use serde_json::{Value, json};

use crate::draw::{Style, thousands};
use crate::options::{Command, Explain, List, Options, Prune, Which};
use crate::output::{Failed, JobView, NOT_ALLOWED, NOT_FOUND, job_line, job_text, say};
use crate::progress::Progress;
use crate::wording::{RetryFailed, counted};

type Done = Result<ExitCode, Failed>;

/// Where the installation is, and how to answer.
struct Place {
    url: Option<String>,
    schema: String,
    json: bool,
    progress: Progress,
}

impl Place {
    fn url(&self) -> Result<String, Failed> {
        let given = self.url.clone().or_else(|| std::env::var("DATABASE_URL").ok());
        given.filter(|url| !url.trim().is_empty()).ok_or_else(|| {
            Failed::other("find the database", "say --database-url URL or set $DATABASE_URL")
        })
    }

    async fn client(&self) -> Result<Client, Failed> {
        Ok(Client::connect(&self.url()?, &self.schema).await?)
    }

    fn say(&self, text: &str, value: &impl Serialize) -> Result<(), Failed> {
        say(self.json, text, value)
    }
}

pub(crate) async fn run(options: Options) -> Done {
    let place = Place {
        url: options.database_url,
        schema: options.schema,
        json: options.json,
        progress: Progress::new(options.json, options.quiet),
    };
    match options.command {
        Command::Demo(demo) => crate::demo::play(demo.keep, place.json, place.url).await,
        Command::Migrate { sql: true } => {
            let schema = awa::core::SchemaName::new(&place.schema)?;
            let script = awa::migration_script(&schema);
            place.say(&script, &json!({ "sql": script }))?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Migrate { sql: false } => migrate(&place).await,
        Command::DeclareQueue { queue, shards } => {
            let shards = place.client().await?.declare_queue(&queue, shards).await?;
            place.say(
                &format!("Queue {queue} is declared with {}.", counted(shards, "shard")),
                &json!({ "queue": queue, "shards": shards }),
            )?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Enqueue { file, queue } => enqueue::enqueue(&place, &file, &queue).await,
        Command::Work(options) => work::work(&place, options).await,
        Command::Counts { queues } => counts(&place, &queues).await,
        Command::List(list) => self::list(&place, list).await,
        Command::Show { job } => show(&place, JobId(job)).await,
        Command::Cancel { job } => cancel(&place, JobId(job)).await,
        Command::Retry { job } | Command::RetryFailed(Which { job: Some(job), .. }) => {
            retry(&place, JobId(job)).await
        }
        Command::RetryFailed(which) => retry_failed(&place, &which).await,
        Command::DiscardFailed(which) => discard_failed(&place, &which).await,
        Command::Rotate { ring } => rotate(&place, ring.into()).await,
        Command::Prune(options) => prune(&place, &options).await,
        Command::RebuildCounts => {
            let rows = place.client().await?.rebuild_counts().await?.rows;
            let text = format!("Counted {} of history anew.", counted(rows, "row"));
            place.say(&text, &json!({ "rows": rows }))?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Explain { what: Explain::Prune(options) } => {
            let client = place.client().await?;
            let (ring, slot, floor) = aim(&options);
            let plan = client.explain_prune(ring, slot, floor).await?;
            place.say(&plan, &json!({ "plan": plan }))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

async fn migrate(place: &Place) -> Done {
    let done = awa::migrate(&place.url()?, &place.schema).await?;
    let text = match (done.from, done.applied.as_slice()) {
        (Some(from), []) => format!("Schema {} is at v{from:03} already.", place.schema),
        (_, applied) => {
            let versions: Vec<_> = applied.iter().map(|v| format!("v{v:03}")).collect();
            format!("Applied {} to schema {}.", versions.join(", "), place.schema)
        }
    };
    place.say(&text, &json!({ "from": done.from, "to": done.to, "applied": done.applied }))?;
    Ok(ExitCode::SUCCESS)
}

async fn counts(place: &Place, queues: &[String]) -> Done {
    let client = place.client().await?;
    let mut all = serde_json::Map::new();
    let mut table = Vec::new();
    for queue in queues {
        let counts = client.counts(queue).await?;
        let named = counts.named().into_iter().map(|(name, n)| (name.to_owned(), json!(n)));
        let mut fields: serde_json::Map<_, _> = named.collect();
        fields.insert("total".to_owned(), json!(counts.total()));
        all.insert(queue.clone(), Value::Object(fields));
        table.push(queue.clone());
        let shown = counts.named().into_iter().filter(|(_, n)| *n != 0);
        table.extend(shown.map(|(name, n)| format!("  {name:<17} {n:>12}")));
        table.push(format!("  {:<17} {:>12}", "total", counts.total()));
    }
    place.say(&table.join("\n"), &Value::Object(all))?;
    Ok(ExitCode::SUCCESS)
}

async fn list(place: &Place, list: List) -> Done {
    let filter = ListFilter {
        queue: list.queue.as_deref().map(QueueName::new).transpose()?,
        kind: list.kind.as_deref().map(Kind::new).transpose()?,
        state: list.state,
        before: list.before.map(JobId),
        limit: list.limit,
    };
    let rows = place.client().await?.list(filter).await?;
    let style = Style::of_stdout();
    let mut text: Vec<_> = rows.iter().map(|row| job_line(row, style)).collect();
    if rows.is_empty() {
        text.push(format!("No {} job matches.", list.state));
    }
    place.say(&text.join("\n"), &rows.iter().map(JobView::head).collect::<Vec<_>>())?;
    Ok(ExitCode::SUCCESS)
}

async fn show(place: &Place, job: JobId) -> Done {
    match place.client().await?.load(job).await? {
        Some(row) => {
            place.say(&job_text(&row, Style::of_stdout()), &JobView::whole(&row)?)?;
            Ok(ExitCode::SUCCESS)
        }
        None => not_found(place, job),
    }
}

fn not_found(place: &Place, job: JobId) -> Done {
    place.say(&format!("No retained {job}."), &json!({ "job": job.0, "found": false }))?;
    Ok(ExitCode::from(NOT_FOUND))
}

async fn cancel(place: &Place, job: JobId) -> Done {
    let outcome = place.client().await?.cancel(job).await?;
    let (text, code) = match outcome {
        CancelOutcome::Cancelled => (format!("Cancelled {job}."), 0),
        CancelOutcome::NotFound => return not_found(place, job),
        CancelOutcome::Running => (format!("{job} is running and was left alone."), NOT_ALLOWED),
        CancelOutcome::AlreadyEnded(state) => (format!("{job} is {state} already."), NOT_ALLOWED),
        CancelOutcome::KeptMoving => (format!("{job} keeps moving; try again."), NOT_ALLOWED),
    };
    place.say(&text, &json!({ "job": job.0, "cancelled": code == 0 }))?;
    Ok(ExitCode::from(code))
}

fn filter(which: &Which) -> Result<TerminalFilter, Failed> {
    match (&which.queue, &which.kind, which.job) {
        (Some(queue), None, None) => Ok(TerminalFilter::Queue(QueueName::new(queue)?)),
        (None, Some(kind), None) => Ok(TerminalFilter::Kind(Kind::new(kind)?)),
        (None, None, Some(job)) => Ok(TerminalFilter::Job(JobId(job))),
        // clap lets exactly one through.
        (_, _, _) => Err(Failed::input("say one of --queue, --kind and --job")),
    }
}

async fn retry_failed(place: &Place, which: &Which) -> Done {
    let client = place.client().await?;
    let done = match filter(which)? {
        TerminalFilter::Queue(queue) => client.retry_failed_by_queue(queue.as_str()).await?,
        TerminalFilter::Kind(kind) => client.retry_failed_by_kind(kind.as_str()).await?,
        TerminalFilter::Job(job) => client.retry(job).await?,
    };
    let retried = done.retried.len() as i64;
    let said = RetryFailed::new(retried, done.matched, done.pruned_failed_count);
    let said = said.map_err(|fault| Failed::other("retry", fault))?;
    place.say(&said.sentences(), &said.to_json())?;
    Ok(ExitCode::SUCCESS)
}

async fn retry(place: &Place, job: JobId) -> Done {
    let client = place.client().await?;
    let done = client.retry(job).await?;
    let retried = done.retried.len() as i64;
    let said = RetryFailed::new(retried, done.matched, done.pruned_failed_count);
    let said = said.map_err(|fault| Failed::other("retry", fault))?;
    let (text, code) = if retried > 0 {
        (format!("Retried {job}."), 0)
    } else {
        left_alone(&client, job, "retried").await?
    };
    place.say(&text, &said.to_json())?;
    Ok(ExitCode::from(code))
}

/// What is said of a job that is not failed, and the exit code.
async fn left_alone(client: &Client, job: JobId, done: &str) -> Result<(String, u8), Failed> {
    Ok(match client.load(job).await? {
        Some(row) => {
            let state = row.state;
            (format!("{job} is {state}: only failed and cancelled jobs are {done}."), NOT_ALLOWED)
        }
        None => (format!("No retained {job}."), NOT_FOUND),
    })
}

async fn discard_failed(place: &Place, which: &Which) -> Done {
    let client = place.client().await?;
    let done = client.discard_failed(filter(which)?).await?;
    let (discarded, matched) = (done.discarded.len() as i64, done.matched);
    let (text, code) = match which.job {
        Some(job) if discarded == 0 => left_alone(&client, JobId(job), "discarded").await?,
        Some(job) => (format!("Discarded {}.", JobId(job)), 0),
        None if matched == 0 => ("No failed job matched; nothing was discarded.".to_owned(), 0),
        None if matched == discarded => {
            (format!("Discarded {}.", counted(discarded, "failed job")), 0)
        }
        None => {
            let matched = counted(matched, "failed job");
            (format!("Discarded {} of the {matched} that matched.", thousands(discarded)), 0)
        }
    };
    place.say(&text, &json!({ "discarded": discarded, "matched": matched }))?;
    Ok(ExitCode::from(code))
}

async fn rotate(place: &Place, ring: Ring) -> Done {
    let (text, value, code) = match place.client().await?.rotate(ring).await? {
        RotateOutcome::Rotated { sealed, opened } => (
            format!("Sealed {sealed} of the {ring} ring, opened {opened}."),
            json!({
                "sealed_slot": sealed.slot.0,
                "opened_slot": opened.slot.0,
                "generation": opened.generation.0,
            }),
            0,
        ),
        RotateOutcome::AlreadyRotated { current } => (
            format!("{current} is open already."),
            json!({ "current_slot": current.slot.0 }),
            NOT_ALLOWED,
        ),
        RotateOutcome::RingFull { current } => (
            format!("The {ring} ring is full: prune first. {current} stays open."),
            json!({ "current_slot": current.slot.0, "full": true }),
            NOT_ALLOWED,
        ),
    };
    place.say(&text, &value)?;
    Ok(ExitCode::from(code))
}

fn aim(options: &Prune) -> (Ring, Option<Slot>, Duration) {
    (options.ring.into(), options.slot.map(Slot), options.retention.span())
}

async fn prune(place: &Place, options: &Prune) -> Done {
    let (ring, slot, floor) = aim(options);
    let outcome = place.client().await?.prune(ring, slot, floor).await?;
    let mut value = json!({ "outcome": outcome.to_string() });
    let code = match &outcome {
        PruneOutcome::Pruned { slot, carried_failed_rows, folded_failed, folded_other, .. } => {
            value = json!({
                "outcome": outcome.to_string(),
                "pruned_slot": slot.0,
                "carried_failed_rows": carried_failed_rows,
                "folded_failed": folded_failed,
                "folded_other": folded_other,
            });
            0
        }
        PruneOutcome::Noop => 0,
        PruneOutcome::NotSealed { .. }
        | PruneOutcome::Blocked { .. }
        | PruneOutcome::SkippedActive { .. } => NOT_ALLOWED,
        PruneOutcome::Faulty { .. } => 1,
    };
    place.say(&outcome.to_string(), &value)?;
    Ok(ExitCode::from(code))
}
