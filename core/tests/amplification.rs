//! The shipped ring policy against simulated loads: how often is a failure rewritten (law 15)?
//!
//! The figures are in ARCHITECTURE.md; print them with
//! `cargo test -p awa-core --test amplification -- --nocapture`.

use awa_core::ids::Generation;
use awa_core::job::SlotLoad;
use awa_core::ring::{Ring, RingView, Segment, Slot, SlotState, SlotView};
use awa_core::rules::Floor;
use awa_core::runtime::policy::{RingAction, RingObservation, RingPolicy, RingPolicyConfig};
use awa_core::time::{Instant, Span};

const HOUR: u64 = 3600;
const FLOOR_S: u64 = 72 * HOUR;
const SLOTS: usize = 16;
/// A small job's ready row with its index entry and its share of evidence and history.
const JOB_BYTES: u64 = 350;
/// A carried, self-contained failure with its delta.
const CARRIED_BYTES: u64 = 600;

/// Failures of about one minute that were carried equally often.
#[derive(Clone, Copy)]
struct Failures {
    at_s: u64,
    count: u64,
    carries: u64,
}

struct SimSlot {
    view: SlotView,
    jobs: u64,
    carried_bytes: u64,
    failures: Vec<Failures>,
}

#[derive(Default)]
struct Figures {
    jobs: u64,
    failures: u64,
    dropped: u64,
    carried_rows: u64,
    rotations: u64,
    prunes: u64,
    /// Of failures that have left the ring: how many, the carries of all, the most of one.
    expired: u64,
    expired_carries: u64,
    carries_max: u64,
    peak_bytes: u64,
    /// Shortest history that a prune left, in seconds.
    window_s: Option<u64>,
    seconds_full: u64,
}

struct Sim {
    now_s: u64,
    current: usize,
    generation: i64,
    slots: Vec<SimSlot>,
    policy: RingPolicy,
    figures: Figures,
}

fn at(s: u64) -> Instant {
    Instant::from_unix_us(s as i64 * 1_000_000)
}

impl Sim {
    fn new(config: RingPolicyConfig) -> Self {
        let slot = |n: usize| SimSlot {
            view: SlotView {
                slot: Slot(n as i32),
                generation: Generation(n as i64),
                state: if n == 0 { SlotState::Open } else { SlotState::Pruned },
                opened_at: at(0),
                sealed_at: None,
            },
            jobs: 0,
            carried_bytes: 0,
            failures: Vec::new(),
        };
        Self {
            now_s: 0,
            current: 0,
            generation: SLOTS as i64,
            slots: (0..SLOTS).map(slot).collect(),
            policy: RingPolicy::new(config),
            figures: Figures::default(),
        }
    }

    fn run_jobs(&mut self, jobs: u64, failures: u64) {
        let (minute, slot) = (self.now_s / 60 * 60, &mut self.slots[self.current]);
        slot.jobs += jobs;
        self.figures.jobs += jobs;
        self.figures.failures += failures;
        if failures > 0 {
            push(&mut slot.failures, Failures { at_s: minute, count: failures, carries: 0 });
        }
    }

    fn observe(&self) -> RingObservation {
        let cutoff_s = self.now_s.saturating_sub(FLOOR_S);
        let load = |slot: &SimSlot| {
            let held = |f: &&Failures| f.at_s >= cutoff_s;
            let carried: u64 = slot.failures.iter().filter(held).map(|f| f.count).sum();
            let fresh = slot.failures.iter().filter(|f| f.carries == 0).map(|f| f.count);
            let expired = slot.failures.iter().filter(|f| !held(f)).map(|f| f.count).sum::<u64>();
            let droppable = slot.jobs - fresh.sum::<u64>() + expired;
            SlotLoad {
                slot: slot.view.slot,
                bytes: (slot.jobs * JOB_BYTES + slot.carried_bytes) as i64,
                has_droppable: droppable > 0,
                droppable_hint: droppable as i64,
                carried_hint: carried as i64,
                newest_fact_at: None,
            }
        };
        let view = RingView {
            ring: Ring::Queue,
            now: at(self.now_s),
            current: self.slots[self.current].view.segment(),
            slots: self.slots.iter().map(|s| s.view).collect(),
        };
        RingObservation { view, loads: self.slots.iter().map(load).collect() }
    }

    /// What the host does between two waits: decide and act until there is nothing to do.
    fn tend(&mut self, passed_s: u64) {
        for _ in 0..SLOTS * 2 {
            let observed = self.observe();
            let bytes: i64 = observed.loads.iter().map(|l| l.bytes).sum();
            self.figures.peak_bytes = self.figures.peak_bytes.max(bytes as u64);
            match self.policy.decide(&observed).expect("a load for each slot") {
                RingAction::Rotate => self.rotate(&observed.view),
                RingAction::Prune { slots, wanted } => {
                    assert!(wanted >= 1 && wanted <= slots.len());
                    slots.into_iter().take(wanted).for_each(|segment| self.prune(segment));
                }
                RingAction::Nothing { until } => {
                    assert!(until > observed.view.now);
                    return;
                }
                RingAction::Full { until, .. } => {
                    assert!(until > observed.view.now);
                    self.figures.seconds_full += passed_s;
                    return;
                }
            }
        }
        panic!("the policy spins at {} s", self.now_s);
    }

    fn rotate(&mut self, view: &RingView) {
        self.figures.rotations += 1;
        let sealed = &mut self.slots[self.current].view;
        (sealed.state, sealed.sealed_at) = (SlotState::Sealed, Some(view.now));
        self.current = view.next_pruned().expect("decided").slot.0 as usize;
        let opened = &mut self.slots[self.current].view;
        *opened = SlotView {
            slot: opened.slot,
            generation: Generation(self.generation),
            state: SlotState::Open,
            opened_at: view.now,
            sealed_at: None,
        };
        self.generation += 1;
    }

    fn prune(&mut self, segment: Segment) {
        let figures = &mut self.figures;
        let slot = &mut self.slots[segment.slot.0 as usize];
        assert_eq!((slot.view.segment(), slot.view.state), (segment, SlotState::Sealed));
        let window_s =
            self.now_s - slot.view.sealed_at.expect("sealed").unix_us() as u64 / 1_000_000;
        if slot.jobs > 0 {
            figures.window_s = Some(figures.window_s.map_or(window_s, |w| w.min(window_s)));
        }
        figures.prunes += 1;
        figures.dropped += slot.jobs;
        (slot.view.state, slot.view.sealed_at) = (SlotState::Pruned, None);
        (slot.jobs, slot.carried_bytes) = (0, 0);
        let cutoff_s = self.now_s.saturating_sub(FLOOR_S);
        for mut group in std::mem::take(&mut slot.failures) {
            if group.at_s < cutoff_s {
                figures.expired += group.count;
                figures.expired_carries += group.count * group.carries;
                continue;
            }
            group.carries += 1;
            figures.carries_max = figures.carries_max.max(group.carries);
            figures.carried_rows += group.count;
            let current = &mut self.slots[self.current];
            current.carried_bytes += group.count * CARRIED_BYTES;
            push(&mut current.failures, group);
        }
        self.policy.handle_pruned(segment);
    }
}

fn push(groups: &mut Vec<Failures>, new: Failures) {
    match groups.last_mut().filter(|g| (g.at_s, g.carries) == (new.at_s, new.carries)) {
        Some(last) => last.count += new.count,
        None => groups.push(new),
    }
}

/// Runs `load(second) -> (jobs, failures)` of each step until the ring has wrapped `wraps` times
/// and `hours` have passed.
fn simulate(
    name: &str,
    config: RingPolicyConfig,
    (wraps, hours, step_s): (u64, u64, u64),
    load: impl Fn(u64) -> (u64, u64),
) -> Figures {
    let mut sim = Sim::new(config);
    while sim.now_s < hours * HOUR || sim.figures.rotations < wraps * SLOTS as u64 {
        let (jobs, failures) = load(sim.now_s);
        sim.run_jobs(jobs, failures);
        sim.now_s += step_s;
        sim.tend(step_s);
    }
    let f = &sim.figures;
    println!(
        "{name:34} | {:5} h | {:5.1} wraps | carries: mean {:5.1}, most {:3} | {:7.4} carried a job | \
         window {:5.1} h | peak {:6.2} GiB | full {:4.1} %",
        sim.now_s / HOUR,
        f.rotations as f64 / SLOTS as f64,
        f.expired_carries as f64 / f.expired.max(1) as f64,
        f.carries_max,
        f.carried_rows as f64 / f.jobs as f64,
        f.window_s.map_or(f64::NAN, |s| s as f64 / HOUR as f64),
        f.peak_bytes as f64 / f64::from(1 << 30),
        100.0 * f.seconds_full as f64 / sim.now_s as f64,
    );
    // The policy's promise for every load: floor / carry_life carries of a failure (and the one
    // that the failure's own first slot brings), and besides a row for each 32 dropped at most.
    let promised = f.failures * (36 + 1) + f.dropped / 32;
    assert!(f.carried_rows <= promised, "{name}: {} carried, {promised} promised", f.carried_rows);
    sim.figures
}

fn shipped() -> RingPolicyConfig {
    RingPolicyConfig::default_of(Ring::Queue, SLOTS)
}

/// 1,000 jobs a second, 1 % failing, a minute a step.
fn steady(per_second: u64, one_fails_in: u64) -> impl Fn(u64) -> (u64, u64) {
    move |_| (60 * per_second, 60 * per_second / one_fails_in)
}

#[test]
fn a_steady_load_carries_a_failure_a_few_times() {
    let f = simulate("1,000/s, 1 % failing", shipped(), (40, 144, 60), steady(1_000, 100));
    assert!(f.expired > 1_000_000, "failures reach the end of their floor");
    assert!(f.carries_max <= 20, "{}", f.carries_max);
    assert!(f.carried_rows <= 20 * f.failures);
    assert_eq!(f.seconds_full, 0);
}

#[test]
fn a_small_load_keeps_the_whole_window() {
    let f = simulate("10/s, 1 % failing", shipped(), (3, 200, 60), steady(10, 100));
    assert!(f.carries_max <= 3, "{}", f.carries_max);
    assert!(f.window_s >= Some(24 * HOUR));
}

#[test]
fn a_bursty_load_fills_no_ring_faster_than_it_prunes() {
    // Ten minutes of 20,000 jobs a second with 5 % failing each six hours, 50 a second between.
    let load = |s: u64| match s % (6 * HOUR) {
        0..600 => (20_000 * 20, 20_000),
        _ => (50 * 20, 10),
    };
    let f = simulate("bursts of 20,000/s, 5 % failing", shipped(), (40, 144, 20), load);
    assert!(f.carries_max <= 40, "{}", f.carries_max);
    assert!(f.seconds_full <= 144 * HOUR / 20, "{} s", f.seconds_full);
}

#[test]
fn a_heavy_load_grows_segments_rather_than_rewriting_failures() {
    let f = simulate("10,000/s, 1 % failing", shipped(), (40, 144, 60), steady(10_000, 100));
    assert!(f.carries_max <= 40, "{}", f.carries_max);
}

#[test]
fn rare_failures_cost_next_to_nothing_however_often_they_are_carried() {
    let f = simulate("10,000/s, 0.01 % failing", shipped(), (40, 144, 60), steady(10_000, 10_000));
    assert!(f.carried_rows <= f.jobs / 32, "{} of {}", f.carried_rows, f.jobs);
    assert_eq!(f.seconds_full, 0);
    assert!(f.peak_bytes < 10 << 30, "the ring stays within its room");
}

#[test]
fn no_history_kept_still_bounds_carries() {
    let config = RingPolicyConfig::queue(SLOTS, Span::ZERO, Floor::DEFAULT);
    let f = simulate("1,000/s, 1 % failing, no window", config, (40, 144, 60), steady(1_000, 100));
    assert!(f.carries_max <= 40, "{}", f.carries_max);
    let f = simulate("1/s, 1 % failing, no window", config, (3, 144, 60), steady(1, 60));
    assert!(f.carries_max <= 40, "{}", f.carries_max);
}

#[test]
fn an_idle_system_with_one_failure_writes_next_to_nothing() {
    let load = |s: u64| if s == 0 { (20, 1) } else { (0, 0) };
    let f = simulate("idle, one failure (H33)", shipped(), (0, 72, 10), load);
    assert_eq!((f.carries_max, f.carried_rows), (1, 1));
    assert!(f.rotations + f.prunes <= 2, "{} rotations, {} prunes", f.rotations, f.prunes);
    // Past its floor it is folded, and then the ring rests.
    let f = simulate("idle, one failure, for 30 days", shipped(), (0, 720, 60), load);
    assert_eq!((f.carried_rows, f.expired), (1, 1));
    assert_eq!((f.rotations, f.prunes), (2, 2));
}

#[test]
fn an_empty_ring_is_left_alone() {
    let f = simulate("idle, empty", shipped(), (0, 720, 600), |_| (0, 0));
    assert_eq!((f.rotations, f.prunes), (0, 0));
}
