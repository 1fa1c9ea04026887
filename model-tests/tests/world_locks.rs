//! What statements see, what they wait for, and what is left of a transaction that is undone.
#![allow(clippy::unwrap_used)]

mod world_common;

use awa_core::machine::claim::Claim;
use awa_core::{
    BatchId, Gate, JobId, LaneId, LaneSeq, NewJob, QueueName, Refusal, Reply, Ring, Snapshot, Step,
    Window, Xid,
};
use awa_model_tests::drive::{Driving, Progress, run};
use awa_model_tests::world::{Applied, Patience, SessionId, Stage, World};
use world_common::*;

fn snapshot(w: &mut World, s: SessionId) -> Snapshot {
    match say(w, s, &Step::PollLanes { lanes: vec![] }) {
        Reply::Polled { seen, .. } => seen,
        reply => panic!("{reply:?}"),
    }
}

fn snap(xmin: u64, xmax: u64, open: &[u64]) -> Snapshot {
    let open = open.iter().map(|x| Xid(*x)).collect();
    Snapshot { xmin: Xid(xmin), xmax: Xid(xmax), open }
}

fn xid(w: &mut World, s: SessionId) -> u64 {
    match w.micro_enqueue(s, &Stage::AssignXid) {
        Applied::Reply(Reply::OwnXid(Some(xid))) => xid.0,
        stopped => panic!("{stopped:?}"),
    }
}

#[test]
fn xmax_follows_the_largest_finished_id_and_not_the_next() {
    let mut w = world();
    for s in [A, B, C] {
        w.begin(s);
    }
    assert_eq!(snapshot(&mut w, C), snap(2, 2, &[]));
    assert_eq!((xid(&mut w, A), xid(&mut w, B)), (2, 3));
    // Both are in flight and neither is in the list: E14 of the study.
    assert_eq!(snapshot(&mut w, C), snap(2, 2, &[]));
    w.commit(B);
    assert_eq!(snapshot(&mut w, C), snap(2, 4, &[2]));
    // An own id holds xmin and is not listed.
    assert_eq!(snapshot(&mut w, A), snap(2, 4, &[]));
    // An abort finishes an id as well.
    w.rollback(A);
    assert_eq!(snapshot(&mut w, C), snap(4, 4, &[]));
}

#[test]
fn an_id_is_given_at_the_first_write() {
    let mut w = world();
    w.begin(A);
    for step in [
        Step::ReadCursor,
        Step::ReadPosition,
        Step::LockLane { lane: LANE },
        Step::Fence { batches: vec![BatchId(4096)] },
        Step::ExcludeWriters { slot: slot(0), timeout_ms: 1 },
        Step::EnqueueReady { jobs: vec![] },
    ] {
        say(&mut w, A, &step);
        assert_eq!(say(&mut w, A, &Step::ReadOwnXid), Reply::OwnXid(None), "{step}");
    }
    let claim = Step::ClaimReady {
        lane: LANE,
        window: Window::default(),
        limit: 1,
        bytes_max: 1,
        deadline: None,
    };
    say(&mut w, A, &claim);
    assert_eq!(say(&mut w, A, &Step::ReadOwnXid), Reply::OwnXid(None), "an empty claim");
    say(&mut w, A, &Step::LockRing { ring: Ring::Queue });
    assert_eq!(say(&mut w, A, &Step::ReadOwnXid), Reply::OwnXid(Some(Xid(2))));
}

/// H01, H05: what a transaction did is undone; what it drew stays drawn.
#[test]
fn rolled_back_rows_are_gone_and_sequences_are_not() {
    let mut w = world();
    let before = w.dump();
    w.begin(A);
    say(&mut w, A, &Step::EnqueueReady { jobs: vec![job(), job()] });
    let now = w.now;
    say(&mut w, A, &Step::EnqueueDeferred { jobs: vec![(job(), now)] });
    w.crash(A);
    assert_eq!(w.dump(), before);
    assert_eq!(enqueue(&mut w, 1), [JobId(4)]);
    let mut c = Driving::new(C, claim_machine(Window::default(), 10));
    until(&mut w, &mut c, "ReadOwnXid");
    c.crash(&mut w);
    let (jobs, _) = claim(&mut w, Window::default(), 10);
    assert_eq!(ids(&jobs), [4]);
    assert_eq!(jobs[0].receipt.batch, BatchId(2 * 4096), "the first batch id was lost");
    assert_eq!(w.check_invariants(), Ok(()));
}

/// H02, H61: producers don't wait, whoever commits first.
#[test]
fn a_later_position_may_commit_first_and_both_are_claimed_once() {
    let mut w = world();
    w.begin(A);
    w.begin(B);
    say(&mut w, A, &Step::EnqueueReady { jobs: vec![job()] });
    say(&mut w, B, &Step::EnqueueReady { jobs: vec![job()] });
    w.commit(B);
    let (first, window) = claim(&mut w, Window::default(), 10);
    assert_eq!(ids(&first), [2]);
    // Nothing is paid while A is open.
    let (none, window) = claim(&mut w, window, 10);
    assert!(none.is_empty());
    w.commit(A);
    let (late, window) = claim(&mut w, window, 10);
    assert_eq!(ids(&late), [1]);
    assert!(claim(&mut w, window, 10).0.is_empty());
}

/// H03: a REPEATABLE READ producer enqueues where it saw the ring open.
#[test]
fn an_old_snapshot_enqueues_into_a_sealed_slot_and_the_job_is_claimed() {
    let mut w = world();
    w.begin_repeatable_read(A);
    say(&mut w, A, &Step::ReadCursor);
    rotate(&mut w, Ring::Queue);
    say(&mut w, A, &Step::EnqueueReady { jobs: vec![job()] });
    w.commit(A);
    assert!(rows(&w, "ready_entries")[0].contains("ready_generation=1 ready_slot=0"));
    assert_eq!(ids(&claim_all(&mut w)), [1]);
}

/// Law 16: `TRUNCATE` is not MVCC-safe. A row that was only deleted stays in an old snapshot.
#[test]
fn no_snapshot_survives_a_truncate() {
    let count = |w: &mut World| match say(w, A, &Step::ReadCounts { queue: queue() }) {
        Reply::Counted(Some(counts)) => (counts.scheduled, counts.completed),
        reply => panic!("{reply:?}"),
    };
    let mut w = world();
    let now = w.now;
    alone(&mut w, A, &Step::EnqueueDeferred { jobs: vec![(job(), now)] });
    enqueue(&mut w, 1);
    let jobs = claim_all(&mut w);
    complete(&mut w, &jobs);
    rotate(&mut w, Ring::Queue);
    w.begin_repeatable_read(A);
    say(&mut w, A, &Step::ReadCursor);
    alone(&mut w, B, &Step::PromoteDue { limit: 9 });
    prune(&mut w, Ring::Queue, floor(0));
    assert_eq!(count(&mut w), (1, 0), "deleted in another's eyes, truncated in everyone's");
    w.commit(A);
    w.begin(A);
    assert_eq!(count(&mut w), (0, 0));
}

#[test]
fn a_statement_that_waits_begins_when_it_can() {
    let mut w = world();
    enqueue(&mut w, 1);
    let mut one = Driving::new(B, claim_machine(Window::default(), 10));
    until(&mut w, &mut one, "ReadOwnXid");
    let mut two = Driving::new(C, claim_machine(Window::default(), 10));
    let before = w.clone();
    assert_eq!(two.step(&mut w), Progress::Waits { on: vec![B] });
    assert_eq!(w.dump(), before.dump());
    assert_eq!(took(finish(&mut w, &mut one)).0.len(), 1);
    assert_eq!(took(finish(&mut w, &mut two)).0.len(), 0);
}

#[test]
fn bounded_requests_time_out_at_once_or_when_told_and_undo_all() {
    let exclude = Step::Exclude { ring: Ring::Queue, slot: slot(0), timeout_ms: 50 };
    let mut w = world();
    w.begin(A);
    say(&mut w, A, &Step::EnqueueReady { jobs: vec![job()] });
    w.begin(B);
    say(&mut w, B, &Step::LockRing { ring: Ring::Queue });
    let refused = Reply::Refused(Refusal::LockTimeout);
    assert_eq!(say(&mut w, B, &exclude), refused);
    // The ring is free before B says ROLLBACK.
    w.begin(C);
    say(&mut w, C, &Step::LockRing { ring: Ring::Queue });
    w.rollback(C);
    w.rollback(B);

    w.patience = Patience::Patient;
    w.begin(B);
    assert_eq!(waits(&mut w, B, &exclude), [A]);
    let mut other = w.clone();
    assert_eq!(other.expire(B), Applied::Reply(refused));
    w.commit(A);
    assert_eq!(say(&mut w, B, &exclude), Reply::Locked);
}

#[test]
#[should_panic(expected = "can only be rolled back")]
fn an_undone_transaction_takes_no_statement() {
    let mut w = world();
    w.begin(A);
    say(&mut w, A, &Step::EnqueueReady { jobs: vec![job()] });
    w.begin(B);
    say(&mut w, B, &Step::ExcludeWriters { slot: slot(0), timeout_ms: 1 });
    w.apply(B, &Step::ReadCursor);
}

#[test]
fn who_closes_a_circle_of_waits_is_undone() {
    let mut w = world();
    let lane = |n| Step::LockLane { lane: LaneId(n) };
    for (s, n) in [(A, 1), (B, 2), (C, 3)] {
        w.begin(s);
        say(&mut w, s, &lane(n));
    }
    assert_eq!(waits(&mut w, A, &lane(2)), [B]);
    assert_eq!(waits(&mut w, B, &lane(3)), [C]);
    assert_eq!(say(&mut w, C, &lane(1)), Reply::Refused(Refusal::Conflict));
    say(&mut w, B, &lane(3));
    w.commit(B);
    say(&mut w, A, &lane(2));
}

#[test]
fn a_statement_that_waits_keeps_what_it_has() {
    let mut w = world();
    w.begin(A);
    w.begin(B);
    let fence =
        |batches: &[i64]| Step::Fence { batches: batches.iter().map(|b| BatchId(*b)).collect() };
    say(&mut w, A, &fence(&[8192]));
    assert_eq!(waits(&mut w, B, &fence(&[8192, 4096])), [A]);
    w.begin(C);
    assert_eq!(waits(&mut w, C, &fence(&[4096])), [B], "fences are taken in ascending order");
}

/// Which of two statements on one slot wait for one another.
#[test]
fn locks_on_children_conflict_as_postgresqls_do() {
    let claim = Step::ClaimReady {
        lane: LANE,
        window: Window::default(),
        limit: 9,
        bytes_max: 99,
        deadline: None,
    };
    let writers = Step::ExcludeWriters { slot: slot(0), timeout_ms: 1 };
    let all = Step::Exclude { ring: Ring::Queue, slot: slot(0), timeout_ms: 1 };
    let deltas = Step::ExcludeDeltas { slot: slot(0), timeout_ms: 1 };
    let enqueue_one = Step::EnqueueReady { jobs: vec![job()] };
    let probe = Step::Probe { gate: Gate::PendingReady(slot(0)) };
    let counts = Step::ReadCounts { queue: queue() };
    let cases = [
        (&enqueue_one, &writers, true),
        (&claim, &writers, false),
        (&claim, &all, true),
        (&probe, &all, true),
        (&writers, &writers, false),
        (&writers, &counts, false),
        (&deltas, &counts, true),
        (&deltas, &claim, false),
        (&all, &enqueue_one, true),
        (&enqueue_one, &enqueue_one, false),
    ];
    for (first, second, conflict) in cases {
        let mut w = world();
        enqueue(&mut w, 1);
        w.patience = Patience::Patient;
        w.begin(A);
        w.begin(B);
        say(&mut w, A, first);
        let waits = matches!(w.apply(B, second), Applied::Waits { .. });
        assert_eq!(waits, conflict, "{first}, then {second}");
    }
}

/// H25: rotation waits for prune, so that the destination of a carry can't move.
#[test]
fn rotate_and_prune_exclude_one_another() {
    let mut w = world();
    rotate(&mut w, Ring::Queue);
    w.begin(A);
    say(&mut w, A, &Step::LockRing { ring: Ring::Queue });
    assert_eq!(
        run(&mut w, B, awa_core::machine::rotate::Rotate::ring(Ring::Queue)),
        Err(awa_model_tests::drive::Failure::Stuck(vec![A]))
    );
    w.commit(A);
    rotate(&mut w, Ring::Queue);
}

#[test]
fn a_horizon_is_pinned_by_who_has_an_id_or_keeps_a_snapshot() {
    let held = |w: &mut World| match say(w, C, &Step::Probe { gate: Gate::PinnedHorizon }) {
        Reply::Probed { held_by } => held_by,
        reply => panic!("{reply:?}"),
    };
    let mut w = world();
    w.begin(C);
    say(&mut w, C, &Step::LockRing { ring: Ring::Queue });
    w.begin(A);
    say(&mut w, A, &Step::ReadCursor);
    assert_eq!(held(&mut w), None);
    xid(&mut w, A);
    assert_eq!(held(&mut w), Some(1));
    w.commit(A);
    w.begin_repeatable_read(B);
    say(&mut w, B, &Step::ReadCursor);
    assert_eq!(held(&mut w), Some(2));
}

/// Equal Worlds behave alike: two ways to one state give one value.
#[test]
fn a_state_does_not_remember_its_way() {
    let two = |first: LaneId, second: LaneId| {
        let mut w = world();
        let job = |lane| job_of(lane, "1");
        for (s, lane) in [(A, first), (B, second)] {
            w.begin(s);
            assert!(matches!(w.micro_enqueue(s, &Stage::AssignXid), Applied::Reply(_)));
            let at = match say(&mut w, s, &Step::ReadCursor) {
                Reply::CursorRead(at) => at,
                reply => panic!("{reply:?}"),
            };
            let stage = Stage::Insert(job(lane), at, LaneSeq(lane.0));
            assert!(matches!(w.micro_enqueue(s, &stage), Applied::Reply(_)));
        }
        w.commit(A);
        w.commit(B);
        w
    };
    assert_eq!(two(LANE, OTHER), two(OTHER, LANE));
}

#[test]
fn queues_are_declared_once_and_grow() {
    let mut w = world();
    let declare = |shards| Step::DeclareQueue { queue: queue(), shards };
    let lanes = |reply| {
        let Reply::LanesFound(lanes) = reply else { panic!("{reply:?}") };
        lanes.iter().map(|l| (l.lane.0, l.priority.0, l.shard.0)).collect::<Vec<_>>()
    };
    let four = vec![(1, 1, 0), (2, 2, 0), (3, 3, 0), (4, 4, 0)];
    assert_eq!(lanes(alone(&mut w, A, &declare(1))), four);
    let eight = lanes(alone(&mut w, A, &declare(2)));
    assert_eq!(eight.len(), 8);
    assert_eq!(eight[..2], [(1, 1, 0), (5, 1, 1)]);
    let nobody = QueueName::new("nobody").unwrap();
    assert_eq!(lanes(alone(&mut w, A, &Step::FindLanes { queue: nobody })), vec![]);
    let poll = Claim::new(LANE, Window::default(), 1, 1, None);
    assert!(poll.is_ok());
    let wrong = NewJob { args: "{".to_owned(), ..job() };
    w.begin(A);
    assert!(matches!(w.apply(A, &Step::EnqueueReady { jobs: vec![wrong] }), Applied::Raised(_)));
}
