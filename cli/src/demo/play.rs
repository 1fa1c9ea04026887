//! The play: work, failure, a ring that turns, a floor that keeps some failures and drops others, a
//! retry. Everything that is claimed is held against numbers that ship with the jobs.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use awa::core::Instant;
use awa::{
    Attempt, Client, Failure, Job, JobState, ListFilter, PruneOutcome, QueueCounts, QueueName,
    Ring, RotateOutcome, Worker, WorkerStats,
};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::handlers::{self, Digest, Parse, Render};
use super::scene::{QUEUES, Scene};
use super::shipped::{Expected, JOBS};
use crate::draw::thousands;
use crate::ndjson::read_jobs;
use crate::output::{self, Failed};
use crate::wording::{RetryFailed, counted};

/// The jobs come in two shifts, so that failures have two ages.
const FIRST_SHIFT: usize = 1_500;
/// Keeps every failure of the demo.
const LONG_FLOOR: Duration = Duration::from_secs(3600);
/// How often the ring turns over before the floor drops anything.
const QUIET_WRAPS: usize = 3;
/// Between the shifts by the database's clock: a floor has whole seconds.
const BREAK_US: i64 = 2_500_000;
/// Failures whose bodies are held against what they were.
const SAMPLE: u16 = 5;
/// Between two readings of the auditor.
const AUDIT_PAUSE: Duration = Duration::from_millis(5);
/// A shift takes a second or two; this is for a machine that does nothing else for a while.
const SHIFT_PATIENCE: Duration = Duration::from_secs(120);

pub(crate) async fn play(
    keep: bool,
    as_json: bool,
    url: Option<String>,
) -> Result<ExitCode, Failed> {
    let mut scene = Scene::set(as_json, url, keep).await?;
    let played = acts(&mut scene).await;
    let held = scene.held;
    let failed = scene.failed_expectations().to_vec();
    if let Ok(story) = &played {
        if as_json {
            let story = json!({ "held": held, "failed": failed, "story": story });
            output::write_line(&story.to_string())
                .map_err(|error| Failed::other("write the answer", error))?;
        } else if failed.is_empty() {
            scene.tell(&format!("All {held} expectations held. Nothing was lost unsaid."));
        }
    }
    scene.strike(keep).await?;
    played?;
    Ok(if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What ships with the demo, and what must come of it.
struct Script {
    expected: Expected,
    jobs: Vec<Job>,
    old_failures: i64,
    young_failures: i64,
}

impl Script {
    fn read() -> Result<Self, Failed> {
        let expected = Expected::shipped().map_err(|e| Failed::other("read EXPECTED.json", e))?;
        let lines = read_jobs(JOBS.as_bytes()).map_err(|e| Failed::other("read jobs.ndjson", e))?;
        let fails = |line: &&usize| **line <= FIRST_SHIFT;
        let old_failures = expected.failing_lines.values().flatten().filter(fails).count() as i64;
        let young_failures = expected.fail as i64 - old_failures;
        let jobs = lines.into_iter().map(|line| line.into_job(Job::DEFAULT_QUEUE));
        Ok(Self { jobs: jobs.collect::<Result<_, _>>()?, expected, old_failures, young_failures })
    }
}

async fn acts(scene: &mut Scene) -> Result<serde_json::Value, Failed> {
    let script = Script::read()?;
    for queue in QUEUES {
        scene.client.declare_queue(queue, 1).await?;
    }
    let auditor = Auditor::start(&scene.client);
    let second_begun = work(scene, &script).await?;
    let worked = scene.counts().await?;
    let mut carried = turn_quietly(scene, &script).await?;
    let shortened = shorten_the_floor(scene, &script, second_begun, &worked).await?;
    carried += shortened.carried;
    scene.tell(&format!(
        "{} rewritten for {}: {:.2} a failure, one an actual wrap.",
        counted(carried, "row"),
        counted(script.expected.fail, "failure"),
        carried as f64 / script.expected.fail as f64
    ));
    let before = scene.counts().await?;
    let retried = retry(scene).await?;
    let end = scene.counts().await?;
    scene.show_counts(&before, &end);
    let (total, accounted) = (script.jobs.len() as i64, end.iter().map(QueueCounts::total).sum());
    scene.expect("jobs accounted for (H36)", total, accounted);
    let audit = auditor.stop().await?;
    scene.expect("readings of the counts that were not exact", 0, audit.wrong);
    scene.tell(&format!(
        "The counts were read {} while all this went on; each reading added up.",
        counted(audit.readings, "time")
    ));
    Ok(json!({
        "jobs": total,
        "failed": script.expected.fail,
        "carried_rows": carried,
        "dropped_past_floor": shortened.dropped,
        "retried": retried,
        "count_readings": audit.readings,
    }))
}

/// Act one: two shifts of work with a break between. Gives when the second began.
async fn work(scene: &mut Scene, script: &Script) -> Result<Instant, Failed> {
    let (first, second) = script.jobs.split_at(FIRST_SHIFT);
    let first_ended = work_shift(scene, first).await?;
    await_clock(&scene.client, first_ended, BREAK_US).await?;
    let second_begun = scene.client.clock().await?;
    work_shift(scene, second).await?;
    let worked = scene.counts().await?;
    scene.show_counts(&vec![QueueCounts::default(); QUEUES.len()], &worked);
    for (queue, counts) in QUEUES.iter().zip(&worked) {
        let share = script.expected.queues.get(*queue).copied().unwrap_or_default();
        scene.expect(&format!("jobs of {queue}"), share.jobs as i64, counts.total());
        scene.expect(&format!("failures of {queue}"), share.fail as i64, counts.failed);
        scene.expect(&format!("open jobs of {queue}"), 0, counts.available + counts.running);
    }
    Ok(second_begun)
}

/// Act two: the ring turns over, and the floor keeps every failure whole. Gives the rows carried.
async fn turn_quietly(scene: &mut Scene, script: &Script) -> Result<i64, Failed> {
    let sample = failures(&scene.client, "mail").await?;
    scene.expect("failures looked at", SAMPLE as usize, sample.len());
    let mut carried = 0;
    for wrap in 1..=QUIET_WRAPS {
        let turned = turn_over(&scene.client, LONG_FLOOR).await?;
        carried += turned.carried;
        scene.expect("failures carried in a wrap", script.expected.fail as i64, turned.carried);
        scene.expect("failures dropped in a wrap", 0, turned.dropped);
        scene.tell(&format!(
            "Wrap {wrap}: {} pruned. {} left the ring; {} carried whole into the open slot.",
            counted(turned.pruned as i64, "slot"),
            counted(turned.other, "completed job"),
            counted(turned.carried, "failure")
        ));
    }
    scene.show_ring(LONG_FLOOR).await?;
    for (job, args) in sample {
        let row = scene.client.load(job).await?;
        let found = row.map(|r| (r.state, r.args.unwrap_or_default()));
        scene.expect(&format!("{job} after the wraps"), Some((JobState::Failed, args)), found);
    }
    Ok(carried)
}

/// Act three: a shorter floor. What failed before the break is past it, and the loss is said.
async fn shorten_the_floor(
    scene: &mut Scene,
    script: &Script,
    kept: Instant,
    worked: &[QueueCounts],
) -> Result<Turned, Failed> {
    let turned = turn_over_by(&scene.client, kept).await?;
    let last = scene.counts().await?;
    let age = scene.client.clock().await?.since(kept).whole_secs() + 1;
    scene.tell(&format!(
        "Wrap {}: with a floor of about {age} s, {} kept and {} past it.",
        QUIET_WRAPS + 1,
        counted(turned.carried, "failure"),
        counted(turned.dropped, "failure")
    ));
    scene.expect("young failures kept", script.young_failures, turned.carried);
    scene.expect("old failures dropped", script.old_failures, turned.dropped);
    let said: i64 = last.iter().map(|c| c.pruned_failed).sum();
    scene.expect("the loss that is said", script.old_failures, said);
    scene.show_counts(worked, &last);
    Ok(turned)
}

/// Act four: the fix is deployed, and an operator retries a queue. Gives how many were retried.
async fn retry(scene: &mut Scene) -> Result<i64, Failed> {
    let before = scene.client.counts("mail").await?;
    let done = scene.client.retry_failed_by_queue("mail").await?;
    let retried = done.retried.len() as i64;
    let said = RetryFailed::new(retried, done.matched, done.pruned_failed_count);
    let said = said.map_err(|fault| Failed::other("retry", fault))?;
    scene.tell(&format!("awa retry-failed --queue mail\n{}", said.sentences()));
    scene.expect("retried", before.failed, retried);
    scene.expect("said to be pruned", Some(before.pruned_failed), done.pruned_failed_count);
    let fixed = worker(&scene.client, Fix::Deployed)?.start().await?;
    settle(&fixed.watch(), done.retried.len() as u64).await?;
    fixed.shutdown(Duration::from_secs(10)).await.map_err(|e| Failed::other("shut down", e))?;
    let after = scene.client.counts("mail").await?;
    scene.expect("failures left in mail", 0, after.failed);
    scene.expect("completed since", before.completed + before.failed, after.completed);
    Ok(retried)
}

/// Enqueues a shift in batches, works it with the real worker, and gives the database's clock after it.
async fn work_shift(scene: &Scene, jobs: &[Job]) -> Result<Instant, Failed> {
    for batch in jobs.chunks(500) {
        scene.client.enqueue_many(batch.to_vec()).await?;
    }
    scene.tell(&format!("Enqueued {} of three kinds.", counted(jobs.len() as i64, "job")));
    let working = worker(&scene.client, Fix::NotYet)?.start().await?;
    settle(&working.watch(), jobs.len() as u64).await?;
    let stats = working.shutdown(Duration::from_secs(10)).await;
    let stats = stats.map_err(|e| Failed::other("shut down", e))?;
    scene.tell(&format!(
        "Worked them: {} completed, {} failed for good.",
        thousands(stats.completed),
        thousands(stats.failed)
    ));
    Ok(scene.client.clock().await?)
}

/// Waits until `jobs` attempts have ended.
async fn settle(stats: &watch::Receiver<WorkerStats>, jobs: u64) -> Result<(), Failed> {
    let mut stats = stats.clone();
    let done = stats.wait_for(|s| s.completed + s.failed + s.stale >= jobs);
    match tokio::time::timeout(SHIFT_PATIENCE, done).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(_)) => Err(Failed::other("work", "the worker ended early")),
        Err(_) => Err(Failed::other("work", "the jobs were not done in time")),
    }
}

/// Waits until the database's clock is `us` past `since`.
async fn await_clock(client: &Client, since: Instant, us: i64) -> Result<(), Failed> {
    loop {
        let passed = client.clock().await?.since(since).us();
        if passed >= us {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_micros((us - passed).unsigned_abs())).await;
    }
}

/// Whether the bug that made jobs fail is fixed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fix {
    NotYet,
    Deployed,
}

fn worker(client: &Client, fix: Fix) -> Result<Worker, Failed> {
    let judge = move |done: Result<(), String>| match (done, fix) {
        (Err(error), Fix::NotYet) => Err(Failure::permanent(error)),
        // The fixed handlers take what the old ones choked on.
        (Ok(()) | Err(_), _) => Ok(()),
    };
    let mut worker =
        Worker::new(client.clone())
            .maintenance(None)
            .handler("digest", move |_: Attempt, args: Digest| async move {
                judge(handlers::digest(&args))
            })
            .handler("parse", move |_: Attempt, args: Parse| async move {
                judge(handlers::parse(&args))
            })
            .handler("render", move |_: Attempt, args: Render| async move {
                judge(handlers::render(&args))
            });
    for queue in QUEUES {
        worker = worker.queue(queue, 64)?;
    }
    Ok(worker)
}

/// Some failures with their args, to be looked at again later.
async fn failures(client: &Client, queue: &str) -> Result<Vec<(awa::JobId, String)>, Failed> {
    let filter = ListFilter {
        queue: Some(QueueName::new(queue)?),
        kind: None,
        state: JobState::Failed,
        before: None,
        limit: SAMPLE,
    };
    let mut found = Vec::new();
    for row in client.list(filter).await? {
        let whole = client.load(row.job).await?;
        found.extend(whole.map(|w| (w.job, w.args.unwrap_or_default())));
    }
    Ok(found)
}

/// What a turn of the ring did.
#[derive(Default)]
struct Turned {
    pruned: usize,
    carried: i64,
    dropped: i64,
    other: i64,
}

/// Fills the ring by rotation until no slot is ready, then prunes all that is sealed, oldest first: an
/// actual wrap.
async fn turn_over(client: &Client, floor: Duration) -> Result<Turned, Failed> {
    fill(client).await?;
    let mut turned = Turned::default();
    while prune_one(client, floor, &mut turned).await? {}
    turn_claims(client).await?;
    Ok(turned)
}

/// The same, with a floor that reaches back to just before `kept`: a floor has whole seconds, so it is
/// counted anew for each prune.
async fn turn_over_by(client: &Client, kept: Instant) -> Result<Turned, Failed> {
    fill(client).await?;
    let mut turned = Turned::default();
    loop {
        let age = client.clock().await?.since(kept).whole_secs().unsigned_abs();
        if !prune_one(client, Duration::from_secs(age + 1), &mut turned).await? {
            return Ok(turned);
        }
    }
}

async fn fill(client: &Client) -> Result<(), Failed> {
    loop {
        match client.rotate(Ring::Queue).await? {
            RotateOutcome::Rotated { .. } => {}
            RotateOutcome::RingFull { .. } => return Ok(()),
            RotateOutcome::AlreadyRotated { current } => {
                return Err(Failed::other("rotate", format!("{current} is open already")));
            }
        }
    }
}

async fn prune_one(client: &Client, floor: Duration, turned: &mut Turned) -> Result<bool, Failed> {
    match client.prune_oldest(floor).await? {
        PruneOutcome::Pruned { carried_failed_rows, folded_failed, folded_other, .. } => {
            turned.pruned += 1;
            turned.carried += carried_failed_rows;
            turned.dropped += folded_failed;
            turned.other += folded_other;
            Ok(true)
        }
        PruneOutcome::Noop => Ok(false),
        // A reading of the counts may stand in the way for a moment.
        PruneOutcome::Blocked { .. } => Ok(true),
        outcome @ (PruneOutcome::NotSealed { .. }
        | PruneOutcome::SkippedActive { .. }
        | PruneOutcome::Faulty { .. }) => Err(Failed::other("prune", outcome)),
    }
}

/// The claim ring turns as well: its receipts are all closed.
async fn turn_claims(client: &Client) -> Result<(), Failed> {
    client.rotate(Ring::Claim).await?;
    client.prune(Ring::Claim, None, Duration::ZERO).await?;
    Ok(())
}

/// Reads the counts over and over while the demo goes on, and sees whether they add up.
struct Auditor {
    stop: watch::Sender<bool>,
    task: JoinHandle<Result<Audit, awa::Error>>,
}

#[derive(Clone, Copy, Default)]
struct Audit {
    readings: u64,
    wrong: u64,
}

impl Auditor {
    fn start(client: &Client) -> Self {
        let (stop, stopped) = watch::channel(false);
        Self { stop, task: tokio::spawn(audit(client.clone(), stopped)) }
    }

    async fn stop(self) -> Result<Audit, Failed> {
        self.stop.send_replace(true);
        let audit = self.task.await.map_err(|e| Failed::other("audit the counts", e))?;
        Ok(audit?)
    }
}

/// Jobs only ever come: a total that is smaller than the one before has lost some. A negative count is
/// the machine's own fault and ends the audit.
async fn audit(client: Client, stopped: watch::Receiver<bool>) -> Result<Audit, awa::Error> {
    let mut audit = Audit::default();
    let mut before = [0; QUEUES.len()];
    let queues: Arc<[&str]> = QUEUES.into();
    while !*stopped.borrow() {
        for (queue, least) in queues.iter().zip(&mut before) {
            let total = client.counts(queue).await?.total();
            audit.readings += 1;
            audit.wrong += u64::from(total < *least);
            *least = total;
        }
        // Often enough to meet every prune, and not so often that there is nothing else to see.
        tokio::time::sleep(AUDIT_PAUSE).await;
    }
    Ok(audit)
}
