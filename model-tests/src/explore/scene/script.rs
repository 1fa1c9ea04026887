//! Who does what, and what goes wrong: the parts of a scene that don't change.

use awa_core::rules::Floor;
use awa_core::{JobId, Ring, Slot, Span};

use super::{Enqueue, State};
use crate::explore::Witness;
use crate::world::{Mutation, Patience};

/// What an actor does in one go; a transaction, or a few.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Task {
    /// A producer's transaction.
    Enqueue(Enqueue),
    /// One claim of a lane, of at most so many jobs, with a deadline or without.
    Claim {
        /// Which lane.
        lane: i64,
        /// At most so many jobs.
        limit: i64,
        /// Until when attempts must end.
        deadline: Option<Span>,
    },
    /// B7: a claim that looks only past the last position that this actor took, and leaves what it
    /// knows as it is. Nothing is lost by it, but order is.
    ClaimFromCursor {
        /// Which lane.
        lane: i64,
    },
    /// Looks whether the lane holds anything, as an idle worker does, and moves the window there if
    /// it doesn't.
    Poll {
        /// Which lane.
        lane: i64,
    },
    /// Ends every attempt that any claimer has in hand so. It can't begin before there is one.
    Close(How),
    /// Rotates the ring.
    Rotate(Ring),
    /// Prunes the ring's oldest sealed slot, keeping failures for the scene's floor.
    Prune(Ring),
    /// Folds the deltas of a slot.
    Rollup(Slot),
    /// Promotes deferred jobs that are due.
    Promote,
    /// Retries the queue's failed jobs.
    Retry,
    /// Cancels a job.
    Cancel(JobId),
    /// Ends overdue attempts.
    Rescue,
    /// Time passes.
    Wait(Span),
    /// A standby has replayed all that is committed now.
    Replicate,
    /// The standby takes over: what it didn't replay is gone, and every connection broken.
    FailOver,
}

impl Task {
    /// A producer's transaction with a job for each of these lanes.
    #[must_use]
    pub const fn enqueue(lanes: &'static [i64]) -> Self {
        Self::Enqueue(Enqueue::of(lanes))
    }

    /// A claim of at most `limit` jobs of `lane`, without a deadline.
    #[must_use]
    pub const fn claim(lane: i64, limit: i64) -> Self {
        Self::Claim { lane, limit, deadline: None }
    }
}

/// How attempts end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum How {
    /// Well.
    Completed,
    /// For good.
    Failed,
    /// To be tried again at once.
    Retried,
    /// Their worker stopped.
    HandedBack,
}

/// Ways of being wrong that lie with whoever calls the machines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Twist {
    /// None.
    #[default]
    None,
    /// B3: claims begin behind the last position taken, and never look back.
    CursorOnly,
    /// Evidence covers what lies between two claimed positions, settled or not.
    CoversUnsettled,
    /// A poll moves the window of a lane that holds something.
    PollForgets,
    /// B2: a producer keeps a position for its next transaction, as a sequence's cache would.
    PositionKept,
    /// B10: prune shuts nobody out; only `TRUNCATE` itself waits for who is there.
    NobodyShutOut,
    /// Prune shuts everyone out of the claims before it does so of the ready rows, against the order
    /// in which claims lock.
    ShutsClaimsFirst,
    /// B12: a window outlives the connection that it was made on.
    WindowOutlivesConnection,
}

/// A part of what has happened before runs begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Opening {
    /// This actor made so many acts.
    Acts(u8, u8),
    /// This actor ended so many tasks of its script.
    Tasks(u8, u8),
}

/// A model: who does what, with what going wrong.
#[derive(Clone, Debug)]
pub struct Scene {
    /// Scripts, an actor each; the session's number is the actor's.
    pub actors: Vec<Vec<Task>>,
    /// Backends that may die, or COMMITs whose confirmation may be lost, in one run.
    pub crashes: u8,
    /// Slots of the queue ring and of the claim ring.
    pub slots: (i32, i32),
    /// How long failures are kept.
    pub floor: Floor,
    /// Whether the Ledger and the last claims judge alone, without the World's invariants and a look
    /// at every window: what was passed over is then found missing in the end.
    pub ledger_only: bool,
    /// Whether counts and whole jobs are compared with the Ledger after every transaction.
    pub books: bool,
    /// What bounded lock requests do.
    pub patience: Patience,
    /// What has happened when runs begin, one after the other and undisturbed.
    pub prologue: Vec<Opening>,
    /// What is wrong with the engine.
    pub mutation: Mutation,
    /// What is wrong with its callers.
    pub twist: Twist,
    /// What some transition must show.
    pub witnesses: Vec<Witness<State>>,
}

impl Default for Scene {
    fn default() -> Self {
        Self {
            actors: Vec::new(),
            crashes: 0,
            slots: (2, 1),
            floor: Floor::new(Span::ZERO),
            ledger_only: false,
            books: false,
            patience: Patience::None,
            prologue: Vec::new(),
            mutation: Mutation::None,
            twist: Twist::None,
            witnesses: Vec::new(),
        }
    }
}
