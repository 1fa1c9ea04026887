//! Telling workers that lanes have new jobs.
//!
//! A wake is a transaction of its own, after the COMMIT of the jobs that it tells of: PostgreSQL lets
//! commits that notify pass one at a time. So that producers neither wait for it nor queue up behind
//! one another, one task sends, and one wake tells of all lanes that got jobs while the last was under way.

use std::collections::BTreeSet;
use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};

use awa_driver::core::LaneId;
use awa_driver::core::machine::enqueue::Wake;
use tokio::sync::watch;

use crate::client::Client;

/// What is still to be told.
#[derive(Debug)]
pub(crate) struct Wakes {
    lanes: Mutex<BTreeSet<LaneId>>,
    /// Whether a task is at it. Changed under the lock of `lanes` only.
    sending: watch::Sender<bool>,
}

impl Default for Wakes {
    fn default() -> Self {
        Self { lanes: Mutex::default(), sending: watch::Sender::new(false) }
    }
}

impl Wakes {
    fn lanes(&self) -> MutexGuard<'_, BTreeSet<LaneId>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds lanes; says whether a task must be started to tell of them.
    fn add(&self, lanes: Vec<LaneId>) -> bool {
        let mut waiting = self.lanes();
        waiting.extend(lanes);
        !waiting.is_empty() && !self.sending.send_replace(true)
    }

    /// The lanes to tell of next; none if that is all.
    fn next(&self) -> Option<Wake> {
        let mut waiting = self.lanes();
        let wake = Wake::lanes(mem::take(&mut *waiting).into_iter().collect());
        if wake.is_none() {
            self.sending.send_replace(false);
        }
        wake
    }
}

/// The task that sends. One that ends early, with its runtime, leaves the rest to the next one.
struct Sending {
    client: Client,
    told_all: bool,
}

impl Sending {
    async fn tell_all(mut self) {
        while !self.told_all {
            match self.client.wakes().next() {
                Some(wake) => self.client.send(wake).await,
                None => self.told_all = true,
            }
        }
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        if !self.told_all {
            let wakes = self.client.wakes();
            let _lanes = wakes.lanes();
            wakes.sending.send_replace(false);
        }
    }
}

impl Client {
    /// Has workers told that lanes have new jobs, soon. A wake that is lost costs a poll interval.
    pub(crate) fn wake(&self, lanes: Vec<LaneId>) {
        if self.wakes().add(lanes) {
            tokio::spawn(Sending { client: self.clone(), told_all: false }.tell_all());
        }
    }

    async fn send(&self, wake: Wake) {
        match self.run(wake).await {
            Ok(Ok(())) => {}
            Ok(Err(refusal)) => tracing::debug!(%refusal, "a wake was refused"),
            Err(error) => tracing::warn!(%error, "a wake was lost; workers will poll"),
        }
    }

    /// Waits until workers were told of everything that was enqueued through this client: for a process
    /// that ends next. Workers find what they were not told of when they next poll, within two seconds.
    pub async fn wakes_sent(&self) {
        // The sender lives as long as this client.
        let _ = self.wakes().sending.subscribe().wait_for(|sending| !*sending).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_task_tells_of_all_that_came_meanwhile() {
        let wakes = Wakes::default();
        assert!(!wakes.add(vec![]), "nothing to tell");
        assert!(wakes.add(vec![LaneId(2)]), "the first starts a task");
        assert!(!wakes.add(vec![LaneId(1), LaneId(2)]), "it is there");
        assert_eq!(wakes.next(), Wake::lanes(vec![LaneId(1), LaneId(2)]));
        assert!(!wakes.add(vec![LaneId(3)]), "it is still there");
        assert_eq!(wakes.next(), Wake::lanes(vec![LaneId(3)]));
        assert_eq!(wakes.next(), None);
        assert!(wakes.add(vec![LaneId(1)]), "it has gone");
    }
}
