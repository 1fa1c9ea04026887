//! Telling workers that lanes have new jobs.
//!
//! A wake is a transaction of its own, after the COMMIT of the jobs that it tells of: PostgreSQL lets
//! commits that notify pass one at a time. So that producers neither wait for it nor queue up behind
//! one another, one task sends, as often as [`awa_driver::core::runtime::wakes`] says.

use std::sync::{Mutex, MutexGuard, PoisonError};

use awa_driver::core::LaneId;
use awa_driver::core::machine::enqueue::Wake;
use awa_driver::core::runtime::wakes;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::client::Client;
use crate::clock::HostClock;

/// What is still to be told.
#[derive(Debug)]
pub(crate) struct Wakes {
    waiting: Mutex<wakes::Wakes>,
    /// Whether a task is at it. Changed under the lock of `waiting` only.
    sending: watch::Sender<bool>,
    clock: HostClock,
}

/// What the task that sends does next.
#[derive(Debug, PartialEq)]
enum Next {
    Send(Wake),
    WaitUntil(Instant),
    End,
}

impl Default for Wakes {
    fn default() -> Self {
        let (waiting, sending) = (Mutex::default(), watch::Sender::new(false));
        Self { waiting, sending, clock: HostClock::start() }
    }
}

impl Wakes {
    fn waiting(&self) -> MutexGuard<'_, wakes::Wakes> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds lanes; says whether a task must be started to tell of them.
    fn add(&self, lanes: Vec<LaneId>) -> bool {
        let mut waiting = self.waiting();
        waiting.handle_enqueued(lanes, self.clock.now());
        waiting.next_wake().is_some() && !self.sending.send_replace(true)
    }

    fn next(&self) -> Next {
        let mut waiting = self.waiting();
        match (waiting.poll(self.clock.now()), waiting.next_wake()) {
            (Some(wake), _) => Next::Send(wake),
            (None, Some(due)) => Next::WaitUntil(self.clock.at(Some(due))),
            (None, None) => {
                self.sending.send_replace(false);
                Next::End
            }
        }
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
                Next::Send(wake) => self.client.send(wake).await,
                Next::WaitUntil(due) => sleep_until(due).await,
                Next::End => self.told_all = true,
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
        let wakes = Wakes::default();
        let tells = |lanes| Next::Send(Wake::lanes(lanes).unwrap());
        assert!(!wakes.add(vec![]), "nothing to tell");
        assert!(wakes.add(vec![LaneId(2)]), "the first starts a task");
        assert!(!wakes.add(vec![LaneId(1), LaneId(2)]), "it is there");
        assert_eq!(wakes.next(), tells(vec![LaneId(1), LaneId(2)]));
        assert!(!wakes.add(vec![LaneId(3)]), "it is still there");
        assert_eq!(wakes.next(), tells(vec![LaneId(3)]));
        assert_eq!(wakes.next(), Next::End);
        assert!(wakes.add(vec![LaneId(1)]), "it has gone");
    }
}
