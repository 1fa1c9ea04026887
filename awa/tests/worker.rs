//! The worker at work: what becomes of an attempt however its handler ends, of jobs whose worker goes,
//! gracefully or not, and who wakes it.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use awa::core::{Machine, Reply, Step, Turn};
use awa::tokio_postgres::{self, AsyncMessage, NoTls};
use awa::{
    Client, ClientOptions, Failure, Job, JobId, JobRow, JobState, ShutdownError, Worker,
    WorkerStats, Working, limits,
};
use common::{Bench, Staged, job};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;

const GRACE: Duration = Duration::from_secs(30);

/// A worker of `q` without maintenance.
fn worker(bench: &Bench) -> Worker {
    Worker::new(bench.client.clone()).queue("q", 8).unwrap().maintenance(None)
}

async fn ended(working: &Working, attempts: u64) {
    let over = |s: &awa::WorkerStats| s.completed + s.failed >= attempts;
    working.watch().wait_for(over).await.unwrap();
}

async fn row(bench: &Bench, id: JobId) -> JobRow {
    bench.client.load(id).await.unwrap().unwrap()
}

/// The newest error that is kept of a job.
fn newest_error(row: &JobRow) -> String {
    let payload: serde_json::Value = serde_json::from_str(row.payload.as_ref().unwrap()).unwrap();
    payload["errors"].as_array().unwrap().last().unwrap()["error"].as_str().unwrap().to_owned()
}

fn of_kind(kind: &str) -> Job {
    Job::new(kind, &1).unwrap().queue("q").unwrap()
}

/// Whatever a handler does, its attempt ends with a fact that says what: an error, a panic in the future or
/// before it, no handler at all, args that don't fit, no end by the deadline, 20 MB of bad text.
#[tokio::test(flavor = "multi_thread")]
async fn however_a_handler_ends_its_attempt_does() {
    let bench = Bench::new().await;
    let kinds = ["good", "error", "panics", "panics_early", "unknown", "misfit", "endless", "huge"];
    let jobs = kinds.map(|kind| of_kind(kind).max_attempts(3).unwrap());
    let ids = bench.client.enqueue_many(jobs.to_vec()).await.unwrap();
    let working = worker(&bench)
        .deadline(Some(Duration::from_millis(300)))
        .handler("good", |attempt, n: i64| async move {
            assert_eq!((attempt.number(), attempt.max_attempts(), n), (1, 3, 1));
            Ok(())
        })
        .handler("error", |_, _: i64| async { Err(std::io::Error::other("disk full"))? })
        .handler("panics", |_, n: i64| async move { panic!("boom {n}") })
        .handler("panics_early", |_, n: i64| {
            assert!(n > 1, "too early");
            async { Ok(()) }
        })
        .handler("misfit", |_, _: Vec<String>| async { Ok(()) })
        .handler("endless", |_, _: i64| std::future::pending())
        .handler("huge", |_, _: i64| async {
            Err(Failure::permanent(format!("a\0b {}", "x".repeat(20 << 20))))
        })
        .start()
        .await
        .unwrap();
    ended(&working, 8).await;
    let stats = working.shutdown(GRACE).await.unwrap();
    assert_eq!((stats.claimed, stats.completed, stats.failed), (8, 1, 7));
    assert_eq!((stats.stale, stats.rejected), (0, 0));

    assert_eq!(row(&bench, ids[0]).await.state, JobState::Completed);
    let said = [
        (1, JobState::Retryable, "disk full"),
        (2, JobState::Retryable, "the handler panicked: boom 1"),
        (3, JobState::Retryable, "the handler panicked: too early"),
        (4, JobState::Retryable, "no handler is registered for kind \"unknown\""),
        (6, JobState::Retryable, "the handler did not finish by its deadline"),
    ];
    for (place, state, error) in said {
        let row = row(&bench, ids[place]).await;
        assert_eq!((row.state, row.attempt.0), (state, 1), "{}", kinds[place]);
        assert_eq!(newest_error(&row), error);
    }
    let misfit = row(&bench, ids[5]).await;
    assert_eq!(misfit.state, JobState::Failed, "they will not fit the next time either");
    assert!(
        newest_error(&misfit).starts_with("args do not fit the handler: invalid type: integer `1`")
    );
    let huge = row(&bench, ids[7]).await;
    assert_eq!(
        (huge.state, newest_error(&huge).len() <= limits::ERROR_BYTES_MAX),
        (JobState::Failed, true)
    );
    assert!(newest_error(&huge).starts_with("a\u{2400}b xxx"));
}

/// H18, H20: an attempt that fails is followed by the next while there are any, also with a delay of the
/// handler's own; a success after failures keeps what was said. Promotion is the worker's own maintenance.
#[tokio::test(flavor = "multi_thread")]
async fn failures_are_tried_again_until_attempts_are_used_up() {
    let bench = Bench::new().await;
    let hopeless = of_kind("hopeless").max_attempts(3).unwrap();
    let ids = bench.client.enqueue_many(vec![hopeless, of_kind("third_time")]).await.unwrap();
    let working = Worker::new(bench.client.clone())
        .queue("q", 8)
        .unwrap()
        .handler("hopeless", |attempt, _: i64| async move {
            Err(Failure::retry_after(format!("no {}", attempt.number()), Duration::ZERO))
        })
        .handler("third_time", |attempt, _: i64| async move {
            if attempt.number() < 3 {
                return Err(Failure::retry_after("not yet", Duration::ZERO));
            }
            let earlier: serde_json::Value =
                serde_json::from_str(attempt.payload().unwrap()).unwrap();
            assert_eq!(earlier["errors"].as_array().unwrap().len(), 2);
            Ok(())
        })
        .start()
        .await
        .unwrap();
    ended(&working, 6).await;
    working.shutdown(GRACE).await.unwrap();
    let failed = row(&bench, ids[0]).await;
    assert_eq!((failed.state, failed.attempt.0, failed.run_lease.0), (JobState::Failed, 3, 3));
    assert_eq!(newest_error(&failed), "no 3");
    let done = row(&bench, ids[1]).await;
    assert_eq!((done.state, done.attempt.0), (JobState::Completed, 3));
    let counts = bench.client.counts("q").await.unwrap();
    assert_eq!((counts.completed, counts.failed, counts.total()), (1, 1, 2));
}

/// H06: a worker that is dropped, as a crash would, leaves its attempts open; past their deadline they are
/// rescued once, and another worker does the job.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_dies_gives_its_jobs_back() {
    let bench = Bench::new().await;
    let id = bench.client.enqueue(job(1)).await.unwrap();
    let begun = Arc::new(Notify::new());
    let tell = Arc::clone(&begun);
    let handler = move |_, _: i64| {
        tell.notify_one();
        std::future::pending()
    };
    let dying = worker(&bench).handler("k", handler).start().await.unwrap();
    begun.notified().await;
    drop(dying);
    assert_eq!(bench.client.rescue_overdue(10).await.unwrap().found, 0, "it is not late yet");
    assert_eq!(row(&bench, id).await.state, JobState::Running);
    bench.execute("update S.lease_claim_batches set deadline_at = now()").await;
    let rescued = bench.client.rescue_overdue(10).await.unwrap();
    assert_eq!(rescued.closed.len(), 1);
    assert_eq!(bench.client.rescue_overdue(10).await.unwrap().found, 0);
    assert_eq!(row(&bench, id).await.state, JobState::Retryable);
    bench.execute("update S.deferred_jobs set run_at = now()").await;
    bench.client.promote_due(10).await.unwrap();
    let working = worker(&bench).fallback(|_| async { Ok(()) }).start().await.unwrap();
    ended(&working, 1).await;
    working.shutdown(GRACE).await.unwrap();
    let row = row(&bench, id).await;
    assert_eq!((row.state, row.attempt.0, row.run_lease.0), (JobState::Completed, 2, 2));
}

/// H60: once a worker was told to stop it claims nothing; a handler that ends in its grace is stored as it
/// ended, while others run on. A grace that no clock can count waits for the last of them.
#[tokio::test(flavor = "multi_thread")]
async fn a_graceful_shutdown_lets_handlers_finish() {
    let bench = Bench::new().await;
    let ids = bench.client.enqueue_many(vec![of_kind("quick"), of_kind("slow")]).await.unwrap();
    let (begun, mut running) = mpsc::unbounded_channel();
    let (end, ended) = tokio::sync::watch::channel("");
    let handler = move |attempt: awa::Attempt| {
        let mut ended = ended.clone();
        begun.send(()).unwrap();
        async move { Ok(ended.wait_for(|end| end.contains(attempt.kind())).await.map(drop)?) }
    };
    let working = worker(&bench).fallback(handler).start().await.unwrap();
    assert_eq!((running.recv().await, running.recv().await), (Some(()), Some(())));
    let mut watch = working.watch();
    let shutdown = begin_shutdown(working, Duration::MAX).await;
    let late = bench.client.enqueue(of_kind("quick")).await.unwrap();
    end.send("quick").unwrap();
    watch.wait_for(|s| s.completed == 1).await.unwrap();
    assert_eq!(row(&bench, ids[1]).await.state, JobState::Running, "the grace goes on");
    end.send("quick slow").unwrap();
    let stats = shutdown.await.unwrap().unwrap();
    // A claim that was under way may have taken the late job as well: then that is handed back.
    let late_claims = stats.claimed - 2;
    assert!(late_claims <= 1, "{stats:?}");
    assert_eq!((stats.completed, stats.failed, stats.handed_back), (2, 0, late_claims));
    for id in ids {
        assert_eq!(row(&bench, id).await.state, JobState::Completed);
    }
    let late = row(&bench, late).await;
    assert_eq!((late.state, late.attempt.0), (JobState::Available, 0));
    assert_eq!(late.run_lease.0.unsigned_abs(), late_claims);
}

/// H60: a handler that does not end in its grace is stopped and its job handed back at once, also if that was
/// its only attempt.
#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_end_in_its_grace_is_handed_back() {
    let bench = Bench::new().await;
    let jobs = vec![of_kind("slow").max_attempts(1).unwrap(), of_kind("slow")];
    let ids = bench.client.enqueue_many(jobs).await.unwrap();
    let (begun, mut running) = mpsc::unbounded_channel();
    let handler = move |_| {
        begun.send(()).unwrap();
        std::future::pending()
    };
    let working = worker(&bench).fallback(handler).start().await.unwrap();
    assert_eq!((running.recv().await, running.recv().await), (Some(()), Some(())));
    let (told, grace) = (Instant::now(), Duration::from_millis(500));
    let stats = working.shutdown(grace).await.unwrap();
    assert!(told.elapsed() >= grace, "{:?}", told.elapsed());
    assert_eq!((stats.claimed, stats.handed_back), (2, 2));
    for id in ids {
        let row = row(&bench, id).await;
        assert_eq!(row.state, JobState::Available, "the job is not to blame");
        assert_eq!((row.attempt.0, row.run_lease.0, row.payload), (0, 1, None));
    }
    assert_eq!(bench.claim(10).await.len(), 2, "at once");
}

/// H60, H18: a service that is deployed more often than a job has attempts uses none of them up. Others are
/// told each time; the attempts that fail count as ever, and what succeeds is stored compactly.
#[tokio::test(flavor = "multi_thread")]
async fn no_number_of_deployments_uses_up_a_jobs_attempts() {
    let bench = Bench::alone().await;
    let listen = {
        let working = worker(&bench).fallback(|_| async { Ok(()) }).start().await.unwrap();
        let listen = listening(&bench).await;
        working.shutdown(GRACE).await.unwrap();
        listen
    };
    let ids = bench
        .client
        .enqueue_many(
            vec![of_kind("good"), of_kind("bad")]
                .into_iter()
                .map(|job| job.max_attempts(2).unwrap())
                .collect(),
        )
        .await
        .unwrap();
    bench.client.wakes_sent().await;
    let (sql, mut told) = notified(&bench).await;
    sql.batch_execute(&listen).await.unwrap();
    for deployment in 1..=4 {
        let (begun, mut running) = mpsc::unbounded_channel();
        let handler = move |attempt: awa::Attempt| {
            begun.send(attempt.number()).unwrap();
            std::future::pending()
        };
        let working = worker(&bench).fallback(handler).start().await.unwrap();
        assert_eq!((running.recv().await, running.recv().await), (Some(1), Some(1)));
        let stats = working.shutdown(Duration::ZERO).await.unwrap();
        assert_eq!((stats.handed_back, stats.failed, stats.stale), (2, 0, 0));
        let lanes = hear(&mut told).await;
        assert_eq!(lanes.split(' ').count(), 4, "all lanes of the queue: {lanes}");
        assert_eq!(row(&bench, ids[0]).await.run_lease.0, deployment);
    }
    let working = worker(&bench)
        .handler("good", |_, _: i64| async { Ok(()) })
        .handler("bad", |_, _: i64| async { Err(Failure::retry("it is")) })
        .start()
        .await
        .unwrap();
    ended(&working, 2).await;
    working.shutdown(GRACE).await.unwrap();
    let (good, bad) = (row(&bench, ids[0]).await, row(&bench, ids[1]).await);
    assert_eq!((good.state, good.attempt.0, good.run_lease.0), (JobState::Completed, 1, 5));
    assert_eq!((bad.state, bad.attempt.0), (JobState::Retryable, 1), "one attempt is left");
    assert_eq!(newest_error(&bad), "it is");
    assert_eq!(bench.rows("receipt_completion_batches").await, 1);
    assert_eq!(bench.client.counts("q").await.unwrap().total(), 2);
}

/// H60: a claim that was under way when the drain began is handed back without a try.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_lands_in_the_drain_is_handed_back_untried() {
    let bench = Bench::alone().await;
    let id = bench.client.enqueue(job(1).max_attempts(1).unwrap()).await.unwrap();
    let (holding, mut gate) = Staged::stopped(HoldLane(bench.lane().await));
    let client = bench.client.clone();
    let holding = tokio::spawn(async move { client.run(holding).await });
    gate.reached().await;
    let tried = Arc::new(AtomicUsize::new(0));
    let trying = Arc::clone(&tried);
    let handler = move |_, _: i64| {
        trying.fetch_add(1, Ordering::AcqRel);
        async { Ok(()) }
    };
    let working = worker(&bench).handler("k", handler).start().await.unwrap();
    bench.blocked(1).await;
    let shutdown = begin_shutdown(working, GRACE).await;
    gate.open();
    holding.await.unwrap().unwrap();
    let stats = shutdown.await.unwrap().unwrap();
    assert_eq!((stats.claimed, stats.handed_back, tried.load(Ordering::Acquire)), (1, 1, 0));
    let row = row(&bench, id).await;
    assert_eq!((row.state, row.attempt.0, row.run_lease.0), (JobState::Available, 0, 1));
}

/// A notification makes a worker claim at once. The lane is empty, so that no poll could have made it; and
/// the lane's lock is held, so that its claim can be seen to wait.
#[tokio::test(flavor = "multi_thread")]
async fn a_notification_makes_a_worker_claim() {
    let bench = Bench::alone().await;
    let (holding, mut gate) = Staged::stopped(HoldLane(bench.lane().await));
    let client = bench.client.clone();
    let holding = tokio::spawn(async move { client.run(holding).await });
    gate.reached().await;
    let working = worker(&bench).fallback(|_| async { Ok(()) }).start().await.unwrap();
    listening(&bench).await;
    assert_eq!(bench.ungranted().await, 0, "polls make no claim of an empty lane");
    bench.client.wake_queue("q").await.unwrap();
    bench.blocked(1).await;
    gate.open();
    holding.await.unwrap().unwrap();
    assert_eq!(working.shutdown(GRACE).await.unwrap().claimed, 0);
}

/// What makes a job claimable tells the workers after its commit, once for each lane; an enqueue in the
/// caller's transaction tells nobody until it is asked to (H61: NOTIFY would make producers wait).
#[tokio::test(flavor = "multi_thread")]
async fn workers_are_told_after_the_commit() {
    let bench = Bench::alone().await;
    let working = worker(&bench).fallback(|_| async { Ok(()) }).start().await.unwrap();
    let listen = listening(&bench).await;
    working.shutdown(GRACE).await.unwrap();
    let (sql, mut told) = notified(&bench).await;
    sql.batch_execute(&listen).await.unwrap();
    let lane = bench.lane().await.0.to_string();

    let mut producer = common::connect_to(&bench).await;
    let transaction = producer.transaction().await.unwrap();
    bench.client.enqueue_in(&transaction, vec![job(1)]).await.unwrap();
    transaction.commit().await.unwrap();
    // The marker comes first, so nothing was told before it.
    bench.execute(&format!("notify {}, 'marker'", listen.split(' ').nth(1).unwrap())).await;
    assert_eq!(hear(&mut told).await, "marker");
    bench.client.wake_queue("q").await.unwrap();
    let lanes = hear(&mut told).await;
    assert_eq!(lanes.split(' ').count(), 4, "all lanes of the queue: {lanes}");
    bench.enqueue(3).await;
    assert_eq!(hear(&mut told).await, lane);
    bench.complete(4).await;
    bench.fail(1).await;
    assert_eq!(hear(&mut told).await, lane, "of the job that then failed");
    bench.client.retry_failed_by_queue("q").await.unwrap();
    assert_eq!(hear(&mut told).await, lane);
    bench.client.enqueue(job(1).run_in(Duration::from_micros(1))).await.unwrap();
    assert_eq!(bench.client.promote_due(10).await.unwrap(), 1);
    assert_eq!(hear(&mut told).await, lane);
}

/// H57: behind a transaction pooler a worker listens to nothing, and works by polling.
#[tokio::test(flavor = "multi_thread")]
async fn behind_a_pooler_a_worker_polls() {
    let bench = Bench::alone().await;
    let options = ClientOptions { behind_pooler: true, ..ClientOptions::default() };
    let config = bench.url.parse().unwrap();
    let client = Client::connect_with(config, NoTls, &bench.schema, options).await.unwrap();
    let worker = Worker::new(client).queue("q", 8).unwrap().maintenance(None);
    let working = worker.fallback(|_| async { Ok(()) }).start().await.unwrap();
    for n in 1..=3 {
        bench.enqueue(1).await;
        ended(&working, n).await;
    }
    assert_eq!(bench.number(LISTENERS).await, 0);
    let named = "select count(*) from pg_stat_activity where datname = current_database()
                   and query ilike 'listen%'";
    assert_eq!(bench.number(named).await, 0);
    assert_eq!(working.shutdown(GRACE).await.unwrap().completed, 3);
}

/// The next payload. Who is not told never will be: that is a failure, not a test that hangs.
async fn hear(told: &mut mpsc::UnboundedReceiver<String>) -> String {
    let heard = tokio::time::timeout(Duration::from_secs(60), told.recv()).await;
    heard.expect("somebody is told").unwrap()
}

/// Takes a lane's lock and nothing else.
struct HoldLane(awa::core::LaneId);

impl Machine for HoldLane {
    type Outcome = ();

    fn start(&mut self) -> Turn<()> {
        Turn::Ask(vec![Step::LockLane { lane: self.0 }])
    }

    fn resume(&mut self, replies: Vec<Reply>) -> Turn<()> {
        assert_eq!(replies, [Reply::Locked]);
        Turn::Commit(())
    }
}

/// Begins a shutdown: the worker is told of it when this returns.
async fn begin_shutdown(
    working: Working,
    grace: Duration,
) -> JoinHandle<Result<WorkerStats, ShutdownError>> {
    let mut shutdown = Box::pin(working.shutdown(grace));
    tokio::select! {
        biased;
        over = &mut shutdown => panic!("over at once: {over:?}"),
        () = std::future::ready(()) => {}
    }
    tokio::spawn(shutdown)
}

/// Sessions of this database that listen.
const LISTENERS: &str = "select count(*) from pg_stat_activity
      where datname = current_database() and state = 'idle' and query ilike 'listen %'";

/// Waits until a worker listens, and gives the statement.
async fn listening(bench: &Bench) -> String {
    while bench.number(LISTENERS).await == 0 {
        tokio::task::yield_now().await;
    }
    let query = LISTENERS.replace("count(*)", "min(query)");
    bench.sql.query_one(&query, &[]).await.unwrap().get(0)
}

/// A connection, and the payloads of what is notified on it.
async fn notified(bench: &Bench) -> (tokio_postgres::Client, mpsc::UnboundedReceiver<String>) {
    let (client, mut connection) = tokio_postgres::connect(&bench.url, NoTls).await.unwrap();
    let (sender, receiver) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(message) = std::future::poll_fn(|cx| connection.poll_message(cx)).await {
            if let AsyncMessage::Notification(told) = message.unwrap() {
                sender.send(told.payload().to_owned()).unwrap();
            }
        }
    });
    (client, receiver)
}
