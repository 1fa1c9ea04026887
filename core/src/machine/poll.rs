//! A worker that waits looks at all its lanes in one statement (H43).

use alloc::vec::Vec;

use super::replies::one_step;
use crate::ids::LaneId;
use crate::step::Step;
use crate::visibility::{Snapshot, Window};

/// What a poll saw.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Polled {
    /// The snapshot of the statement. In it, a lane that was polled and isn't `holding` has nothing
    /// unclaimed: its window may move there.
    pub seen: Snapshot,
    /// The lanes that hold something to claim, ascending.
    pub holding: Vec<LaneId>,
}

one_step! {
    /// Asks which lanes hold an unclaimed job above their window's low bound. Reads only, and is given
    /// no transaction id.
    pub struct PollLanes {
        /// The lanes, each with what is known of it.
        pub lanes: Vec<(LaneId, Window)>,
    }
    asks |m| Step::PollLanes { lanes: m.lanes.clone() };
    reads |r| {
        let (seen, holding) = r.polled("PollLanes")?;
        Polled { seen, holding }
    } => Polled;
}
