//! What a service and an operator touch: the view of history, the ways in and what they refuse, the
//! caller's own transaction, and whose clock counts.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use awa::core::fault::{Field, JsonReason};
use awa::core::machine::claim::{Claim, ClaimOutcome};
use awa::core::machine::close::Finished;
use awa::core::{Span, Window};
use awa::{
    Attempt, DeleteOutcome, Failure, Job, JobId, JobState, PruneOutcome, Ring, UserError, Worker,
    limits,
};
use common::{Bench, connect, job};
use serde_json::json;

/// Tables that an enqueue could have written to.
const WAYS_IN: &str =
    "(select count(*) from S.ready_entries) + (select count(*) from S.deferred_jobs)";

/// R026-16: `terminal_jobs` has a row for each retained end, whichever way it is stored, with all of its
/// body; a completion that was deleted is not there; and nobody can write to it.
#[tokio::test]
async fn terminal_jobs_is_the_one_view_of_history() {
    let bench = Bench::new().await;
    let jobs = vec![
        job(1),
        job(2),
        job(3).tag("red").unwrap(),
        job(4).max_attempts(7).unwrap(),
        job(5).metadata("trace", json!("x")).unwrap(),
    ];
    let ids = bench.client.enqueue_many(jobs).await.unwrap();
    let claimed = bench.claim(4).await;
    let mut ends: Vec<_> = claimed[..3].iter().map(Finished::completed).collect();
    ends.push(Finished::failed_for_good(&claimed[3], b"broken"));
    bench.finish(ends).await;
    bench.client.cancel(ids[4]).await.unwrap();
    assert_eq!(bench.client.delete_completed(ids[1]).await.unwrap(), DeleteOutcome::Deleted);

    let read = "select job_id, state, args::text, max_attempts, payload::text, compact, attempt, run_lease,
                       attempted_at is not null
                  from S.terminal_jobs
                 where queue = 'q' and priority = 2 and enqueue_shard = 0 and kind = 'k' and not body_missing
                   and run_at = created_at and created_at <= finalized_at
                 order by job_id";
    let rows = bench.sql.query(&bench.spelled(read), &[]).await.unwrap();
    type Shown<'a> = (i64, &'a str, &'a str, i16, Option<&'a str>, bool, i16, i64, bool);
    let shown: Vec<Shown<'_>> = rows
        .iter()
        .map(|r| {
            (
                r.get(0),
                r.get(1),
                r.get(2),
                r.get(3),
                r.get(4),
                r.get(5),
                r.get(6),
                r.get(7),
                r.get(8),
            )
        })
        .collect();
    let errors = shown.get(2).and_then(|row| row.4).unwrap_or_default();
    assert!(errors.contains(r#""error": "broken""#), "{shown:?}");
    assert_eq!(
        shown,
        [
            (ids[0].0, "completed", "1", 25, None, true, 1, 1, true),
            (ids[2].0, "completed", "3", 25, Some(r#"{"tags": ["red"]}"#), false, 1, 1, true),
            (ids[3].0, "failed", "4", 7, Some(errors), false, 1, 1, true),
            (
                ids[4].0,
                "cancelled",
                "5",
                25,
                Some(r#"{"metadata": {"trace": "x"}}"#),
                false,
                0,
                0,
                false
            ),
        ]
    );
    for write in [
        "insert into S.terminal_jobs (job_id) values (1)",
        "update S.terminal_jobs set state = 'failed'",
        "delete from S.terminal_jobs",
    ] {
        let refused = bench.sql.batch_execute(&bench.spelled(write)).await.unwrap_err();
        assert_eq!(refused.code().unwrap().code(), "55000", "{write}: a view that takes no writes");
    }
}

/// R026-17: a compact success can't be retried or discarded; deleting it hides it by a tombstone, once, and
/// leaves its receipt closed: its own end is stale, and the claim ring goes on. No array has an index.
#[tokio::test]
async fn a_hidden_success_stays_closed() {
    let bench = Bench::new().await;
    bench.enqueue(2).await;
    let jobs = bench.claim(2).await;
    bench.finish(jobs.iter().map(Finished::completed).collect()).await;
    let id = jobs[0].receipt.job;
    assert_eq!(bench.client.retry(id).await.unwrap().retried, []);
    let discarded = bench.client.discard_failed(awa::TerminalFilter::Job(id)).await.unwrap();
    assert_eq!(discarded.discarded, []);
    assert_eq!(bench.client.counts("q").await.unwrap().completed, 2);

    assert_eq!(bench.client.delete_completed(id).await.unwrap(), DeleteOutcome::Deleted);
    assert_eq!(bench.client.delete_completed(id).await.unwrap(), DeleteOutcome::NotFound);
    assert_eq!(bench.rows("receipt_completion_tombstones").await, 1);
    assert_eq!(bench.number("select completed_count from S.receipt_completion_batches").await, 2);
    let counts = bench.client.counts("q").await.unwrap();
    assert_eq!((counts.completed, counts.running, counts.available), (1, 0, 0));
    assert_eq!(bench.finish(vec![Finished::completed(&jobs[0])]).await.stale.len(), 1);
    assert_eq!(bench.claim(10).await, []);

    bench.client.rotate(Ring::Claim).await.unwrap();
    bench.client.rotate(Ring::Queue).await.unwrap();
    for (ring, folded) in [(Ring::Claim, 0), (Ring::Queue, 1)] {
        let pruned = bench.client.prune(ring, None, Duration::ZERO).await.unwrap();
        assert!(
            matches!(pruned, PruneOutcome::Pruned { folded_other, .. } if folded_other == folded),
            "{pruned}"
        );
    }
    let indexed = format!(
        "select count(*) from pg_index i
           join pg_class c on c.oid = i.indrelid
           join pg_attribute a on a.attrelid = c.oid and a.attnum = any (i.indkey)
           join pg_type t on t.oid = a.atttypid
          where c.relnamespace = to_regnamespace('{}') and t.typcategory = 'A'",
        bench.schema
    );
    assert_eq!(bench.number(&indexed).await, 0);
}

/// What can't be stored is refused before anything is sent, by a type that names the field and the place.
#[tokio::test]
async fn bad_input_is_named_and_nothing_is_written() {
    let bench = Bench::new().await;
    let nul = Job::new("k", &json!({"to": [{"name": "a"}, {"name": "a\0b"}]})).unwrap_err();
    let UserError::Json { path, reason, line, column, .. } = &nul else { panic!("{nul}") };
    assert_eq!((path.as_str(), *reason, *line), ("$.to[1].name", JsonReason::Nul, 1));
    assert!(nul.to_string().starts_with("args at $.to[1].name (line 1, column "), "{nul} {column}");
    let half = Job::from_json("k", r#"{"a": "\ud800"}"#.to_owned()).unwrap_err();
    assert!(
        matches!(&half, UserError::Json { path, reason: JsonReason::LoneSurrogate, .. } if path == "$.a")
    );
    let broken = Job::from_json("k", "{\n  \"a\": }".to_owned()).unwrap_err();
    assert!(
        matches!(broken, UserError::Json { reason: JsonReason::Syntax, line: 2, column: 8, .. }),
        "{broken:?}"
    );
    let range = |field, value, min, max| UserError::OutOfRange { field, value, min, max };
    for priority in [0, 5, -1, i64::MAX] {
        assert_eq!(job(1).priority(priority).unwrap_err(), range(Field::Priority, priority, 1, 4));
    }
    for attempts in [0, 32_768] {
        let refused = job(1).max_attempts(attempts).unwrap_err();
        assert_eq!(refused, range(Field::MaxAttempts, attempts, 1, 32_767));
    }
    assert_eq!(job(1).shard(64).unwrap_err(), range(Field::Shard, 64, 0, 63));
    let max = limits::ARGS_BYTES_MAX;
    let big = Job::new("k", &"x".repeat(max - 1)).unwrap_err();
    assert_eq!(big, UserError::TooLong { field: Field::Args, bytes: max + 1, max });
    assert_eq!(job(1).tag("").unwrap_err(), UserError::Empty { field: Field::Tag });
    assert_eq!(job(1).queue("a\0").unwrap_err(), UserError::Nul { field: Field::Queue });
    assert_eq!(Job::new("", &1).unwrap_err(), UserError::Empty { field: Field::Kind });
    assert!(matches!(job(1).metadata("m", json!("\0")), Err(UserError::Json { .. })));

    let keyed = std::collections::BTreeMap::from([((1, 2), 3)]);
    let said = Job::new("k", &keyed).unwrap_err().to_string();
    assert_eq!(said, "args can't be written as JSON: key must be a string");
    let idle = Worker::new(bench.client.clone()).queue("q", 0).map(|_| ()).unwrap_err();
    assert_eq!(idle, range(Field::Concurrency, 0, 1, u32::MAX.into()));
    let later = job(1).run_in(Duration::from_secs(60));
    let refused = bench.client.copy(vec![job(1), later]).await.unwrap_err();
    assert_eq!(refused.as_user_error(), Some(&UserError::NotDue { jobs: 1 }));

    let nowhere = awa::QueueName::new("nowhere").unwrap();
    for (queue, limit, expected) in [
        (None, 0, range(Field::Limit, 0, 1, u16::MAX.into())),
        (Some(nowhere), 1, UserError::UnknownQueue { queue: "nowhere".to_owned() }),
    ] {
        let (kind, state, before) = (None, JobState::Available, None);
        let filter = awa::ListFilter { queue, kind, state, before, limit };
        let refused = bench.client.list(filter).await.unwrap_err();
        assert_eq!(refused.as_user_error(), Some(&expected));
    }

    // One that can't be placed keeps all others of its call out, in every way in.
    let some = || vec![job(1), job(2).shard(7).unwrap(), job(3).run_in(Duration::from_secs(60))];
    let unknown = UserError::UnknownShard { queue: "q".to_owned(), shard: 7 };
    let refused = bench.client.enqueue_many(some()).await.unwrap_err();
    assert_eq!(refused.as_user_error(), Some(&unknown));
    let refused = bench.client.copy(vec![job(1), job(2).shard(7).unwrap()]).await.unwrap_err();
    assert_eq!(refused.as_user_error(), Some(&unknown));
    let mut sql = connect().await;
    let transaction = sql.transaction().await.unwrap();
    let refused = bench.client.enqueue_in(&transaction, some()).await.unwrap_err();
    assert_eq!(refused.as_user_error(), Some(&unknown));
    // The caller's transaction is as good as before.
    bench.client.enqueue_in(&transaction, vec![job(1)]).await.unwrap();
    transaction.commit().await.unwrap();
    assert_eq!(bench.number(WAYS_IN).await, 1);
}

/// A handler that must stop early gives its attempt back: the job is in its lane at once, the attempt, even
/// if it was the last, is not counted, and what the handler says after that is stale (H60).
#[tokio::test]
async fn a_handler_may_hand_its_attempt_back() {
    let bench = Bench::new().await;
    let id = bench.client.enqueue(job(1).max_attempts(1).unwrap()).await.unwrap();
    let (client, calls) = (bench.client.clone(), Arc::new(AtomicU32::new(0)));
    let called = Arc::clone(&calls);
    let handler = move |attempt: Attempt, _: i64| {
        let (client, first) = (client.clone(), called.fetch_add(1, Ordering::Relaxed) == 0);
        async move {
            if !first {
                return Ok(());
            }
            assert!(client.hand_back(&attempt, "no room").await.unwrap());
            assert!(!client.hand_back(&attempt, "no room").await.unwrap(), "once is enough");
            Err(Failure::permanent("nobody hears this"))
        }
    };
    let worker = Worker::new(bench.client.clone()).queue("q", 1).unwrap().handler("k", handler);
    let working = worker.start().await.unwrap();
    let mut stats = working.watch();
    let done = stats.wait_for(|s| s.completed + s.failed == 1 && s.stale == 1);
    tokio::time::timeout(Duration::from_secs(60), done).await.unwrap().unwrap();
    let stats = working.shutdown(Duration::from_secs(10)).await.unwrap();
    assert_eq!((stats.claimed, stats.completed, stats.failed), (2, 1, 0));
    let row = bench.client.load(id).await.unwrap().unwrap();
    assert_eq!((row.state, row.attempt.0, row.run_lease.0), (JobState::Completed, 1, 2));
    assert_eq!((row.payload, calls.load(Ordering::Relaxed)), (None, 2));
}

/// The largest args that are allowed are stored whole, and claimed.
#[tokio::test]
async fn args_at_the_limit_are_stored_whole() {
    let bench = Bench::new().await;
    let text = "x".repeat(limits::ARGS_BYTES_MAX - 2);
    bench.client.enqueue(Job::new("k", &text).unwrap().queue("q").unwrap()).await.unwrap();
    let jobs = bench.claim(1).await;
    assert_eq!(jobs[0].args.len(), limits::ARGS_BYTES_MAX);
    assert_eq!(jobs[0].args[1..=text.len()], text);
}

/// Enqueuing is part of the caller's transaction: with a savepoint it comes and goes, and with the
/// transaction; what stays keeps its order, whichever way it came in.
#[tokio::test]
async fn jobs_come_and_go_with_the_callers_savepoints() {
    let bench = Bench::new().await;
    let mut sql = connect().await;
    let mut transaction = sql.transaction().await.unwrap();
    transaction.batch_execute("create temp table business (id int) on commit drop").await.unwrap();
    let first = bench.client.enqueue_in(&transaction, vec![job(1)]).await.unwrap();
    let mut kept = transaction.savepoint("kept").await.unwrap();
    let second = bench.client.enqueue_in(&kept, vec![job(2), job(3)]).await.unwrap();
    let gone = kept.savepoint("gone").await.unwrap();
    let hour = Duration::from_secs(3600);
    let undone = bench.client.enqueue_in(&gone, vec![job(4), job(5).run_in(hour)]).await.unwrap();
    gone.rollback().await.unwrap();
    let third = bench.client.enqueue_in(&kept, vec![job(6)]).await.unwrap();
    kept.commit().await.unwrap();
    transaction.execute("insert into business values (1)", &[]).await.unwrap();
    let call = bench.spelled("select S.enqueue('q', 'k', '7')");
    let fourth = JobId(transaction.query_one(&call, &[]).await.unwrap().get(0));
    assert_eq!(bench.number(WAYS_IN).await, 0, "nobody sees them yet");
    transaction.commit().await.unwrap();
    let expected = [first, second, third, vec![fourth]].concat();
    let jobs = bench.claim(10).await;
    assert_eq!(jobs.iter().map(|j| j.receipt.job).collect::<Vec<_>>(), expected);
    assert_eq!(jobs.iter().map(|j| j.args.as_str()).collect::<Vec<_>>(), ["1", "2", "3", "6", "7"]);
    for id in undone {
        assert!(bench.client.load(id).await.unwrap().is_none());
    }

    let transaction = sql.transaction().await.unwrap();
    bench.client.enqueue_in(&transaction, vec![job(8), job(9).run_in(hour)]).await.unwrap();
    transaction.query_one(&call, &[]).await.unwrap();
    transaction.rollback().await.unwrap();
    assert_eq!(bench.claim(10).await, []);
    assert_eq!(bench.client.counts("q").await.unwrap().total(), 5);
}

/// What one life of some jobs looks like, in terms of the database's clock alone.
#[derive(Debug, PartialEq)]
struct Life {
    promoted_at_once: usize,
    available: i64,
    scheduled: i64,
    overdue: i64,
    carried: i64,
    dropped: i64,
    retryable_promoted: usize,
}

/// Replaces the clock of this bench's database by one that is `offset` away from the host's.
const SHIFTED: &str = "
create function pg_catalog.host_now() returns timestamptz stable language internal as 'now';
create function pg_catalog.host_statement() returns timestamptz stable language internal as 'statement_timestamp';
create function pg_catalog.host_clock() returns timestamptz volatile language internal as 'clock_timestamp';
create or replace function pg_catalog.now() returns timestamptz stable language sql
  as $$ select pg_catalog.host_now() + interval 'OFFSET' $$;
create or replace function pg_catalog.transaction_timestamp() returns timestamptz stable language sql
  as $$ select pg_catalog.host_now() + interval 'OFFSET' $$;
create or replace function pg_catalog.statement_timestamp() returns timestamptz stable language sql
  as $$ select pg_catalog.host_statement() + interval 'OFFSET' $$;
create or replace function pg_catalog.clock_timestamp() returns timestamptz volatile language sql
  as $$ select pg_catalog.host_clock() + interval 'OFFSET' $$;";

async fn live(offset: &str) -> Life {
    let bench = Bench::alone().await;
    bench.execute(&SHIFTED.replace("OFFSET", offset)).await;
    // A new client: what the old one's sessions have planned knows the old clock.
    let client = bench.another_client().await;
    let bench = Bench { client, ..bench };
    let minutes = |n: u64| Duration::from_secs(60 * n);
    let now = bench.now().await;
    let ids = bench
        .client
        .enqueue_many(vec![
            job(1).run_in(minutes(30)),
            job(2).run_at_instant(now.before(Span::from_secs(1))),
            job(3).run_at_instant(now.after(Span::from_secs(1800))),
            job(4),
        ])
        .await
        .unwrap();
    let promoted_at_once = bench.client.promote_due(10).await.unwrap();
    let counts = bench.client.counts("q").await.unwrap();
    for id in &ids {
        let row = bench.client.load(*id).await.unwrap().unwrap();
        assert!(
            row.created_at.since(now) < Span::from_secs(1800) && now <= row.created_at,
            "{offset}"
        );
    }
    let (lane, bytes) = (bench.lane().await, limits::CLAIM_BYTES_MAX);
    let deadline = Some(Span::from_secs(1800));
    let claim = Claim::new(lane, Window::default(), 10, bytes, deadline).unwrap();
    let ClaimOutcome::Claimed { jobs, attempted_at, deadline_at, .. } =
        bench.client.run(claim).await.unwrap()
    else {
        panic!()
    };
    assert_eq!(deadline_at, Some(attempted_at.after(Span::from_secs(1800))));
    let overdue = bench.client.rescue_overdue(10).await.unwrap().found;
    // One fails for good; the other is to be tried again in half an hour, and not now.
    bench
        .finish(vec![
            Finished::failed_for_good(&jobs[0], b"no"),
            Finished::failed(&jobs[1], b"later", Some(Span::from_secs(1800))),
        ])
        .await;
    let retryable_promoted = bench.client.promote_due(10).await.unwrap();
    bench.client.rotate(Ring::Queue).await.unwrap();
    let PruneOutcome::Pruned { carried_failed_rows, folded_failed, .. } =
        bench.client.prune_oldest(minutes(30)).await.unwrap()
    else {
        panic!()
    };
    Life {
        promoted_at_once,
        available: counts.available,
        scheduled: counts.scheduled,
        overdue,
        carried: carried_failed_rows,
        dropped: folded_failed,
        retryable_promoted,
    }
}

/// H59: the host's clock and the database's are an hour apart, either way, and nothing is different: delays,
/// deadlines, backoff and the floor go by the database's clock, and every stored time is its.
#[tokio::test]
async fn a_host_clock_that_is_off_by_an_hour_makes_no_difference() {
    let expected = Life {
        promoted_at_once: 0,
        available: 2,
        scheduled: 2,
        overdue: 0,
        carried: 1,
        dropped: 0,
        retryable_promoted: 0,
    };
    for offset in ["0", "1 hour", "-1 hour"] {
        assert_eq!(live(offset).await, expected, "{offset}");
    }
    // And the clock was another one.
    let bench = Bench::alone().await;
    bench.execute(&SHIFTED.replace("OFFSET", "1 hour")).await;
    let host = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let ahead =
        bench.another_client().await.clock().await.unwrap().unix_us() - host.as_micros() as i64;
    assert!((3_500_000_000..3_700_000_000).contains(&ahead), "{ahead}");
}
