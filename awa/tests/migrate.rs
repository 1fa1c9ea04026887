//! Migrations: many at once, newer schemas, any legal name.
#![allow(clippy::unwrap_used)]

mod common;

use awa::core::SchemaName;
use awa::{Client, Job, Mismatch, UserError};
use common::{Bench, connect, fresh_schema, url};

/// H53: many migrate at once with one connection each; one migrates, none deadlocks, and the others
/// find nothing to do.
#[tokio::test(flavor = "multi_thread")]
async fn eight_processes_migrate_at_once() {
    let schema = fresh_schema();
    let tasks = (0..8).map(|_| {
        let schema = schema.clone();
        tokio::spawn(async move { awa::migrate(url(), &schema).await.unwrap() })
    });
    let mut applied = Vec::new();
    for task in tasks.collect::<Vec<_>>() {
        applied.push(task.await.unwrap().applied);
    }
    assert_eq!(applied.iter().filter(|a| !a.is_empty()).count(), 1, "{applied:?}");
    assert!(applied.contains(&vec![26, 32]), "{applied:?}");
    assert!(Client::connect(url(), &schema).await.is_ok());
}

/// H53: a migration that is cancelled half-way strands no lock and leaves nothing behind.
#[tokio::test]
async fn a_cancelled_migration_strands_nothing() {
    let schema = fresh_schema();
    let mut holder = connect().await;
    let holding = holder.transaction().await.unwrap();
    let lock = awa::core::SchemaName::new(&schema).unwrap();
    let first = awa::migration_script(&lock);
    let take = first.split(';').nth(1).unwrap().to_owned();
    holding.batch_execute(&take).await.unwrap();
    let waiting = tokio::spawn({
        let schema = schema.clone();
        async move { awa::migrate(url(), &schema).await }
    });
    let held_by: i32 = holding.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
    let watcher = connect().await;
    let waits = "select count(*) from pg_stat_activity where $1 = any (pg_blocking_pids(pid))";
    while watcher.query_one(waits, &[&held_by]).await.unwrap().get::<_, i64>(0) == 0 {
        tokio::task::yield_now().await;
    }
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    holding.rollback().await.unwrap();
    let done = awa::migrate(url(), &schema).await.unwrap();
    assert_eq!((done.from, done.applied), (None, vec![26, 32]));
}

/// H54: an older binary on a newer schema refuses before it writes.
#[tokio::test]
async fn a_newer_schema_is_refused_before_anything_is_written() {
    let bench = Bench::new().await;
    bench
        .execute(
            "insert into S.schema_migrations (version, name, checksum) values (99, 'future', 'x')",
        )
        .await;
    let connected = Client::connect(url(), &bench.schema).await.unwrap_err();
    let newer = Mismatch::SchemaNewer { schema: bench.schema.clone(), found: 99, known: 32 };
    assert_eq!(connected.as_mismatch(), Some(&newer), "{connected}");
    let migrated = awa::migrate(url(), &bench.schema).await.unwrap_err();
    assert_eq!(migrated.as_mismatch(), Some(&newer));
    assert_eq!(bench.number("select count(*) from S.schema_migrations").await, 3);
}

/// R032-07: a schema at v026 is behind, is said to be, and is brought up by the additive v032 alone.
#[tokio::test]
async fn a_schema_behind_is_said_to_be_and_migrates_additively() {
    let bench = Bench::new().await;
    let ids = bench.fail(2).await;
    bench
        .execute(
            "delete from S.schema_migrations where version = 32;
             alter table S.queue_terminal_rollups drop column pruned_failed_count",
        )
        .await;
    let behind = Client::connect(url(), &bench.schema).await.unwrap_err();
    assert!(
        matches!(behind.as_mismatch(), Some(Mismatch::SchemaOlder { found: 26, .. })),
        "{behind}"
    );
    let done = awa::migrate(url(), &bench.schema).await.unwrap();
    assert_eq!((done.from, done.applied), (Some(26), vec![32]));
    assert_eq!(bench.client.counts("q").await.unwrap().failed, 2);
    assert!(bench.client.load(ids[0]).await.unwrap().is_some());
}

/// An applied migration that is not the one of this build is refused.
#[tokio::test]
async fn an_altered_migration_is_refused() {
    let bench = Bench::new().await;
    bench.execute("update S.schema_migrations set checksum = 'other' where version = 26").await;
    let refused = awa::migrate(url(), &bench.schema).await.unwrap_err();
    assert!(
        matches!(refused.as_mismatch(), Some(Mismatch::Checksum { version: 26, .. })),
        "{refused}"
    );
}

/// H55: two installations in one database; names that need quoting or are 63 bytes long. Each works
/// from end to end and knows nothing of the other.
#[tokio::test]
async fn any_legal_schema_name_works_and_installations_do_not_meet() {
    let long = format!("{}é", "x".repeat(61));
    let names =
        ["Ünïcode Schema", "we\"ird'; drop schema \"x\" --", "{schema}$awa0$\\", &long, "select"];
    for (i, name) in names.iter().enumerate() {
        let bench = Bench::in_schema(name).await;
        bench.enqueue(3).await;
        bench.complete(2).await;
        let from_sql = bench.number("select S.enqueue('q', 'k', '{}')").await;
        bench.client.cancel(awa::JobId(from_sql)).await.unwrap();
        bench.fill_ring().await;
        bench.client.prune_oldest(std::time::Duration::ZERO).await.unwrap();
        let counts = bench.client.counts("q").await.unwrap();
        assert_eq!((counts.total(), counts.available, counts.cancelled), (4, 1, 1), "{i}: {name}");
    }
}

/// H55: what PostgreSQL would cut or cannot hold is refused and named.
#[tokio::test]
async fn illegal_schema_names_are_refused() {
    for (name, said) in [("", "schema must not be empty"), ("a\0b", "schema holds a NUL character")]
    {
        let refused = awa::migrate(url(), name).await.unwrap_err();
        assert_eq!(refused.to_string(), said);
    }
    let refused = awa::migrate(url(), &"x".repeat(64)).await.unwrap_err();
    assert_eq!(refused.to_string(), "schema is 64 bytes long; at most 63 are allowed");
}

/// What is not there is said by name, and nothing is written.
#[tokio::test]
async fn unknown_schemas_and_queues_are_named() {
    let missing = Client::connect(url(), "no_such_schema").await.unwrap_err();
    assert_eq!(missing.to_string(), "schema \"no_such_schema\" holds no Awa; migrate it first");
    let bench = Bench::new().await;
    let job = Job::new("k", &1).unwrap().queue("nowhere").unwrap();
    let refused = bench.client.enqueue(job).await.unwrap_err();
    assert_eq!(refused.to_string(), "queue \"nowhere\" is not declared in this schema");
    let job = common::job(1).shard(3).unwrap();
    let refused = bench.client.enqueue(job).await.unwrap_err();
    assert_eq!(refused.to_string(), "shard 3 of queue \"q\" is not declared");
    assert_eq!(bench.number("select count(*) from S.ready_entries").await, 0);
}

/// What is dropped is an installation: a schema with anything else in it stays.
#[tokio::test]
async fn a_schema_without_an_installation_is_not_dropped() {
    let client = connect().await;
    let name = fresh_schema();
    let schema = SchemaName::new(&name).unwrap();
    let foreign = format!("create schema {name}; create table {name}.invoices (id bigint)");
    client.batch_execute(&foreign).await.unwrap();
    let refused = awa::drop_installation(url(), &schema).await.unwrap_err();
    let unknown = UserError::UnknownSchema { schema: name.clone() };
    assert_eq!(refused.as_user_error(), Some(&unknown), "{refused}");
    client.batch_execute(&format!("select id from {name}.invoices")).await.unwrap();

    awa::migrate(url(), &name).await.unwrap();
    awa::drop_installation(url(), &schema).await.unwrap();
    let again = awa::drop_installation(url(), &schema).await.unwrap_err();
    assert_eq!(again.as_user_error(), Some(&unknown), "{again}");
}
