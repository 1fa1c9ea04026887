use awa_core::job::{JobRow, Lane, ListFilter, QueueCounts, SlotLoad};
use awa_core::machine::declare::{DeclareQueue, FindLanes, lane_of};
use awa_core::machine::read::{
    CountPrunedFailed, CountQueue, ListJobs, LoadJob, MeasureRing, ObserveRing,
};
use awa_core::rules::Floor;
use awa_core::{
    Fault, JobId, JobState, LaneId, Priority, Reply, Ring, Shard, Slot, Span, UserError,
};

use crate::script::{fault, observed, outcome, plan, queue, ring, withstands};

fn lane(lane: i64, priority: i16, shard: i16) -> Lane {
    Lane { lane: LaneId(lane), priority: Priority(priority), shard: Shard(shard) }
}

#[test]
fn a_queue_is_declared_and_found() {
    let script = vec![vec![Reply::LanesFound(vec![lane(1, 1, 0)])]];
    let declare = DeclareQueue::new(queue("mail"), 2).expect("in range");
    let text = plan(declare.clone(), script.clone());
    assert!(text.starts_with("turn 1, last, with COMMIT\n  declare queue mail with 2 shards\n"));
    withstands(&declare, &script, Result::is_err);
    let find = FindLanes { queue: queue("mail") };
    let text = plan(find.clone(), script.clone());
    assert!(text.starts_with("turn 1, last, with COMMIT\n  find the lanes of queue mail\n"));
    withstands(&find, &script, Result::is_err);
    for (shards, fits) in [(1, true), (64, true), (0, false), (65, false), (-1, false)] {
        assert_eq!(DeclareQueue::new(queue("mail"), shards).is_ok(), fits, "{shards}");
    }
}

#[test]
fn a_jobs_lane_is_found_or_the_error_says_what_is_missing() {
    let lanes = [lane(1, 1, 0), lane(2, 2, 0), lane(3, 2, 1)];
    let find =
        |lanes: &[Lane], priority, shard| lane_of(&queue("mail"), lanes, priority, Shard(shard));
    assert_eq!(find(&lanes, 2, 1), Ok(LaneId(3)));
    assert_eq!(find(&lanes, 1, 0), Ok(LaneId(1)));
    let name = || "mail".to_owned();
    assert_eq!(find(&[], 1, 0), Err(UserError::UnknownQueue { queue: name() }));
    assert_eq!(find(&lanes, 1, 1), Err(UserError::UnknownShard { queue: name(), shard: 1 }));
    for priority in [0, 5, 65_537] {
        let text = find(&lanes, priority, 0).expect_err("out of range").to_string();
        assert_eq!(text, format!("priority is {priority}; it must lie between 1 and 4"));
    }
}

/// Law 16, H37: exact counts are one statement.
#[test]
fn exact_counts_are_one_step() {
    let machine = CountQueue { queue: queue("mail") };
    let counts = QueueCounts { available: 3, pruned_failed: 1, ..QueueCounts::default() };
    let script = vec![vec![Reply::Counted(Some(counts))]];
    let text = plan(machine.clone(), script.clone());
    assert!(text.starts_with("turn 1, last, with COMMIT\n  count queue mail\ncommit: "), "{text}");
    assert_eq!(outcome(machine.clone(), script.clone()), Ok(Some(counts)));
    withstands(&machine, &script, Result::is_err);
    assert_eq!(outcome(machine, vec![vec![Reply::Counted(None)]]), Ok(None));
}

/// Law 12: a negative count is reported with its name, whichever it is.
#[test]
fn a_negative_count_is_a_fault() {
    let set: [fn(&mut QueueCounts); 10] = [
        |c| c.available = -1,
        |c| c.scheduled = -1,
        |c| c.retryable = -1,
        |c| c.running = -1,
        |c| c.waiting_external = -1,
        |c| c.completed = -1,
        |c| c.failed = -1,
        |c| c.cancelled = -1,
        |c| c.pruned_other = -1,
        |c| c.pruned_failed = -1,
    ];
    for (set, (what, _)) in set.into_iter().zip(QueueCounts::default().named()) {
        let mut counts = QueueCounts::default();
        set(&mut counts);
        let script = vec![vec![Reply::Counted(Some(counts))]];
        let negative = Fault::Negative { what, value: -1 };
        assert_eq!(fault(CountQueue { queue: queue("mail") }, script), negative);
    }
    let script = vec![vec![Reply::PrunedFailed(Some(-1))]];
    let negative = Fault::Negative { what: "pruned failures", value: -1 };
    assert_eq!(fault(CountPrunedFailed { queue: queue("mail") }, script), negative);
}

#[test]
fn pruned_failures_are_read() {
    let machine = CountPrunedFailed { queue: queue("mail") };
    let script = vec![vec![Reply::PrunedFailed(Some(4))]];
    let text = plan(machine.clone(), script.clone());
    assert!(
        text.ends_with("  read pruned failures of queue mail\ncommit: Ok(Some(4))\n"),
        "{text}"
    );
    withstands(&machine, &script, Result::is_err);
    assert_eq!(outcome(machine, vec![vec![Reply::PrunedFailed(None)]]), Ok(None));
}

/// R026-03, H30: a job without a body is told by name.
#[test]
fn a_job_without_a_body_is_named() {
    let missing = || vec![vec![Reply::BodyMissing { job: JobId(4) }]];
    let expected = Fault::JobBodyMissing { job: JobId(4) };
    assert_eq!(fault(LoadJob { job: JobId(4) }, missing()), expected);
    let (state, limit) = (JobState::Failed, 10);
    let filter = ListFilter { queue: None, kind: None, state, before: None, limit };
    assert_eq!(fault(ListJobs { filter }, missing()), expected);
    assert_eq!(expected.to_string(), "job 4 has no retained body");
}

#[test]
fn jobs_are_loaded_and_listed() {
    let load = LoadJob { job: JobId(4) };
    let script = vec![vec![Reply::JobLoaded(None)]];
    assert!(plan(load.clone(), script.clone()).contains("  load job 4\ncommit: Ok(None)"));
    withstands(&load, &script, Result::is_err);

    let filter =
        ListFilter { queue: None, kind: None, state: JobState::Failed, before: None, limit: 20 };
    let list = ListJobs { filter };
    let script = vec![vec![Reply::JobsListed(Vec::<JobRow>::new())]];
    assert!(
        plan(list.clone(), script.clone()).contains("  list up to 20 failed jobs\ncommit: Ok([])")
    );
    withstands(&list, &script, Result::is_err);
}

/// Law 15: the policy's observation, with the cutoff of the clock that was observed.
#[test]
fn the_ring_is_measured_on_the_databases_clock() {
    let view = ring(Ring::Queue, "s1 o2");
    let load = SlotLoad {
        slot: Slot(0),
        bytes: 8192,
        has_droppable: true,
        droppable_hint: 1,
        carried_hint: 0,
        newest_fact_at: None,
    };
    let machine = MeasureRing::new(Ring::Queue, Floor::new(Span::from_secs(3600)));
    let script = vec![vec![observed(view.clone())], vec![Reply::LoadsObserved(vec![load])]];
    let text = plan(machine.clone(), script.clone());
    let steps = "\
turn 1, ask
  observe the queue ring
turn 2, last, with COMMIT
  measure the slots of the queue ring, cutoff t356400s
";
    assert!(text.starts_with(steps), "{text}");
    assert_eq!(outcome(machine.clone(), script.clone()), Ok((view.clone(), vec![load])));
    withstands(&machine, &script, Result::is_err);

    let observe = ObserveRing { ring: Ring::Queue };
    let script = vec![vec![observed(view.clone())]];
    assert_eq!(outcome(observe.clone(), script.clone()), Ok(view));
    withstands(&observe, &script, Result::is_err);
}
