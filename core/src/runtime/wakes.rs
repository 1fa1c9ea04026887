//! Gathers what workers are to be told of: soon where jobs come singly, seldom where they come all the time.
//!
//! To the server a wake costs as much as a job. A process that enqueues all the time sends one only
//! now and then; the claim that follows takes several jobs, which is cheaper as well. A wake that is
//! lost or late costs a poll interval at most, so nothing here is repeated.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::mem;

use super::Tick;
use crate::LaneId;
use crate::machine::enqueue::Wake;
use crate::time::Span;

/// Enqueues are counted for so long at a time.
const WINDOW: Span = Span::from_ms(20);
/// So many in a window are many: 800 transactions a second.
const MANY: u32 = 16;
/// From one wake to the next while there are many.
const PAUSE: Span = Span::from_ms(5);

/// The wakes of one process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Wakes {
    /// Lanes of which nobody was told yet.
    lanes: BTreeSet<LaneId>,
    /// When the window began, and the enqueues in it.
    window: Option<(Tick, u32)>,
    /// Whether there were many in the window before.
    were_many: bool,
    sent_at: Option<Tick>,
}

impl Wakes {
    /// A transaction that appended jobs to these lanes has committed.
    pub fn handle_enqueued(&mut self, lanes: Vec<LaneId>, now: Tick) {
        self.lanes.extend(lanes);
        self.window = match self.window {
            Some((begin, count)) if now < begin.after(WINDOW) => {
                Some((begin, count.saturating_add(1)))
            }
            Some((begin, count)) => {
                self.were_many = count >= MANY && now < begin.after(WINDOW).after(WINDOW);
                Some((now, 1))
            }
            None => Some((now, 1)),
        };
    }

    /// The wake to send now, once: it tells of all lanes that wait.
    pub fn poll(&mut self, now: Tick) -> Option<Wake> {
        if self.next_wake().is_none_or(|due| due > now) {
            return None;
        }
        self.sent_at = Some(now);
        Wake::lanes(mem::take(&mut self.lanes).into_iter().collect())
    }

    /// When to poll; `None`: nothing waits to be told.
    #[must_use]
    pub fn next_wake(&self) -> Option<Tick> {
        if self.lanes.is_empty() {
            return None;
        }
        let are_many = self.were_many || self.window.is_some_and(|(_, count)| count >= MANY);
        let after = self.sent_at.filter(|_| are_many);
        Some(after.map_or(Tick::default(), |sent| sent.after(PAUSE)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_wake_tells_of_all_that_waits() {
        let (mut wakes, now) = (Wakes::default(), Tick(7));
        assert_eq!((wakes.next_wake(), wakes.poll(now)), (None, None));
        wakes.handle_enqueued([LaneId(2)].into(), now);
        wakes.handle_enqueued([LaneId(1), LaneId(2)].into(), now);
        assert!(wakes.next_wake().is_some_and(|due| due <= now));
        assert_eq!(wakes.poll(now), Wake::lanes([LaneId(1), LaneId(2)].into()));
        assert_eq!((wakes.next_wake(), wakes.poll(now)), (None, None));
    }

    #[test]
    fn who_enqueues_all_the_time_wakes_now_and_then() {
        let (mut wakes, mut now) = (Wakes::default(), Tick(0));
        // Enqueues at this distance in microseconds; gives how many wakes are sent.
        let mut enqueue = |every: i64, times: u32| {
            let mut sent = 0;
            for _ in 0..times {
                now = now.after(Span::from_us(every as u64));
                wakes.handle_enqueued([LaneId(1)].into(), now);
                sent += u32::from(wakes.poll(now).is_some());
                assert!(wakes.next_wake().is_none_or(|due| due > now), "it would spin");
            }
            sent
        };
        let some = MANY - 1;
        assert_eq!(enqueue(WINDOW.us() / i64::from(MANY - 2), 10 * some), 10 * some, "each");
        assert_eq!(enqueue(PAUSE.us() / 10, some), some, "each, until there are many");
        assert_eq!(enqueue(PAUSE.us() / 10, 1_000), 100, "one a pause");
        assert_eq!(enqueue(0, 1_000), 0);
        assert_eq!(enqueue(WINDOW.us() * 2, 1), 1, "a process that rested is as it was");
        assert_eq!(enqueue(0, 1_000), some - 1, "many together are many at once");
    }
}
