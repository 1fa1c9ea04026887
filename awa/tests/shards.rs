//! Shards that a queue gets while it is in use: nobody has to be started again for them.
#![allow(clippy::unwrap_used)]

mod common;

use std::time::Duration;

use awa::Worker;
use common::{Bench, job};

/// A client that knows a queue as it was doesn't refuse what another has declared since.
#[tokio::test]
async fn a_producer_finds_shards_that_were_added() {
    let bench = Bench::new().await;
    bench.client.enqueue(job(1)).await.unwrap();
    bench.another_client().await.declare_queue("q", 4).await.unwrap();
    bench.client.enqueue(job(2).shard(3).unwrap()).await.unwrap();
    assert_eq!(bench.client.counts("q").await.unwrap().available, 2);
}

/// Jobs in shards that are younger than the worker are done by it, whoever else works in the schema.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_works_shards_that_were_added() {
    let bench = Bench::new().await;
    let other = bench.another_client().await;
    other.declare_queue("other", 1).await.unwrap();
    let worker = Worker::new(bench.client.clone()).queue("q", 8).unwrap().maintenance(None);
    let working =
        worker.handler("k", |_, _: serde_json::Value| async { Ok(()) }).start().await.unwrap();
    bench.client.enqueue(job(1)).await.unwrap();
    working.watch().wait_for(|s| s.completed == 1).await.unwrap();

    other.declare_queue("q", 4).await.unwrap();
    for shard in 0..4 {
        other.enqueue(job(shard).shard(shard).unwrap().priority(1).unwrap()).await.unwrap();
        other.enqueue(job(shard).queue("other").unwrap()).await.unwrap();
    }
    let done = tokio::time::timeout(Duration::from_secs(30), async {
        working.watch().wait_for(|s| s.completed == 5).await.unwrap();
    });
    assert!(done.await.is_ok(), "{:?}", working.stats());
    working.shutdown(Duration::from_secs(30)).await.unwrap();
    assert_eq!(other.counts("other").await.unwrap().available, 4);
}
