use awa_core::limits::ROLLUP_SLOTS_MAX;
use awa_core::machine::rebuild::{Distrust, Rebuild, Rebuilt};
use awa_core::machine::rollup::{FindRollups, Rollup, RollupOutcome, RollupPlan, RollupTick};
use awa_core::machine::rotate::{Rotate, RotateOutcome};
use awa_core::{Fault, Gate, Reply, Ring, Slot, SlotState};

use crate::script::{
    CLEAR, Script, fault, held, observed, outcome, plan, ring, segment, withstands,
};

// --- rotate ---

/// R032-13: the ring's lock first. Law 7: slots that can't be used are stepped over.
#[test]
fn rotation_seals_and_opens_the_next_pruned_slot() {
    let script =
        vec![vec![Reply::Locked, observed(ring(Ring::Queue, "p4 o7 s5 p6"))], vec![Reply::Marked]];
    assert_eq!(
        plan(Rotate::ring(Ring::Queue), script.clone()),
        "\
turn 1, ask
  lock the queue ring
  observe the queue ring
turn 2, last, with COMMIT
  rotate the queue ring: seal slot 1 g7, open slot 3 g8
commit: Ok(Rotated { sealed: Segment { slot: Slot(1), generation: Generation(7) }, \
         opened: Segment { slot: Slot(3), generation: Generation(8) } })
"
    );
    withstands(&Rotate::ring(Ring::Queue), &script, Result::is_err);
}

#[test]
fn rotation_goes_round() {
    let script =
        |which| vec![vec![Reply::Locked, observed(ring(which, "p0 s2 o3"))], vec![Reply::Marked]];
    for which in Ring::ALL {
        let rotated = RotateOutcome::Rotated { sealed: segment(2, 3), opened: segment(0, 4) };
        assert_eq!(outcome(Rotate::ring(which), script(which)), Ok(rotated));
    }
}

/// Law 6: a slot opens only from `pruned`.
#[test]
fn a_full_ring_stays_where_it_is() {
    let script = vec![vec![Reply::Locked, observed(ring(Ring::Claim, "s1 s2 o3"))]];
    let full = RotateOutcome::RingFull { current: segment(2, 3) };
    assert_eq!(outcome(Rotate::ring(Ring::Claim), script), Ok(full));
}

/// Two maintainers that decided on one observation rotate once.
#[test]
fn rotation_away_from_a_segment_happens_once() {
    let seen = vec![vec![Reply::Locked, observed(ring(Ring::Queue, "s1 o2 p0"))]];
    let late = Rotate::away_from(Ring::Queue, segment(0, 1));
    let already = RotateOutcome::AlreadyRotated { current: segment(1, 2) };
    assert_eq!(outcome(late, seen.clone()), Ok(already));
    let script = [seen, vec![vec![Reply::Marked]]].concat();
    let timely = Rotate::away_from(Ring::Queue, segment(1, 2));
    let rotated = RotateOutcome::Rotated { sealed: segment(1, 2), opened: segment(2, 3) };
    assert_eq!(outcome(timely, script), Ok(rotated));
}

// --- rollup ---

fn found(slots: &[i32]) -> Reply {
    Reply::SlotsFound(slots.iter().copied().map(Slot).collect())
}

/// R026-24: sealed slots that have deltas, oldest first; an empty old prefix hides nothing; the
/// current slot and pruned ones stay out.
#[test]
fn what_can_be_rolled_up_is_sealed_and_has_deltas() {
    let slots = "s9 s4 s5 s6 s7 s8 o10 p3";
    let tick = |pending: &[i32]| {
        let view = observed(ring(Ring::Queue, slots));
        outcome(FindRollups, vec![vec![CLEAR, view, found(pending)]])
    };
    assert_eq!(tick(&[0, 4, 6, 7]), Ok(RollupPlan::Slots(vec![Slot(4), Slot(0)])));
    assert_eq!(tick(&[]), Ok(RollupPlan::Slots(vec![])));
    let all = tick(&[0, 1, 2, 3, 4, 5, 6, 7]).expect("a plan");
    assert_eq!(all, RollupPlan::Slots([1, 2, 3, 4, 5, 0].map(Slot).to_vec()));
}

/// Runs a tick in which each slot comes to what `becomes` says.
fn tick(slots: &[i32], mut becomes: impl FnMut(Slot) -> RollupOutcome) -> Vec<RollupOutcome> {
    let mut tick = RollupTick::new(slots.iter().copied().map(Slot).collect());
    let mut tried = slots.iter().copied().map(Slot);
    while let Some(rollup) = tick.next_rollup() {
        let slot = tried.next().expect("no slot is tried twice");
        assert_eq!(rollup, Rollup::new(slot), "in order");
        tick.take(becomes(slot));
    }
    tick.into_outcomes()
}

/// R026-31, law 7: a tick folds at most four slots, and those that are held, by whatever, take nobody's place.
#[test]
fn a_tick_steps_over_held_slots() {
    assert_eq!(ROLLUP_SLOTS_MAX, 4);
    let folded = |slot| RollupOutcome::Folded { slot, rows: 1, sum: 1 };
    let all = [1, 2, 3, 4, 5, 6];
    assert_eq!(tick(&all, folded), [1, 2, 3, 4].map(|n| folded(Slot(n))));
    assert_eq!(tick(&[], folded), []);
    let blocked = |slot| RollupOutcome::Blocked { slot };
    let held = |slot: Slot| match slot.0 {
        1 => RollupOutcome::SkippedActive { slot, reason: Gate::OpenReceipts(slot), witness: 7 },
        2 => RollupOutcome::NotSealed { slot, state: None },
        3 | 4 => blocked(slot),
        _ => folded(slot),
    };
    let expected = all.map(|n| held(Slot(n)));
    assert_eq!(tick(&all, held), expected, "four that are held hide nothing");
    assert_eq!(tick(&all, blocked).len(), 6);
}

/// R026-25: a horizon that is pinned meanwhile is pinned for all.
#[test]
fn a_tick_ends_where_the_horizon_is_pinned() {
    let pinned = |slot: Slot| match slot.0 {
        1 => RollupOutcome::Folded { slot, rows: 1, sum: 1 },
        _ => RollupOutcome::Deferred { pinned_by: 4711 },
    };
    assert_eq!(tick(&[1, 2, 3], pinned), [pinned(Slot(1)), pinned(Slot(2))]);
}

/// R026-25, H39.
#[test]
fn a_tick_defers_while_the_horizon_is_pinned() {
    let script = vec![vec![held(4711), observed(ring(Ring::Queue, "s1 o2")), found(&[0])]];
    let deferred = RollupPlan::Deferred { pinned_by: 4711 };
    assert_eq!(outcome(FindRollups, script.clone()), Ok(deferred));
    assert_eq!(
        plan(FindRollups, script.clone()),
        "\
turn 1, last, with COMMIT
  probe for a pinned horizon -- held by 4711
  observe the queue ring
  find slots with pending deltas
commit: Ok(Deferred { pinned_by: 4711 })
"
    );
    withstands(&FindRollups, &script, Result::is_err);
}

fn rolled() -> Script {
    vec![
        vec![Reply::Locked, observed(ring(Ring::Queue, "s1 o2")), CLEAR],
        vec![Reply::Locked, CLEAR, CLEAR],
        vec![Reply::Locked, CLEAR],
        vec![Reply::DeltasFolded { rows: 5, sum: -1 }, Reply::Truncated],
    ]
}

/// R026-24: the ready check before the exclusive lock, the closure proof after it; the fold and the
/// truncation in one transaction. The same order of locks as prune.
#[test]
fn deltas_are_folded_and_truncated() {
    assert_eq!(
        plan(Rollup::new(Slot(0)), rolled()),
        "\
turn 1, ask
  lock the queue ring
  observe the queue ring
  probe for a pinned horizon
turn 2, ask
  lock slot 0 of the queue ring
  probe for active leases of slot 0
  probe for pending ready rows in slot 0
turn 3, ask
  keep everyone out of the deltas of slot 0, waiting 50 ms at most
  probe for open receipts of slot 0
turn 4, last, with COMMIT
  fold the deltas of slot 0
  truncate the deltas of slot 0
commit: Ok(Folded { slot: Slot(0), rows: 5, sum: -1 })
"
    );
    let blocked = Ok(RollupOutcome::Blocked { slot: Slot(0) });
    withstands(&Rollup::new(Slot(0)), &rolled(), |o| *o == blocked);
}

#[test]
fn rollup_skips_what_is_not_over() {
    let skips = |turn: usize, place: usize| {
        let mut script = rolled();
        script.truncate(turn + 1);
        script[turn][place] = held(6);
        outcome(Rollup::new(Slot(0)), script)
    };
    for (turn, place, reason) in [
        (1, 1, Gate::ActiveLeases(Slot(0))),
        (1, 2, Gate::PendingReady(Slot(0))),
        (2, 1, Gate::OpenReceipts(Slot(0))),
    ] {
        let skipped = RollupOutcome::SkippedActive { slot: Slot(0), reason, witness: 6 };
        assert_eq!(skips(turn, place), Ok(skipped));
    }
    // R026-25: before anything was mutated.
    assert_eq!(skips(0, 2), Ok(RollupOutcome::Deferred { pinned_by: 6 }));
}

#[test]
fn rollup_leaves_slots_that_are_not_sealed() {
    for (slot, state) in [(0, Some(SlotState::Pruned)), (1, Some(SlotState::Open)), (7, None)] {
        let slot = Slot(slot);
        let script = vec![vec![Reply::Locked, observed(ring(Ring::Queue, "p1 o2")), CLEAR]];
        assert_eq!(
            outcome(Rollup::new(slot), script),
            Ok(RollupOutcome::NotSealed { slot, state })
        );
    }
}

#[test]
fn a_negative_number_of_deltas_is_a_fault() {
    let mut script = rolled();
    script[3][0] = Reply::DeltasFolded { rows: -5, sum: 0 };
    let negative = Fault::Negative { what: "folded deltas", value: -5 };
    assert_eq!(fault(Rollup::new(Slot(0)), script), negative);
}

// --- rebuild ---

fn rebuilt(rows: i64, sum: i64) -> Script {
    vec![
        vec![Reply::Locked, Reply::Locked],
        vec![Reply::Rebuilt { rows, sum }, found(&[2, 5])],
        vec![Reply::Truncated, Reply::Truncated, Reply::Marked],
    ]
}

/// R026-26, H38: trust is the last thing, and only where both readings agree.
#[test]
fn counters_are_rebuilt_and_trusted() {
    assert_eq!(
        plan(Rebuild::default(), rebuilt(12, 12)),
        "\
turn 1, ask
  lock the queue ring
  keep everyone out of the counters, waiting 50 ms at most
turn 2, ask
  rebuild the counters
  find slots with pending deltas
turn 3, last, with COMMIT
  truncate the deltas of slot 2
  truncate the deltas of slot 5
  trust the counters
commit: Ok(Rebuilt { rows: 12 })
"
    );
    assert_eq!(outcome(Rebuild::default(), rebuilt(0, 0)), Ok(Rebuilt { rows: 0 }));
    withstands(&Rebuild::default(), &rebuilt(12, 12), Result::is_err);
    let nothing_pending = vec![
        vec![Reply::Locked, Reply::Locked],
        vec![Reply::Rebuilt { rows: 1, sum: 1 }, found(&[])],
        vec![Reply::Marked],
    ];
    assert_eq!(outcome(Rebuild::default(), nothing_pending), Ok(Rebuilt { rows: 1 }));
}

#[test]
fn counters_that_do_not_add_up_are_not_trusted() {
    let mut script = rebuilt(12, 11);
    script.truncate(2);
    let what = "sum of the rebuilt counters";
    let unbalanced = Fault::Unbalanced { what, expected: 12, found: 11 };
    assert_eq!(fault(Rebuild::default(), script.clone()), unbalanced);
    script[1] = vec![Reply::Rebuilt { rows: -1, sum: -1 }, found(&[])];
    let negative = Fault::Negative { what: "rows of retryable history", value: -1 };
    assert_eq!(fault(Rebuild::default(), script), negative);
}

#[test]
fn counters_can_be_distrusted() {
    let script = vec![vec![Reply::Marked]];
    let text = plan(Distrust {}, script.clone());
    assert_eq!(text, "turn 1, last, with COMMIT\n  distrust the counters\ncommit: Ok(())\n");
    withstands(&Distrust {}, &script, Result::is_err);
}
