//! Telling workers that lanes have new jobs.
//!
//! A wake is a transaction of its own, after the COMMIT of the jobs that it tells of: PostgreSQL lets
//! commits that notify pass one at a time. So that producers neither wait for it nor queue up behind
//! one another, one task sends, and one wake tells of all lanes that got jobs since the last. To the
//! server a wake costs as much as a job. So a client that enqueues all the time sends one only now and
//! then, and the claim that follows takes several jobs, which is cheaper as well.

use std::collections::BTreeSet;
use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use awa_driver::core::LaneId;
use awa_driver::core::machine::enqueue::Wake;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::client::Client;

/// Enqueues are counted for so long at a time.
const WINDOW: Duration = Duration::from_millis(20);
/// So many in a window are many: 800 transactions a second.
const MANY: u32 = 16;
/// From one wake to the next while there are many.
const PAUSE: Duration = Duration::from_millis(5);

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

/// How often this client enqueues, and when the next wake may be sent.
#[derive(Debug, Default)]
struct Pace {
    /// When the window began, and the enqueues in it.
    window: Option<(Instant, u32)>,
    /// Whether there were many in the window before.
    were_many: bool,
    sent_at: Option<Instant>,
}

impl Pace {
    fn enqueued(&mut self, now: Instant) {
        self.window = match self.window {
            Some((begin, count)) if now < begin + WINDOW => Some((begin, count + 1)),
            Some((begin, count)) => {
                self.were_many = count >= MANY && now < begin + WINDOW * 2;
                Some((now, 1))
            }
            None => Some((now, 1)),
        };
    }

    /// When the next wake may be sent; `None` is at once.
    fn due(&self) -> Option<Instant> {
        let are_many = self.were_many || self.window.is_some_and(|(_, count)| count >= MANY);
        self.sent_at.filter(|_| are_many).map(|sent| sent + PAUSE)
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
    fn add(&self, lanes: Vec<LaneId>, now: Instant) -> bool {
        let mut waiting = self.waiting();
        waiting.lanes.extend(lanes);
        waiting.pace.enqueued(now);
        !waiting.lanes.is_empty() && !self.sending.send_replace(true)
    }

    /// When to tell of what waits; `None` is at once.
    fn due(&self) -> Option<Instant> {
        let waiting = self.waiting();
        waiting.pace.due().filter(|_| !waiting.lanes.is_empty())
    }

    /// The lanes to tell of next, from now on; none if that is all.
    fn next(&self, now: Instant) -> Option<Wake> {
        let mut waiting = self.waiting();
        let wake = Wake::lanes(mem::take(&mut waiting.lanes).into_iter().collect());
        match wake {
            Some(_) => waiting.pace.sent_at = Some(now),
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
        if self.wakes().add(lanes, Instant::now()) {
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
        assert!(!wakes.add(vec![], now), "nothing to tell");
        assert!(wakes.add(vec![LaneId(2)], now), "the first starts a task");
        assert!(!wakes.add(vec![LaneId(1), LaneId(2)], now), "it is there");
        assert_eq!(wakes.next(now), Wake::lanes(vec![LaneId(1), LaneId(2)]));
        assert!(!wakes.add(vec![LaneId(3)], now), "it is still there");
        assert_eq!(wakes.next(now), Wake::lanes(vec![LaneId(3)]));
        assert_eq!(wakes.next(now), None);
        assert!(wakes.add(vec![LaneId(1)], now), "it has gone");
    }

    #[test]
    fn who_enqueues_all_the_time_wakes_now_and_then() {
        let mut pace = Pace::default();
        let mut now = Instant::now();
        // Enqueues at this distance; gives how many wakes are sent.
        let mut enqueue = |every: Duration, times: u32| {
            let mut sent = 0;
            for _ in 0..times {
                now += every;
                pace.enqueued(now);
                if pace.due().is_none_or(|due| due <= now) {
                    pace.sent_at = Some(now);
                    sent += 1;
                }
            }
            sent
        };
        let some = MANY - 1;
        assert_eq!(enqueue(WINDOW / (MANY - 2), 10 * some), 10 * some, "each");
        assert_eq!(enqueue(PAUSE / 10, some), some, "each, until there are many");
        assert_eq!(enqueue(PAUSE / 10, 1_000), 100, "one a pause");
        assert_eq!(enqueue(Duration::ZERO, 1_000), 0);
        assert_eq!(enqueue(WINDOW * 2, 1), 1, "a client that rested is as it was");
        assert_eq!(enqueue(Duration::ZERO, 1_000), some - 1, "many together are many at once");
    }
}
