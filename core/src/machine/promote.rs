//! Deferred jobs whose time has come enter their lanes.

use alloc::vec;
use alloc::vec::Vec;

use super::replies::{Replies, balance, len};
use super::{Machine, Turn};
use crate::fault::{Field, UserError};
use crate::ids::{JobId, LaneId};
use crate::job::in_range;
use crate::limits::MOVE_ROWS_MAX;
use crate::reply::{Refusal, Reply};
use crate::step::Step;
use crate::time::{Instant, Span};

/// Moves due jobs to fresh positions, a piece a transaction. Two of them side by side step over one
/// another's rows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Promote {
    limit: i64,
}

/// What promotion did.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Promoted {
    /// The jobs that entered their lanes, with the lanes.
    pub jobs: Vec<(JobId, LaneId)>,
    /// The database's clock after that.
    pub now: Instant,
    /// When the next deferred job is due; `None` if there is none. Not after `now` where the limit
    /// left due jobs behind, or somebody else is promoting them.
    pub due: Option<Instant>,
}

impl Promoted {
    /// How long there is nothing to promote; `None`: until a job is deferred.
    #[must_use]
    pub fn idle_for(&self) -> Option<Span> {
        self.due.map(|due| due.since(self.now))
    }
}

impl Promote {
    /// Up to `limit` jobs, oldest `run_at` first.
    ///
    /// # Errors
    /// `limit` lies outside 1 to [`MOVE_ROWS_MAX`].
    pub fn new(limit: i64) -> Result<Self, UserError> {
        Ok(Self { limit: in_range(Field::Limit, limit, 1, MOVE_ROWS_MAX)? })
    }
}

impl Machine for Promote {
    type Outcome = Result<Promoted, Refusal>;

    fn start(&mut self) -> Turn<Self::Outcome> {
        Turn::Last(vec![Step::PromoteDue { limit: self.limit }, Step::ReadNextDue])
    }

    fn resume(&mut self, replies: Vec<Reply>) -> Turn<Self::Outcome> {
        Replies::read(replies, |r| {
            let jobs = r.promoted("PromoteDue")?;
            let (now, due) = r.next_due("ReadNextDue")?;
            balance("jobs promoted beyond the limit", 0, (len(&jobs) - self.limit).max(0))?;
            Ok(Turn::Commit(Ok(Promoted { jobs, now, due })))
        })
        .unwrap_or_else(|stop| stop.turn(Err))
    }
}
