//! Which lane a worker process claims from next, and how many jobs.
//!
//! A lane is claimed while it is believed to hold work: a claim that hit its limit, a poll or a
//! notification says so; a claim that came back short says otherwise. One statement polls all
//! queues together (H43), ever more rarely while nothing is found. Within a queue the more urgent
//! lane goes first, but each [`SchedulerConfig::aging_every`]th claim goes to the lane that has
//! waited longest, so that every lane has a stated longest wait ([`Scheduler::longest_wait`], H10).

use alloc::vec::Vec;
use core::num::NonZeroU32;

use super::{Backoff, Pace, Tick, earlier};
use crate::fault::Fault;
use crate::ids::{LaneId, Priority, Shard};
use crate::limits::CLAIM_ROWS_DEFAULT;
use crate::time::Span;

mod choice;
mod inputs;

/// A queue by its place in the list that the scheduler was made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueNo(pub usize);

/// A queue to claim from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct QueueSpec {
    /// Jobs of this queue that may run at a time in this process; 0 pauses it.
    pub limit: u32,
    /// Its lanes.
    pub lanes: Vec<LaneSpec>,
}

/// One lane of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LaneSpec {
    /// Its id.
    pub lane: LaneId,
    /// Its priority; 1 goes first.
    pub priority: Priority,
    /// Its shard; lanes of one priority take turns.
    pub shard: Shard,
}

/// How a [`Scheduler`] claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SchedulerConfig {
    /// Jobs of all queues that may run at a time in this process.
    pub running_max: u32,
    /// The most jobs of one claim: `claim_batch_size` (`R026-31`).
    pub claim_rows: u16,
    /// Claims in flight over all lanes. A lane never has more than one: `claimers` (`R026-31`).
    pub claims_in_flight_max: u32,
    /// Each so many claims of a queue, the one goes to the lane that has waited longest.
    pub aging_every: NonZeroU32,
    /// How long a claim waits for more than a few free places, so that places which free up one by
    /// one are filled together.
    pub linger: Span,
    /// The wait before the next poll when work was found by the last.
    pub poll_first: Span,
    /// The longest wait between polls of an idle process.
    pub poll_longest: Span,
    /// The wait after a first error.
    pub retry_first: Span,
    /// The longest wait after errors in a row.
    pub retry_longest: Span,
    /// Spreads retries of several processes.
    pub seed: u64,
}

/// Every 8th claim of a queue goes to the lane that has waited longest.
const AGING_EVERY_DEFAULT: NonZeroU32 = NonZeroU32::new(8).expect("not zero");

impl SchedulerConfig {
    /// The defaults for a process that runs up to `running_max` jobs at a time.
    #[must_use]
    pub const fn for_workers(running_max: u32, seed: u64) -> Self {
        Self {
            running_max,
            claim_rows: CLAIM_ROWS_DEFAULT,
            claims_in_flight_max: 4,
            aging_every: AGING_EVERY_DEFAULT,
            linger: Span::from_ms(1),
            poll_first: Span::from_ms(50),
            poll_longest: Span::from_secs(2),
            retry_first: Span::from_ms(100),
            retry_longest: Span::from_secs(10),
            seed,
        }
    }
}

/// What the host does next.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SchedulerAction {
    /// Claim up to `rows` jobs of the lane; then [`Scheduler::handle_claimed`] or
    /// [`Scheduler::handle_claim_failed`].
    Claim {
        /// The lane's queue.
        queue: QueueNo,
        /// The lane.
        lane: LaneId,
        /// The most jobs to take; room for them is kept free.
        rows: u16,
    },
    /// Find out, in one statement, which lanes of these queues hold unclaimed jobs; then
    /// [`Scheduler::handle_polled`] or [`Scheduler::handle_poll_failed`].
    Poll {
        /// The queues, by number.
        queues: Vec<QueueNo>,
    },
    /// The drain's deadline has passed: hand back what still runs, then report it by
    /// [`Scheduler::handle_finished`].
    HandBack {
        /// Jobs that still run.
        running: u32,
    },
    /// Draining, and nothing runs or is being claimed any more.
    Drained,
}

/// What a claim brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Claimed {
    /// Jobs taken; each counts as running until [`Scheduler::handle_finished`].
    pub rows: u16,
    /// The claim stopped at a limit, of rows or of bytes (H47), so the lane may hold more.
    pub more: bool,
}

/// What becomes of the jobs of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub enum Destiny {
    /// Run them.
    Run,
    /// The drain began while the claim was under way: hand them back (H60).
    HandBack,
}

/// What a notification is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wake {
    /// A lane got a job: it is claimed without asking first.
    Lane(LaneId),
    /// Some lane of the queue did: it is polled at once.
    Queue(QueueNo),
    /// Anything may have happened, as after a reconnect: all queues are polled at once.
    All,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Queue {
    limit: u32,
    running: u32,
    /// Rows of claims in flight.
    asked: u32,
    /// Claims so far: the clock that aging goes by.
    claims: u64,
    /// The process's claim count at this queue's last.
    served: u64,
    /// Something may have come that no lane knows of yet.
    woken: bool,
    /// Since when a claim has been held up for more places to free.
    lingers_since: Option<Tick>,
    /// Places in `Scheduler::lanes`.
    lanes: Vec<usize>,
}

impl Queue {
    const fn free(&self) -> u32 {
        self.limit.saturating_sub(self.running.saturating_add(self.asked))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Lane {
    spec: LaneSpec,
    queue: usize,
    /// Believed to hold work.
    wanted: bool,
    /// Rows of the claim in flight.
    asked: Option<u16>,
    /// Heard of new work while its claim was in flight.
    again: bool,
    /// The queue's claim count at this lane's last.
    served: u64,
    backoff: Backoff,
    retry_at: Tick,
}

impl Lane {
    fn is_eligible(&self, now: Tick) -> bool {
        self.is_ready() && self.retry_at <= now
    }

    const fn is_ready(&self) -> bool {
        self.wanted && self.asked.is_none()
    }

    /// Whether a poll could tell anything new about it.
    const fn is_unknown(&self) -> bool {
        !self.wanted && self.asked.is_none()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Polling {
    in_flight: bool,
    /// The poll in flight covers all queues.
    covers_all: bool,
    next_at: Tick,
    retry_at: Tick,
    pace: Pace,
    backoff: Backoff,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Drain {
    deadline: Tick,
    handed_back: bool,
    drained_said: bool,
}

/// The claim scheduler of one worker process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Scheduler {
    config: SchedulerConfig,
    queues: Vec<Queue>,
    lanes: Vec<Lane>,
    claims: u64,
    claims_in_flight: u32,
    running: u32,
    asked: u32,
    polling: Polling,
    drain: Option<Drain>,
}

impl Scheduler {
    /// A scheduler over `queues`, which polls them all first.
    #[must_use]
    pub fn new(config: SchedulerConfig, queues: Vec<QueueSpec>) -> Self {
        let backoff = |n: u64| {
            Backoff::new(config.retry_first, config.retry_longest, config.seed.wrapping_add(n))
        };
        let mut scheduler = Self {
            config,
            queues: Vec::with_capacity(queues.len()),
            lanes: Vec::new(),
            claims: 0,
            claims_in_flight: 0,
            running: 0,
            asked: 0,
            polling: Polling {
                in_flight: false,
                covers_all: false,
                next_at: Tick::default(),
                retry_at: Tick::default(),
                pace: Pace::new(config.poll_first, config.poll_longest),
                backoff: backoff(0),
            },
            drain: None,
        };
        for spec in queues {
            let queue = QueueNo(scheduler.queues.len());
            scheduler.queues.push(Queue {
                limit: spec.limit,
                running: 0,
                asked: 0,
                claims: 0,
                served: 0,
                woken: true,
                lingers_since: None,
                lanes: Vec::new(),
            });
            for lane in spec.lanes {
                scheduler.add_lane(queue, lane);
            }
        }
        scheduler
    }

    /// The most claims of `queue` that pass between two of any of its lanes that holds work, with
    /// steady work in all the others (H10). A job at the lane's head waits no longer; one that has
    /// `n` before it, `n / claim_rows` times as long again.
    #[must_use]
    pub fn longest_wait(&self, queue: QueueNo) -> u64 {
        u64::from(self.config.aging_every.get()) * self.queues[queue.0].lanes.len() as u64
    }

    /// Jobs that run, of all queues.
    #[must_use]
    pub const fn running(&self) -> u32 {
        self.running
    }

    /// Jobs of `queue` that run.
    #[must_use]
    pub fn running_of(&self, queue: QueueNo) -> u32 {
        self.queues[queue.0].running
    }

    /// Claims in flight.
    #[must_use]
    pub const fn claims_in_flight(&self) -> u32 {
        self.claims_in_flight
    }

    const fn free(&self) -> u32 {
        self.config.running_max.saturating_sub(self.running.saturating_add(self.asked))
    }

    fn lane_index(&self, lane: LaneId) -> Option<usize> {
        self.lanes.iter().position(|l| l.spec.lane == lane)
    }
}
