//! Rotate and prune by policy, not by tick (law 15).
//!
//! From an observed ring the policy decides one action. Its terms:
//!
//! - The open slot is rotated when it holds something that a prune would drop and is old or large.
//!   A slot that holds nothing but failures inside the floor gains nothing by it and stays open.
//! - A prune is *worth it* when it carries little beside what it drops, or when the slot has been
//!   sealed for [`RingPolicyConfig::carry_life`].
//! - A sealed slot is *ripe* when its history is past the window and a prune is worth it. Without
//!   need, only ripe slots are pruned.
//! - When too few pruned slots stand ahead, the ring *needs* slots, and the oldest sealed ones that
//!   are worth it are pruned before they are ripe. Failing that, the open slot grows beyond its
//!   size rather than failures being rewritten over and over.
//!
//! So a failure is carried at most `floor / carry_life` times, not counting carries that cost next
//! to nothing beside the prune that they are part of, whatever the load.
//!
//! - A slot that can't be pruned now is stepped over and tried again after a back-off (law 7).

use alloc::vec::Vec;

use crate::fault::Fault;
use crate::job::SlotLoad;
use crate::ring::{RingView, Segment, SlotView};
use crate::time::{Instant, Span};

mod config;
mod held;

pub use config::RingPolicyConfig;
pub use held::{HeldReason, HeldSlot};

/// One ring with what its slots hold, of one moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RingObservation {
    /// The ring.
    pub view: RingView,
    /// One load for each slot, by slot number.
    pub loads: Vec<SlotLoad>,
}

/// What is to be done about a ring.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RingAction {
    /// Nothing before `until` on the database's clock, unless the loads change.
    Nothing {
        /// Later than the observation; [`Instant::LAST`] if time alone changes nothing.
        until: Instant,
    },
    /// Open the next pruned slot.
    Rotate,
    /// Try to prune these, in this order, until `wanted` of them are pruned. Report each try by
    /// [`RingPolicy::handle_pruned`] or [`RingPolicy::handle_held`].
    Prune {
        /// Sealed segments, oldest first, at most [`RingPolicyConfig::tries_max`].
        slots: Vec<Segment>,
        /// At least 1, at most as many as `slots`.
        wanted: usize,
    },
    /// A rotation is due, no slot stands ready and none can be pruned now: the open slot grows.
    Full {
        /// As for `Nothing`.
        until: Instant,
        /// What holds the ring.
        report: RingReport,
    },
}

/// A ring in figures for an operator.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RingReport {
    /// Slots ready to be opened.
    pub pruned_ahead: usize,
    /// Sealed slots.
    pub sealed: usize,
    /// Bytes of the open slot.
    pub open_bytes: i64,
    /// Bytes of all slots.
    pub total_bytes: i64,
    /// How far back the retained history reaches: since the oldest sealed slot was opened.
    pub history: Span,
    /// Slots that could not be pruned when last tried, oldest first, with how long they have been
    /// pinned.
    pub held: Vec<HeldSlot>,
}

/// Decides about one ring. Remembers only what it tried; a new leader starts without.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RingPolicy {
    config: RingPolicyConfig,
    held: Vec<HeldSlot>,
    /// The open segment's bytes at the last observation, to foresee when it will be full.
    last_open: Option<(Segment, i64, Instant)>,
}

impl RingPolicy {
    /// A policy that has tried nothing yet.
    #[must_use]
    pub const fn new(config: RingPolicyConfig) -> Self {
        Self { config, held: Vec::new(), last_open: None }
    }

    /// What to do about the ring as observed. After anything but `Nothing` and `Full`, do it and
    /// observe again.
    ///
    /// # Errors
    /// A [`Fault`] if the loads are not one for each slot of the view.
    pub fn decide(&mut self, observed: &RingObservation) -> Result<RingAction, Fault> {
        let RingObservation { view, loads } = observed;
        let same = view.slots.iter().map(|s| s.slot).eq(loads.iter().map(|l| l.slot));
        let Some(open) = view.slot(view.current.slot).filter(|_| same) else {
            let (expected, found) = (view.slots.len() as i64, loads.len() as i64);
            return Err(Fault::Unbalanced { what: "loads of the ring's slots", expected, found });
        };
        self.held.retain(|held| view.slots.iter().any(|slot| held.is_still(slot)));

        let open_load = load_of(loads, open);
        let full_bytes = self.config.full_bytes(view);
        let is_due = self.rotation_due(view, open, open_load, full_bytes);
        if is_due && view.next_pruned().is_some() {
            self.last_open = None;
            return Ok(RingAction::Rotate);
        }
        let candidates = self.candidates(view, loads);
        if candidates.wanted > 0 {
            let Candidates { mut slots, wanted, .. } = candidates;
            slots.truncate(self.config.tries_max);
            let wanted = wanted.min(slots.len());
            return Ok(RingAction::Prune { slots, wanted });
        }
        let full_at = self.full_at(view, open_load, full_bytes);
        let rotates_at = if is_due || !open_load.has_droppable {
            Instant::LAST
        } else {
            let by_age = open.opened_at.after(self.config.rotate_age);
            by_age.min(full_at.max(open.opened_at.after(self.config.rotate_min_age)))
        };
        let until = rotates_at.min(candidates.changes_at);
        if is_due {
            return Ok(RingAction::Full { until, report: self.report(observed) });
        }
        Ok(RingAction::Nothing { until })
    }

    /// The segment is pruned.
    pub fn handle_pruned(&mut self, segment: Segment) {
        self.held.retain(|held| held.segment != segment);
    }

    /// The segment could not be pruned; it is stepped over until a back-off has passed.
    pub fn handle_held(&mut self, segment: Segment, reason: HeldReason, now: Instant) {
        let known = self.held.iter_mut().find(|held| held.segment == segment);
        match known {
            Some(held) => held.tried_again(reason, now, &self.config),
            None => {
                self.held.push(HeldSlot::new(segment, reason, now, &self.config));
                self.held.sort_by_key(|held| held.segment.generation);
            }
        }
    }

    /// The ring in figures.
    #[must_use]
    pub fn report(&self, observed: &RingObservation) -> RingReport {
        let view = &observed.view;
        let sealed = view.sealed_oldest_first();
        let oldest = sealed.first().map_or(view.now, |slot| slot.opened_at);
        let open = observed.loads.iter().find(|load| load.slot == view.current.slot);
        RingReport {
            pruned_ahead: view.pruned_count(),
            sealed: sealed.len(),
            open_bytes: open.map_or(0, |load| load.bytes),
            total_bytes: observed.loads.iter().map(|load| load.bytes).sum(),
            history: view.now.since(oldest),
            held: self.held.clone(),
        }
    }

    fn rotation_due(
        &self,
        view: &RingView,
        open: &SlotView,
        load: &SlotLoad,
        full_bytes: i64,
    ) -> bool {
        let age = view.now.since(open.opened_at);
        let is_old = age >= self.config.rotate_age;
        let is_large = load.bytes >= full_bytes && age >= self.config.rotate_min_age;
        load.has_droppable && (is_old || is_large)
    }

    /// When to look whether the open slot is full: half-way to when it will be, if it grows on as
    /// it did. In the past if it is full already.
    fn full_at(&mut self, view: &RingView, load: &SlotLoad, full_bytes: i64) -> Instant {
        let last = self.last_open.replace((view.current, load.bytes, view.now));
        let left = full_bytes.saturating_sub(load.bytes);
        if left <= 0 {
            return Instant::FIRST;
        }
        let Some((segment, bytes, at)) = last else { return Instant::LAST };
        let (grown, passed) = (load.bytes - bytes, view.now.since(at).us());
        if segment != view.current || grown <= 0 {
            return Instant::LAST;
        }
        let half_way = i128::from(left) * i128::from(passed) / i128::from(grown) / 2;
        let wait = Span::from_us(u64::try_from(half_way).unwrap_or(u64::MAX));
        view.now.after(wait.max(self.config.rotate_min_age))
    }

    fn candidates(&self, view: &RingView, loads: &[SlotLoad]) -> Candidates {
        let needed = self.config.ahead(view).saturating_sub(view.pruned_count());
        let mut found = Candidates { slots: Vec::new(), wanted: 0, changes_at: Instant::LAST };
        let (mut ripe, mut spare) = (0, 0);
        for slot in view.sealed_oldest_first() {
            let load = load_of(loads, &slot);
            let held = self.held.iter().find(|held| held.segment == slot.segment());
            let retry_at = held.map_or(Instant::FIRST, |held| held.retry_at);
            let ripe_at = self.config.ripe_at(&slot, load).max(retry_at);
            let spare_at = if needed > 0 {
                self.config.worth_it_at(&slot, load).max(retry_at)
            } else {
                Instant::LAST
            };
            if ripe_at <= view.now {
                ripe += 1;
                found.slots.push(slot.segment());
            } else if spare_at <= view.now {
                spare += 1;
                found.slots.push(slot.segment());
            } else {
                found.changes_at = found.changes_at.min(ripe_at).min(spare_at);
            }
        }
        // Beyond the ripe ones, only as many as the ring needs; the rest stands in for those that
        // turn out to be held.
        found.wanted = ripe.max(needed.min(ripe + spare));
        found
    }
}

struct Candidates {
    slots: Vec<Segment>,
    wanted: usize,
    /// When time alone makes another slot a candidate.
    changes_at: Instant,
}

fn load_of<'a>(loads: &'a [SlotLoad], slot: &SlotView) -> &'a SlotLoad {
    let place = loads.iter().position(|load| load.slot == slot.slot);
    &loads[place.unwrap_or_default()]
}
