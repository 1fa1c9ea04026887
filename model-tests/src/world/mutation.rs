//! Ways of being wrong on purpose: the harness must catch each.

use awa_core::{Gate, Reply, Step};

/// One way in which the World, or whoever drives a machine, breaks the protocol. Letters are those
/// of the watermark study's table of variants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mutation {
    /// None: the protocol holds.
    #[default]
    None,
    /// A1, WB3: a claimer takes a snapshot's `xmax` for a witness.
    XmaxAsWitness,
    /// B1, WB1: a claim reads the last position after it was given its own id.
    PositionAfterXid,
    /// B2, WB4: a producer draws a position before it has an id.
    XidAfterPosition,
    /// B6: the lane is locked by the statement that claims, whose snapshot is older than the lock.
    LockInSameStatement,
    /// B8: the gate looks only at rows of the slot's own generation.
    GateByGeneration,
    /// B9: gates are not looked at again once writers or everyone were shut out.
    NoSecondGate,
    /// B10: prune doesn't shut writers out before it looks.
    WritersNotExcluded,
    /// B11: claims don't look into pruned slots.
    ClaimSkipsPruned,
    /// WB2: a claim that a bound stopped says that it took everything.
    FrontierForgotten,
    /// Evidence says that all up to the last job taken is spent, though who drew a position below may
    /// still be at work.
    SpentPastSettled,
    /// B5: a claimer remembers its claim before the COMMIT is confirmed. The caller then has to
    /// commit or crash the session of a [`super::super::drive::Driving`] that is done.
    WindowBeforeCommit,
    /// Claims and cancels take no lane lock.
    LaneLockForgotten,
    /// The floor's cutoff is exclusive: a failure at that very instant is dropped.
    CutoffFlipped,
    /// Carried rows leave their deltas behind, and the count of them is made up.
    CarryForgetsDelta,
    /// Cancellations inside the floor are carried too.
    CarriesCancelled,
    /// Carried rows stay narrow.
    CarriesNarrow,
    /// A closed receipt can be closed again.
    ClosesTwice,
    /// Time is read from a host whose clock is an hour fast.
    HostClock,
}

impl Mutation {
    /// Every mutation.
    pub const ALL: [Self; 18] = [
        Self::XmaxAsWitness,
        Self::PositionAfterXid,
        Self::XidAfterPosition,
        Self::LockInSameStatement,
        Self::GateByGeneration,
        Self::NoSecondGate,
        Self::WritersNotExcluded,
        Self::ClaimSkipsPruned,
        Self::FrontierForgotten,
        Self::SpentPastSettled,
        Self::WindowBeforeCommit,
        Self::LaneLockForgotten,
        Self::CutoffFlipped,
        Self::CarryForgetsDelta,
        Self::CarriesCancelled,
        Self::CarriesNarrow,
        Self::ClosesTwice,
        Self::HostClock,
    ];

    /// The order in which a flush runs: places in `steps`.
    #[must_use]
    pub fn order(self, steps: &[Step]) -> Vec<usize> {
        let (mut order, mut late) = (Vec::new(), Vec::new());
        for (place, step) in steps.iter().enumerate() {
            let put_off = self == Self::PositionAfterXid && *step == Step::ReadPosition;
            if put_off { late.push(place) } else { order.push(place) }
        }
        order.extend(late);
        order
    }

    /// What a step is answered with where it isn't run. `shut` says whether the transaction has
    /// shut anyone out yet.
    #[must_use]
    pub fn answers(self, step: &Step, shut: bool) -> Option<Reply> {
        let blind = matches!(step, Step::Probe { gate } if *gate != Gate::PinnedHorizon);
        let lock = match self {
            Self::NoSecondGate if shut && blind => return Some(Reply::Probed { held_by: None }),
            Self::WritersNotExcluded => matches!(step, Step::ExcludeWriters { .. }),
            Self::LaneLockForgotten => matches!(step, Step::LockLane { .. }),
            _ => false,
        };
        lock.then_some(Reply::Locked)
    }
}
