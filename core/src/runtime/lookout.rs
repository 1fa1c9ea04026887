//! When a worker looks for lanes that its queues got after it had started.
//!
//! Most are heard of by a wake. For those that are not (jobs enqueued inside a caller's transaction,
//! a pooler between) one queue is looked at now and then, in turn: that costs an idle worker next to
//! nothing.

use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;
use core::mem;

use super::Tick;
use super::scheduler::QueueNo;
use crate::LaneId;
use crate::time::Span;

/// From one queue's look to the next one's.
const LOOK_EVERY: Span = Span::from_secs(60);

/// A look at which lanes queues have; then [`Lookout::handle_looked`] or [`Lookout::handle_failed`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Look {
    /// The queues to look at.
    pub queues: Vec<QueueNo>,
    /// Lanes that it is to tell of: those that it doesn't find are of other queues.
    about: BTreeSet<LaneId>,
}

/// What one worker knows of lanes that it doesn't work.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lookout {
    queues: usize,
    /// Named by a wake, and nobody knows whose they are.
    unknown: BTreeSet<LaneId>,
    /// Of queues that are not worked here. A lane stays with its queue.
    foreign: BTreeSet<LaneId>,
    /// One look at a time.
    looking: bool,
    next_at: Tick,
    turn: usize,
}

impl Lookout {
    /// For a worker that has just looked at its `queues`.
    #[must_use]
    pub const fn new(queues: usize, now: Tick) -> Self {
        Self {
            queues,
            unknown: BTreeSet::new(),
            foreign: BTreeSet::new(),
            looking: false,
            next_at: now.after(LOOK_EVERY),
            turn: 0,
        }
    }

    /// A wake was about a lane that the worker doesn't know.
    pub fn handle_wake(&mut self, lane: LaneId) {
        if !self.foreign.contains(&lane) {
            self.unknown.insert(lane);
        }
    }

    /// The look is over, and the worker knows all lanes that its queues had.
    pub fn handle_looked(&mut self, look: Look, now: Tick) {
        self.foreign.extend(look.about);
        self.handle_failed(now);
    }

    /// The look failed: a lane is asked about when it is heard of again.
    pub const fn handle_failed(&mut self, now: Tick) {
        self.looking = false;
        self.next_at = now.after(LOOK_EVERY);
    }

    /// What to look at now, once.
    pub fn poll(&mut self, now: Tick) -> Option<Look> {
        if self.next_wake().is_none_or(|due| due > now) {
            return None;
        }
        let about = mem::take(&mut self.unknown);
        let queues = if about.is_empty() {
            self.turn = (self.turn + 1) % self.queues;
            vec![QueueNo(self.turn)]
        } else {
            (0..self.queues).map(QueueNo).collect()
        };
        self.looking = true;
        Some(Look { queues, about })
    }

    /// When to poll; `None`: a look is under way, or there is nothing to look at.
    #[must_use]
    pub fn next_wake(&self) -> Option<Tick> {
        if self.looking || self.queues == 0 {
            return None;
        }
        Some(if self.unknown.is_empty() { self.next_at } else { Tick::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Tick = Tick(1_000_000);

    #[test]
    fn a_lane_is_asked_about_once() {
        let mut lookout = Lookout::new(2, START);
        assert_eq!(lookout.poll(START), None);
        lookout.handle_wake(LaneId(7));
        let look = lookout.poll(START).expect("it is unknown");
        assert_eq!(look.queues, [QueueNo(0), QueueNo(1)]);
        // One look at a time: what is heard of meanwhile is asked about afterwards.
        lookout.handle_wake(LaneId(8));
        assert_eq!((lookout.poll(START), lookout.next_wake()), (None, None));
        lookout.handle_looked(look, START);
        let look = lookout.poll(START).expect("another is unknown");
        assert_eq!(look.about, [LaneId(8)].into());
        // Nobody knows of that one still; the first is foreign.
        lookout.handle_failed(START);
        lookout.handle_wake(LaneId(7));
        assert_eq!(lookout.poll(START), None);
        lookout.handle_wake(LaneId(8));
        assert!(lookout.poll(START).is_some());
    }

    #[test]
    fn queues_take_turns() {
        let (mut lookout, mut now) = (Lookout::new(2, START), START);
        for queue in [1, 0, 1] {
            assert_eq!(lookout.poll(now), None);
            now = lookout.next_wake().expect("it looks again");
            let look = lookout.poll(now).expect("it is time");
            assert_eq!(look.queues, [QueueNo(queue)]);
            lookout.handle_looked(look, now);
        }
        let mut idle = Lookout::new(0, START);
        assert_eq!((idle.next_wake(), idle.poll(now)), (None, None));
    }
}
