//! Steps inside a transaction of the caller's: which of them its isolation level allows.
#![allow(clippy::unwrap_used)]

use awa_core::machine::cancel::Cancel;
use awa_core::machine::declare::{DeclareQueue, FindLanes};
use awa_core::machine::enqueue::EnqueueAll;
use awa_core::machine::prune::{Prune, PruneOutcome};
use awa_core::machine::read::CountQueue;
use awa_core::machine::rotate::Rotate;
use awa_core::rules::Floor;
use awa_core::{Kind, NewJob, QueueName, Ring, SchemaName, Step};
use awa_devpg::Server;
use awa_driver::tokio_postgres::{Client, IsolationLevel, Row};
use awa_driver::{Connector, Embedded, Session, Sql, Statements, migrate};
use awa_model_tests::samples::one_of_each;

/// A migrated schema with the queue `mail`, whose lanes are the first that were made.
async fn installation(schema: &str) -> (Client, Session, Sql) {
    let server = Server::shared().unwrap();
    let connector = Connector::without_tls(server.url()).unwrap();
    let mut client = connector.connect().await.unwrap();
    let schema = SchemaName::new(schema).unwrap();
    migrate(&mut client, &schema).await.unwrap();
    let sql = Sql::new(schema);
    let own = connector.connect().await.unwrap();
    let mut session = Session::new(own, sql.clone(), Statements::Named);
    let declare = DeclareQueue::new(QueueName::new("mail").unwrap(), 1).unwrap();
    session.run(declare).await.unwrap().unwrap();
    (client, session, sql)
}

/// Law 3, law 16: in a transaction with one snapshot every step is refused but those that enqueue, by a type
/// that names the level, before anything is done; the transaction goes on and commits. At READ COMMITTED,
/// which PostgreSQL also takes READ UNCOMMITTED for, none is refused.
#[tokio::test]
async fn an_old_snapshot_takes_nothing_but_enqueues() {
    let (mut client, _session, sql) = installation("embedded_levels").await;
    let embedded = Embedded::new(sql);
    let steps = one_of_each().unwrap();
    let allowed: Vec<&str> =
        steps.iter().filter(|s| s.fits_any_snapshot()).map(Step::name).collect();
    assert_eq!(
        allowed,
        [
            "FindLanes",
            "EnqueueReady",
            "EnqueueReady",
            "ReadCursor",
            "CopyReady",
            "EnqueueDeferred",
            "Wake",
            "ReadOwnXid"
        ]
    );
    for (level, words) in [
        (IsolationLevel::RepeatableRead, "repeatable read"),
        (IsolationLevel::Serializable, "serializable"),
    ] {
        let transaction = client.build_transaction().isolation_level(level).start().await.unwrap();
        for step in &steps {
            let ran = embedded.run(&transaction, std::slice::from_ref(step)).await;
            if step.fits_any_snapshot() {
                ran.unwrap_or_else(|e| panic!("{step}: {e}"));
            } else {
                let refused = ran.unwrap_err();
                assert_eq!(refused.as_isolation(), Some(words), "{step}: {refused}");
                assert!(!refused.is_connection() && refused.sqlstate().is_none());
            }
        }
        transaction.commit().await.unwrap();
    }
    for level in [IsolationLevel::ReadCommitted, IsolationLevel::ReadUncommitted] {
        for step in &steps {
            let started = client.build_transaction().isolation_level(level).start().await;
            let transaction = started.unwrap();
            let ran = embedded.run(&transaction, std::slice::from_ref(step)).await;
            // Some of the samples name what isn't there; none is refused for the level.
            assert!(ran.err().is_none_or(|e| e.as_isolation().is_none()), "{step}");
            transaction.rollback().await.unwrap();
        }
    }
}

/// Law 16: what is refused would have been wrong: for a snapshot that is older than a TRUNCATE a job is
/// neither where it was nor where it went. The enqueue that is allowed is as good as any.
#[tokio::test]
async fn a_count_in_an_old_snapshot_is_refused_and_an_enqueue_is_not() {
    let (mut client, mut session, sql) = installation("embedded_counts").await;
    let embedded = Embedded::new(sql.clone());
    let mail = || QueueName::new("mail").unwrap();
    let lanes = session.run(FindLanes { queue: mail() }).await.unwrap().unwrap();
    let new = || NewJob::new(lanes[0].lane, Kind::new("k").unwrap(), "1".to_owned(), 1, None);
    let one = || EnqueueAll::new(vec![new().unwrap()], vec![]).unwrap();
    let job = session.run(one()).await.unwrap().unwrap().ready.jobs[0];

    let repeatable = client.build_transaction().isolation_level(IsolationLevel::RepeatableRead);
    let old = repeatable.start().await.unwrap();
    let read = sql.render(&Step::ReadCounts { queue: mail() }).sql;
    let seen = |row: &Row| row.get::<_, i64>("available") + row.get::<_, i64>("pruned_other");
    let before = old.query_one("select 1", &[]).await.unwrap();
    assert_eq!(before.get::<_, i32>(0), 1, "it has its snapshot");
    session.run(Cancel::new(job)).await.unwrap().unwrap();
    session.run(Rotate::ring(Ring::Queue)).await.unwrap().unwrap();
    let pruned = session.run(Prune::oldest(Ring::Queue, Floor::DEFAULT)).await.unwrap().unwrap();
    assert!(matches!(pruned, PruneOutcome::Pruned { folded_other: 1, .. }), "{pruned}");
    let count = CountQueue { queue: mail() };
    let exact = session.run(count.clone()).await.unwrap().unwrap().unwrap();
    assert_eq!(exact.total(), 1);
    let row = old.query_one(&*read, &[&"mail"]).await.unwrap();
    assert_eq!(seen(&row), 0, "what the old snapshot would make of it");

    let refused = embedded.drive(&old, count.clone()).await.unwrap_err();
    assert_eq!(refused.as_isolation(), Some("repeatable read"));
    assert!(refused.to_string().ends_with("read committed is needed"), "{refused}");
    assert_eq!(embedded.drive(&old, one()).await.unwrap().unwrap().ready.jobs.len(), 1);
    old.commit().await.unwrap();
    assert_eq!(session.run(count).await.unwrap().unwrap().unwrap().total(), 2);
}
