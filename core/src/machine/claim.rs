//! A worker takes jobs of one lane.

use alloc::vec;
use alloc::vec::Vec;

use super::replies::{Replies, Stop, balance};
use super::{Machine, Turn};
use crate::fault::{Field, UserError};
use crate::ids::LaneId;
use crate::job::{ClaimedJob, in_range};
use crate::limits::{CLAIM_BYTES_MAX, CLAIM_ROWS_MAX};
use crate::reply::{Refusal, Reply};
use crate::step::Step;
use crate::time::{Instant, Span};
use crate::visibility::{Sample, Window};

/// One claim of a lane: a transaction of one flush.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Claim {
    lane: LaneId,
    window: Window,
    limit: u16,
    bytes_max: i64,
    deadline: Option<Span>,
}

/// What a claim did.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ClaimOutcome {
    /// The claim is committed.
    Claimed {
        /// The jobs, in lane order; none if the lane had none.
        jobs: Vec<ClaimedJob>,
        /// What the lane's next claim starts from.
        window: Window,
        /// When the attempts began, on the database's clock.
        attempted_at: Instant,
        /// When they must be over, if they must.
        deadline_at: Option<Instant>,
        /// A bound stopped the claim: the lane may have more.
        bounded: bool,
    },
    /// The claim is undone. The window is the one that came in: PostgreSQL itself said that nothing
    /// of the claim happened, on the same connection and so in the same history, and what the
    /// window tells of claims committed before is as true as it was. Only a connection that broke
    /// takes the window with it; then no machine gives an outcome.
    Refused {
        /// Why.
        refusal: Refusal,
        /// What the lane's next claim starts from.
        window: Window,
    },
}

impl Claim {
    /// Up to `limit` jobs or `bytes_max` bytes of args of `lane`. `window` is what the last claim of
    /// this lane gave, [`Window::default`] after any broken connection. Attempts must end `deadline`
    /// after they began, if there is one.
    ///
    /// # Errors
    /// `limit` outside 1 to [`CLAIM_ROWS_MAX`], `bytes_max` outside 1 to [`CLAIM_BYTES_MAX`].
    pub fn new(
        lane: LaneId,
        window: Window,
        limit: i64,
        bytes_max: i64,
        deadline: Option<Span>,
    ) -> Result<Self, UserError> {
        let limit = in_range(Field::Limit, limit, 1, CLAIM_ROWS_MAX.into())? as u16;
        let bytes_max = in_range(Field::Limit, bytes_max, 1, CLAIM_BYTES_MAX)?;
        Ok(Self { lane, window, limit, bytes_max, deadline })
    }

    fn settle(&self, r: &mut Replies) -> Result<Turn<ClaimOutcome>, Stop> {
        r.locked("LockLane")?;
        let position = r.position_read("ReadPosition")?;
        let claimed = r.claimed("ClaimReady")?;
        let own = r.own_xid("ReadOwnXid")?;
        let last = claimed.last.filter(|_| claimed.bounded);
        // Without the place where the bound struck, the next claim would look past the rows that
        // were left. A claim that may take something takes at least one job.
        balance(
            "last positions of a bounded claim",
            claimed.bounded.into(),
            last.is_some().into(),
        )?;
        let window = if self.window.is_of_another_history(position) {
            Window::default()
        } else {
            // A claim that wrote nothing was given no id, and so saw no position settled.
            let sample = own.map(|xid| Sample { position, xid });
            self.window.clone().after_claim(claimed.seen, last, sample)
        };
        Ok(Turn::Commit(ClaimOutcome::Claimed {
            jobs: claimed.jobs,
            window,
            attempted_at: claimed.attempted_at,
            deadline_at: claimed.deadline_at,
            bounded: claimed.bounded,
        }))
    }
}

impl Machine for Claim {
    type Outcome = ClaimOutcome;

    fn start(&mut self) -> Turn<ClaimOutcome> {
        // The lock is a statement of its own, so that the claim's snapshot is younger than it; the
        // position is read before the transaction has an id (docs/LAWS.md, 5a).
        Turn::Last(vec![
            Step::LockLane { lane: self.lane },
            Step::ReadPosition,
            Step::ClaimReady {
                lane: self.lane,
                window: self.window.clone(),
                limit: self.limit,
                bytes_max: self.bytes_max,
                deadline: self.deadline,
            },
            Step::ReadOwnXid,
        ])
    }

    // The window moves here, after the COMMIT was confirmed, and not before.
    fn resume(&mut self, replies: Vec<Reply>) -> Turn<ClaimOutcome> {
        Replies::read(replies, |r| self.settle(r)).unwrap_or_else(|stop| {
            stop.turn(|refusal| ClaimOutcome::Refused { refusal, window: self.window.clone() })
        })
    }
}
