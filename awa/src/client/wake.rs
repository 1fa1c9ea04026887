//! Telling workers that lanes have new jobs.
//!
//! A wake is a transaction of its own, after the COMMIT of the jobs that it tells of: PostgreSQL lets
//! commits that notify pass one at a time. So that producers neither wait for it nor queue up behind
//! one another, one task sends, and one wake tells of all lanes that got jobs since the last. A client
//! that enqueues faster than it may send tells of several jobs at once: a wake costs the server as much
//! as the job, and a worker that is behind claims them in any case.

use std::collections::BTreeSet;
use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use awa_driver::core::LaneId;
use awa_driver::core::machine::enqueue::Wake;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::client::Client;

/// From one wake to the next when there is always one to send.
const INTERVAL: Duration = Duration::from_millis(2);
/// Wakes that may be sent at once after a pause, so that single jobs, and a few together, don't wait.
const AT_ONCE: u32 = 8;

/// What is still to be told.
#[derive(Debug)]
pub(crate) struct Wakes {
    waiting: Mutex<Waiting>,
    /// Whether a task is at it. Changed under the lock of `waiting` only.
    sending: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct Waiting {
    lanes: BTreeSet<LaneId>,
    pace: Pace,
}

/// When the next wake may be sent.
#[derive(Debug, Default)]
struct Pace {
    /// When as many may be sent at once as ever; `None` is always.
    rested_at: Option<Instant>,
}

impl Pace {
    /// When the next one may be sent; `None` is at once.
    fn due(&self) -> Option<Instant> {
        self.rested_at?.checked_sub(INTERVAL * (AT_ONCE - 1))
    }

    fn sent(&mut self, now: Instant) {
        let from = self.rested_at.map_or(now, |rested| rested.max(now));
        self.rested_at = Some(from + INTERVAL);
    }
}

impl Default for Wakes {
    fn default() -> Self {
        Self { waiting: Mutex::default(), sending: watch::Sender::new(false) }
    }
}

impl Wakes {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds lanes; says whether a task must be started to tell of them.
    fn add(&self, lanes: Vec<LaneId>) -> bool {
        let mut waiting = self.waiting();
        waiting.lanes.extend(lanes);
        !waiting.lanes.is_empty() && !self.sending.send_replace(true)
    }

    fn due(&self) -> Option<Instant> {
        self.waiting().pace.due()
    }

    /// The lanes to tell of next, from now on; none if that is all.
    fn next(&self, now: Instant) -> Option<Wake> {
        let mut waiting = self.waiting();
        let wake = Wake::lanes(mem::take(&mut waiting.lanes).into_iter().collect());
        match wake {
            Some(_) => waiting.pace.sent(now),
            None => {
                self.sending.send_replace(false);
            }
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
            if let Some(due) = self.client.wakes().due() {
                sleep_until(due).await;
            }
            match self.client.wakes().next(Instant::now()) {
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
            let _waiting = wakes.waiting();
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
        let (wakes, now) = (Wakes::default(), Instant::now());
        assert!(!wakes.add(vec![]), "nothing to tell");
        assert!(wakes.add(vec![LaneId(2)]), "the first starts a task");
        assert!(!wakes.add(vec![LaneId(1), LaneId(2)]), "it is there");
        assert_eq!(wakes.next(now), Wake::lanes(vec![LaneId(1), LaneId(2)]));
        assert!(!wakes.add(vec![LaneId(3)]), "it is still there");
        assert_eq!(wakes.next(now), Wake::lanes(vec![LaneId(3)]));
        assert_eq!(wakes.next(now), None);
        assert!(wakes.add(vec![LaneId(1)]), "it has gone");
    }

    #[test]
    fn a_few_go_at_once_and_then_one_an_interval() {
        let (mut pace, begin) = (Pace::default(), Instant::now());
        for _ in 0..AT_ONCE {
            assert!(pace.due().is_none_or(|due| due <= begin));
            pace.sent(begin);
        }
        assert_eq!(pace.due(), Some(begin + INTERVAL));
        pace.sent(begin + INTERVAL);
        assert_eq!(pace.due(), Some(begin + INTERVAL * 2), "the next one waits");
        pace.sent(begin + INTERVAL * 5);
        assert!(pace.due() < Some(begin + INTERVAL * 5), "one that came late leaves room");
        let rested = begin + INTERVAL * 100;
        pace.sent(rested);
        assert!(pace.due() < Some(rested), "after a pause it is as at the beginning");
    }
}
