//! What is told to the Ledger when a transaction has committed, and what must hold then.

use awa_core::machine::claim::{Claim, ClaimOutcome};
use awa_core::machine::close::{Closed, Path};
use awa_core::machine::prune::PruneOutcome;
use awa_core::machine::read::{CountQueue, LoadJob};
use awa_core::machine::retry::PieceOutcome;
use awa_core::{
    ClaimedJob, JobId, JobRow, JobState, LaneId, LaneSeq, QueueCounts, ReceiptId, Window, limits,
};

use super::produce::{digest, ledger_lane, number};
use super::{Doing, Errand, Finish, How, LANES, Outcome, Scene, State, Task, Twist};
use crate::drive::{Driving, run};
use crate::explore::Broken;
use crate::ledger::{self, Claimed, Counts, Pruned, Retried, Scope, Seen, Violation};
use crate::world::{SessionId, World};

/// The names of the promises that scenes check, beside the World's own
/// [invariants](crate::world::invariant).
pub mod promise {
    /// When all producers have ended, a last full set of claims takes every job once.
    pub const NOTHING_LOST: &str = "NothingLost";
    /// A job is claimed once for each time that it became available.
    pub const CLAIMED_ONCE: &str = "ClaimedOnce";
    /// Within a lane, a job whose enqueue committed before another's began is claimed no later.
    pub const ORDER_PROMISE: &str = "OrderPromise";
    /// What a prune drops is terminal, and past its floor if it failed.
    pub const PRUNE_TAKES_ONLY_DEAD: &str = "PruneTakesOnlyDead";
    /// After carry, fold, retry and all else every job is shown once, as it is, with its body.
    pub const CARRIED_EXACTLY_ONCE: &str = "CarriedExactlyOnce";
    /// Exact counts are the Ledger's.
    pub const COUNTS_EXACT: &str = "CountsExact";
    /// An attempt ends once.
    pub const ENDED_ONCE: &str = "EndedOnce";
    /// No machine reports a fault, and no statement fails.
    pub const NO_FAULT: &str = "NoFault";
    /// Nobody is undone to break a circle of waits: asked where lock requests are patient.
    pub const NO_DEADLOCK: &str = "NoDeadlock";
    /// Any other rule of the Ledger.
    pub const LEDGER: &str = "Ledger";
}

/// The session that looks on; no actor has it.
pub(super) const ONLOOKER: SessionId = SessionId(u8::MAX);

/// The promise that a rule of the Ledger belongs to.
fn name(violation: &Violation) -> &'static str {
    match violation {
        Violation::OutOfOrder(..) => promise::ORDER_PROMISE,
        Violation::ListedTwice("claim", _)
        | Violation::WrongState("claim", ..)
        | Violation::WrongAttempt(..)
        | Violation::LeaseNotFresh(..) => promise::CLAIMED_ONCE,
        Violation::WrongState("prune", ..)
        | Violation::InsideFloor(..)
        | Violation::WrongFold(..)
        | Violation::WrongCarry(..) => promise::PRUNE_TAKES_ONLY_DEAD,
        Violation::StaleAccepted(..) | Violation::WrongOutcome(..) => promise::ENDED_ONCE,
        Violation::ListedTwice("list", _)
        | Violation::WrongShown(..)
        | Violation::BodyChanged(..) => promise::CARRIED_EXACTLY_ONCE,
        Violation::NotConserved(..) | Violation::WrongCount(..) => promise::COUNTS_EXACT,
        _ => promise::LEDGER,
    }
}

pub(super) fn objection(violation: &Violation) -> Broken {
    Broken { name: name(violation), detail: violation.to_string() }
}

const fn shown(state: JobState) -> ledger::State {
    match state {
        JobState::Available => ledger::State::Available,
        JobState::Scheduled => ledger::State::Scheduled,
        JobState::Retryable => ledger::State::Retryable,
        JobState::Running => ledger::State::Running,
        JobState::WaitingExternal => ledger::State::Waiting,
        JobState::Completed => ledger::State::Completed,
        JobState::Failed => ledger::State::Failed,
        JobState::Cancelled => ledger::State::Cancelled,
    }
}

impl State {
    pub(super) fn breaks(&mut self, broken: Broken) {
        self.broken.get_or_insert(broken);
    }

    /// The database as it would be if every backend died now: what is committed, and no locks.
    #[must_use]
    pub fn committed(&self) -> World {
        let mut world = self.world.clone();
        (0..self.actors.len()).for_each(|a| world.crash(SessionId(a as u8)));
        world
    }

    /// Jobs of the lane that are available by the Ledger, by id.
    #[must_use]
    pub fn available(&self, lane: i64) -> Vec<JobId> {
        self.in_state(ledger::State::Available, Some(LaneId(lane)))
    }

    /// Jobs that are in this state by the Ledger, by id; of one lane, or of all.
    #[must_use]
    pub fn in_state(&self, state: ledger::State, lane: Option<LaneId>) -> Vec<JobId> {
        let jobs = self.jobs.iter().filter(|(_, own)| lane.is_none_or(|lane| lane == *own));
        let jobs = jobs.filter(|(job, _)| self.ledger.state(number(*job)) == Some(state));
        jobs.map(|(job, _)| *job).collect()
    }

    /// What an attempt's end is to the Ledger.
    fn ended(&mut self, world: &World, job: &ClaimedJob, how: How, counted: bool) {
        let row = load(world, job.receipt.job);
        let told = |state| counted.then_some(state);
        let (id, lease) = (number(job.receipt.job), job.receipt.run_lease.0);
        let at = row.as_ref().and_then(|r| r.finalized_at).unwrap_or(world.now).unix_us();
        let run_at = row.as_ref().map_or(0, |r| r.run_at.unix_us());
        self.told(|ledger| match how {
            How::Completed => ledger.complete(id, lease, at, told(ledger::State::Completed)),
            How::Failed => ledger.fail(id, lease, at, told(ledger::State::Failed)),
            How::Retried => {
                let remain = job.attempt.0 < job.max_attempts;
                let due = if remain { ledger::State::Retryable } else { ledger::State::Failed };
                ledger.fail_retryable(id, lease, run_at, at, told(due))
            }
            How::HandedBack => ledger.hand_back(id, lease, told(ledger::State::Available)),
        });
    }

    fn in_hand(&self, receipt: ReceiptId) -> Option<ClaimedJob> {
        self.hand.iter().find(|job| job.receipt.id() == receipt).cloned()
    }

    fn closed(&mut self, did: &Closed, how: How) {
        let world = self.committed();
        let general = did.path == Path::General;
        let left = did.left.iter().filter(|_| general).map(|r| (r.id(), false));
        let ends: Vec<_> = did.closed.iter().map(|id| (*id, true)).chain(left).collect();
        for (receipt, counted) in ends {
            if let Some(job) = self.in_hand(receipt) {
                self.ended(&world, &job, how, counted);
            }
        }
    }

    fn pruned(&mut self, floor_s: u64, did: &PruneOutcome) {
        let PruneOutcome::Pruned { carried_failed_rows, folded_failed, folded_other, .. } = did
        else {
            return;
        };
        let world = self.committed();
        let retained = |state: ledger::State| {
            use ledger::State as S;
            ![S::PrunedOther, S::PrunedFailed, S::Dlq, S::Deleted].contains(&state)
        };
        let jobs = self.jobs.iter().map(|(job, _)| *job);
        let jobs = jobs.filter(|job| self.ledger.state(number(*job)).is_some_and(retained));
        let vanished = jobs.filter(|job| !is_retained(&world, *job)).map(number).collect();
        let (other, failed) = (*folded_other, *folded_failed);
        let report = Pruned { vanished, carried: *carried_failed_rows, other, failed };
        let now_us = world.now.unix_us();
        self.told(|ledger| ledger.prune(now_us, Some(floor_s), &report));
    }

    fn retried(&mut self, did: &PieceOutcome) {
        let PieceOutcome::Moved { moved, .. } = did else { return };
        // What the scan saw may have changed before the move: only what moved is judged here.
        let matched = self.in_state(ledger::State::Failed, None).len() as i64;
        let pruned = self.ledger.counts(1).get(&ledger::State::PrunedFailed).copied().unwrap_or(0);
        let jobs = moved.iter().map(|(job, _)| number(*job)).collect();
        let report = Retried { jobs, matched, pruned_failed: Some(pruned) };
        self.told(|ledger| ledger.retry(Scope::Queue(1), &report, false));
    }

    fn check_books(&self) -> Result<(), Broken> {
        let world = self.committed();
        let rows = self.jobs.iter().filter_map(|(job, _)| load(&world, *job));
        let seen = rows.map(|row| Seen {
            job: number(row.job),
            state: shown(row.state),
            attempt: row.attempt.0,
            body: row.args.as_deref().map_or(u64::MAX, digest),
        });
        self.ledger.observe_jobs(&seen.collect::<Vec<_>>()).map_err(|v| objection(&v))?;
        match run(&mut world.clone(), ONLOOKER, CountQueue { queue: super::queue() }) {
            Ok(Ok(Some(counts))) => {
                self.ledger.observe_counts(1, &reported(&counts)).map_err(|v| objection(&v))
            }
            other => {
                Err(Broken { name: promise::COUNTS_EXACT, detail: format!("counts are {other:?}") })
            }
        }
    }

    /// A last full set of claims by one who knows `windows`: what it takes is what is available.
    fn check_nothing_lost(&self, who: &str, windows: &[Window; LANES.len()]) -> Result<(), Broken> {
        let mut world = self.committed();
        for (lane, window) in LANES.iter().zip(windows) {
            let (taken, due) =
                (claim_all(&mut world, *lane, window.clone()), self.available(*lane));
            if taken != due {
                let (taken, due) = (list(&taken), list(&due));
                let detail =
                    format!("the last claims of lane {lane} by {who} took {taken}, due was {due}");
                return Err(Broken { name: promise::NOTHING_LOST, detail });
            }
        }
        Ok(())
    }
}

/// The job as an operator sees it; `None` if it is gone or can't be shown whole.
fn load(world: &World, job: JobId) -> Option<JobRow> {
    run(&mut world.clone(), ONLOOKER, LoadJob { job }).ok().and_then(Result::ok).flatten()
}

/// Whether the job is retained, whole or not.
fn is_retained(world: &World, job: JobId) -> bool {
    !matches!(run(&mut world.clone(), ONLOOKER, LoadJob { job }), Ok(Ok(None)))
}

fn list(jobs: &[JobId]) -> String {
    let jobs: Vec<_> = jobs.iter().map(ToString::to_string).collect();
    if jobs.is_empty() { "nothing".to_owned() } else { jobs.join(", ") }
}

/// Claims until nothing is left, by one who knows this of the lane.
fn claim_all(world: &mut World, lane: i64, mut window: Window) -> Vec<JobId> {
    let mut taken = Vec::new();
    loop {
        let (lane, limit) = (LaneId(lane), limits::CLAIM_ROWS_MAX.into());
        let claim = Claim::new(lane, window, limit, limits::CLAIM_BYTES_MAX, None);
        match run(world, ONLOOKER, claim.unwrap_or_else(|error| panic!("{error}"))) {
            Ok(ClaimOutcome::Claimed { jobs, .. }) if jobs.is_empty() => break,
            Ok(ClaimOutcome::Claimed { jobs, window: next, .. }) => {
                window = next;
                taken.extend(jobs.iter().map(|job| job.receipt.job));
            }
            other => panic!("the last claim is {other:?}"),
        }
    }
    taken.sort();
    taken
}

impl Scene {
    /// What the process makes of an outcome that it heard.
    pub(super) fn believes(&self, state: &mut State, a: u8, outcome: &Outcome) {
        let (task, actor) = (self.task(state, a).copied(), usize::from(a));
        match (task, outcome) {
            (Some(Task::Claim { lane, .. }), Outcome::Claim(did)) => {
                let actor = &mut state.actors[actor];
                let (jobs, window) = match did {
                    ClaimOutcome::Claimed { jobs, window, .. } => (jobs.as_slice(), window),
                    ClaimOutcome::Refused { window, .. } => (&[][..], window),
                };
                actor.cursor = reaches(actor.cursor, jobs);
                *actor.window(lane) = match self.twist {
                    Twist::CursorOnly => super::act::from_cursor(actor.cursor),
                    Twist::CoversUnsettled => Window::default(),
                    Twist::None
                    | Twist::PositionKept
                    | Twist::NobodyShutOut
                    | Twist::PollForgets
                    | Twist::ShutsClaimsFirst
                    | Twist::WindowOutlivesConnection => window.clone(),
                };
            }
            (
                Some(Task::ClaimFromCursor { .. }),
                Outcome::Claim(ClaimOutcome::Claimed { jobs, .. }),
            ) => {
                state.actors[actor].cursor = reaches(state.actors[actor].cursor, jobs);
            }
            (Some(Task::Poll { lane }), Outcome::Poll(Ok(polled)))
                if !polled.holding.contains(&LaneId(lane)) || self.twist == Twist::PollForgets =>
            {
                // As the worker does it.
                let window = state.actors[actor].window(lane);
                *window = window.clone().after_poll(polled.seen.clone());
            }
            _ => {}
        }
    }

    /// A machine's transaction has ended: what it did is told, and all promises looked at.
    pub(super) fn has_run(
        &self,
        state: &mut State,
        a: u8,
        finish: Option<Finish>,
        outcome: Outcome,
    ) {
        let task = self.task(state, a).copied();
        let now_us = state.world.now.unix_us();
        match (outcome, task) {
            (Outcome::Claim(ClaimOutcome::Claimed { jobs, .. }), task) => {
                let (lane, limit) = match task {
                    Some(Task::Claim { lane, limit, .. }) => (lane, limit),
                    Some(Task::ClaimFromCursor { lane }) => (lane, 1),
                    other => panic!("{other:?} claims"),
                };
                let report: Vec<_> = jobs.iter().map(claimed).collect();
                let lane = ledger_lane(LaneId(lane));
                state.told(|ledger| ledger.claim(lane, &report, limit as usize, false));
                state.hand.extend(jobs);
                state.hand.sort_by_key(|job| job.receipt);
            }
            (Outcome::Close(Ok(did)), Some(Task::Close(how))) => {
                state.closed(&did, how);
                if let Some(mut finish) = finish {
                    finish.take(did);
                    if let Some(close) = finish.next() {
                        let errand = Errand::Close(Driving::new(SessionId(a), close));
                        state.actors[usize::from(a)].doing = Doing::Running(errand, Some(finish));
                        return;
                    }
                }
            }
            (Outcome::Prune(Ok(did)), _) => {
                state.pruned(self.floor.span().whole_secs().unsigned_abs(), &did);
            }
            (Outcome::Promote(Ok(did)), _) => {
                let jobs: Vec<_> = did.jobs.iter().map(|(job, _)| number(*job)).collect();
                state.told(|ledger| ledger.promote(&jobs, now_us, 100, false));
            }
            (Outcome::Retry(Ok(did)), _) => state.retried(&did),
            (Outcome::Cancel(Ok(did)), Some(Task::Cancel(job))) => {
                use awa_core::machine::cancel::CancelOutcome;
                if did == CancelOutcome::Cancelled {
                    let told = Some(ledger::State::Cancelled);
                    state.told(|ledger| ledger.cancel(number(job), now_us, told));
                }
            }
            (Outcome::Rescue(Ok(did)), _) => {
                let world = state.committed();
                for receipt in did.closed {
                    if let Some(job) = state.in_hand(receipt) {
                        state.ended(&world, &job, How::Retried, true);
                    }
                }
            }
            _ => {}
        }
        state.actors[usize::from(a)].ends_task();
    }

    /// What must hold whenever a transaction has ended.
    pub(super) fn judge(&self, state: &State) -> Result<(), Broken> {
        if !self.ledger_only {
            state.world.check_invariants()?;
            let confirmed =
                state.actors.iter().filter(|a| !matches!(a.doing, Doing::Unconfirmed(..)));
            for (lane, window) in confirmed.flat_map(|actor| LANES.iter().zip(&actor.windows)) {
                state.world.check_window(LaneId(*lane), window)?;
            }
        }
        if self.books {
            state.check_books()?;
        }
        if self.is_quiet(state) {
            state.check_nothing_lost("a new process", &LANES.map(|_| Window::default()))?;
            for (a, actor) in state.actors.iter().enumerate() {
                let knows = actor.windows.iter().any(|window| *window != Window::default());
                if knows {
                    state.check_nothing_lost(&format!("actor {a}"), &actor.windows)?;
                }
            }
        }
        Ok(())
    }

    /// Nobody is in the middle of anything, and no producer is to come.
    fn is_quiet(&self, state: &State) -> bool {
        let idle = state.actors.iter().all(|actor| actor.doing == Doing::Nothing);
        let to_come = state.actors.iter().zip(&self.actors).any(|(actor, script)| {
            script[usize::from(actor.at).min(script.len())..]
                .iter()
                .any(|t| matches!(t, Task::Enqueue(_)))
        });
        idle && !to_come
    }
}

fn reaches(cursor: LaneSeq, jobs: &[ClaimedJob]) -> LaneSeq {
    // A job's first position is its name.
    jobs.iter().map(|job| LaneSeq(job.receipt.job.0)).chain([cursor]).max().unwrap_or(cursor)
}

fn claimed(job: &ClaimedJob) -> Claimed {
    Claimed {
        job: number(job.receipt.job),
        attempt: job.attempt.0,
        run_lease: job.receipt.run_lease.0,
        body: digest(&job.args),
    }
}

fn reported(counts: &QueueCounts) -> Counts {
    use ledger::State as S;
    let own = [
        (S::Available, counts.available),
        (S::Scheduled, counts.scheduled),
        (S::Retryable, counts.retryable),
        (S::Running, counts.running),
        (S::Waiting, counts.waiting_external),
        (S::Completed, counts.completed),
        (S::Failed, counts.failed),
        (S::Cancelled, counts.cancelled),
        (S::PrunedOther, counts.pruned_other),
        (S::PrunedFailed, counts.pruned_failed),
    ];
    own.into_iter().collect()
}
