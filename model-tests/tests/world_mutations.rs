//! The harness is tested too: each way of being wrong is seen by name, and the same history is
//! right without it.
#![allow(clippy::unwrap_used)]

mod world_common;

use awa_core::machine::cancel::Cancel;
use awa_core::machine::prune::{Prune, PruneOutcome};
use awa_core::machine::retry::DiscardFailed;
use awa_core::{
    Generation, JobId, LaneSeq, Ring, Segment, Slot, Span, Step, TerminalFilter, Window,
};
use awa_model_tests::drive::{Driving, Failure, Producing, Progress, run};
use awa_model_tests::ledger;
use awa_model_tests::world::{Mutation, World, invariant};
use world_common::*;

/// What is wrong with the World at the end of a history, if anything.
type Verdict = Option<String>;

fn checked(w: &World) -> Verdict {
    w.check_invariants().err().map(|broken| broken.name.to_owned())
}

fn passed_over(w: &World, window: &Window) -> Verdict {
    w.check_window(LANE, window).err().map(|broken| broken.name.to_owned()).or_else(|| checked(w))
}

fn steps(w: &mut World, p: &mut Producing, n: usize) {
    for _ in 0..n {
        assert_eq!(p.step(w), Progress::Stepped);
    }
}

fn commit(w: &mut World, p: &mut Producing) {
    assert_eq!(p.next(), None);
    assert!(matches!(p.step(w), Progress::Done(_)));
}

/// A producer has inserted and is open while a claim finds nothing.
fn open_while_claimed(w: &mut World) -> Verdict {
    let mut p = Producing::new(A, vec![job()]);
    steps(w, &mut p, 4);
    let (jobs, window) = claim(w, Window::default(), 10);
    assert!(jobs.is_empty());
    commit(w, &mut p);
    passed_over(w, &window)
}

/// A producer begins in the middle of a claim.
fn begins_while_claimed(w: &mut World) -> Verdict {
    enqueue(w, 1);
    let mut c = Driving::new(C, claim_machine(Window::default(), 10));
    for _ in 0..3 {
        assert_eq!(c.step(w), Progress::Stepped);
    }
    let mut p = Producing::new(A, vec![job()]);
    steps(w, &mut p, 4);
    let (jobs, window) = took(finish(w, &mut c));
    assert_eq!(ids(&jobs), [1]);
    commit(w, &mut p);
    passed_over(w, &window)
}

/// A producer has a position; another one is faster and is claimed.
fn overtaken(w: &mut World) -> Verdict {
    let mut p = Producing::new(A, vec![job()]);
    steps(w, &mut p, 3);
    let mut faster = Producing::new(B, vec![job()]);
    steps(w, &mut faster, 4);
    commit(w, &mut faster);
    let (jobs, window) = claim(w, Window::default(), 10);
    assert_eq!(ids(&jobs), [2]);
    steps(w, &mut p, 1);
    commit(w, &mut p);
    passed_over(w, &window)
}

/// Two claimers, one after the other; the second begins before the first commits.
fn two_claimers(w: &mut World) -> Verdict {
    enqueue(w, 1);
    let mut one = Driving::new(B, claim_machine(Window::default(), 10));
    let mut two = Driving::new(C, claim_machine(Window::default(), 10));
    until(w, &mut one, "ReadOwnXid");
    for _ in 0..3 {
        if let Progress::Waits { on } = two.step(w) {
            assert_eq!(on, [B]);
        }
    }
    finish(w, &mut one);
    finish(w, &mut two);
    checked(w)
}

/// A row under an old label in a slot that was pruned and opened again.
fn old_label(w: &mut World) -> Verdict {
    let mut p = Producing::new(A, vec![job()]);
    steps(w, &mut p, 1);
    for _ in 0..3 {
        rotate(w, Ring::Queue);
        prune(w, Ring::Queue, floor(0));
    }
    steps(w, &mut p, 3);
    commit(w, &mut p);
    rotate(w, Ring::Queue);
    prune(w, Ring::Queue, floor(0));
    checked(w)
}

/// A producer commits between the gates and the exclusion.
fn commits_between_gates(w: &mut World) -> Verdict {
    let mut p = Producing::new(A, vec![job()]);
    steps(w, &mut p, 4);
    rotate(w, Ring::Queue);
    let mut d = Driving::new(B, Prune::oldest(Ring::Queue, floor(0)));
    until(w, &mut d, "ExcludeWriters");
    commit(w, &mut p);
    finish(w, &mut d).unwrap();
    checked(w)
}

/// An operator discards a failure that prune has folded already.
fn discards_while_pruned(w: &mut World) -> Verdict {
    failed(w);
    rotate(w, Ring::Queue);
    let mut d = Driving::new(B, Prune::oldest(Ring::Queue, floor(0)));
    until(w, &mut d, "Exclude");
    let piece = DiscardFailed::new(TerminalFilter::Queue(queue()), 10).unwrap().next().unwrap();
    let mut discard = Driving::new(A, piece);
    let waits = loop {
        match discard.step(w) {
            Progress::Stepped => {}
            Progress::Waits { on } => break on == [B],
            Progress::Done(outcome) => break outcome.is_err(),
            Progress::Failed(failure) => panic!("{failure:?}"),
        }
    };
    finish(w, &mut d).unwrap();
    if waits {
        finish(w, &mut discard).unwrap();
    }
    checked(w)
}

/// A stale producer's row lies in a pruned slot.
fn in_a_pruned_slot(w: &mut World) -> Verdict {
    let mut p = Producing::new(A, vec![job()]);
    steps(w, &mut p, 1);
    rotate(w, Ring::Queue);
    prune(w, Ring::Queue, floor(0));
    steps(w, &mut p, 3);
    commit(w, &mut p);
    let left = claim_all(w).is_empty() && w.scanned_counts(&queue()).unwrap().available > 0;
    left.then(|| "LeftBehind".to_owned()).or_else(|| checked(w))
}

fn limited(w: &mut World) -> Verdict {
    enqueue(w, 2);
    let (_, window) = claim(w, Window::default(), 1);
    passed_over(w, &window)
}

/// The claimer's COMMIT is lost.
fn crashes_at_commit(w: &mut World) -> Verdict {
    enqueue(w, 1);
    let mut c = Driving::new(C, claim_machine(Window::default(), 10));
    let mut known = Window::default();
    for _ in 0..5 {
        if let Progress::Done(outcome) = c.step(w) {
            known = took(outcome).1;
        }
    }
    c.crash(w);
    passed_over(w, &known)
}

fn failed(w: &mut World) {
    enqueue(w, 1);
    let jobs = claim_all(w);
    assert_eq!(fail(w, &jobs[0]), 1);
}

/// The Ledger's word on a prune that is told of what became of one failure.
fn judged(w: &mut World, secs: u64, passes: u64) -> Verdict {
    let at = ledger::Lane { queue: 1, priority: 1, shard: 0 };
    let new =
        ledger::NewJob { job: 1, lane: at, kind: 1, body: 1, max_attempts: 3, run_at_us: None };
    let mut l = ledger::Ledger::default();
    l.begin_enqueue(1).unwrap();
    l.commit_enqueue(1, &[new]).unwrap();
    let taken = ledger::Claimed { job: 1, attempt: 1, run_lease: 1, body: 1 };
    l.claim(at, &[taken], 10, true).unwrap();
    l.fail(1, 1, w.now.unix_us(), Some(ledger::State::Failed)).unwrap();
    failed(w);
    rotate(w, Ring::Queue);
    w.now = w.now.after(Span::from_secs(passes));
    let PruneOutcome::Pruned { folded_failed, folded_other, carried_failed_rows, .. } =
        prune(w, Ring::Queue, floor(secs))
    else {
        panic!("not pruned")
    };
    let vanished = if folded_failed > 0 { vec![1] } else { vec![] };
    let (other, failed, carried) = (folded_other, folded_failed, carried_failed_rows);
    let report = ledger::Pruned { vanished, other, failed, carried };
    let word = l.prune(w.now.unix_us(), Some(secs), &report);
    word.err()
        .map(|v| format!("{v:?}").split('(').next().unwrap().to_owned())
        .or_else(|| checked(w))
}

fn at_the_cutoff(w: &mut World) -> Verdict {
    judged(w, 60, 60)
}

fn inside_the_floor(w: &mut World) -> Verdict {
    judged(w, 60, 1)
}

fn cancelled(w: &mut World) -> Verdict {
    enqueue(w, 1);
    run(w, A, Cancel::new(JobId(1))).unwrap().unwrap();
    rotate(w, Ring::Queue);
    let carried = match prune(w, Ring::Queue, floor(60)) {
        PruneOutcome::Pruned { carried_failed_rows, .. } => carried_failed_rows,
        outcome => panic!("{outcome}"),
    };
    (carried > 0).then(|| "WrongCarry".to_owned()).or_else(|| checked(w))
}

fn completed_twice(w: &mut World) -> Verdict {
    enqueue(w, 1);
    let jobs = claim_all(w);
    complete(w, &jobs);
    complete(w, &jobs);
    checked(w)
}

type History = fn(&mut World) -> Verdict;

const CAUGHT: &[(Mutation, History, &[&str])] = &[
    (Mutation::XmaxAsWitness, open_while_claimed, &[invariant::NOTHING_PASSED_OVER]),
    (Mutation::PositionAfterXid, begins_while_claimed, &[invariant::NOTHING_PASSED_OVER]),
    (Mutation::XidAfterPosition, overtaken, &[invariant::NOTHING_PASSED_OVER]),
    (Mutation::LockInSameStatement, two_claimers, &[invariant::NO_JOB_TWICE]),
    (Mutation::LaneLockForgotten, two_claimers, &[invariant::NO_JOB_TWICE]),
    (Mutation::GateByGeneration, old_label, &[invariant::CONSERVATION]),
    (Mutation::NoSecondGate, commits_between_gates, &[invariant::CONSERVATION]),
    (Mutation::WritersNotExcluded, discards_while_pruned, &[invariant::CONSERVATION]),
    (Mutation::ClaimSkipsPruned, in_a_pruned_slot, &["LeftBehind"]),
    (Mutation::SpentPastSettled, overtaken, &[invariant::NOTHING_PASSED_OVER]),
    (Mutation::FrontierForgotten, limited, &[invariant::NOTHING_PASSED_OVER]),
    (Mutation::WindowBeforeCommit, crashes_at_commit, &[invariant::NOTHING_PASSED_OVER]),
    (Mutation::CutoffFlipped, at_the_cutoff, &["InsideFloor"]),
    (Mutation::CarryForgetsDelta, inside_the_floor, &[invariant::COUNTS_EXACT]),
    (Mutation::CarriesCancelled, cancelled, &["WrongCarry"]),
    (Mutation::CarriesNarrow, inside_the_floor, &[invariant::TERMINAL_HAS_RETAINED_READY_BODY]),
    (Mutation::ClosesTwice, completed_twice, &[invariant::CLOSED_ONCE]),
    (Mutation::HostClock, inside_the_floor, &["InsideFloor"]),
];

#[test]
fn every_mutation_is_caught_by_name_and_its_history_is_right_without_it() {
    for (mutation, history, names) in CAUGHT {
        let mut w = world();
        assert_eq!(history(&mut w), None, "{mutation:?}: the history itself is wrong");
        let mut w = world();
        w.mutation = *mutation;
        let verdict = history(&mut w);
        assert!(
            verdict.as_deref().is_some_and(|v| names.contains(&v)),
            "{mutation:?}: {verdict:?}, not one of {names:?}"
        );
    }
}

#[test]
fn no_mutation_is_left_out() {
    let caught: Vec<Mutation> = CAUGHT.iter().map(|(mutation, ..)| *mutation).collect();
    for mutation in Mutation::ALL {
        assert!(caught.contains(&mutation), "{mutation:?} has no history");
    }
}

/// H31: a carry that finds its key taken is loud, and nothing is lost.
#[test]
fn a_carry_that_collides_is_undone_whole() {
    let mut w = world();
    failed(&mut w);
    let at = Segment { slot: slot(1), generation: Generation(2) };
    w.plant_failure(at, LANE, LaneSeq(1), JobId(99));
    rotate(&mut w, Ring::Queue);
    let before = w.dump();
    let stopped = run(&mut w, B, Prune::oldest(Ring::Queue, floor(60)));
    assert!(matches!(stopped, Err(Failure::Raised(_))), "{stopped:?}");
    assert_eq!(w.dump(), before);
}

/// Steps that no machine asks for in that order break the invariants that no mutation breaks.
#[test]
fn a_ring_out_of_order_is_seen() {
    let ring = Ring::Queue;
    let of = |slot, generation| Segment { slot: Slot(slot), generation: Generation(generation) };
    let cases = [
        (Step::MarkPruned { ring, slot: Slot(0) }, invariant::ONE_OPEN_SLOT),
        (Step::Rotate { ring, seal: of(1, 0), open: of(2, 2) }, invariant::ONE_OPEN_SLOT),
    ];
    for (step, name) in cases {
        let mut w = world();
        alone(&mut w, B, &step);
        assert_eq!(checked(&w).as_deref(), Some(name), "{step}");
    }
    for ring in [Ring::Queue, Ring::Claim] {
        let mut w = world();
        enqueue(&mut w, 1);
        claim_all(&mut w);
        rotate(&mut w, ring);
        alone(&mut w, B, &Step::MarkPruned { ring, slot: Slot(0) });
        let broken = checked(&w);
        // Claimed rows of the queue ring may follow from a stale producer's; claims never do.
        let expected = (ring == Ring::Claim).then_some(invariant::PRUNED_IS_EMPTY_OF_LIVE);
        assert_eq!(broken.as_deref(), expected);
    }
    let mut w = world();
    alone(&mut w, A, &Step::EnqueueDeferred { jobs: vec![(job(), awa_core::Instant::FIRST)] });
    run(&mut w, A, Cancel::new(JobId(1))).unwrap().unwrap();
    rotate(&mut w, Ring::Queue);
    assert_eq!(checked(&w), None);
    alone(&mut w, B, &Step::MarkPruned { ring: Ring::Queue, slot: Slot(0) });
    assert_eq!(checked(&w).as_deref(), Some(invariant::PRUNED_IS_EMPTY_OF_LIVE));
}
