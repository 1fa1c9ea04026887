//! The replies to one flush, read in the order of its steps: the only place that knows what to do
//! with a reply that doesn't fit. A refusal ends the machine, anything unexpected is a fault.

use alloc::format;
use alloc::string::ToString;
use alloc::vec::{IntoIter, Vec};

use super::Turn;
use crate::fault::Fault;
use crate::ids::{JobId, LaneId, LaneSeq, ReceiptId, Xid};
use crate::job::{
    JobRow, Lane, Location, OverdueAttempt, QueueCounts, SlotLoad, TerminalRef, TerminalSurvey,
};
use crate::reply::{Claimed, Refusal, Reply};
use crate::ring::{Ring, RingView, Segment, Slot, SlotState};
use crate::step::{Gate, Step};
use crate::time::Instant;
use crate::visibility::Snapshot;

/// Why reading stopped before its end.
#[derive(Debug)]
pub(crate) enum Stop {
    /// A step was refused; the transaction is undone.
    Refused(Refusal),
    /// A reply or the books are wrong.
    Fault(Fault),
}

impl Stop {
    /// The turn that ends the machine, with the outcome that `refused` makes of a refusal.
    pub(crate) fn turn<O>(self, refused: impl FnOnce(Refusal) -> O) -> Turn<O> {
        match self {
            Self::Refused(refusal) => Turn::Rollback(refused(refusal)),
            Self::Fault(fault) => Turn::Bug(fault),
        }
    }
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// Fails unless two readings of one thing agree.
pub(crate) fn balance(what: &'static str, expected: i64, found: i64) -> Result<(), Fault> {
    if expected == found { Ok(()) } else { Err(Fault::Unbalanced { what, expected, found }) }
}

/// Fails for a count below zero: it is reported, not clamped (law 12).
pub(crate) fn counted(what: &'static str, value: i64) -> Result<(), Fault> {
    if value < 0 { Err(Fault::Negative { what, value }) } else { Ok(()) }
}

/// The sum of counts that were found not to be negative; one that no `i64` holds is a fault too.
pub(crate) fn sum(what: &'static str, a: i64, b: i64) -> Result<i64, Fault> {
    a.checked_add(b).ok_or(Fault::Unbalanced { what, expected: a, found: b })
}

/// How many items there are, as counts are written.
pub(crate) fn len<T>(items: &[T]) -> i64 {
    // A vector's length is at most isize::MAX.
    items.len() as i64
}

/// What keeps a slot: the gate that was found held, and the first thing that holds it.
pub(crate) type Held = Option<(Gate, i64)>;

/// The steps that probe `gates`, in order. Their replies are read by [`Replies::first_held`].
pub(crate) fn probes(gates: &[Gate]) -> impl Iterator<Item = Step> {
    gates.iter().map(|gate| Step::Probe { gate: *gate })
}

/// Replies that have not been read yet.
pub(crate) struct Replies(IntoIter<Reply>);

impl Replies {
    /// Gives `replies` to `reader`, which must read all of them. A machine that stops for what one
    /// reply says reads the others first, so that a refusal behind it is not overlooked.
    pub(crate) fn read<T>(
        replies: Vec<Reply>,
        reader: impl FnOnce(&mut Self) -> Result<T, Stop>,
    ) -> Result<T, Stop> {
        let mut unread = Self(replies.into_iter());
        let read = reader(&mut unread)?;
        match unread.0.next() {
            None => Ok(read),
            Some(extra) => Err(unexpected("no step", Some(&extra))),
        }
    }

    /// The fault of being resumed when nothing was asked.
    pub(crate) fn unasked(&mut self) -> Stop {
        unexpected("no step", self.0.next().as_ref())
    }

    fn next(&mut self, step: &'static str) -> Result<Reply, Stop> {
        let Some(reply) = self.0.next() else { return Err(unexpected(step, None)) };
        if let Reply::Refused(refusal) = reply {
            Err(Stop::Refused(refusal))
        } else if let Reply::BodyMissing { job } = reply {
            Err(Stop::Fault(Fault::JobBodyMissing { job }))
        } else {
            Ok(reply)
        }
    }

    /// The reply to `ObserveRing`: a view of the ring that was asked for, in which the cursor and
    /// the slots agree on what is open.
    pub(crate) fn ring(&mut self, ring: Ring) -> Result<RingView, Stop> {
        let view = self.ring_observed("ObserveRing")?;
        if view.ring != ring {
            return Err(unexpected("ObserveRing", Some(&Reply::RingObserved(view))));
        }
        let is_open = |s: &&crate::ring::SlotView| s.state == SlotState::Open;
        let at_cursor = view.slots.iter().filter(|s| s.segment() == view.current);
        balance("slots open at the ring's cursor", 1, at_cursor.filter(is_open).count() as i64)?;
        balance("open slots of the ring", 1, view.slots.iter().filter(is_open).count() as i64)?;
        Ok(view)
    }

    /// The replies to [`probes`] of `gates`: the first that is held, after all were read.
    pub(crate) fn first_held(&mut self, gates: &[Gate]) -> Result<Held, Stop> {
        let mut first = None;
        for gate in gates {
            let held_by = self.probed(gate.step_name())?;
            first = first.or(held_by.map(|witness| (*gate, witness)));
        }
        Ok(first)
    }
}

fn unexpected(step: &str, reply: Option<&Reply>) -> Stop {
    let reply = reply.map_or_else(|| "nothing".to_string(), |r| format!("{r:?}"));
    Stop::Fault(Fault::UnexpectedReply { step: step.to_string(), reply })
}

/// One reader for each reply: it gives what the reply holds, and takes no other reply.
macro_rules! readers {
    ($($reader:ident: $pattern:pat => $value:expr, $type:ty;)+) => {
        // Each is named and described as the reply that it reads.
        impl Replies {
            $(pub(crate) fn $reader(&mut self, step: &'static str) -> Result<$type, Stop> {
                let reply = self.next(step)?;
                let $pattern = reply else { return Err(unexpected(step, Some(&reply))) };
                Ok($value)
            })+
        }
    };
}

readers! {
    locked: Reply::Locked => (), ();
    ring_observed: Reply::RingObserved(view) => view, RingView;
    probed: Reply::Probed { held_by } => held_by, Option<i64>;
    claims_counted: Reply::ClaimsCounted { claims } => claims, i64;
    surveyed: Reply::Surveyed(survey) => survey, TerminalSurvey;
    carried: Reply::Carried { rows, deltas } => (rows, deltas), (i64, i64);
    folded: Reply::Folded { other, failed } => (other, failed), (i64, i64);
    truncated: Reply::Truncated => (), ();
    marked: Reply::Marked => (), ();
    loads_observed: Reply::LoadsObserved(loads) => loads, Vec<SlotLoad>;
    slots_found: Reply::SlotsFound(slots) => slots, Vec<Slot>;
    deltas_folded: Reply::DeltasFolded { rows, sum } => (rows, sum), (i64, i64);
    rebuilt: Reply::Rebuilt { rows, sum } => (rows, sum), (i64, i64);
    queue_counted: Reply::Counted(counts) => counts, Option<QueueCounts>;
    pruned_failed: Reply::PrunedFailed(count) => count, Option<i64>;
    lanes_found: Reply::LanesFound(lanes) => lanes, Vec<Lane>;
    enqueued: Reply::Enqueued(jobs) => jobs, Vec<JobId>;
    cursor_read: Reply::CursorRead(segment) => segment, Segment;
    copied: Reply::Copied(rows) => rows, u64;
    promoted: Reply::Promoted(jobs) => jobs, Vec<(JobId, LaneId)>;
    next_due: Reply::NextDue { now, due } => (now, due), (Instant, Option<Instant>);
    woken: Reply::Woken => (), ();
    position_read: Reply::PositionRead(position) => position, LaneSeq;
    claimed: Reply::Claimed(claimed) => claimed, Claimed;
    own_xid: Reply::OwnXid(xid) => xid, Option<Xid>;
    polled: Reply::Polled { seen, holding } => (seen, holding), (Snapshot, Vec<LaneId>);
    overdue: Reply::Overdue(attempts) => attempts, Vec<OverdueAttempt>;
    closed: Reply::Closed(receipts) => receipts, Vec<ReceiptId>;
    located: Reply::Located(location) => location, Option<Location>;
    matched: Reply::Matched(rows) => rows, Vec<TerminalRef>;
    moved: Reply::Moved(jobs) => jobs, Vec<(JobId, LaneId)>;
    job_loaded: Reply::JobLoaded(job) => job, Option<JobRow>;
    jobs_listed: Reply::JobsListed(jobs) => jobs, Vec<JobRow>;
}

/// A machine of one step whose reply is its outcome.
macro_rules! one_step {
    (
        $(#[$doc:meta])*
        pub struct $name:ident { $($(#[$field_doc:meta])* $vis:vis $field:ident: $type:ty,)* }
        asks |$asker:ident| $step:expr;
        reads |$replies:ident| $read:expr => $answer:ty;
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        pub struct $name { $($(#[$field_doc])* $vis $field: $type,)* }

        impl $crate::machine::Machine for $name {
            type Outcome = Result<$answer, $crate::reply::Refusal>;

            fn start(&mut self) -> $crate::machine::Turn<Self::Outcome> {
                let $asker = &*self;
                $crate::machine::Turn::Last(alloc::vec![$step])
            }

            fn resume(
                &mut self,
                replies: alloc::vec::Vec<$crate::reply::Reply>,
            ) -> $crate::machine::Turn<Self::Outcome> {
                $crate::machine::replies::Replies::read(replies, |$replies| {
                    Ok($crate::machine::Turn::Commit(Ok($read)))
                })
                .unwrap_or_else(|stop| stop.turn(Err))
            }
        }
    };
}
pub(crate) use one_step;
