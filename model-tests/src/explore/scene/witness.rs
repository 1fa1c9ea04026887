//! What runs of a scene must show somewhere, lest they prove nothing.

use awa_core::machine::read::ObserveRing;
use awa_core::{ClaimedJob, JobId, Location, Reply, Ring, RingView, Slot, SlotState, Step};

use super::judge::ONLOOKER;
use super::{Doing, Errand, State};
use crate::drive::run;
use crate::explore::Witness;
use crate::ledger;
use crate::world::{Applied, World};

/// A position is claimed after a later one of its lane: it became visible late.
pub const LATE: Witness<State> = ("a job is claimed after a later one", |before, after| {
    new_in_hand(before, after).any(|new| {
        let own = lane(after, new);
        before.hand.iter().any(|old| old.receipt.job > new.receipt.job && lane(after, old) == own)
    })
});

/// A claim stops at its limit.
pub const LIMITED: Witness<State> = ("a claim stops at its limit", |_, after| {
    after.actors.iter().flat_map(|actor| &actor.windows).any(|window| window.frontier.is_some())
});

/// A claimer knows that it need not look back to the first position.
pub const KNOWS: Witness<State> = ("a window has a bound", |_, after| {
    let mut windows = after.actors.iter().flat_map(|actor| &actor.windows);
    windows.any(|window| window.seen.as_ref().is_some_and(|seen| window.low(seen).0 > 0))
});

/// A producer aborts after it drew a position.
pub const ABORTED: Witness<State> = ("a producer aborts with a row inserted", |before, after| {
    both(before, after).any(|(was, is)| {
        matches!(was, Doing::Producing(progress) if !progress.put.is_empty())
            && *is == Doing::Nothing
            && before.jobs == after.jobs
    })
});

/// A claimer waits for another's lane.
pub const LANE_BUSY: Witness<State> = ("a claimer waits for the lane", |_, after| {
    after.actors.iter().any(|actor| match &actor.doing {
        Doing::Running(errand, _) => matches!(errand.next_step(), Some(Step::LockLane { .. })),
        Doing::Nothing | Doing::Producing(_) | Doing::Unconfirmed(..) => false,
    })
});

/// A poll that found nothing moves its window.
pub const POLL_MOVES: Witness<State> = ("a poll moves a window", |before, after| {
    before.actors.iter().zip(&after.actors).any(|(was, is)| {
        matches!(was.doing, Doing::Running(Errand::Poll(_), _)) && was.windows != is.windows
    })
});

/// A backend dies with a claim that was not committed.
pub const CLAIM_CRASHES: Witness<State> = ("a claim dies before its COMMIT", |before, after| {
    let crashed = before.crashes_left > after.crashes_left && before.hand == after.hand;
    crashed && ended(before, after, |errand| matches!(errand, Errand::Claim(_)))
});

/// A claim's COMMIT comes through, and its process doesn't hear of it.
pub const UNHEARD: Witness<State> = ("a claim is committed unheard", |before, after| {
    before.crashes_left > after.crashes_left && before.hand.len() < after.hand.len()
});

/// A prune dies with everyone shut out.
pub const PRUNE_CRASHES: Witness<State> = ("a prune dies before its COMMIT", |before, after| {
    let crashed = before.crashes_left > after.crashes_left;
    let late = before.actors.iter().any(|actor| match &actor.doing {
        Doing::Running(errand, _) => matches!(errand.next_step(), Some(Step::MarkPruned { .. })),
        Doing::Nothing | Doing::Producing(_) | Doing::Unconfirmed(..) => false,
    });
    crashed && late && ended(before, after, |errand| matches!(errand, Errand::Prune(_)))
});

/// A prune empties a slot.
pub const PRUNED: Witness<State> = ("a prune empties a slot", |before, after| {
    ended(before, after, |errand| matches!(errand, Errand::Prune(_)))
        && pruned(after).len() > pruned(before).len()
});

/// A prune leaves its slot alone.
pub const PRUNE_REFUSED: Witness<State> = ("a prune leaves its slot alone", |before, after| {
    ended(before, after, |errand| matches!(errand, Errand::Prune(_)))
        && before.crashes_left == after.crashes_left
        && pruned(after).len() == pruned(before).len()
});

/// A slot of the claim ring is emptied.
pub const CLAIMS_PRUNED: Witness<State> = ("a prune empties a slot of claims", |before, after| {
    let pruned = |state| ring(state, Ring::Claim).pruned_count();
    ended(before, after, |errand| matches!(errand, Errand::Prune(_)))
        && pruned(after) > pruned(before)
});

/// A producer that looked long ago commits a row in a slot that was pruned meanwhile.
pub const STALE_ROW: Witness<State> = ("a row comes to lie in a pruned slot", |before, after| {
    let new = after.jobs.iter().filter(|job| !before.jobs.contains(job));
    let pruned = pruned(after);
    new.into_iter().any(|(job, _)| slot_of(after, *job).is_some_and(|slot| pruned.contains(&slot)))
});

/// A prune carries a failure.
pub const CARRIED: Witness<State> = ("a failure survives a prune", |before, after| {
    (PRUNED.1)(before, after) && !after.in_state(ledger::State::Failed, None).is_empty()
});

/// A failed job is retried.
pub const RETRIED: Witness<State> = ("a failed job is retried", |before, after| {
    ended(before, after, |errand| matches!(errand, Errand::Retry(_)))
        && before.in_state(ledger::State::Failed, None)
            != after.in_state(ledger::State::Failed, None)
});

/// A job is claimed for the second time.
pub const CLAIMED_AGAIN: Witness<State> =
    ("a job is claimed again", |_, after| after.hand.iter().any(|job| job.receipt.run_lease.0 > 1));

/// A deferred job is promoted.
pub const PROMOTED: Witness<State> = ("a deferred job is promoted", |before, after| {
    ended(before, after, |errand| matches!(errand, Errand::Promote(_)))
        && before.available(1) != after.available(1)
});

/// A job ends well.
pub const COMPLETED: Witness<State> =
    ("a job is completed", |_, after| !after.in_state(ledger::State::Completed, None).is_empty());

/// A job ends badly.
pub const FAILED: Witness<State> =
    ("a job fails", |_, after| !after.in_state(ledger::State::Failed, None).is_empty());

/// A job is to be tried again.
pub const RETRYABLE: Witness<State> = ("a job waits for its next attempt", |_, after| {
    !after.in_state(ledger::State::Retryable, None).is_empty()
});

/// A job is cancelled.
pub const CANCELLED: Witness<State> =
    ("a job is cancelled", |_, after| !after.in_state(ledger::State::Cancelled, None).is_empty());

/// A cancel comes too late.
pub const CANCEL_REFUSED: Witness<State> = ("a cancel finds its job claimed", |before, after| {
    ended(before, after, |errand| matches!(errand, Errand::Cancel(_)))
        && after.in_state(ledger::State::Cancelled, None).is_empty()
        && !after.hand.is_empty()
});

/// A failover takes a commit back.
pub const FORGOTTEN: Witness<State> = ("a failover takes a commit back", |before, after| {
    after.jobs.len() < before.jobs.len() || after.hand.is_empty() && !before.hand.is_empty()
});

/// The deltas of a slot are folded.
pub const ROLLED_UP: Witness<State> = ("a slot's deltas are folded", |before, after| {
    ended(before, after, |errand| matches!(errand, Errand::Rollup(_)))
        && with_deltas(before).len() > with_deltas(after).len()
});

fn both<'a>(before: &'a State, after: &'a State) -> impl Iterator<Item = (&'a Doing, &'a Doing)> {
    before.actors.iter().zip(&after.actors).map(|(was, is)| (&was.doing, &is.doing))
}

/// Whether a machine of this kind came to its end, or died.
fn ended(before: &State, after: &State, kind: fn(&Errand) -> bool) -> bool {
    both(before, after)
        .any(|(was, is)| matches!(was, Doing::Running(e, _) if kind(e)) && *is == Doing::Nothing)
}

fn new_in_hand<'a>(
    before: &'a State,
    after: &'a State,
) -> impl Iterator<Item = &'a ClaimedJob> + 'a {
    after.hand.iter().filter(|job| !before.hand.contains(job))
}

fn lane(state: &State, job: &ClaimedJob) -> Option<awa_core::LaneId> {
    state.jobs.iter().find(|(id, _)| *id == job.receipt.job).map(|(_, lane)| *lane)
}

fn ring(state: &State, ring: Ring) -> RingView {
    match run(&mut state.committed(), ONLOOKER, ObserveRing { ring }) {
        Ok(Ok(view)) => view,
        other => panic!("the {ring} ring is observed as {other:?}"),
    }
}

fn pruned(state: &State) -> Vec<Slot> {
    let slots = ring(state, Ring::Queue).slots;
    slots.into_iter().filter(|s| s.state == SlotState::Pruned).map(|s| s.slot).collect()
}

fn read(state: &State, step: &Step) -> Reply {
    let mut world: World = state.committed();
    world.begin(ONLOOKER);
    match world.apply(ONLOOKER, step) {
        Applied::Reply(reply) => reply,
        other => panic!("«{step}» is answered with {other:?}"),
    }
}

fn slot_of(state: &State, job: JobId) -> Option<Slot> {
    match read(state, &Step::LocateJob { job }) {
        Reply::Located(Some(Location::Ready(at))) => Some(at.slot),
        _ => None,
    }
}

fn with_deltas(state: &State) -> Vec<Slot> {
    match read(state, &Step::FindDeltas) {
        Reply::SlotsFound(slots) => slots,
        other => panic!("deltas are found as {other:?}"),
    }
}
