//! Slots that could not be pruned when last tried.

use super::RingPolicyConfig;
use crate::ring::{Segment, SlotState, SlotView};
use crate::time::{Instant, Span};

/// Why a slot could not be pruned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HeldReason {
    /// A lock was not to be had in time: a reader or a producer is in the slot.
    Contended,
    /// It holds work that isn't finished: an unclaimed job, an open attempt, a waiting callback.
    Active,
    /// Its books don't balance; the fault was reported.
    Faulty,
}

/// A slot that is stepped over (law 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HeldSlot {
    /// The slot and its turn.
    pub segment: Segment,
    /// Why the last try failed.
    pub reason: HeldReason,
    /// When it was first found held.
    pub since: Instant,
    /// Tries that failed.
    pub tries: u32,
    /// When it is tried again.
    pub retry_at: Instant,
}

impl HeldSlot {
    pub(super) fn new(
        segment: Segment,
        reason: HeldReason,
        now: Instant,
        config: &RingPolicyConfig,
    ) -> Self {
        Self { segment, reason, since: now, tries: 1, retry_at: now.after(config.held_first) }
    }

    pub(super) fn tried_again(
        &mut self,
        reason: HeldReason,
        now: Instant,
        config: &RingPolicyConfig,
    ) {
        let first = config.held_first.us() as u64;
        let wait = first.saturating_mul(1 << self.tries.min(32));
        self.reason = reason;
        self.tries = self.tries.saturating_add(1);
        self.retry_at = now.after(Span::from_us(wait).min(config.held_longest));
    }

    /// How long it has pinned its slot at `now`.
    #[must_use]
    pub const fn pinned_for(&self, now: Instant) -> Span {
        now.since(self.since)
    }

    pub(super) fn is_still(&self, slot: &SlotView) -> bool {
        slot.segment() == self.segment && slot.state == SlotState::Sealed
    }
}
