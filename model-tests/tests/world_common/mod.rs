//! A small installation and the words to move it.
#![allow(dead_code, clippy::unwrap_used)]

use awa_core::machine::claim::{Claim, ClaimOutcome};
use awa_core::machine::close::{Close, Finished};
use awa_core::machine::enqueue::Enqueue;
use awa_core::machine::prune::{Prune, PruneOutcome};
use awa_core::machine::rotate::{Rotate, RotateOutcome};
use awa_core::rules::Floor;
use awa_core::{
    ClaimedJob, JobId, Kind, LaneId, Machine, NewJob, QueueName, Reply, Ring, Slot, Span, Step,
    Window,
};
use awa_model_tests::drive::{Driving, Progress, run};
use awa_model_tests::world::{Applied, SessionId, World};

pub(crate) const A: SessionId = SessionId(1);
pub(crate) const B: SessionId = SessionId(2);
pub(crate) const C: SessionId = SessionId(3);
pub(crate) const LANE: LaneId = LaneId(1);
pub(crate) const OTHER: LaneId = LaneId(2);

pub(crate) fn queue() -> QueueName {
    QueueName::new("mail").unwrap()
}

/// Three slots a ring, one queue; lane 1 is of priority 1, lane 2 of priority 2, and so on.
pub(crate) fn world() -> World {
    let mut w = World::new(3, 2, 2);
    alone(&mut w, A, &Step::DeclareQueue { queue: queue(), shards: 1 });
    w
}

pub(crate) fn job() -> NewJob {
    job_of(LANE, r#"{"to":"x"}"#)
}

pub(crate) fn job_of(lane: LaneId, args: &str) -> NewJob {
    NewJob::new(lane, Kind::new("send").unwrap(), args.to_owned(), 3, None).unwrap()
}

/// The step in a transaction of its own.
pub(crate) fn alone(w: &mut World, s: SessionId, step: &Step) -> Reply {
    w.begin(s);
    let reply = say(w, s, step);
    if let Reply::Refused(_) = reply {
        w.rollback(s)
    } else {
        w.commit(s)
    }
    reply
}

/// The step in the session's transaction, which must not wait.
pub(crate) fn say(w: &mut World, s: SessionId, step: &Step) -> Reply {
    match w.apply(s, step) {
        Applied::Reply(reply) => reply,
        stopped => panic!("{step}: {stopped:?}"),
    }
}

pub(crate) fn waits(w: &mut World, s: SessionId, step: &Step) -> Vec<SessionId> {
    match w.apply(s, step) {
        Applied::Waits { on } => on,
        ran => panic!("{step}: {ran:?}"),
    }
}

pub(crate) fn enqueue(w: &mut World, n: usize) -> Vec<JobId> {
    run(w, A, Enqueue::new(vec![job(); n]).unwrap()).unwrap().unwrap().jobs
}

pub(crate) fn claim_machine(window: Window, limit: i64) -> Claim {
    Claim::new(LANE, window, limit, 1 << 20, None).unwrap()
}

/// The jobs and the next window.
pub(crate) fn took(outcome: ClaimOutcome) -> (Vec<ClaimedJob>, Window) {
    match outcome {
        ClaimOutcome::Claimed { jobs, window, .. } => (jobs, window),
        ClaimOutcome::Refused { .. } => panic!("{outcome:?}"),
    }
}

pub(crate) fn claim(w: &mut World, window: Window, limit: i64) -> (Vec<ClaimedJob>, Window) {
    took(run(w, C, claim_machine(window, limit)).unwrap())
}

pub(crate) fn claim_all(w: &mut World) -> Vec<ClaimedJob> {
    claim(w, Window::default(), 100).0
}

pub(crate) fn ids(jobs: &[ClaimedJob]) -> Vec<i64> {
    jobs.iter().map(|j| j.receipt.job.0).collect()
}

pub(crate) fn complete(w: &mut World, jobs: &[ClaimedJob]) -> usize {
    let receipts = jobs.iter().map(|j| j.receipt).collect();
    run(w, C, Close::compact(receipts)).unwrap().unwrap().closed.len()
}

pub(crate) fn fail(w: &mut World, job: &ClaimedJob) -> usize {
    let exits = vec![awa_core::Exit {
        receipt: job.receipt,
        ending: Finished::failed_for_good(job, b"boom").ending,
    }];
    run(w, C, Close::general(exits)).unwrap().unwrap().closed.len()
}

pub(crate) fn rotate(w: &mut World, ring: Ring) -> RotateOutcome {
    run(w, B, Rotate::ring(ring)).unwrap().unwrap()
}

pub(crate) fn floor(secs: u64) -> Floor {
    Floor::new(Span::from_secs(secs))
}

pub(crate) fn prune(w: &mut World, ring: Ring, floor: Floor) -> PruneOutcome {
    run(w, B, Prune::oldest(ring, floor)).unwrap().unwrap()
}

/// Steps until the machine's next statement is called `name`.
pub(crate) fn until<M: Machine>(w: &mut World, d: &mut Driving<M>, name: &str) {
    for _ in 0..100 {
        if d.next_step().is_some_and(|step| step.name() == name) {
            return;
        }
        match d.step(w) {
            Progress::Stepped => {}
            Progress::Waits { on } => panic!("waits for {on:?} before {name}"),
            Progress::Done(_) | Progress::Failed(_) => panic!("over before {name}"),
        }
    }
    panic!("never comes to {name}");
}

/// Steps to the machine's end.
pub(crate) fn finish<M: Machine>(w: &mut World, d: &mut Driving<M>) -> M::Outcome
where
    M::Outcome: std::fmt::Debug,
{
    loop {
        match d.step(w) {
            Progress::Stepped => {}
            Progress::Done(outcome) => return outcome,
            stopped => panic!("{stopped:?}"),
        }
    }
}

/// The dump's lines of one table.
pub(crate) fn rows(w: &World, table: &str) -> Vec<String> {
    let of = format!("{table}: ");
    w.dump().lines().filter_map(|l| l.strip_prefix(&of)).map(str::to_owned).collect()
}

pub(crate) fn slot(number: i32) -> Slot {
    Slot(number)
}
