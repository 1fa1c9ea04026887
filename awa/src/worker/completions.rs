//! Stores how attempts ended, in batches.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use awa_driver::Error;
use awa_driver::core::machine::close::{Finish, FinishOutcome, Finished};
use awa_driver::core::runtime::batcher::{
    Batcher, BatcherAction, BatcherConfig, Flush, FlushFailure, Sharded,
};
use awa_driver::core::{Ending, ReceiptId};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};

use crate::client::Client;
use crate::clock::HostClock;
use crate::worker::WorkerStats;

/// An attempt's end on its way to the server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Item(Finished);

impl Sharded for Item {
    // What was claimed together is closed together: groups stay wide, and two flushers never meet
    // on one fence.
    fn shard_key(&self) -> u64 {
        self.0.receipt.batch.0.cast_unsigned() / u64::from(awa_driver::core::limits::CLAIM_ROWS_MAX)
    }
}

type Flushed = (Flush<Item>, Result<FinishOutcome, Error>);

pub(crate) fn start(
    client: Client,
    config: BatcherConfig,
    stats: Arc<watch::Sender<WorkerStats>>,
) -> (mpsc::Sender<Finished>, JoinHandle<()>) {
    let (sender, receiver) = mpsc::channel(config.held_max.get());
    let flusher = Flusher {
        client,
        batcher: Batcher::new(config),
        waiting: VecDeque::new(),
        flying: JoinSet::new(),
        clock: HostClock::start(),
        stats,
    };
    (sender, tokio::spawn(flusher.run(receiver)))
}

struct Flusher {
    client: Client,
    batcher: Batcher<Item>,
    /// What the batcher had no room for: nothing more is received until it is taken in.
    waiting: VecDeque<Item>,
    flying: JoinSet<Flushed>,
    clock: HostClock,
    stats: Arc<watch::Sender<WorkerStats>>,
}

impl Flusher {
    async fn run(mut self, mut inbox: mpsc::Receiver<Finished>) {
        let mut open = true;
        let mut bulk = Vec::new();
        loop {
            if self.act() {
                return;
            }
            let wake = self.clock.at(self.batcher.next_wake());
            tokio::select! {
                received = inbox.recv_many(&mut bulk, 512), if open && self.waiting.is_empty() => {
                    open = received > 0;
                    self.waiting.extend(bulk.drain(..).map(Item));
                    self.take_in();
                    if !open {
                        self.batcher.drain();
                    }
                }
                Some(joined) = self.flying.join_next() => match joined {
                    Ok((flush, result)) => self.landed(flush, result),
                    // A panic in a flush would be a bug in a machine: its attempts are rescued.
                    Err(error) => tracing::error!(%error, "a flush panicked"),
                },
                () = tokio::time::sleep_until(wake) => {}
            }
        }
    }

    fn take_in(&mut self) {
        let now = self.clock.now();
        while let Some(item) = self.waiting.pop_front() {
            if let Err(full) = self.batcher.handle_item(item, now) {
                self.waiting.push_front(full.0);
                return;
            }
        }
    }

    /// Does what the batcher says. True when it is drained.
    fn act(&mut self) -> bool {
        while let Some(action) = self.batcher.poll(self.clock.now()) {
            match action {
                BatcherAction::Flush(flush) => {
                    let client = self.client.clone();
                    self.flying.spawn(async move {
                        let result = store(&client, flush.items()).await;
                        (flush, result)
                    });
                }
                BatcherAction::Rejected(Item(finished)) => {
                    tracing::error!(receipt = %finished.receipt.id(), "the server refused an end");
                    self.stats.send_modify(|s| s.rejected += 1);
                }
                BatcherAction::Drained => return true,
            }
        }
        false
    }

    fn landed(&mut self, flush: Flush<Item>, result: Result<FinishOutcome, Error>) {
        match result {
            Ok(outcome) => {
                let items = self.batcher.handle_flushed(flush);
                self.count(&items, &outcome.stale);
            }
            Err(error) => {
                tracing::warn!(%error, "a flush of {} ends failed", flush.items().len());
                let failure = if error.is_content() {
                    FlushFailure::Content
                } else {
                    FlushFailure::Transient
                };
                self.batcher.handle_flush_failed(flush, failure, self.clock.now());
            }
        }
        self.take_in();
    }

    fn count(&self, items: &[Item], stale: &[ReceiptId]) {
        for receipt in stale {
            tracing::warn!(%receipt, "an attempt's end came too late");
        }
        let stale: BTreeSet<ReceiptId> = stale.iter().copied().collect();
        self.stats.send_modify(|s| {
            for Item(end) in items {
                let count = if stale.contains(&end.receipt.id()) {
                    &mut s.stale
                } else if end.interrupted {
                    &mut s.handed_back
                } else if end.ending == Ending::Completed {
                    &mut s.completed
                } else {
                    &mut s.failed
                };
                *count += 1;
            }
        });
    }
}

/// Closes attempts on the compact path as far as they go, and the rest on the general one.
async fn store(client: &Client, items: &[Item]) -> Result<FinishOutcome, Error> {
    let mut plan = Finish::new(items.iter().map(|item| item.0.clone()).collect());
    while let Some(close) = plan.next() {
        let did = client.run_settled(close).await?;
        plan.take(did);
    }
    Ok(plan.into_outcome())
}
