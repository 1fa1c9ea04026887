//! Queues and their lanes: made once, looked up before jobs are enqueued or claimed.

use alloc::string::ToString;
use alloc::vec::Vec;

use super::replies::one_step;
use crate::fault::{Field, UserError};
use crate::ids::{LaneId, Priority, Shard};
use crate::job::{Lane, in_range};
use crate::limits::{PRIORITY_MAX, SHARDS_MAX};
use crate::names::QueueName;
use crate::step::Step;

one_step! {
    /// Makes the lanes of a queue that are missing, and gives all of them.
    pub struct DeclareQueue {
        queue: QueueName,
        shards: i16,
    }
    asks |m| Step::DeclareQueue { queue: m.queue.clone(), shards: m.shards };
    reads |r| r.lanes_found("DeclareQueue")? => Vec<Lane>;
}

impl DeclareQueue {
    /// A queue with `shards` parallel lanes of each priority (`R026-31`: 1 keeps strict order).
    ///
    /// # Errors
    /// `shards` lies outside 1 to [`SHARDS_MAX`].
    pub fn new(queue: QueueName, shards: i64) -> Result<Self, UserError> {
        let shards = in_range(Field::Shards, shards, 1, SHARDS_MAX.into())? as i16;
        Ok(Self { queue, shards })
    }
}

one_step! {
    /// The lanes of a queue; none if it was never declared.
    pub struct FindLanes {
        /// The queue.
        pub queue: QueueName,
    }
    asks |m| Step::FindLanes { queue: m.queue.clone() };
    reads |r| r.lanes_found("FindLanes")? => Vec<Lane>;
}

/// The lane of a job in `queue`, whose lanes are `lanes`.
///
/// # Errors
/// The priority lies outside 1 to [`PRIORITY_MAX`]; the queue was never declared, or has no such
/// shard.
pub fn lane_of(
    queue: &QueueName,
    lanes: &[Lane],
    priority: i64,
    shard: Shard,
) -> Result<LaneId, UserError> {
    let priority = Priority(in_range(Field::Priority, priority, 1, PRIORITY_MAX.into())? as i16);
    if lanes.is_empty() {
        return Err(UserError::UnknownQueue { queue: queue.to_string() });
    }
    let found = lanes.iter().find(|l| l.priority == priority && l.shard == shard);
    found
        .map(|l| l.lane)
        .ok_or_else(|| UserError::UnknownShard { queue: queue.to_string(), shard: shard.0 })
}
