//! The SQL function `enqueue`: what it refuses, in the library's words, and what it enqueues.
#![allow(clippy::unwrap_used)]

mod common;

use awa::core::Span;
use awa::tokio_postgres::error::SqlState;
use awa::{Instant, JobId, JobState};
use common::{Bench, connect};

/// Tables that an enqueue could have written to.
const WAYS_IN: &str =
    "(select count(*) from S.ready_entries) + (select count(*) from S.deferred_jobs)";

/// Arguments, and what is said of them.
const REFUSED: &[(&str, &str)] = &[
    ("'q', 'k', priority => 0", "priority is 0; it must lie between 1 and 4"),
    ("'q', 'k', priority => 5", "priority is 5; it must lie between 1 and 4"),
    ("'q', 'k', priority => null", "priority must not be null"),
    ("'q', 'k', max_attempts => 0", "max_attempts is 0; it must lie between 1 and 32767"),
    ("'q', 'k', max_attempts => 32768", "max_attempts is 32768; it must lie between 1 and 32767"),
    ("'q', 'k', max_attempts => null", "max_attempts must not be null"),
    ("'q', ''", "kind must not be empty"),
    ("'q', repeat('k', 201)", "kind is 201 bytes long; at most 200 are allowed"),
    ("'q', repeat('é', 101)", "kind is 202 bytes long; at most 200 are allowed"),
    ("'q', null", "kind must not be null"),
    ("'q', 'k', null", "args must not be null"),
    (
        "'q', 'k', to_jsonb(repeat('x', 16777215))",
        "args is 16777217 bytes long; at most 16777216 are allowed",
    ),
    // Nine bytes to send, 131,072 to read back: it counts as it is read back.
    (
        "'q', 'k', to_jsonb(array_fill(1e131071, array[129]))",
        "args is 16908546 bytes long; at most 16777216 are allowed",
    ),
    (
        "'q', 'k', (repeat('[', 257) || repeat(']', 257))::jsonb",
        "args is nested too deep; at most 256 levels are allowed",
    ),
    (
        "'q', 'k', (repeat('{\"a\": ', 257) || '1' || repeat('}', 257))::jsonb",
        "args is nested too deep; at most 256 levels are allowed",
    ),
    ("'q', 'k', metadata => '[1]'", "metadata must be a JSON object"),
    ("'q', 'k', metadata => 'null'", "metadata must be a JSON object"),
    (
        "'q', 'k', metadata => jsonb_build_object('x', repeat('x', 16777216))",
        "metadata is 16777239 bytes long with tags; at most 16777216 are allowed",
    ),
    (
        "'q', 'k', metadata => (repeat('{\"a\": ', 256) || '1' || repeat('}', 256))::jsonb",
        "metadata is nested too deep; at most 255 levels are allowed",
    ),
    ("'q', 'k', tags => array['a', null]", "tag must not be null"),
    ("'q', 'k', tags => array[null]::text[]", "tag must not be null"),
    ("'q', 'k', tags => array['a', '']", "tag must not be empty"),
    (
        "'q', 'k', tags => array['a', repeat('t', 201), 'b']",
        "tag is 201 bytes long; at most 200 are allowed",
    ),
    ("'q', 'k', tags => array[['a', 'b']]", "tags must have one dimension"),
    (
        "'q', 'k', run_at => 'infinity'",
        "run_at is infinity; it must lie between 4714-11-24 BC and 294217-01-01",
    ),
    (
        "'q', 'k', run_at => '-infinity'",
        "run_at is -infinity; it must lie between 4714-11-24 BC and 294217-01-01",
    ),
    (
        "'q', 'k', run_at => '294217-01-02 00:00:00+00'",
        "run_at is 294217-01-02 00:00:00+00; it must lie between 4714-11-24 BC and 294217-01-01",
    ),
    ("null, 'k'", "queue must not be null"),
    ("'', 'k'", "queue must not be empty"),
    ("repeat('q', 201), 'k'", "queue is 201 bytes long; at most 200 are allowed"),
    ("'nowhere', 'k'", "queue \"nowhere\" is not declared in this schema"),
    ("'q', 'k', shard => 1", "shard 1 of queue \"q\" is not declared"),
    ("'q', 'k', shard => 64", "shard is 64; it must lie between 0 and 63"),
    ("'q', 'k', shard => -1", "shard is -1; it must lie between 0 and 63"),
    ("'q', 'k', shard => null", "shard must not be null"),
    (r#"'q', 'k', '{"a": "\u0000"}'"#, "unsupported Unicode escape sequence"),
    (r#"'q', 'k', '{"a": "\ud800"}'"#, "invalid input syntax for type json"),
];

/// The SQL function refuses the same, says which argument, and writes nothing; after a savepoint the
/// caller's transaction goes on.
#[tokio::test]
async fn the_sql_function_refuses_the_same() {
    let bench = Bench::new().await;
    let mut sql = connect().await;
    let mut transaction = sql.transaction().await.unwrap();
    for (arguments, expected) in REFUSED {
        let savepoint = transaction.savepoint("one").await.unwrap();
        let call = bench.spelled(&format!("select S.enqueue({arguments})"));
        let refused = savepoint.query_one(&call, &[]).await.unwrap_err();
        let refused = refused.as_db_error().unwrap();
        assert_eq!(refused.message(), *expected, "{arguments}");
        assert!(refused.code().code().starts_with("22"), "{arguments}: {}", refused.code().code());
        savepoint.rollback().await.unwrap();
    }
    let call = bench.spelled("select S.enqueue('q', 'k')");
    transaction.query_one(&call, &[]).await.unwrap();
    transaction.commit().await.unwrap();
    assert_eq!(bench.number(WAYS_IN).await, 1);
}

/// The SQL function enqueues what it is told: defaults, a place of its own, a time, metadata and tags.
#[tokio::test]
async fn the_sql_function_enqueues_what_it_is_told() {
    let bench = Bench::new().await;
    bench.client.declare_queue("wide", 2).await.unwrap();
    let plain = JobId(bench.number("select S.enqueue('q', 'k')").await);
    let row = bench.client.load(plain).await.unwrap().unwrap();
    assert_eq!(
        (row.state, row.args.as_deref(), row.payload),
        (JobState::Available, Some("{}"), None)
    );
    assert_eq!(
        (row.priority.0, row.shard.0, row.max_attempts, row.run_at),
        (2, 0, 25, row.created_at)
    );
    let told = "select S.enqueue('wide', 'mail', '{\"to\": 1}', priority => 1, max_attempts => 3, shard => 1,
                     metadata => '{\"trace\": \"x\"}', tags => array['red', 'blue'], run_at => now() - interval '1 h')";
    let told = bench.client.load(JobId(bench.number(told).await)).await.unwrap().unwrap();
    assert_eq!(
        (told.state, told.queue.as_str(), told.kind.as_str()),
        (JobState::Available, "wide", "mail")
    );
    assert_eq!((told.priority.0, told.shard.0, told.max_attempts), (1, 1, 3));
    assert_eq!(told.payload.unwrap(), r#"{"tags": ["red", "blue"], "metadata": {"trace": "x"}}"#);
    assert_eq!(told.created_at.since(told.run_at), Span::from_secs(3600));
    let later = "select S.enqueue('q', 'k', run_at => now() + interval '1 h')";
    let later = bench.client.load(JobId(bench.number(later).await)).await.unwrap().unwrap();
    assert_eq!(later.state, JobState::Scheduled);
    // The ends of time that the library knows are times: stored, listed and claimed like any other.
    let last = "select S.enqueue('q', 'k', run_at => '294217-01-01 23:59:59.999999+00')";
    let first = "select S.enqueue('q', 'k', run_at => '4714-11-24 00:00:00+00 BC')";
    let last = bench.client.load(JobId(bench.number(last).await)).await.unwrap().unwrap();
    let first = bench.client.load(JobId(bench.number(first).await)).await.unwrap().unwrap();
    assert_eq!((last.state, last.run_at), (JobState::Scheduled, Instant::LAST));
    assert_eq!((first.state, first.run_at), (JobState::Available, Instant::FIRST));
    assert_eq!(bench.client.promote_due(10).await.unwrap(), 0);
    let jobs: Vec<_> = bench.claim(10).await.iter().map(|j| j.receipt.job).collect();
    assert_eq!(jobs, [plain, first.job]);
}

/// The largest that the SQL function takes is what the library reads: 256 levels, and names and tags of
/// 200 bytes. No tags and no metadata are stored as none.
#[tokio::test]
async fn the_sql_function_takes_what_lies_at_the_bounds() {
    let bench = Bench::new().await;
    let call =
        "select S.enqueue('q', repeat('k', 200), (repeat('[', 256) || repeat(']', 256))::jsonb,
                     tags => array[repeat('t', 200)], max_attempts => 32767,
                     metadata => (repeat('{\"a\": ', 255) || '1' || repeat('}', 255))::jsonb)";
    let row = bench.client.load(JobId(bench.number(call).await)).await.unwrap().unwrap();
    awa::json::check(row.args.as_deref().unwrap()).unwrap();
    awa::json::check(row.payload.as_deref().unwrap()).unwrap();
    assert_eq!((row.kind.len(), row.max_attempts), (200, 32_767));
    let bare = "select S.enqueue('q', 'k', metadata => '{}', tags => '{}')";
    let bare = bench.client.load(JobId(bench.number(bare).await)).await.unwrap().unwrap();
    assert_eq!(bare.payload, None);
    let insert = bench.spelled(
        "insert into S.deferred_jobs (job_id, lane_id, run_at, max_attempts, state, kind, args)
         values (0, 1, 'infinity', 1, 'scheduled', 'k', '{}')",
    );
    let refused = bench.sql.execute(&insert, &[]).await.unwrap_err();
    assert_eq!(refused.code(), Some(&SqlState::CHECK_VIOLATION), "{refused}");
}
