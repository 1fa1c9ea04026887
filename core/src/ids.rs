//! Numbers that name things. Each is a type of its own, so that a receipt can't be passed for a job.

use core::fmt;

use crate::fault::{Field, UserError};
use crate::job::in_range;
use crate::limits::CLAIM_ROWS_MAX;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty) $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        #[cfg_attr(feature = "serde", serde(transparent))]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

id! {
    /// A job, for its whole life: through retries, promotions and carries.
    JobId(i64) "job "
}
id! {
    /// A lane: one (queue, priority, shard). Jobs of a lane are claimed in lane order.
    LaneId(i64) "lane "
}
id! {
    /// A job's place in its lane. Drawn from one sequence that all lanes share and that never
    /// resets, so a gap means nothing: another lane, an abort or a crash took the number.
    LaneSeq(i64) "@"
}
id! {
    /// Which turn of the ring a slot is in. Grows by one each time any slot of the ring opens.
    Generation(i64) "g"
}
id! {
    /// One claim of up to [`crate::limits::CLAIM_ROWS_MAX`] jobs. Equal to the receipt id of its first job.
    BatchId(i64) "batch "
}
id! {
    /// One attempt's claim (`R026-06`): the batch's id plus the zero-based place in the batch.
    ReceiptId(i64) "receipt "
}
id! {
    /// Counts a job's claims; never goes back, also through retries (H52).
    RunLease(i64) "lease "
}
id! {
    /// Counts a job's attempts since it was last enqueued or retried; 0 before the first claim.
    Attempt(i16) "attempt "
}
id! {
    /// 1 is the most urgent, [`crate::limits::PRIORITY_MAX`] the least.
    Priority(i16) "p"
}
id! {
    /// Which of a queue's parallel lanes of one priority (`enqueue_shards`, `R026-31`).
    Shard(i16) "s"
}
id! {
    /// A transaction's id as PostgreSQL's 64-bit `xid8` counts it.
    Xid(u64) "xid "
}
id! {
    /// Spreads a counter over rows (`R026-22`); see [`crate::rules::counter_bucket`].
    Bucket(i16) "bucket "
}

/// A job's place in its claim's batch, from 1 to [`CLAIM_ROWS_MAX`]: one beyond would name a receipt of
/// another batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct Place(u16);

impl Place {
    /// The one-based `place`.
    ///
    /// # Errors
    /// Out of range.
    pub fn new(place: i64) -> Result<Self, UserError> {
        in_range(Field::Place, place, 1, CLAIM_ROWS_MAX.into()).map(|place| Self(place as u16))
    }

    /// The number, from 1.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl ReceiptId {
    /// The receipt of the job at `place` of `batch`.
    #[must_use]
    pub const fn of(batch: BatchId, place: Place) -> Self {
        Self(batch.0 + place.0 as i64 - 1)
    }
}
