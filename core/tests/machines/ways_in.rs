use awa_core::limits::{ENQUEUE_ROWS_MAX, MOVE_ROWS_MAX};
use awa_core::machine::enqueue::{
    Copied, Enqueue, EnqueueAll, EnqueueCopy, EnqueueDeferred, Enqueued, EnqueuedAll, Wake,
    lanes_of,
};
use awa_core::machine::promote::{Promote, Promoted};
use awa_core::{Fault, JobId, LaneId, Machine, NewJob, Reply, Span, Step, Turn, UserError};

use crate::script::{at_hour, fault, new_job, outcome, plan, segment, withstands};

fn lanes(numbers: &[i64]) -> Vec<LaneId> {
    numbers.iter().copied().map(LaneId).collect()
}

fn jobs(numbers: &[i64]) -> Vec<JobId> {
    numbers.iter().copied().map(JobId).collect()
}

fn enqueue(lanes: &[i64]) -> Enqueue {
    Enqueue::new(lanes.iter().map(|lane| new_job(*lane)).collect()).expect("few jobs")
}

/// Law 1, H44, H61: one flush, no lock, and no NOTIFY before the COMMIT.
#[test]
fn enqueue_is_one_step_that_waits_for_nobody() {
    let script = vec![vec![Reply::Enqueued(jobs(&[11, 12, 13]))]];
    assert_eq!(
        plan(enqueue(&[5, 2, 5]), script.clone()),
        "\
turn 1, last, with COMMIT
  enqueue 3 jobs
commit: Ok(Enqueued { jobs: [JobId(11), JobId(12), JobId(13)], lanes: [LaneId(2), LaneId(5)] })
"
    );
    withstands(&enqueue(&[5, 2, 5]), &script, Result::is_err);
}

/// The same value in a transaction that the caller owns.
#[test]
fn enqueue_can_be_driven_by_its_caller() {
    let mut machine = enqueue(&[3]);
    assert_eq!(machine.take_steps(), vec![Step::EnqueueReady { jobs: vec![new_job(3)] }]);
    let done = Enqueued { jobs: jobs(&[9]), lanes: lanes(&[3]) };
    assert_eq!(machine.resume(vec![Reply::Enqueued(jobs(&[9]))]), Turn::Commit(Ok(done)));

    let mut deferred = EnqueueDeferred::new(vec![(new_job(3), at_hour(200))]).expect("one job");
    let step = Step::EnqueueDeferred { jobs: vec![(new_job(3), at_hour(200))] };
    assert_eq!(deferred.take_steps(), vec![step]);
}

#[test]
fn an_id_short_is_a_fault() {
    let what = "ids of enqueued jobs";
    let short = Fault::Unbalanced { what, expected: 2, found: 1 };
    assert_eq!(fault(enqueue(&[1, 1]), vec![vec![Reply::Enqueued(jobs(&[9]))]]), short);
    let deferred = EnqueueDeferred::new(vec![(new_job(1), at_hour(1))]).expect("one job");
    let what = "ids of deferred jobs";
    let over = Fault::Unbalanced { what, expected: 1, found: 2 };
    assert_eq!(fault(deferred, vec![vec![Reply::Enqueued(jobs(&[9, 10]))]]), over);
}

#[test]
fn no_jobs_ask_nothing() {
    let nothing = Enqueued { jobs: vec![], lanes: vec![] };
    assert_eq!(outcome(enqueue(&[]), vec![]), Ok(nothing.clone()));
    assert_eq!(outcome(EnqueueDeferred::new(vec![]).expect("none"), vec![]), Ok(nothing));
    let copy = EnqueueCopy::new(vec![]).expect("none");
    assert_eq!(outcome(copy, vec![]), Ok(Copied { rows: 0, lanes: vec![] }));
}

#[test]
fn one_call_holds_a_bounded_number_of_jobs() {
    let refused = |e: Result<(), UserError>| {
        let text = e.expect_err("too many").to_string();
        assert_eq!(text, "jobs is 100001; it must lie between 0 and 100000");
    };
    let many = vec![new_job(1); ENQUEUE_ROWS_MAX + 1];
    let dated = many.iter().cloned().map(|job| (job, at_hour(1))).collect();
    refused(EnqueueDeferred::new(dated).map(drop));
    refused(EnqueueCopy::new(many.clone()).map(drop));
    refused(
        Enqueue::new(many[..ENQUEUE_ROWS_MAX].to_vec()).map(drop).and(Enqueue::new(many).map(drop)),
    );
}

#[test]
fn a_copy_reads_the_cursor_and_copies() {
    let machine = EnqueueCopy::new(vec![new_job(4), new_job(1)]).expect("two jobs");
    let script = vec![vec![Reply::CursorRead(segment(3, 8))], vec![Reply::Copied(2)]];
    assert_eq!(
        plan(machine.clone(), script.clone()),
        "\
turn 1, ask
  read the cursor
turn 2, last, with COMMIT
  copy 2 jobs to slot 3 g8
commit: Ok(Copied { rows: 2, lanes: [LaneId(1), LaneId(4)] })
"
    );
    withstands(&machine, &script, Result::is_err);
    let short = vec![script[0].clone(), vec![Reply::Copied(1)]];
    assert_eq!(
        fault(machine, short),
        Fault::Unbalanced { what: "copied jobs", expected: 2, found: 1 }
    );
}

#[test]
fn deferred_jobs_wake_nobody() {
    let machine = EnqueueDeferred::new(vec![(new_job(4), at_hour(200))]).expect("one job");
    let script = vec![vec![Reply::Enqueued(jobs(&[7]))]];
    assert_eq!(
        plan(machine.clone(), script.clone()),
        "\
turn 1, last, with COMMIT
  defer 1 jobs
commit: Ok(Enqueued { jobs: [JobId(7)], lanes: [] })
"
    );
    withstands(&machine, &script, Result::is_err);
}

/// H44: each lane once, and nothing to send where there is no lane.
#[test]
fn a_wake_names_each_lane_once() {
    assert_eq!(Wake::lanes(vec![]), None);
    assert_eq!(lanes_of(&[(JobId(1), LaneId(4)), (JobId(2), LaneId(4))]), lanes(&[4]));
    let machine = Wake::lanes(lanes(&[7, 3, 7])).expect("lanes");
    let script = vec![vec![Reply::Woken]];
    let text = plan(machine.clone(), script.clone());
    assert_eq!(text, "turn 1, last, with COMMIT\n  wake lane 3, lane 7\ncommit: Ok(())\n");
    withstands(&machine, &script, Result::is_err);
}

// --- both kinds at once ---

fn both(ready: usize, deferred: usize) -> EnqueueAll {
    let dated: Vec<(NewJob, _)> = vec![(new_job(9), at_hour(200)); deferred];
    EnqueueAll::new(vec![new_job(2); ready], dated).expect("few jobs")
}

/// One transaction for what is due and what waits; only lanes with due jobs are to be woken.
#[test]
fn due_and_waiting_jobs_are_enqueued_together() {
    let script = vec![vec![Reply::Enqueued(jobs(&[11, 12])), Reply::Enqueued(jobs(&[13]))]];
    let text = plan(both(2, 1), script.clone());
    assert!(
        text.starts_with("turn 1, last, with COMMIT\n  enqueue 2 jobs\n  defer 1 jobs\n"),
        "{text}"
    );
    let done = EnqueuedAll {
        ready: Enqueued { jobs: jobs(&[11, 12]), lanes: lanes(&[2]) },
        deferred: Enqueued { jobs: jobs(&[13]), lanes: vec![] },
    };
    assert_eq!(outcome(both(2, 1), script.clone()), Ok(done));
    withstands(&both(2, 1), &script, Result::is_err);
}

#[test]
fn a_kind_of_which_there_is_none_is_not_asked_for() {
    let one = || vec![vec![Reply::Enqueued(jobs(&[11]))]];
    assert!(
        plan(both(1, 0), one()).starts_with("turn 1, last, with COMMIT\n  enqueue 1 jobs\ncommit")
    );
    assert!(
        plan(both(0, 1), one()).starts_with("turn 1, last, with COMMIT\n  defer 1 jobs\ncommit")
    );
    let none = outcome(both(0, 0), vec![]).expect("nothing");
    assert!(none.ready.jobs.is_empty() && none.deferred.jobs.is_empty());
}

#[test]
fn an_id_short_of_either_kind_is_a_fault() {
    for (ready, deferred, what, expected) in
        [(1, 1, "ids of enqueued jobs", 2), (2, 0, "ids of deferred jobs", 1)]
    {
        let ids = |count| Reply::Enqueued(vec![JobId(7); count]);
        let short = Fault::Unbalanced { what, expected, found: expected - 1 };
        assert_eq!(fault(both(2, 1), vec![vec![ids(ready), ids(deferred)]]), short);
    }
}

// --- promote ---

#[test]
fn due_jobs_are_promoted_and_the_next_one_is_told() {
    let machine = Promote::new(100).expect("in range");
    let moved = vec![(JobId(4), LaneId(2)), (JobId(3), LaneId(2))];
    let script = |now, due| vec![vec![Reply::Promoted(moved.clone()), Reply::NextDue { now, due }]];
    let soon = script(at_hour(100), Some(at_hour(101)));
    let text = plan(machine.clone(), soon.clone());
    let steps = "turn 1, last, with COMMIT\n  promote up to 100 due jobs\n  read when the next job is due\n";
    assert!(text.starts_with(steps), "{text}");
    withstands(&machine, &soon, Result::is_err);
    let idle = |due| -> Option<Span> {
        let done: Promoted = outcome(machine.clone(), script(at_hour(100), due)).expect("promoted");
        assert_eq!(done.jobs, moved);
        done.idle_for()
    };
    assert_eq!(idle(Some(at_hour(101))), Some(Span::from_secs(3600)));
    assert_eq!(idle(Some(at_hour(99))), Some(Span::ZERO));
    assert_eq!(idle(None), None);
}

#[test]
fn promotion_is_bounded() {
    for (limit, fits) in [(1, true), (MOVE_ROWS_MAX, true), (0, false), (MOVE_ROWS_MAX + 1, false)]
    {
        assert_eq!(Promote::new(limit).is_ok(), fits, "{limit}");
    }
    let moved = vec![(JobId(4), LaneId(2)), (JobId(3), LaneId(2))];
    let script = vec![vec![Reply::Promoted(moved), Reply::NextDue { now: at_hour(1), due: None }]];
    assert_eq!(
        fault(Promote::new(1).expect("in range"), script),
        Fault::Unbalanced { what: "jobs promoted beyond the limit", expected: 0, found: 1 }
    );
}
