//! A worker whose server goes away, on a server of its own.
#![allow(clippy::unwrap_used)]

mod common;

use std::time::Duration;

use awa::Worker;
use awa_devpg::{Options, Server};
use common::Bench;
use tokio::sync::mpsc;

/// H60: a worker that can't store how attempts ended does not wait for ever when it is to stop: it says
/// how many ends are lost with it.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_ends_though_the_server_is_gone() {
    let options = Options { ignore_database_url: true, ..Options::default() };
    let server = Server::acquire(&options).unwrap();
    let bench = Bench::at(server.url(), "awa").await;
    bench.enqueue(3).await;
    let (begun, mut running) = mpsc::unbounded_channel();
    let (go, wait) = tokio::sync::watch::channel(false);
    let handler = move |_attempt| {
        begun.send(()).unwrap();
        let mut wait = wait.clone();
        async move {
            wait.wait_for(|go| *go).await.unwrap();
            Ok(())
        }
    };
    let worker = Worker::new(bench.client.clone()).queue("q", 8).unwrap().fallback(handler);
    let working = worker.start().await.unwrap();
    for _ in 0..3 {
        running.recv().await.unwrap();
    }
    drop(bench);
    server.stop().unwrap();
    go.send(true).unwrap();
    let lost = working.shutdown(Duration::ZERO).await.unwrap_err();
    assert_eq!(lost.unstored(), Some(3), "{lost}");
    assert!(lost.to_string().contains("3 are given up"), "{lost}");
}
