//! The figures that a ring policy goes by.

use crate::job::SlotLoad;
use crate::ring::{Ring, RingView, SlotView};
use crate::rules::Floor;
use crate::time::{Instant, Span};

/// How one ring is rotated and pruned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RingPolicyConfig {
    /// How long history is kept at least after its slot was sealed, room permitting:
    /// `completed_retention` in the queue ring, nothing in the others.
    pub retention: Span,
    /// An open slot that holds something droppable is rotated at this age.
    pub rotate_age: Span,
    /// Or at this size, in bytes with indexes; twice as large for each pruned slot that is
    /// missing ahead.
    pub segment_bytes: i64,
    /// But not by size before this age, so that catalog churn is bounded (H42).
    pub rotate_min_age: Span,
    /// A sealed slot that carries failures is not pruned before it has been sealed for so long,
    /// unless that is cheap; bounds how often a failure is carried.
    pub carry_life: Span,
    /// A carry is cheap if the prune drops at least so many rows for each that it carries.
    pub cheap_ratio: i64,
    /// Slots that one decision tries at most.
    pub tries_max: usize,
    /// The wait before a held slot is tried again.
    pub held_first: Span,
    /// The longest such wait.
    pub held_longest: Span,
}

/// Carries of a failure within its floor at most, but for cheap ones.
const CARRIES_MAX: u64 = 36;
/// The bounds of [`RingPolicyConfig::carry_life`], whatever the floor: a short floor must not make
/// the ring spin, nor a long one stop it.
const CARRY_LIFE_MIN: Span = Span::from_secs(60);
const CARRY_LIFE_MAX: Span = Span::from_secs(2 * 3600);
const ROTATE_AGE_MIN: Span = Span::from_secs(600);

impl RingPolicyConfig {
    /// 24 hours of history: yesterday can be looked at today, and a failure is carried three times
    /// in its 72 hours. A ring of 16 slots of 512 MiB keeps it up to 8 GiB, about 1,000 small jobs
    /// a second for six hours or 250 for a day; beyond that the window shrinks.
    pub const COMPLETED_RETENTION_DEFAULT: Span = Span::from_secs(24 * 3600);

    /// For the queue ring with `slots` slots. The slots share the window between them, so that the
    /// ring holds it whole with the slots ahead free.
    #[must_use]
    pub fn queue(slots: usize, completed_retention: Span, floor: Floor) -> Self {
        let sharing = slots.saturating_sub(ahead(slots) + 2).max(1) as u64;
        let carry_life = Span::from_us(floor.span().us() as u64 / CARRIES_MAX);
        Self {
            retention: completed_retention,
            rotate_age: Span::from_us(completed_retention.us() as u64 / sharing)
                .max(ROTATE_AGE_MIN),
            segment_bytes: 512 << 20,
            carry_life: carry_life.max(CARRY_LIFE_MIN).min(CARRY_LIFE_MAX),
            cheap_ratio: 32,
            ..Self::transient()
        }
    }

    /// For the lease and the claim ring: nothing is kept once it is closed, nothing is carried.
    #[must_use]
    pub const fn transient() -> Self {
        Self {
            retention: Span::ZERO,
            rotate_age: ROTATE_AGE_MIN,
            segment_bytes: 64 << 20,
            rotate_min_age: Span::from_secs(5),
            carry_life: Span::ZERO,
            cheap_ratio: 0,
            tries_max: 4,
            held_first: Span::from_secs(1),
            held_longest: Span::from_secs(60),
        }
    }

    /// The defaults for `ring` with `slots` slots.
    #[must_use]
    pub fn default_of(ring: Ring, slots: usize) -> Self {
        match ring {
            Ring::Queue => Self::queue(slots, Self::COMPLETED_RETENTION_DEFAULT, Floor::DEFAULT),
            Ring::Lease | Ring::Claim => Self::transient(),
        }
    }

    /// Pruned slots that should stand ahead.
    pub(super) fn ahead(&self, view: &RingView) -> usize {
        ahead(view.slots.len())
    }

    /// Bytes from which on the open slot is rotated.
    pub(super) fn full_bytes(&self, view: &RingView) -> i64 {
        let missing = self.ahead(view).saturating_sub(view.pruned_count());
        let times = 1_i64.checked_shl(missing as u32).filter(|&times| times > 0);
        self.segment_bytes.saturating_mul(times.unwrap_or(i64::MAX))
    }

    /// When a sealed slot may be pruned without need: its history is past the window. A slot
    /// without anything to drop never is.
    pub(super) fn ripe_at(&self, slot: &SlotView, load: &SlotLoad) -> Instant {
        if !load.has_droppable {
            return Instant::LAST;
        }
        let newest = load.newest_fact_at.unwrap_or(Instant::FIRST).max(sealed_at(slot));
        newest.after(self.retention).max(self.worth_it_at(slot, load))
    }

    /// When a prune of a sealed slot is worth what it carries.
    pub(super) fn worth_it_at(&self, slot: &SlotView, load: &SlotLoad) -> Instant {
        let is_cheap = load.carried_hint.saturating_mul(self.cheap_ratio) <= load.droppable_hint;
        let is_free = load.carried_hint <= 0;
        if is_cheap || is_free { Instant::FIRST } else { sealed_at(slot).after(self.carry_life) }
    }
}

fn sealed_at(slot: &SlotView) -> Instant {
    slot.sealed_at.unwrap_or(slot.opened_at)
}

/// One in eight slots, at least one.
fn ahead(slots: usize) -> usize {
    (slots / 8).max(1)
}
