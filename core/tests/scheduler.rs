//! The claim scheduler: capacity, priorities and aging, wakes and polls, errors, drain.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::num::NonZeroU32;

use awa_core::ids::{LaneId, Priority, Shard};
use awa_core::runtime::Tick;
use awa_core::runtime::scheduler::{
    Claimed, Destiny, LaneSpec, QueueNo, QueueSpec, Scheduler, SchedulerAction, SchedulerConfig,
    Wake,
};

fn ms(n: u64) -> Tick {
    Tick(n * 1_000)
}

/// Queues with these limits and four priorities of `shards` shards each. Lane ids count
/// queue * 100 + priority * 10 + shard.
fn queues(limits: &[u32], shards: i16) -> Vec<QueueSpec> {
    let lanes = |queue: i64| {
        let lane = move |priority: i16, shard: i16| LaneSpec {
            lane: LaneId(queue * 100 + i64::from(priority) * 10 + i64::from(shard)),
            priority: Priority(priority),
            shard: Shard(shard),
        };
        (1..=4).flat_map(move |p| (0..shards).map(move |s| lane(p, s))).collect()
    };
    let queue = |(n, &limit)| QueueSpec { limit, lanes: lanes(n as i64) };
    limits.iter().enumerate().map(queue).collect()
}

fn scheduler(running_max: u32, limits: &[u32]) -> Scheduler {
    Scheduler::new(SchedulerConfig::for_workers(running_max, 7), queues(limits, 1))
}

/// The lane and rows of the claim that comes next.
fn claim(scheduler: &mut Scheduler, now: Tick) -> (LaneId, u16) {
    match scheduler.poll(now) {
        Some(SchedulerAction::Claim { queue, lane, rows }) => {
            assert_eq!(queue.0 as i64, lane.0 / 100);
            (lane, rows)
        }
        other => panic!("{other:?}"),
    }
}

fn polled(scheduler: &mut Scheduler, holding: &[i64], now: Tick) -> Vec<QueueNo> {
    match scheduler.poll(now) {
        Some(SchedulerAction::Poll { queues }) => {
            let lanes: Vec<_> = holding.iter().map(|&lane| LaneId(lane)).collect();
            scheduler.handle_polled(&lanes, now).unwrap();
            queues
        }
        other => panic!("{other:?}"),
    }
}

fn claimed(scheduler: &mut Scheduler, lane: i64, rows: u16, more: bool, now: Tick) {
    let destiny = scheduler.handle_claimed(LaneId(lane), Claimed { rows, more }, now);
    assert_eq!(destiny, Ok(Destiny::Run));
}

#[test]
fn one_poll_covers_all_queues_and_backs_off() {
    let mut scheduler = scheduler(100, &[10; 64]);
    let mut now = ms(0);
    let mut waits = Vec::new();
    for _ in 0..7 {
        assert_eq!(polled(&mut scheduler, &[], now).len(), 64);
        assert_eq!(scheduler.poll(now), None);
        let wake = scheduler.next_wake().unwrap();
        waits.push(wake.since(now).ms_up());
        now = wake;
    }
    assert_eq!(waits, [50, 100, 200, 400, 800, 1_600, 2_000]);
}

#[test]
fn claims_ask_for_no_more_than_is_free() {
    let mut scheduler = scheduler(700, &[1_000, 60]);
    polled(&mut scheduler, &[20, 30, 110, 120], ms(0));
    // Queue 0: a whole batch. Queue 1: its limit. Then what is left of the process.
    assert_eq!(claim(&mut scheduler, ms(0)), (LaneId(20), 512));
    assert_eq!(claim(&mut scheduler, ms(0)), (LaneId(110), 60));
    assert_eq!(scheduler.poll(ms(0)), None, "lingers for more than 128 places");
    assert_eq!(scheduler.next_wake(), Some(ms(1)));
    assert_eq!(claim(&mut scheduler, ms(1)), (LaneId(30), 128));
    assert_eq!((scheduler.poll(ms(9)), scheduler.next_wake()), (None, None));
    claimed(&mut scheduler, 20, 512, true, ms(9));
    claimed(&mut scheduler, 110, 60, true, ms(9));
    claimed(&mut scheduler, 30, 128, true, ms(9));
    assert_eq!((scheduler.running(), scheduler.running_of(QueueNo(1))), (700, 60));
    assert_eq!((scheduler.poll(ms(9)), scheduler.next_wake()), (None, None));
    scheduler.handle_finished(QueueNo(1), 15).unwrap();
    assert_eq!(claim(&mut scheduler, ms(9)), (LaneId(110), 15));
}

#[test]
fn a_full_claim_goes_on_and_a_short_one_waits() {
    let mut scheduler = scheduler(10_000, &[10_000]);
    polled(&mut scheduler, &[20], ms(0));
    for _ in 0..5 {
        assert_eq!(claim(&mut scheduler, ms(0)), (LaneId(20), 512));
        assert_eq!(scheduler.poll(ms(0)), None, "one claim a lane");
        claimed(&mut scheduler, 20, 512, true, ms(0));
    }
    claim(&mut scheduler, ms(0));
    claimed(&mut scheduler, 20, 100, false, ms(0));
    assert_eq!(scheduler.poll(ms(0)), None);
    assert_eq!(scheduler.next_wake(), Some(ms(50)));
    // Stopped by bytes (H47): fewer rows than asked for, and more there.
    polled(&mut scheduler, &[20], ms(50));
    claim(&mut scheduler, ms(50));
    claimed(&mut scheduler, 20, 3, true, ms(50));
    assert_eq!(claim(&mut scheduler, ms(50)), (LaneId(20), 512));
}

#[test]
fn a_wake_is_heeded_at_once_and_never_lost() {
    let mut scheduler = scheduler(100, &[50, 50, 50]);
    polled(&mut scheduler, &[], ms(0));
    assert_eq!(scheduler.poll(ms(1)), None);
    // Of a lane: claimed without asking. Of a queue: that queue is polled.
    scheduler.handle_wake(Wake::Lane(LaneId(230)));
    assert_eq!(claim(&mut scheduler, ms(1)), (LaneId(230), 50));
    scheduler.handle_wake(Wake::Queue(QueueNo(1)));
    scheduler.handle_wake(Wake::Queue(QueueNo(1)));
    assert_eq!(scheduler.next_wake(), Some(Tick(0)));
    assert_eq!(polled(&mut scheduler, &[140], ms(1)), [QueueNo(1)]);
    assert_eq!(claim(&mut scheduler, ms(1)), (LaneId(140), 50));
    // During its claim: the claim may have looked too early, so the lane is claimed again.
    scheduler.handle_wake(Wake::Lane(LaneId(140)));
    claimed(&mut scheduler, 140, 1, false, ms(2));
    claimed(&mut scheduler, 230, 0, false, ms(2));
    assert_eq!(claim(&mut scheduler, ms(2)).0, LaneId(140));
    claimed(&mut scheduler, 140, 1, false, ms(2));
    assert_eq!(scheduler.poll(ms(2)), None);
    // During a poll: polled again.
    scheduler.handle_wake(Wake::Queue(QueueNo(0)));
    assert!(matches!(scheduler.poll(ms(3)), Some(SchedulerAction::Poll { .. })));
    scheduler.handle_wake(Wake::Queue(QueueNo(0)));
    assert_eq!(scheduler.poll(ms(3)), None, "one poll at a time");
    scheduler.handle_polled(&[], ms(3)).unwrap();
    assert_eq!(polled(&mut scheduler, &[], ms(3)), [QueueNo(0)]);
    // While the queue has no place: as soon as it has.
    scheduler.set_limit(QueueNo(2), 0);
    scheduler.handle_wake(Wake::All);
    assert_eq!(polled(&mut scheduler, &[], ms(4)), [QueueNo(0), QueueNo(1)]);
    assert_eq!(scheduler.poll(ms(4)), None);
    scheduler.set_limit(QueueNo(2), 5);
    assert_eq!(polled(&mut scheduler, &[], ms(4)), [QueueNo(2)]);
    // A lane that was declared since.
    let spec = LaneSpec { lane: LaneId(215), priority: Priority(1), shard: Shard(5) };
    scheduler.add_lane(QueueNo(2), spec);
    assert_eq!(polled(&mut scheduler, &[215], ms(4)), [QueueNo(2)]);
    assert_eq!(claim(&mut scheduler, ms(4)), (LaneId(215), 5));
}

#[test]
fn priorities_go_first_and_no_lane_waits_longer_than_stated() {
    for (shards, every) in [(1, 8), (3, 8), (2, 1), (1, 100)] {
        let aging_every = NonZeroU32::new(every).unwrap();
        let config = SchedulerConfig { aging_every, ..SchedulerConfig::for_workers(512, 7) };
        let mut scheduler = Scheduler::new(config, queues(&[512], shards));
        let lanes: Vec<i64> =
            (1..=4).flat_map(|p| (0..shards as i64).map(move |s| p * 10 + s)).collect();
        polled(&mut scheduler, &lanes, ms(0));
        let bound = scheduler.longest_wait(QueueNo(0));
        assert_eq!(bound, u64::from(every) * 4 * shards as u64);
        let mut last = vec![0; lanes.len()];
        let mut claims = vec![0; lanes.len()];
        for turn in 1..=10 * bound {
            let (lane, rows) = claim(&mut scheduler, ms(0));
            claimed(&mut scheduler, lane.0, rows, true, ms(0));
            scheduler.handle_finished(QueueNo(0), u32::from(rows)).unwrap();
            let place = lanes.iter().position(|&l| l == lane.0).unwrap();
            (last[place], claims[place]) = (turn, claims[place] + 1);
            let waits = last.iter().map(|last| turn - last).max();
            assert!(waits < Some(bound), "a lane waits for {waits:?} claims of at most {bound}");
        }
        let urgent: u64 = claims[..shards as usize].iter().sum();
        let due = 10 * bound * u64::from(every - 1) / u64::from(every);
        assert!(urgent >= due, "{urgent} of {due} claims went to the most urgent");
        let (least, most) =
            (claims[..shards as usize].iter().min(), claims[..shards as usize].iter().max());
        assert!(most.unwrap() - least.unwrap() <= 11, "shards take turns");
    }
}

#[test]
fn queues_take_turns_for_what_the_process_has_free() {
    let mut scheduler = scheduler(512, &[512, 512, 512]);
    polled(&mut scheduler, &[10, 110, 210], ms(0));
    let mut order = Vec::new();
    for _ in 0..6 {
        let (lane, rows) = claim(&mut scheduler, ms(0));
        assert_eq!(scheduler.poll(ms(0)), None);
        claimed(&mut scheduler, lane.0, rows, true, ms(0));
        let queue = QueueNo(lane.0 as usize / 100);
        scheduler.handle_finished(queue, u32::from(rows)).unwrap();
        order.push(queue.0);
    }
    assert_eq!(order, [0, 1, 2, 0, 1, 2]);
}

#[test]
fn claims_in_flight_are_bounded() {
    let mut scheduler = scheduler(10_000, &[10; 9]);
    polled(&mut scheduler, &[10, 110, 210, 310, 410, 510], ms(0));
    let lanes: Vec<_> = (0..4).map(|_| claim(&mut scheduler, ms(0)).0.0).collect();
    assert_eq!((lanes, scheduler.claims_in_flight()), (vec![10, 110, 210, 310], 4));
    let next_poll = polled(&mut scheduler, &[], ms(50));
    assert_eq!(next_poll.len(), 5, "queues with places are still looked at");
    assert_eq!(scheduler.poll(ms(50)), None);
    claimed(&mut scheduler, 10, 0, false, ms(50));
    assert_eq!(claim(&mut scheduler, ms(50)).0, LaneId(410));
}

#[test]
fn a_failing_lane_backs_off_alone() {
    let mut scheduler = scheduler(100, &[50]);
    polled(&mut scheduler, &[10, 20], ms(0));
    let mut failed_ms = 0;
    for longest_ms in [100, 200, 400, 800] {
        assert_eq!(claim(&mut scheduler, ms(failed_ms)).0, LaneId(10));
        scheduler.handle_claim_failed(LaneId(10), ms(failed_ms)).unwrap();
        // The less urgent lane has all the places meanwhile.
        for wait_ms in [0, longest_ms / 2 - 1] {
            assert_eq!(claim(&mut scheduler, ms(failed_ms + wait_ms)), (LaneId(20), 50));
            claimed(&mut scheduler, 20, 0, true, ms(failed_ms + wait_ms));
        }
        failed_ms += longest_ms;
    }
    // A failing poll backs off too, and all queues are polled then.
    let mut alone = scheduler_failing_polls();
    let wake = alone.next_wake().unwrap();
    assert!(wake > ms(0) && wake <= ms(100));
    alone.handle_wake(Wake::All);
    assert_eq!(alone.poll(ms(1)), None, "a wake doesn't break the back-off");
    assert_eq!(polled(&mut alone, &[], wake), [QueueNo(0), QueueNo(1)]);
}

fn scheduler_failing_polls() -> Scheduler {
    let mut scheduler = scheduler(10, &[5, 5]);
    assert!(matches!(scheduler.poll(ms(0)), Some(SchedulerAction::Poll { .. })));
    scheduler.handle_poll_failed(ms(0)).unwrap();
    scheduler
}

#[test]
fn what_no_claim_can_take_does_not_make_it_spin() {
    let mut scheduler = scheduler(10, &[10]);
    let (mut now, mut actions) = (ms(0), 0);
    while now < ms(60_000) {
        match scheduler.poll(now) {
            Some(SchedulerAction::Poll { .. }) => {
                scheduler.handle_polled(&[LaneId(20)], now).unwrap()
            }
            Some(SchedulerAction::Claim { lane, .. }) => {
                claimed(&mut scheduler, lane.0, 0, false, now)
            }
            Some(other) => panic!("{other:?}"),
            None => {
                now = scheduler.next_wake().unwrap();
                continue;
            }
        }
        actions += 1;
    }
    assert!(actions < 135, "{actions} in a minute");
}

#[test]
fn a_drain_claims_nothing_more_and_ends() {
    let mut scheduler = scheduler(100, &[50, 50]);
    polled(&mut scheduler, &[10, 110], ms(0));
    claim(&mut scheduler, ms(0));
    claimed(&mut scheduler, 10, 50, true, ms(0));
    claim(&mut scheduler, ms(0));
    scheduler.drain(ms(100));
    scheduler.drain(ms(500));
    scheduler.handle_finished(QueueNo(0), 20).unwrap();
    scheduler.handle_wake(Wake::All);
    assert_eq!((scheduler.poll(ms(1)), scheduler.next_wake()), (None, Some(ms(100))));
    // A claim that was under way: its jobs go back (H60).
    let late = scheduler.handle_claimed(LaneId(110), Claimed { rows: 4, more: true }, ms(2));
    assert_eq!(late, Ok(Destiny::HandBack));
    scheduler.handle_finished(QueueNo(1), 4).unwrap();
    assert_eq!(scheduler.poll(ms(99)), None);
    assert_eq!(scheduler.poll(ms(100)), Some(SchedulerAction::HandBack { running: 30 }));
    assert_eq!((scheduler.poll(ms(200)), scheduler.next_wake()), (None, None));
    scheduler.handle_finished(QueueNo(0), 30).unwrap();
    assert_eq!(scheduler.next_wake(), Some(Tick(0)));
    assert_eq!(scheduler.poll(ms(200)), Some(SchedulerAction::Drained));
    assert_eq!((scheduler.poll(ms(201)), scheduler.next_wake()), (None, None));
}

#[test]
fn replies_that_fit_nothing_are_faults() {
    let mut scheduler = scheduler(100, &[50]);
    let none = Claimed { rows: 0, more: false };
    assert!(scheduler.handle_claimed(LaneId(10), none, ms(0)).is_err());
    assert!(scheduler.handle_claim_failed(LaneId(99), ms(0)).is_err());
    assert!(scheduler.handle_polled(&[], ms(0)).is_err());
    assert!(scheduler.handle_poll_failed(ms(0)).is_err());
    assert!(scheduler.handle_finished(QueueNo(0), 1).is_err());
    assert!(matches!(scheduler.poll(ms(0)), Some(SchedulerAction::Poll { .. })));
    assert!(scheduler.handle_polled(&[LaneId(99), LaneId(10)], ms(0)).is_err());
    // What was known is taken in all the same; so are jobs beyond those asked for.
    assert_eq!(claim(&mut scheduler, ms(0)), (LaneId(10), 50));
    let over = Claimed { rows: 51, more: true };
    assert!(scheduler.handle_claimed(LaneId(10), over, ms(0)).is_err());
    assert_eq!(scheduler.running(), 51);
    assert_eq!(scheduler.poll(ms(60_000)), None);
}
