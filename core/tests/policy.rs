//! The ring policy: when it rotates, prunes, steps over, and leaves the ring alone.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use awa_core::ids::Generation;
use awa_core::job::SlotLoad;
use awa_core::ring::{Ring, RingView, Segment, Slot, SlotState, SlotView};
use awa_core::rules::Floor;
use awa_core::runtime::policy::{
    HeldReason, RingAction, RingObservation, RingPolicy, RingPolicyConfig,
};
use awa_core::time::{Instant, Span};

const HOUR: u64 = 3600;

fn at(s: u64) -> Instant {
    Instant::from_unix_us(s as i64 * 1_000_000)
}

/// A ring of `n` slots at second 0: slot 0 open and empty, the others pruned.
fn ring(n: usize) -> RingObservation {
    let slot = |n: usize| SlotView {
        slot: Slot(n as i32),
        generation: Generation(n as i64),
        state: if n == 0 { SlotState::Open } else { SlotState::Pruned },
        opened_at: at(0),
        sealed_at: None,
    };
    let load = |n: usize| SlotLoad {
        slot: Slot(n as i32),
        bytes: 16_384,
        has_droppable: false,
        droppable_hint: 0,
        carried_hint: 0,
        newest_fact_at: None,
    };
    RingObservation {
        view: RingView {
            ring: Ring::Queue,
            now: at(0),
            current: Segment { slot: Slot(0), generation: Generation(0) },
            slots: (0..n).map(slot).collect(),
        },
        loads: (0..n).map(load).collect(),
    }
}

fn hold(observed: &mut RingObservation, slot: usize, droppable: i64, carried: i64) {
    let load = &mut observed.loads[slot];
    load.has_droppable = droppable > 0;
    (load.droppable_hint, load.carried_hint) = (droppable, carried);
}

fn seal(observed: &mut RingObservation, slot: usize, at: Instant) {
    let view = &mut observed.view.slots[slot];
    (view.state, view.sealed_at) = (SlotState::Sealed, Some(at));
}

fn open(observed: &mut RingObservation, slot: usize, at: Instant) {
    let generation =
        Generation(1 + observed.view.slots.iter().map(|s| s.generation.0).max().unwrap());
    let view = &mut observed.view.slots[slot];
    (view.state, view.opened_at, view.sealed_at) = (SlotState::Open, at, None);
    view.generation = generation;
    observed.view.current = observed.view.slots[slot].segment();
}

fn queue_policy() -> RingPolicy {
    RingPolicy::new(RingPolicyConfig::default_of(Ring::Queue, 16))
}

fn segments(observed: &RingObservation, slots: &[usize]) -> Vec<Segment> {
    slots.iter().map(|&slot| observed.view.slots[slot].segment()).collect()
}

#[test]
fn the_open_slot_is_rotated_by_age_only_if_it_holds_something_to_drop() {
    let mut policy = queue_policy();
    let mut observed = ring(16);
    observed.view.now = at(1_000 * HOUR);
    assert_eq!(policy.decide(&observed), Ok(RingAction::Nothing { until: Instant::LAST }));
    hold(&mut observed, 0, 0, 100_000);
    observed.loads[0].bytes = 10 << 30;
    assert_eq!(policy.decide(&observed), Ok(RingAction::Nothing { until: Instant::LAST }));

    hold(&mut observed, 0, 1, 0);
    observed.loads[0].bytes = 16_384;
    observed.view.now = at(HOUR);
    let rotates_at = at(2 * HOUR);
    assert_eq!(policy.decide(&observed), Ok(RingAction::Nothing { until: rotates_at }));
    observed.view.now = rotates_at;
    assert_eq!(policy.decide(&observed), Ok(RingAction::Rotate));
}

#[test]
fn the_open_slot_is_rotated_by_size_and_its_growth_is_foreseen() {
    let mut policy = queue_policy();
    let mut observed = ring(16);
    hold(&mut observed, 0, 1_000_000, 0);
    let (mib, segment) = (1 << 20, 512 << 20);
    observed.view.now = at(100);
    observed.loads[0].bytes = 112 * mib;
    assert_eq!(policy.decide(&observed), Ok(RingAction::Nothing { until: at(2 * HOUR) }));
    // 100 MiB in 10 s: 300 more in 30 s; looks again half-way.
    observed.view.now = at(110);
    observed.loads[0].bytes = 212 * mib;
    assert_eq!(policy.decide(&observed), Ok(RingAction::Nothing { until: at(125) }));
    observed.view.now = at(140);
    observed.loads[0].bytes = segment;
    assert_eq!(policy.decide(&observed), Ok(RingAction::Rotate));
    // Not before the least age, so that catalog churn is bounded (H42).
    observed.view.slots[0].opened_at = at(138);
    assert_eq!(policy.decide(&observed), Ok(RingAction::Nothing { until: at(143) }));
}

#[test]
fn a_sealed_slot_is_pruned_when_its_history_is_past_the_window() {
    let mut policy = queue_policy();
    let mut observed = ring(16);
    seal(&mut observed, 0, at(HOUR));
    hold(&mut observed, 0, 1_000, 10);
    open(&mut observed, 1, at(HOUR));
    observed.view.now = at(2 * HOUR);
    assert_eq!(policy.decide(&observed), Ok(RingAction::Nothing { until: at(25 * HOUR) }));
    observed.view.now = at(25 * HOUR);
    let prune = |slots: &[usize], wanted| {
        Ok(RingAction::Prune { slots: segments(&ring(16), slots), wanted })
    };
    assert_eq!(policy.decide(&observed), prune(&[0], 1));
    // A job of the slot ended long after it was sealed.
    observed.loads[0].newest_fact_at = Some(at(20 * HOUR));
    assert_eq!(policy.decide(&observed), Ok(RingAction::Nothing { until: at(44 * HOUR) }));
    // With nothing but failures inside the floor there is nothing to gain.
    hold(&mut observed, 0, 0, 10);
    observed.view.now = at(70 * HOUR);
    assert_eq!(policy.decide(&observed), Ok(RingAction::Nothing { until: Instant::LAST }));
}

/// Slots 0 to 14 sealed at hours 1 to 15, slot 15 open: the ring needs two slots.
fn crowded() -> RingObservation {
    let mut observed = ring(16);
    for slot in 0..15 {
        seal(&mut observed, slot, at((slot as u64 + 1) * HOUR));
        hold(&mut observed, slot, 100_000, 100);
    }
    open(&mut observed, 15, at(15 * HOUR));
    observed.view.now = at(15 * HOUR + 60);
    observed
}

#[test]
fn a_ring_that_needs_slots_prunes_the_oldest_before_they_are_ripe() {
    let observed = crowded();
    let slots = segments(&observed, &[0, 1, 2, 3]);
    assert_eq!(queue_policy().decide(&observed), Ok(RingAction::Prune { slots, wanted: 2 }));
}

#[test]
fn failures_are_not_rewritten_for_little_gain() {
    let mut observed = crowded();
    for slot in 0..15 {
        hold(&mut observed, slot, 1_000, 100);
        observed.view.slots[slot].sealed_at = Some(at(14 * HOUR + slot as u64));
    }
    let worth_it = at(16 * HOUR);
    assert_eq!(queue_policy().decide(&observed), Ok(RingAction::Nothing { until: worth_it }));
    // The open slot is due meanwhile: it grows, and the report says how crowded the ring is.
    hold(&mut observed, 15, 10_000_000, 0);
    observed.loads[15].bytes = 2 << 30;
    match queue_policy().decide(&observed) {
        Ok(RingAction::Full { until, report }) => {
            assert_eq!(until, worth_it);
            assert_eq!((report.pruned_ahead, report.sealed), (0, 15));
            assert_eq!((report.open_bytes, report.held), (2 << 30, vec![]));
            assert_eq!(report.total_bytes, (2 << 30) + 15 * 16_384);
            assert_eq!(report.history, Span::from_secs(15 * HOUR + 60));
        }
        other => panic!("{other:?}"),
    }
    // One of them holds enough that its carry is cheap.
    hold(&mut observed, 7, 3_200, 100);
    let slots = segments(&observed, &[7]);
    assert_eq!(queue_policy().decide(&observed), Ok(RingAction::Prune { slots, wanted: 1 }));
}

#[test]
fn the_last_pruned_slots_are_spent_sparingly() {
    let mut observed = crowded();
    for slot in 0..15 {
        hold(&mut observed, slot, 1_000, 100);
        observed.view.slots[slot].sealed_at = Some(at(15 * HOUR));
    }
    hold(&mut observed, 15, 10_000_000, 0);
    // One slot stands ahead of the two that should: the open one grows to twice its size.
    observed.view.slots[3].state = SlotState::Pruned;
    observed.loads[15].bytes = (1 << 30) - 1;
    let until = at(17 * HOUR);
    assert_eq!(queue_policy().decide(&observed), Ok(RingAction::Nothing { until }));
    observed.loads[15].bytes = 1 << 30;
    assert_eq!(queue_policy().decide(&observed), Ok(RingAction::Rotate));
}

#[test]
fn a_held_slot_is_stepped_over_with_back_off_and_reported() {
    let (mut policy, mut observed) = (queue_policy(), crowded());
    let first = observed.view.now;
    let oldest = segments(&observed, &[0])[0];
    policy.handle_held(oldest, HeldReason::Contended, first);
    let slots = segments(&observed, &[1, 2, 3, 4]);
    assert_eq!(policy.decide(&observed), Ok(RingAction::Prune { slots, wanted: 2 }));

    let mut waits = Vec::new();
    for _ in 0..9 {
        let held = policy.report(&observed).held[0];
        waits.push(held.retry_at.since(observed.view.now).whole_secs());
        observed.view.now = held.retry_at;
        let slots = segments(&observed, &[0, 1, 2, 3]);
        assert_eq!(policy.decide(&observed), Ok(RingAction::Prune { slots, wanted: 2 }));
        policy.handle_held(oldest, HeldReason::Active, observed.view.now);
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
    let held = policy.report(&observed).held[0];
    assert_eq!((held.segment, held.reason, held.tries), (oldest, HeldReason::Active, 10));
    assert_eq!(held.pinned_for(observed.view.now), observed.view.now.since(first));

    policy.handle_pruned(oldest);
    assert_eq!(policy.report(&observed).held, vec![]);
    // What was pruned by somebody else is forgotten at the next observation.
    policy.handle_held(oldest, HeldReason::Active, observed.view.now);
    observed.view.slots[0].state = SlotState::Pruned;
    assert!(policy.decide(&observed).is_ok());
    assert_eq!(policy.report(&observed).held, vec![]);
}

#[test]
fn one_straggler_never_stops_the_ring() {
    // Law 7: slot 0 is held for good; every other slot goes round.
    let config = RingPolicyConfig::transient();
    let (mut policy, mut observed) = (RingPolicy::new(config), ring(8));
    let straggler = observed.view.slots[0].segment();
    let mut rotations = 0;
    for second in (0..100_000).step_by(10) {
        observed.view.now = at(second);
        let current = observed.view.current.slot.0 as usize;
        hold(&mut observed, current, 1_000, 0);
        for _ in 0..20 {
            match policy.decide(&observed).expect("loads fit") {
                RingAction::Rotate => {
                    let now = observed.view.now;
                    let next = observed.view.next_pruned().expect("decided").slot.0 as usize;
                    seal(&mut observed, current, now);
                    open(&mut observed, next, now);
                    rotations += 1;
                }
                RingAction::Prune { slots, .. } => {
                    for segment in slots {
                        if segment == straggler {
                            policy.handle_held(segment, HeldReason::Active, observed.view.now);
                            continue;
                        }
                        let slot = segment.slot.0 as usize;
                        observed.view.slots[slot].state = SlotState::Pruned;
                        hold(&mut observed, slot, 0, 0);
                        policy.handle_pruned(segment);
                    }
                }
                RingAction::Nothing { .. } => break,
                RingAction::Full { report, .. } => panic!("{report:?}"),
            }
        }
    }
    assert!(rotations >= 100_000 / 600 - 1, "{rotations}");
    let held = policy.report(&observed).held[0];
    assert_eq!(held.segment, straggler);
    assert!(held.pinned_for(observed.view.now) > Span::from_secs(99_000));
    assert!(held.tries < 100_000 / 60 + 20, "{}", held.tries);
}

#[test]
fn loads_that_do_not_fit_the_view_are_a_fault() {
    let mut observed = ring(16);
    observed.loads.pop();
    assert!(queue_policy().decide(&observed).is_err());
    observed = ring(16);
    observed.loads.swap(0, 1);
    assert!(queue_policy().decide(&observed).is_err());
}

#[test]
fn any_floor_and_any_window_are_safe() {
    for floor in [Span::ZERO, Span::from_secs(1), Span::from_secs(72 * HOUR), Span::FOREVER] {
        for window in [Span::ZERO, Span::from_secs(1), Span::from_secs(24 * HOUR), Span::FOREVER] {
            for slots in [2, 3, 4, 16, 1_000] {
                let config = RingPolicyConfig::queue(slots, window, Floor::new(floor));
                assert!(config.rotate_age >= Span::from_secs(600));
                assert!(config.carry_life >= Span::from_secs(60));
                assert!(config.carry_life <= Span::from_secs(2 * HOUR));
                let mut observed = ring(slots);
                for slot in 0..slots - 1 {
                    seal(&mut observed, slot, at(slot as u64));
                    hold(&mut observed, slot, i64::MAX, i64::MAX);
                }
                open(&mut observed, slots - 1, at(slots as u64));
                observed.view.now = at(100_000 * HOUR);
                let decided = RingPolicy::new(config).decide(&observed);
                assert!(matches!(decided, Ok(RingAction::Prune { .. })), "{decided:?}");
            }
        }
    }
}

/// A fixed sequence of numbers that look random.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

#[test]
fn every_decision_is_legal_and_every_wait_ends_later() {
    let mut dice = Dice(5);
    let mut seen = [0; 4];
    for _ in 0..20_000 {
        let slots = 2 + dice.below(20) as usize;
        let mut observed = ring(slots);
        let now = 1 + dice.below(100 * HOUR);
        for slot in 1..slots {
            if dice.below(5) > 0 {
                seal(&mut observed, slot, at(dice.below(now)));
            }
        }
        for slot in 0..slots {
            let droppable = [0, 0, 1, 1_000, 1_000_000][dice.below(5) as usize];
            hold(&mut observed, slot, droppable, [0, 1, 100, 100_000][dice.below(4) as usize]);
            observed.loads[slot].bytes = 1 << dice.below(34);
        }
        observed.view.slots[0].opened_at = at(dice.below(now));
        observed.view.now = at(now);
        let mut policy = RingPolicy::new(RingPolicyConfig::default_of(Ring::Queue, slots));
        let mut held = Vec::new();
        for slot in observed.view.sealed_oldest_first() {
            if dice.below(4) == 0 {
                policy.handle_held(slot.segment(), HeldReason::Active, at(now));
                held.push(slot.segment());
            }
        }
        let sealed = observed.view.sealed_oldest_first();
        match policy.decide(&observed).expect("loads fit") {
            RingAction::Nothing { until } => {
                seen[0] += 1;
                assert!(until > observed.view.now);
            }
            RingAction::Rotate => {
                seen[1] += 1;
                assert!(observed.loads[0].has_droppable && observed.view.next_pruned().is_some());
            }
            RingAction::Prune { slots, wanted } => {
                seen[2] += 1;
                assert!(wanted >= 1 && wanted <= slots.len() && slots.len() <= 4);
                assert!(slots.is_sorted_by_key(|s| s.generation));
                assert!(slots.iter().all(|s| sealed.iter().any(|v| v.segment() == *s)));
                assert!(slots.iter().all(|s| !held.contains(s)));
            }
            RingAction::Full { until, report } => {
                seen[3] += 1;
                assert!(until > observed.view.now && report.pruned_ahead == 0);
                assert_eq!(report.held.len(), held.len());
            }
        }
    }
    assert!(seen.iter().all(|&n| n > 50), "{seen:?}");
}
