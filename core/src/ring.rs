//! Slots, segments and the three rings.

use alloc::vec::Vec;
use core::fmt;

use crate::ids::Generation;
use crate::time::Instant;

/// Which of the three rings. Each has a cursor and slots of its own and is pruned on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Ring {
    /// Ready bodies, attempt evidence and terminal history.
    Queue,
    /// Materialised leases.
    Lease,
    /// Claims and what closes them.
    Claim,
}

impl Ring {
    /// All three, in the order in which locks on them are taken.
    pub const ALL: [Self; 3] = [Self::Queue, Self::Lease, Self::Claim];

    /// The ring's word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Lease => "lease",
            Self::Claim => "claim",
        }
    }
}

impl fmt::Display for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A place in a ring, from 0. It is reused; a [`Segment`] is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct Slot(pub i32);

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "slot {}", self.0)
    }
}

/// One use of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Segment {
    /// The place.
    pub slot: Slot,
    /// The turn.
    pub generation: Generation,
}

impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.slot, self.generation)
    }
}

/// Where a slot is in its round. `Pruned` is written only by a prune that held all children of the
/// slot exclusively, and a slot opens only from `Pruned` (law 6 of docs/LAWS.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum SlotState {
    /// New rows go here. Exactly one slot of a ring is open.
    Open,
    /// Full of history; waits to be pruned.
    Sealed,
    /// Emptied; waits to be opened. Stale producers may still drop rows here.
    Pruned,
}

impl SlotState {
    /// The word stored in the database.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Sealed => "sealed",
            Self::Pruned => "pruned",
        }
    }

    /// The state that `word` names.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Open, Self::Sealed, Self::Pruned].into_iter().find(|s| s.as_str() == word)
    }
}

impl fmt::Display for SlotState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One slot as observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct SlotView {
    /// Its place.
    pub slot: Slot,
    /// The turn that it is in, or was last in.
    pub generation: Generation,
    /// Where it is in its round.
    pub state: SlotState,
    /// When it was last opened; for a slot that never was, when the ring was made.
    pub opened_at: Instant,
    /// When it was sealed, while it is.
    pub sealed_at: Option<Instant>,
}

impl SlotView {
    /// The segment that the slot is in.
    #[must_use]
    pub const fn segment(&self) -> Segment {
        Segment { slot: self.slot, generation: self.generation }
    }
}

/// A ring as one statement saw it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct RingView {
    /// Which ring.
    pub ring: Ring,
    /// The database's clock at the observation.
    pub now: Instant,
    /// The open segment.
    pub current: Segment,
    /// Every slot, by slot number.
    pub slots: Vec<SlotView>,
}

impl RingView {
    /// The slot that rotation opens next: the first pruned one after the current, going round
    /// (law 7: the ring steps over what it can't use). `None`: the ring is full.
    #[must_use]
    pub fn next_pruned(&self) -> Option<&SlotView> {
        self.going_round().find(|s| s.state == SlotState::Pruned)
    }

    /// Sealed slots, oldest segment first: the order in which prune tries them (law 7).
    #[must_use]
    pub fn sealed_oldest_first(&self) -> Vec<SlotView> {
        let mut sealed: Vec<_> =
            self.slots.iter().filter(|s| s.state == SlotState::Sealed).copied().collect();
        sealed.sort_by_key(|s| (s.generation, s.slot));
        sealed
    }

    /// How many slots stand ready to be opened.
    #[must_use]
    pub fn pruned_count(&self) -> usize {
        self.slots.iter().filter(|s| s.state == SlotState::Pruned).count()
    }

    /// The slot called `slot`, if the ring has it.
    #[must_use]
    pub fn slot(&self, slot: Slot) -> Option<&SlotView> {
        self.slots.iter().find(|s| s.slot == slot)
    }

    fn going_round(&self) -> impl Iterator<Item = &SlotView> {
        let after = self.slots.iter().filter(|s| s.slot > self.current.slot);
        after.chain(self.slots.iter().filter(|s| s.slot < self.current.slot))
    }
}

impl fmt::Display for RingView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ring at {}:", self.ring, self.now)?;
        for s in &self.slots {
            write!(f, " {}={}({})", s.slot.0, s.state, s.generation.0)?;
        }
        Ok(())
    }
}
