//! The leader's duties, and what an idle system costs.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use awa_core::ids::{LaneId, Priority, Shard};
use awa_core::runtime::Tick;
use awa_core::runtime::duties::{Duties, DutiesConfig, Duty, DutyReport};
use awa_core::runtime::leader::{Election, ElectionAction, ElectionConfig};
use awa_core::runtime::scheduler::{
    LaneSpec, QueueSpec, Scheduler, SchedulerAction, SchedulerConfig,
};
use awa_core::time::Span;

const START: Tick = Tick(1_000_000);
const NOTHING: DutyReport = DutyReport { done: 0, more: false, next_due: None };

fn after_ms(ms: u64) -> Tick {
    START.after(Span::from_ms(ms))
}

/// Leads since `START`, with every duty but `kept` under way, so that only that one comes.
fn only(kept: Duty) -> Duties {
    let mut duties = Duties::new(DutiesConfig::new(7));
    duties.lead(START);
    let all = START.after(Span::from_secs(30));
    while let Some(duty) = duties.poll(all) {
        if duty == kept {
            continue;
        }
    }
    assert_eq!(duties.running(), 4);
    duties
}

fn done(duties: &mut Duties, duty: Duty, report: DutyReport, now: Tick) -> Span {
    duties.handle_done(duty, report, now);
    let wake = duties.next_wake().expect("due again");
    if wake > now {
        assert_eq!(duties.poll(now), None);
    }
    assert_eq!(duties.poll(wake.max(now)), Some(duty));
    wake.since(now)
}

#[test]
fn a_leader_has_every_duty_and_a_follower_none() {
    let mut duties = Duties::new(DutiesConfig::new(7));
    assert_eq!((duties.poll(START), duties.next_wake()), (None, None));
    duties.lead(START);
    let first: Vec<_> = std::iter::from_fn(|| duties.poll(START)).collect();
    assert_eq!(first, [Duty::Promote, Duty::Rescue, Duty::TendRings]);
    assert_eq!(duties.next_wake(), Some(START.after(Span::from_secs(30))));
    // Long ones hold nobody up, and none runs beside itself.
    duties.handle_done(Duty::Promote, NOTHING, START);
    assert_eq!(duties.poll(after_ms(100)), Some(Duty::Promote));
    assert_eq!(duties.poll(after_ms(29_999)), None);
    assert_eq!(duties.poll(after_ms(30_000)), Some(Duty::Rollup));

    duties.step_down();
    duties.handle_done(Duty::Rescue, NOTHING, START);
    assert_eq!((duties.poll(after_ms(99_999)), duties.next_wake()), (None, None));
    assert_eq!(duties.running(), 3);
}

#[test]
fn an_idle_duty_is_looked_at_ever_more_rarely() {
    let mut duties = only(Duty::Promote);
    let waits = [(); 7].map(|()| done(&mut duties, Duty::Promote, NOTHING, START).ms_up());
    assert_eq!(waits, [100, 200, 400, 800, 1_600, 2_000, 2_000]);
    let found = DutyReport { done: 3, ..NOTHING };
    assert_eq!(done(&mut duties, Duty::Promote, found, START), Span::from_ms(100));
    assert_eq!(done(&mut duties, Duty::Promote, NOTHING, START), Span::from_ms(200));
}

#[test]
fn what_is_known_to_be_due_is_met_on_time_without_spinning() {
    let mut duties = only(Duty::Promote);
    for _ in 0..5 {
        done(&mut duties, Duty::Promote, NOTHING, START);
    }
    let due_in = |ms| DutyReport { next_due: Some(Span::from_ms(ms)), ..NOTHING };
    assert_eq!(done(&mut duties, Duty::Promote, due_in(333), START), Span::from_ms(333));
    // Due in a year: still looked at, since a job may be scheduled before without a word.
    assert_eq!(done(&mut duties, Duty::Promote, due_in(1 << 45), START), Span::from_secs(2));
    // Due now and can't be moved (H50): not tried over and over.
    let stuck = DutyReport { done: 0, more: true, next_due: Some(Span::ZERO) };
    assert_eq!(done(&mut duties, Duty::Promote, stuck, START), Span::from_ms(100));
    let more = DutyReport { done: 10_000, more: true, next_due: Some(Span::ZERO) };
    assert_eq!(done(&mut duties, Duty::Promote, more, START), Span::ZERO);
}

#[test]
fn an_announcement_brings_a_duty_forward_but_not_past_a_back_off() {
    let mut duties = only(Duty::Promote);
    // While it runs, the promotion may have looked too early.
    duties.handle_announced(Duty::Promote, Span::from_ms(150), START);
    duties.handle_announced(Duty::Promote, Span::from_ms(900), START);
    for _ in 0..4 {
        duties.handle_done(Duty::Promote, NOTHING, START);
        duties.poll(after_ms(60_000));
    }
    duties.handle_done(Duty::Promote, NOTHING, START);
    assert_eq!(duties.next_wake(), Some(after_ms(1_600)));
    duties.handle_announced(Duty::Promote, Span::from_ms(700), START);
    assert_eq!(duties.next_wake(), Some(after_ms(700)));
    duties.handle_announced(Duty::Promote, Span::ZERO, START);
    assert_eq!(duties.next_wake(), Some(after_ms(100)));

    assert_eq!(duties.poll(after_ms(100)), Some(Duty::Promote));
    duties.handle_failed(Duty::Promote, after_ms(100));
    let retry_at = duties.next_wake().unwrap();
    assert!(retry_at >= after_ms(350) && retry_at <= after_ms(600));
    duties.handle_announced(Duty::Promote, Span::ZERO, after_ms(101));
    assert_eq!(duties.next_wake(), Some(retry_at));
}

#[test]
fn an_announcement_during_a_run_is_not_lost() {
    let mut duties = only(Duty::Rescue);
    duties.handle_announced(Duty::Rescue, Span::from_ms(1_200), START);
    for _ in 0..3 {
        duties.handle_done(Duty::TendRings, NOTHING, START);
        assert_eq!(duties.poll(after_ms(60_000)), Some(Duty::TendRings));
    }
    duties.handle_done(
        Duty::Rescue,
        DutyReport { next_due: Some(Span::from_secs(5)), ..NOTHING },
        START,
    );
    assert_eq!(duties.next_wake(), Some(after_ms(1_000)));
    assert_eq!(duties.poll(after_ms(1_000)), Some(Duty::Rescue));
    duties.handle_announced(Duty::Rescue, Span::from_ms(1_200), after_ms(1_000));
    duties.handle_done(Duty::Rescue, NOTHING, after_ms(1_000));
    assert_eq!(duties.next_wake(), Some(after_ms(2_200)));
}

#[test]
fn rollups_keep_their_interval() {
    let mut duties = only(Duty::Rollup);
    for report in [NOTHING, DutyReport { done: 4, more: true, next_due: Some(Span::ZERO) }] {
        assert_eq!(done(&mut duties, Duty::Rollup, report, START), Span::from_secs(30));
    }
}

#[test]
fn errors_of_a_duty_back_off_to_a_bound() {
    let mut duties = only(Duty::TendRings);
    let mut now = START;
    for _ in 0..50 {
        duties.handle_failed(Duty::TendRings, now);
        let wake = duties.next_wake().unwrap();
        assert!(wake > now && wake <= now.after(Span::from_secs(30)));
        now = wake;
        assert_eq!(duties.poll(now), Some(Duty::TendRings));
    }
}

/// Transactions of an hour: of a worker with `queues` queues, and of the maintenance beside it.
fn idle_hour(queues: usize, leads: bool) -> (u64, u64) {
    let queue = |n: usize| QueueSpec {
        limit: 100,
        lanes: (1..=4)
            .map(|p| LaneSpec {
                lane: LaneId((n * 4 + p) as i64),
                priority: Priority(p as i16),
                shard: Shard(0),
            })
            .collect(),
    };
    let config = SchedulerConfig::for_workers(1_024, 1);
    let mut scheduler = Scheduler::new(config, (0..queues).map(queue).collect());
    let mut election = Election::new(ElectionConfig::new(1));
    let mut duties = Duties::new(DutiesConfig::new(1));
    let (mut of_worker, mut of_maintenance) = (0, 0);
    let (mut now, end) = (START, START.after(Span::from_secs(3_600)));
    while now < end {
        while let Some(action) = scheduler.poll(now) {
            assert!(matches!(action, SchedulerAction::Poll { .. }), "{action:?}");
            of_worker += 1;
            scheduler.handle_polled(&[], now).unwrap();
        }
        while let Some(action) = election.poll(now) {
            match action {
                ElectionAction::TryAcquire => election.handle_try_result(leads, now),
                ElectionAction::Confirm => election.handle_confirmed(now),
                ElectionAction::Lead => duties.lead(now),
                other @ (ElectionAction::StepDown | ElectionAction::Release) => panic!("{other:?}"),
            }
            of_maintenance += u64::from(action != ElectionAction::Lead);
        }
        while let Some(duty) = duties.poll(now) {
            // Each of the three rings is observed in a transaction of its own.
            of_maintenance += if duty == Duty::TendRings { 3 } else { 1 };
            duties.handle_done(duty, NOTHING, now);
        }
        let wakes = [scheduler.next_wake(), election.next_wake(), duties.next_wake()];
        let wake = wakes.into_iter().flatten().min().expect("something is due");
        assert!(wake > now, "would spin");
        now = wake;
    }
    (of_worker, of_maintenance)
}

#[test]
fn an_idle_system_makes_at_most_two_transactions_a_second() {
    for queues in [1, 64] {
        let (of_worker, of_maintenance) = idle_hour(queues, true);
        let per_second = (of_worker + of_maintenance) as f64 / 3_600.0;
        println!(
            "{queues} queues, leading: {of_worker} + {of_maintenance} an hour, {per_second:.2}/s"
        );
        assert!(per_second <= 2.0, "{per_second}");
        // It does work, though.
        assert!(of_worker >= 1_800 && of_maintenance >= 2_000);
        let (of_worker, of_maintenance) = idle_hour(queues, false);
        let per_second = (of_worker + of_maintenance) as f64 / 3_600.0;
        println!(
            "{queues} queues, following: {of_worker} + {of_maintenance} an hour, {per_second:.2}/s"
        );
        assert!(per_second <= 1.2, "{per_second}");
    }
}
