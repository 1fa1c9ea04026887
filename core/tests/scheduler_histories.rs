//! Random histories of a worker process: limits are never passed, no job is forgotten, and a host
//! that follows `next_wake` never spins.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use awa_core::ids::{LaneId, Priority, Shard};
use awa_core::runtime::Tick;
use awa_core::runtime::scheduler::{
    Claimed, LaneSpec, QueueNo, QueueSpec, Scheduler, SchedulerAction, SchedulerConfig, Wake,
};
use awa_core::time::Span;

/// A fixed sequence of numbers that look random.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

const QUEUES: u64 = 3;
const LANES: u64 = 4;
const LIMITS: [u32; QUEUES as usize] = [40, 7, 1];
const RUNNING_MAX: u32 = 44;
const CLAIMS_MAX: u32 = 3;

/// What the database and the handlers would be.
struct Outside {
    now: Tick,
    /// Unclaimed jobs of each lane.
    ready: BTreeMap<LaneId, u64>,
    claims: BTreeMap<LaneId, (QueueNo, u16)>,
    /// Lanes that held jobs when the poll in flight looked.
    poll: Option<Vec<LaneId>>,
    running: BTreeMap<QueueNo, u32>,
    asked: u64,
}

fn lane(queue: u64, n: u64) -> LaneId {
    LaneId((queue * LANES + n) as i64)
}

fn new_scheduler(seed: u64) -> Scheduler {
    let config = SchedulerConfig {
        claim_rows: 16,
        claims_in_flight_max: CLAIMS_MAX,
        ..SchedulerConfig::for_workers(RUNNING_MAX, seed)
    };
    let spec = |queue: u64, n: u64| LaneSpec {
        lane: lane(queue, n),
        priority: Priority(1 + n as i16 / 2),
        shard: Shard(n as i16 % 2),
    };
    let queue = |queue: u64| QueueSpec {
        limit: LIMITS[queue as usize],
        lanes: (0..LANES).map(|n| spec(queue, n)).collect(),
    };
    Scheduler::new(config, (0..QUEUES).map(queue).collect())
}

impl Outside {
    fn act(&mut self, scheduler: &mut Scheduler, may_claim: bool) {
        while let Some(action) = scheduler.poll(self.now) {
            self.asked += 1;
            match action {
                SchedulerAction::Claim { queue, lane, rows } => {
                    assert!(may_claim && rows > 0);
                    assert!(self.claims.insert(lane, (queue, rows)).is_none(), "one a lane");
                }
                SchedulerAction::Poll { queues } => {
                    assert!(may_claim && self.poll.is_none() && !queues.is_empty());
                    let covered =
                        |lane: &LaneId| queues.contains(&QueueNo((lane.0 as u64 / LANES) as usize));
                    let held = self.ready.iter().filter(|&(lane, &jobs)| jobs > 0 && covered(lane));
                    self.poll = Some(held.map(|(&lane, _)| lane).collect());
                }
                SchedulerAction::HandBack { running } => {
                    assert_eq!(running, self.running.values().sum::<u32>());
                }
                SchedulerAction::Drained => assert!(self.claims.is_empty() && self.poll.is_none()),
            }
        }
        assert!(scheduler.next_wake().is_none_or(|wake| wake > self.now), "would spin");
        self.check_limits();
    }

    fn check_limits(&self) {
        assert!(self.claims.len() <= CLAIMS_MAX as usize);
        let mut all = 0;
        for (queue, limit) in LIMITS.iter().enumerate() {
            let asked = self
                .claims
                .values()
                .filter(|(q, _)| q.0 == queue)
                .map(|(_, rows)| u32::from(*rows));
            let taken =
                asked.sum::<u32>() + self.running.get(&QueueNo(queue)).copied().unwrap_or(0);
            assert!(taken <= *limit, "queue {queue} has {taken}");
            all += taken;
        }
        assert!(all <= RUNNING_MAX);
    }

    fn end_claim(&mut self, scheduler: &mut Scheduler, dice: &mut Dice) {
        let Some((lane, (queue, rows))) = self.claims.pop_first() else { return };
        if dice.below(10) == 0 {
            return scheduler.handle_claim_failed(lane, self.now).unwrap();
        }
        let ready = self.ready.entry(lane).or_default();
        let taken = (*ready).min(u64::from(rows));
        *ready -= taken;
        let claimed = Claimed { rows: taken as u16, more: taken == u64::from(rows) };
        let _ = scheduler.handle_claimed(lane, claimed, self.now).unwrap();
        *self.running.entry(queue).or_default() += taken as u32;
    }

    fn end_poll(&mut self, scheduler: &mut Scheduler, dice: &mut Dice) {
        let Some(held) = self.poll.take() else { return };
        match dice.below(10) {
            0 => scheduler.handle_poll_failed(self.now).unwrap(),
            _ => scheduler.handle_polled(&held, self.now).unwrap(),
        }
    }

    fn finish(&mut self, scheduler: &mut Scheduler, queue: QueueNo, jobs: u32) {
        let running = self.running.entry(queue).or_default();
        let jobs = jobs.min(*running);
        *running -= jobs;
        scheduler.handle_finished(queue, jobs).unwrap();
    }

    /// Everything under way ends and time goes on, until nothing is ready or running.
    fn settle(&mut self, scheduler: &mut Scheduler, dice: &mut Dice) {
        let end = self.now.after(Span::from_secs(300));
        while self.now < end {
            self.end_claim(scheduler, dice);
            self.end_poll(scheduler, dice);
            (0..QUEUES as usize).for_each(|queue| self.finish(scheduler, QueueNo(queue), 50));
            self.act(scheduler, true);
            if self.claims.is_empty() && self.poll.is_none() {
                self.now = scheduler.next_wake().unwrap_or(end).max(self.now);
            }
        }
    }
}

#[test]
fn no_limit_is_passed_and_no_job_forgotten() {
    for seed in 0..40 {
        let mut dice = Dice(seed);
        let mut scheduler = new_scheduler(seed);
        let (ready, claims, running) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let mut outside = Outside { now: Tick(0), ready, claims, poll: None, running, asked: 0 };
        for _ in 0..5_000 {
            match dice.below(7) {
                0 => outside.now = outside.now.after(Span::from_us(dice.below(20_000))),
                1 => {
                    let queue = dice.below(QUEUES);
                    let lane = lane(queue, dice.below(LANES));
                    *outside.ready.entry(lane).or_default() += dice.below(20);
                    match dice.below(4) {
                        0 => scheduler.handle_wake(Wake::Lane(lane)),
                        1 => scheduler.handle_wake(Wake::Queue(QueueNo(queue as usize))),
                        2 => scheduler.handle_wake(Wake::All),
                        _ => {} // A notification that never comes.
                    }
                }
                2 => outside.end_claim(&mut scheduler, &mut dice),
                3 => outside.end_poll(&mut scheduler, &mut dice),
                4 => {
                    let (queue, jobs) = (dice.below(QUEUES) as usize, dice.below(9) as u32);
                    outside.finish(&mut scheduler, QueueNo(queue), jobs);
                }
                _ => outside.act(&mut scheduler, true),
            }
        }
        outside.settle(&mut scheduler, &mut dice);
        assert!(outside.ready.values().all(|&jobs| jobs == 0), "{:?}", outside.ready);
        assert_eq!((scheduler.running(), scheduler.claims_in_flight()), (0, 0));
        assert!(outside.asked > 500, "{}", outside.asked);

        scheduler.drain(outside.now);
        outside.ready.insert(lane(0, 0), 5);
        scheduler.handle_wake(Wake::All);
        outside.now = outside.now.after(Span::from_secs(60));
        outside.act(&mut scheduler, false);
    }
}
