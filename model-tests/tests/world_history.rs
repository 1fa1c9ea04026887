//! What operators and maintenance do to the tables.
#![allow(clippy::unwrap_used)]

mod world_common;

use awa_core::machine::cancel::{Cancel, CancelOutcome};
use awa_core::machine::delete::{DeleteCompleted, DeleteOutcome};
use awa_core::machine::prune::{Prune, PruneOutcome};
use awa_core::machine::rebuild::{Distrust, Rebuild};
use awa_core::machine::retry::{DiscardFailed, RetryFailed};
use awa_core::machine::rollup::{Rollup, RollupOutcome};
use awa_core::rules::Cutoff;
use awa_core::{
    Fault, Gate, Generation, JobId, JobState, Kind, LaneSeq, ListFilter, Location, QueueCounts,
    QueueName, ReadyRef, Reply, Ring, Segment, Span, Step, TerminalFilter, TerminalRef, Window,
};
use awa_model_tests::drive::{Driving, Progress, run};
use awa_model_tests::world::{Applied, World, invariant};
use world_common::*;

fn counts(w: &mut World) -> QueueCounts {
    assert_eq!(w.check_invariants(), Ok(()));
    match alone(w, A, &Step::ReadCounts { queue: queue() }) {
        Reply::Counted(Some(counts)) => counts,
        reply => panic!("{reply:?}"),
    }
}

fn locate(w: &mut World, job: i64) -> Option<Location> {
    match alone(w, A, &Step::LocateJob { job: JobId(job) }) {
        Reply::Located(at) => at,
        reply => panic!("{reply:?}"),
    }
}

fn cancel(w: &mut World, job: i64) -> CancelOutcome {
    run(w, B, Cancel::new(JobId(job))).unwrap().unwrap()
}

fn retry(w: &mut World, filter: TerminalFilter) -> (Vec<i64>, i64, Option<i64>) {
    let mut scan = RetryFailed::new(filter, 100).unwrap();
    while let Some(piece) = scan.next() {
        let did = run(w, B, piece).unwrap().unwrap();
        scan.take(did).unwrap();
    }
    let outcome = scan.outcome();
    let retried = outcome.retried.iter().map(|job| job.0).collect();
    (retried, outcome.matched, outcome.pruned_failed_count)
}

fn discard(w: &mut World, filter: TerminalFilter) {
    let mut scan = DiscardFailed::new(filter, 100).unwrap();
    while let Some(piece) = scan.next() {
        let did = run(w, B, piece).unwrap().unwrap();
        scan.take(did).unwrap();
    }
}

fn of_queue() -> TerminalFilter {
    TerminalFilter::Queue(queue())
}

/// Four jobs: 1 completed compactly, 2 failed, 3 cancelled, 4 waiting.
fn mixed() -> World {
    let mut w = world();
    enqueue(&mut w, 4);
    let (jobs, _) = claim(&mut w, Window::default(), 2);
    complete(&mut w, &jobs[..1]);
    fail(&mut w, &jobs[1]);
    assert_eq!(cancel(&mut w, 3), CancelOutcome::Cancelled);
    w
}

#[test]
fn a_job_is_found_in_each_of_its_places() {
    let mut w = mixed();
    let now = w.now;
    let at = |slot, seq| ReadyRef { slot, lane: LANE, lane_seq: LaneSeq(seq) };
    let row = |job: i64| TerminalRef { job: JobId(job), lane: LANE, lane_seq: LaneSeq(job) };
    alone(&mut w, A, &Step::EnqueueDeferred { jobs: vec![(job(), now)] });
    let places = [
        (1, Some(Location::Compact(at(slot(0), 1)))),
        (2, Some(Location::Terminal { state: JobState::Failed, row: row(2) })),
        (3, Some(Location::Terminal { state: JobState::Cancelled, row: row(3) })),
        (4, Some(Location::Ready(at(slot(0), 4)))),
        (5, Some(Location::Deferred { state: JobState::Scheduled })),
        (6, None),
    ];
    for (job, place) in places {
        assert_eq!(locate(&mut w, job), place, "{job}");
    }
    claim_all(&mut w);
    assert_eq!(locate(&mut w, 4), Some(Location::Running(at(slot(0), 4))));
    for (job, state) in
        [(1, "completed"), (2, "failed"), (3, "cancelled"), (4, "running"), (5, "scheduled")]
    {
        let Reply::JobLoaded(Some(row)) = alone(&mut w, A, &Step::LoadJob { job: JobId(job) })
        else {
            panic!("{job}")
        };
        assert_eq!((row.state.as_str(), row.args.as_deref()), (state, Some(r#"{"to": "x"}"#)));
        assert_eq!(row.finalized_at.is_some(), row.state.is_terminal());
        let filter = ListFilter {
            queue: Some(queue()),
            kind: None,
            state: row.state,
            before: None,
            limit: 5,
        };
        let Reply::JobsListed(page) = alone(&mut w, A, &Step::ListJobs { filter }) else {
            panic!()
        };
        assert_eq!(page.iter().map(|r| r.job.0).collect::<Vec<_>>(), [job]);
        assert_eq!((&page[0].args, page[0].attempt), (&None, row.attempt));
    }
}

#[test]
fn lists_page_down_by_job() {
    let mut w = world();
    enqueue(&mut w, 5);
    let list = |w: &mut World, before: Option<i64>, kind: &str| {
        let kind = Some(Kind::new(kind).unwrap());
        let before = before.map(JobId);
        let filter = ListFilter { queue: None, kind, state: JobState::Available, before, limit: 2 };
        match alone(w, A, &Step::ListJobs { filter }) {
            Reply::JobsListed(page) => page.iter().map(|r| r.job.0).collect::<Vec<_>>(),
            reply => panic!("{reply:?}"),
        }
    };
    assert_eq!(list(&mut w, None, "send"), [5, 4]);
    assert_eq!(list(&mut w, Some(4), "send"), [3, 2]);
    assert_eq!(list(&mut w, Some(1), "send"), [] as [i64; 0]);
    assert_eq!(list(&mut w, None, "other"), [] as [i64; 0]);
}

/// H01, R026-18: a cancelled job is wide, its position spent by a tombstone; the lane goes on.
#[test]
fn cancelling_spends_the_position_and_keeps_the_body() {
    let mut w = world();
    enqueue(&mut w, 2);
    assert_eq!(cancel(&mut w, 1), CancelOutcome::Cancelled);
    assert_eq!(cancel(&mut w, 1), CancelOutcome::AlreadyEnded(JobState::Cancelled));
    let evidence = rows(&w, "ready_claim_attempt_batches");
    assert_eq!(
        evidence,
        ["batch_id=null first_seq=1 lane_id=1 last_seq=1 n=0 ranges={[1,2)} ready_generation=1 \
          ready_slot=0 spent_at=set spent_to=0"]
    );
    assert_eq!(rows(&w, "ready_tombstones").len(), 1);
    let wide = r#"args={"to": "x"} attempt=0 attempted_at=null created_at=set finalized_at=set"#;
    assert!(rows(&w, "done_entries")[0].starts_with(wide));
    let jobs = claim_all(&mut w);
    assert_eq!(ids(&jobs), [2]);
    assert_eq!(cancel(&mut w, 2), CancelOutcome::Running);
    let (seq, lane) = (LaneSeq(2), LANE);
    let late = Step::TombstoneReady { slot: slot(0), lane, lane_seq: seq };
    assert_eq!(alone(&mut w, A, &late), Reply::Moved(vec![]));
    assert_eq!(counts(&mut w).cancelled, 1);
}

#[test]
fn a_deferred_job_is_cancelled_at_a_fresh_position() {
    let mut w = world();
    let now = w.now;
    alone(&mut w, A, &Step::EnqueueDeferred { jobs: vec![(job(), now)] });
    w.begin(A);
    assert_eq!(
        say(&mut w, A, &Step::PromoteDue { limit: 1 }),
        Reply::Promoted(vec![(JobId(1), LANE)])
    );
    // Another promotion steps over the row; a cancel waits for it.
    assert_eq!(alone(&mut w, B, &Step::PromoteDue { limit: 1 }), Reply::Promoted(vec![]));
    w.begin(B);
    assert_eq!(waits(&mut w, B, &Step::CancelDeferred { job: JobId(1) }), [A]);
    w.rollback(A);
    assert_eq!(
        say(&mut w, B, &Step::CancelDeferred { job: JobId(1) }),
        Reply::Moved(vec![(JobId(1), LANE)])
    );
    w.commit(B);
    let done = rows(&w, "done_entries");
    assert!(done[0].contains("job_id=1 kind=send lane_id=1 lane_seq=3"), "{done:?}");
    assert_eq!(counts(&mut w).cancelled, 1);
    let Reply::NextDue { due, .. } = alone(&mut w, A, &Step::ReadNextDue) else { panic!() };
    assert_eq!(due, None);
}

/// R026-19, R026-22, R032-09: a fresh ready row, the old one inert, a negative delta.
#[test]
fn retry_moves_history_to_a_fresh_position() {
    let mut w = mixed();
    let kind = TerminalFilter::Kind(Kind::new("send").unwrap());
    assert_eq!(retry(&mut w, kind), (vec![2], 1, None));
    assert_eq!(retry(&mut w, of_queue()), (vec![], 0, Some(0)));
    assert_eq!(retry(&mut w, TerminalFilter::Job(JobId(1))), (vec![], 0, None), "compact");
    assert_eq!(retry(&mut w, TerminalFilter::Job(JobId(3))), (vec![3], 1, None));
    let ready = rows(&w, "ready_entries");
    assert_eq!(ready.len(), 6);
    assert!(ready.iter().any(|r| r.contains("attempt=0")
        && r.contains("moved_job_id=2")
        && r.contains("run_lease=1")));
    let sum = rows(&w, "queue_terminal_count_deltas");
    assert_eq!(sum.iter().filter(|d| d.contains("delta=-1")).count(), 2);
    let jobs = claim_all(&mut w);
    assert_eq!(ids(&jobs), [4, 2, 3]);
    assert_eq!((jobs[1].attempt.0, jobs[1].receipt.run_lease.0), (1, 2));
    assert!(jobs[1].traits.errors, "its errors are its history");
    assert_eq!(counts(&mut w).running, 3);
}

/// R026-17: hiding a compact success; discarding a failure. Both leave the books right.
#[test]
fn deleted_jobs_are_gone_from_counts_and_stay_closed() {
    let mut w = mixed();
    let delete = |w: &mut World, job| run(w, B, DeleteCompleted::new(JobId(job))).unwrap().unwrap();
    assert_eq!(delete(&mut w, 1), DeleteOutcome::Deleted);
    assert_eq!(delete(&mut w, 1), DeleteOutcome::NotFound);
    assert_eq!(delete(&mut w, 2), DeleteOutcome::NotCompleted(JobState::Failed));
    discard(&mut w, of_queue());
    let after = counts(&mut w);
    assert_eq!((after.completed, after.failed, after.cancelled, after.total()), (0, 0, 1, 2));
    assert_eq!(w.tally(), (4, 2));
    let probe = Step::Probe { gate: Gate::OpenReceipts(slot(0)) };
    assert_eq!(alone(&mut w, A, &probe), Reply::Probed { held_by: None });
}

/// R032-02 to R032-06, R026-20: carry, fold, truncate; the dump says all.
#[test]
fn prune_carries_folds_and_truncates() {
    let mut w = mixed();
    alone(&mut w, A, &Step::HideCompleted { slot: slot(0), lane: LANE, lane_seq: LaneSeq(1) });
    let jobs = claim_all(&mut w);
    fail(&mut w, &jobs[0]);
    w.now = w.now.after(Span::from_secs(10));
    enqueue(&mut w, 1);
    let jobs = claim_all(&mut w);
    fail(&mut w, &jobs[0]);
    rotate(&mut w, Ring::Queue);
    let cutoff = Some(Cutoff(w.now));
    let Reply::Surveyed(found) = alone(&mut w, A, &Step::SurveyTerminal { slot: slot(0), cutoff })
    else {
        panic!()
    };
    assert_eq!(
        (found.carried, found.failed, found.other, found.compact, found.bodies_missing),
        (1, 2, 1, 0, 0)
    );
    let pruned = prune(&mut w, Ring::Queue, floor(1));
    let PruneOutcome::Pruned { carried_failed_rows: 1, folded_failed: 2, folded_other: 1, .. } =
        pruned
    else {
        panic!("{pruned}")
    };
    let done = rows(&w, "done_entries");
    assert_eq!(done.len(), 1);
    assert!(
        done[0].contains(r#"args={"to": "x"}"#)
            && done[0].contains("ready_generation=2 ready_slot=1")
    );
    assert!(done[0].contains(r#"payload={"errors": [{"at": "set""#));
    let deltas = rows(&w, "queue_terminal_count_deltas");
    assert_eq!(
        deltas,
        ["counter_bucket=5 delta=1 lane_id=1 ready_generation=2 ready_slot=1 state=failed"]
    );
    assert_eq!(
        rows(&w, "queue_terminal_rollups"),
        ["lane_id=1 pruned_completed_count=1 pruned_failed_count=2"]
    );
    for table in [
        "ready_entries",
        "ready_tombstones",
        "ready_claim_attempt_batches",
        "receipt_completion_batches",
    ] {
        assert!(rows(&w, table).is_empty(), "{table}");
    }
    let after = counts(&mut w);
    assert_eq!(
        (after.failed, after.pruned_failed, after.pruned_other, after.total()),
        (1, 2, 1, 4)
    );
    assert_eq!(retry(&mut w, of_queue()), (vec![5], 1, Some(2)));
}

/// R026-24: gates hold a slot; each is let go by what it waits for.
#[test]
fn gates_hold_a_slot_until_nothing_is_open_in_it() {
    let mut w = world();
    enqueue(&mut w, 1);
    rotate(&mut w, Ring::Queue);
    rotate(&mut w, Ring::Claim);
    let held = |w: &mut World, ring| match prune(w, ring, floor(0)) {
        PruneOutcome::SkippedActive { reason, witness, .. } => Some((reason, witness)),
        PruneOutcome::Pruned { .. } => None,
        outcome => panic!("{outcome}"),
    };
    assert_eq!(held(&mut w, Ring::Queue), Some((Gate::PendingReady(slot(0)), 1)));
    let jobs = claim_all(&mut w);
    assert_eq!(held(&mut w, Ring::Queue), Some((Gate::OpenReceipts(slot(0)), 4096)));
    assert_eq!(held(&mut w, Ring::Claim), None, "the claim went to the open slot");
    rotate(&mut w, Ring::Claim);
    assert_eq!(held(&mut w, Ring::Claim), Some((Gate::OpenClaims(slot(1)), 4096)));
    let at = Segment { slot: slot(0), generation: Generation(1) };
    w.plant_lease(at, &jobs[0].receipt, JobState::Running);
    let probe = Step::Probe { gate: Gate::ActiveLeases(slot(0)) };
    assert_eq!(alone(&mut w, A, &probe), Reply::Probed { held_by: Some(1) });
    rotate(&mut w, Ring::Lease);
    assert_eq!(held(&mut w, Ring::Lease), Some((Gate::HeldLeases(slot(0)), 1)));
    fail(&mut w, &jobs[0]);
    for ring in Ring::ALL {
        assert_eq!(held(&mut w, ring), None);
    }
    assert_eq!(counts(&mut w).pruned_failed, 1);
}

/// H07: positions of two lanes say nothing about one another.
#[test]
fn a_gate_looks_at_each_lane_by_itself() {
    let mut w = world();
    let jobs = vec![job(), job_of(OTHER, "1"), job()];
    alone(&mut w, A, &Step::EnqueueReady { jobs });
    let jobs = claim_all(&mut w);
    complete(&mut w, &jobs);
    let probe = Step::Probe { gate: Gate::PendingReady(slot(0)) };
    assert_eq!(alone(&mut w, A, &probe), Reply::Probed { held_by: Some(2) });
}

/// H26: a crash at any point of a prune leaves the old state.
#[test]
fn a_prune_that_crashes_never_was() {
    for acts in 0.. {
        let mut w = mixed();
        let jobs = claim_all(&mut w);
        complete(&mut w, &jobs);
        rotate(&mut w, Ring::Queue);
        let before = w.dump();
        let mut d = Driving::new(B, Prune::oldest(Ring::Queue, floor(60)));
        let mut over = false;
        for _ in 0..acts {
            over = d.step(&mut w) != Progress::Stepped;
        }
        d.crash(&mut w);
        if over {
            assert!(acts > 15 && w.dump() != before);
            break;
        }
        assert_eq!(w.dump(), before, "after {acts} acts");
        assert!(matches!(prune(&mut w, Ring::Queue, floor(60)), PruneOutcome::Pruned { .. }));
        assert_eq!(counts(&mut w).total(), 4);
    }
}

/// R026-24, R026-26, H38: folding and rebuilding change where counts lie, not what they are.
#[test]
fn counters_fold_and_are_made_anew() {
    let mut w = mixed();
    let before = counts(&mut w);
    let jobs = claim_all(&mut w);
    complete(&mut w, &jobs);
    rotate(&mut w, Ring::Queue);
    assert_eq!(alone(&mut w, A, &Step::FindDeltas), Reply::SlotsFound(vec![slot(0)]));
    let folded = run(&mut w, B, Rollup::new(slot(0))).unwrap().unwrap();
    assert_eq!(folded, RollupOutcome::Folded { slot: slot(0), rows: 2, sum: 2 });
    assert!(rows(&w, "queue_terminal_count_deltas").is_empty());
    assert_eq!(
        rows(&w, "queue_terminal_live_counts"),
        [
            "count=1 counter_bucket=2 lane_id=1 ready_slot=0 state=failed",
            "count=1 counter_bucket=3 lane_id=1 ready_slot=0 state=cancelled"
        ]
    );
    assert_eq!(retry(&mut w, of_queue()).0, [2]);
    let told = counts(&mut w);
    assert_eq!((told.failed, told.cancelled, told.completed), (0, 1, before.completed + 1));
    run(&mut w, B, Distrust {}).unwrap().unwrap();
    assert_eq!(counts(&mut w), told);
    assert_eq!(run(&mut w, B, Rebuild::default()).unwrap().unwrap().rows, 1);
    assert_eq!(counts(&mut w), told);
    assert_eq!(rows(&w, "queue_terminal_live_counts").len(), 1);
    assert_eq!(rows(&w, "terminal_count_trust"), ["singleton=true trusted=true"]);
    let nobody = QueueName::new("nobody").unwrap();
    assert_eq!(alone(&mut w, A, &Step::ReadCounts { queue: nobody }), Reply::Counted(None));
}

/// H30: a narrow row without its body is told, never made up; an operator can discard it.
#[test]
fn an_orphan_is_reported_and_can_be_discarded() {
    let mut w = mixed();
    let jobs = claim_all(&mut w);
    complete(&mut w, &jobs);
    let at = Segment { slot: slot(0), generation: Generation(1) };
    w.plant_failure(at, LANE, LaneSeq(99), JobId(99));
    let broken = w.check_invariants().unwrap_err();
    assert_eq!(broken.name, invariant::TERMINAL_HAS_RETAINED_READY_BODY);
    w.begin(A);
    let missing = Applied::Reply(Reply::BodyMissing { job: JobId(99) });
    assert_eq!(w.apply(A, &Step::LoadJob { job: JobId(99) }), missing);
    w.rollback(A);
    rotate(&mut w, Ring::Queue);
    let fault = Fault::BodyMissing { rows: 1 };
    assert_eq!(
        prune(&mut w, Ring::Queue, floor(60)),
        PruneOutcome::Faulty { slot: slot(0), fault }
    );
    assert_eq!(retry(&mut w, TerminalFilter::Job(JobId(99))), (vec![], 1, None));
    discard(&mut w, TerminalFilter::Job(JobId(99)));
    assert!(matches!(prune(&mut w, Ring::Queue, floor(60)), PruneOutcome::Pruned { .. }));
}

/// What the ring's policy goes by.
#[test]
fn loads_tell_what_a_prune_would_drop() {
    let mut w = mixed();
    let jobs = claim_all(&mut w);
    complete(&mut w, &jobs);
    rotate(&mut w, Ring::Queue);
    let loads = |w: &mut World| {
        let cutoff = Some(Cutoff(w.now));
        match alone(w, A, &Step::ObserveLoads { ring: Ring::Queue, cutoff }) {
            Reply::LoadsObserved(loads) => {
                loads.iter().map(|l| (l.has_droppable, l.carried_hint)).collect::<Vec<_>>()
            }
            reply => panic!("{reply:?}"),
        }
    };
    assert_eq!(loads(&mut w), [(true, 1), (false, 0), (false, 0)]);
    prune(&mut w, Ring::Queue, floor(1));
    assert_eq!(loads(&mut w), [(false, 0), (false, 1), (false, 0)]);
    let Reply::LoadsObserved(claims) =
        alone(&mut w, A, &Step::ObserveLoads { ring: Ring::Claim, cutoff: None })
    else {
        panic!()
    };
    assert_eq!(claims.iter().map(|l| l.has_droppable).collect::<Vec<_>>(), [true, false]);
}
