//! Lanes that were declared after the worker had started: when to look for them.

use std::collections::BTreeSet;
use std::time::Duration;

use awa_driver::core::LaneId;
use awa_driver::core::runtime::scheduler::QueueNo;
use tokio::time::Instant;

/// Most new lanes are heard of by a wake. For those that are not (jobs enqueued inside a caller's transaction,
/// a pooler between) one queue is looked at each so often, in turn: it costs an idle worker next to nothing.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// A look at which lanes queues have.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Look {
    pub(super) queues: Vec<QueueNo>,
    /// Lanes that it is to tell of: those that it doesn't find are of other queues.
    about: BTreeSet<LaneId>,
}

#[derive(Debug)]
pub(super) struct Lookout {
    queues: usize,
    /// Named by a wake, and nobody knows whose they are.
    unknown: BTreeSet<LaneId>,
    /// Of queues that are not worked here. A lane stays with its queue.
    foreign: BTreeSet<LaneId>,
    looking: bool,
    next_at: Instant,
    turn: usize,
}

impl Lookout {
    pub(super) fn start(queues: usize, now: Instant) -> Self {
        let (unknown, foreign) = (BTreeSet::new(), BTreeSet::new());
        let next_at = now + LOOK_EVERY;
        Self { queues, unknown, foreign, looking: false, next_at, turn: 0 }
    }

    /// A wake was about a lane that is not among those known.
    pub(super) fn heard_of(&mut self, lane: LaneId) {
        if !self.foreign.contains(&lane) {
            self.unknown.insert(lane);
        }
    }

    /// What to look at now.
    pub(super) fn poll(&mut self, now: Instant) -> Option<Look> {
        if self.looking || self.queues == 0 {
            return None;
        }
        let about = std::mem::take(&mut self.unknown);
        let queues = if !about.is_empty() {
            (0..self.queues).map(QueueNo).collect()
        } else if self.next_at <= now {
            self.turn = (self.turn + 1) % self.queues;
            vec![QueueNo(self.turn)]
        } else {
            return None;
        };
        self.looking = true;
        Some(Look { queues, about })
    }

    /// The look is over. After one that failed, a lane is asked about when it is heard of again.
    pub(super) fn looked(&mut self, look: Look, failed: bool, now: Instant) {
        self.looking = false;
        self.next_at = now + LOOK_EVERY;
        if !failed {
            self.foreign.extend(look.about);
        }
    }

    pub(super) fn next_wake(&self) -> Option<Instant> {
        (!self.looking && self.queues > 0).then_some(self.next_at)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_is_asked_about_once_and_queues_take_turns() {
        let mut now = Instant::now();
        let mut lookout = Lookout::start(2, now);
        assert_eq!(lookout.poll(now), None);
        lookout.heard_of(LaneId(7));
        let look = lookout.poll(now).unwrap();
        assert_eq!(look.queues, [QueueNo(0), QueueNo(1)]);
        // One at a time: what is heard of meanwhile is asked about afterwards.
        lookout.heard_of(LaneId(8));
        assert_eq!((lookout.poll(now), lookout.next_wake()), (None, None));
        lookout.looked(look, false, now);
        let look = lookout.poll(now).unwrap();
        assert_eq!(look.about, [LaneId(8)].into());
        lookout.looked(look, true, now);
        lookout.heard_of(LaneId(7));
        assert_eq!(lookout.poll(now), None);
        lookout.heard_of(LaneId(8));
        let look = lookout.poll(now).unwrap();
        lookout.looked(look, false, now);

        for queue in [1, 0, 1] {
            assert_eq!(lookout.poll(now), None);
            now = lookout.next_wake().unwrap();
            let look = lookout.poll(now).unwrap();
            assert_eq!(look.queues, [QueueNo(queue)]);
            lookout.looked(look, false, now);
        }
    }
}
