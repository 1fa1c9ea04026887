//! A scene: actors with scripts, in one World. Every interleaving of their statements is a run.
//!
//! Producers act a statement's part at a time (transaction id, position, row, COMMIT); everybody
//! else drives the shipped machines of `awa-core`, a step an act. Crashes, lost confirmations and
//! aborts are actions of their own. The Ledger is told what was committed and judges it; see
//! [`judge`] for the promises.

use std::fmt;
use std::sync::Arc;

use awa_core::machine::cancel::Cancel;
use awa_core::machine::claim::Claim;
use awa_core::machine::close::{Finish, Finished};
use awa_core::machine::poll::PollLanes;
use awa_core::machine::promote::Promote;
use awa_core::machine::prune::Prune;
use awa_core::machine::rescue::Rescue;
use awa_core::machine::retry::RetryFailed;
use awa_core::machine::rollup::Rollup;
use awa_core::machine::rotate::Rotate;
use awa_core::rules::Floor;
use awa_core::{
    ClaimedJob, JobId, LaneId, LaneSeq, QueueName, Ring, Sample, Segment, Slot, Snapshot, Span,
    TerminalFilter, Window, Xid, limits,
};

use super::{Broken, Model, Witness};
use crate::drive::{Driving, Progress};
use crate::ledger::Ledger;
use crate::world::{Mutation, SessionId, World};

mod errand;
mod judge;
mod produce;
mod tell;

pub use errand::{Errand, Outcome};
pub use judge::promise;
pub use produce::{Enqueue, Look};

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

/// How attempts end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum How {
    /// Well.
    Completed,
    /// For good.
    Failed,
    /// To be tried again at once.
    Retried,
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
    /// B2: a producer keeps a position for its next transaction, as a sequence's cache would.
    PositionKept,
    /// B12: a window outlives the connection that it was made on.
    WindowOutlivesConnection,
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
    /// Whether counts and whole jobs are compared with the Ledger after every transaction.
    pub books: bool,
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
            books: false,
            mutation: Mutation::None,
            twist: Twist::None,
            witnesses: Vec::new(),
        }
    }
}

/// The queue that every scene has.
pub const QUEUE: &str = "q";
/// The lanes that scenes use: priorities 1 and 2 of the queue.
pub const LANES: [i64; 2] = [1, 2];

/// Everything at one moment.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct State {
    /// The database.
    pub world: World,
    /// What it owes its users.
    pub ledger: Ledger,
    /// Jobs ever committed, with their lanes.
    pub jobs: Vec<(JobId, LaneId)>,
    /// By session.
    pub actors: Vec<Actor>,
    /// Attempts that workers have been given, whatever became of them.
    pub hand: Vec<ClaimedJob>,
    /// Crashes that may still come.
    pub crashes_left: u8,
    standby: Option<Arc<(World, Ledger, Vec<(JobId, LaneId)>)>>,
    /// The first promise that was found broken.
    broken: Option<Broken>,
}

/// One session and the process behind it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Actor {
    /// Place in the script.
    pub at: u8,
    /// What it is at.
    pub doing: Doing,
    /// What it knows of each lane.
    pub windows: [Window; LANES.len()],
    /// The last position that it took.
    pub cursor: LaneSeq,
    kept: Option<LaneSeq>,
}

/// What an actor is at.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Doing {
    /// Between two tasks.
    Nothing,
    /// In a producer's transaction.
    Producing(produce::Progress),
    /// In a machine's.
    Running(Errand),
    /// B5: the machine was told that its COMMIT came through, and it was not yet sent.
    Unconfirmed(Outcome),
}

/// One act of one actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// The next act of its script.
    Go(u8),
    /// A producer thinks better of it.
    Abort(u8),
    /// Its backend dies.
    Crash(u8),
    /// The COMMIT comes through, and the connection breaks before it is heard.
    Unheard(u8),
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Go(actor) => write!(f, "{actor} goes on"),
            Self::Abort(actor) => write!(f, "{actor} aborts"),
            Self::Crash(actor) => write!(f, "{actor} crashes"),
            Self::Unheard(actor) => write!(f, "{actor} commits unheard"),
        }
    }
}

impl Actor {
    fn fresh() -> Self {
        let windows = LANES.map(|_| Window::default());
        let (doing, cursor) = (Doing::Nothing, LaneSeq(0));
        Self { at: 0, doing, windows, cursor, kept: None }
    }

    fn window(&mut self, lane: i64) -> &mut Window {
        let place = LANES.iter().position(|l| *l == lane);
        &mut self.windows[place.unwrap_or_else(|| panic!("no scene has lane {lane}"))]
    }

    /// The task is over, well or not.
    fn ends_task(&mut self) {
        (self.at, self.doing) = (self.at + 1, Doing::Nothing);
    }
}

/// A window that makes a claim look past `cursor` and nowhere else.
fn from_cursor(cursor: LaneSeq) -> Window {
    let seen = Snapshot { xmin: Xid(0), xmax: Xid(0), open: Vec::new() };
    let samples = vec![Sample { position: cursor, xid: Xid(0) }];
    Window { seen: Some(seen), frontier: Some(cursor), samples }
}

fn queue() -> QueueName {
    QueueName::new(QUEUE).unwrap_or_else(|error| panic!("{error}"))
}

impl Scene {
    fn task(&self, state: &State, a: u8) -> Option<&Task> {
        self.actors[usize::from(a)].get(usize::from(state.actors[usize::from(a)].at))
    }

    /// The window that the actor's next claim goes by.
    fn claim_window(&self, actor: &mut Actor, lane: i64) -> Window {
        match self.twist {
            Twist::CoversUnsettled => {
                let all = Sample { position: LaneSeq(i64::MAX), xid: Xid(0) };
                Window { samples: vec![all], ..Window::default() }
            }
            Twist::None
            | Twist::CursorOnly
            | Twist::PositionKept
            | Twist::WindowOutlivesConnection => actor.window(lane).clone(),
        }
    }

    /// The machine that the task wants; `None` if there is nothing to do for it yet.
    fn errand(&self, state: &mut State, a: u8, task: Task) -> Option<Errand> {
        let s = SessionId(a);
        let actor = &mut state.actors[usize::from(a)];
        let bytes_max = limits::CLAIM_BYTES_MAX;
        let legal = "scenes are legal";
        Some(match task {
            Task::Claim { lane, limit, deadline } => {
                let window = self.claim_window(actor, lane);
                let claim = Claim::new(LaneId(lane), window, limit, bytes_max, deadline);
                Errand::Claim(Driving::new(s, claim.expect(legal)))
            }
            Task::ClaimFromCursor { lane } => {
                let claim = Claim::new(LaneId(lane), from_cursor(actor.cursor), 1, bytes_max, None);
                Errand::Claim(Driving::new(s, claim.expect(legal)))
            }
            Task::Poll { lane } => {
                let lanes = vec![(LaneId(lane), actor.window(lane).clone())];
                Errand::Poll(Driving::new(s, PollLanes { lanes }))
            }
            Task::Close(how) => {
                let finish = Finish::new(state.hand.iter().map(|job| finished(job, how)).collect());
                let close = finish.next()?;
                Errand::Close(Driving::new(s, close), finish, how)
            }
            Task::Rotate(ring) => Errand::Rotate(Driving::new(s, Rotate::ring(ring))),
            Task::Prune(ring) => Errand::Prune(Driving::new(s, Prune::oldest(ring, self.floor))),
            Task::Rollup(slot) => Errand::Rollup(Driving::new(s, Rollup::new(slot))),
            Task::Promote => Errand::Promote(Driving::new(s, Promote::new(100).expect(legal))),
            Task::Retry => {
                let retry = RetryFailed::new(TerminalFilter::Queue(queue()), 100).expect(legal);
                Errand::Retry(Driving::new(s, retry.next()?))
            }
            Task::Cancel(job) => Errand::Cancel(Driving::new(s, Cancel::new(job)), job),
            Task::Rescue => Errand::Rescue(Driving::new(s, Rescue::new(100).expect(legal))),
            Task::Enqueue(_) | Task::Wait(_) | Task::Replicate | Task::FailOver => return None,
        })
    }

    /// The next act of actor `a`; `None` if it can't act now.
    fn go(&self, state: &mut State, a: u8) -> Option<()> {
        let doing = state.actors[usize::from(a)].doing.clone();
        match doing {
            Doing::Nothing => match *self.task(state, a)? {
                Task::Enqueue(enqueue) => self.produce(state, a, &enqueue, produce::Progress::default()),
                Task::Wait(span) => {
                    state.world.now = state.world.now.after(span);
                    state.actors[usize::from(a)].ends_task();
                    Some(())
                }
                Task::Replicate => {
                    let (world, ledger) = (state.committed(), state.ledger.after_crash());
                    state.standby = Some(Arc::new((world, ledger, state.jobs.clone())));
                    state.actors[usize::from(a)].ends_task();
                    Some(())
                }
                Task::FailOver => self.fail_over(state, a),
                task => {
                    let errand = self.errand(state, a, task)?;
                    self.run(state, a, errand)
                }
            },
            Doing::Producing(progress) => match *self.task(state, a)? {
                Task::Enqueue(enqueue) => self.produce(state, a, &enqueue, progress),
                _ => None,
            },
            Doing::Running(errand) => self.run(state, a, errand),
            Doing::Unconfirmed(outcome) => {
                state.world.commit(SessionId(a));
                self.committed(state, a, outcome, true);
                Some(())
            }
        }
    }

    /// The next act of a machine.
    fn run(&self, state: &mut State, a: u8, mut errand: Errand) -> Option<()> {
        let was = state.world.clone();
        let (open, ends) = (state.world.is_open(SessionId(a)), errand.next_step().is_none());
        match errand.step(&mut state.world) {
            Progress::Waits { .. } if open && was == state.world => return None,
            Progress::Waits { .. } | Progress::Stepped => {
                state.actors[usize::from(a)].doing = Doing::Running(errand);
            }
            Progress::Done(outcome) if state.world.is_open(SessionId(a)) => {
                // Mutation B5: what the machine has in hand by now, its caller believes.
                self.believes(state, a, &outcome);
                state.actors[usize::from(a)].doing = Doing::Unconfirmed(outcome);
            }
            Progress::Done(outcome) => {
                self.believes(state, a, &outcome);
                self.committed(state, a, outcome, true);
            }
            Progress::Failed(failure) => {
                state.actors[usize::from(a)].ends_task();
                state.breaks(promise::NO_FAULT, format!("{failure:?}"));
            }
        }
        let _ = ends;
        Some(())
    }

    fn fail_over(&self, state: &mut State, a: u8) -> Option<()> {
        let standby = state.standby.take()?;
        (state.world, state.ledger, state.jobs) = (*standby).clone();
        for (place, actor) in state.actors.iter_mut().enumerate() {
            let idle = actor.doing == Doing::Nothing && place != usize::from(a);
            if !idle {
                actor.ends_task();
            }
            if self.twist != Twist::WindowOutlivesConnection {
                actor.windows = LANES.map(|_| Window::default());
            }
        }
        state.hand.retain(|job| state.ledger.state(job.receipt.job.0 as u64).is_some());
        Some(())
    }

    /// The actor's backend dies, in the middle of things or with its last COMMIT unheard.
    fn dies(&self, state: &mut State, a: u8) {
        let actor = &mut state.actors[usize::from(a)];
        if let Doing::Producing(_) = actor.doing {
            state.ledger.abort_enqueue_if_open(a.into());
        }
        state.world.crash(SessionId(a));
        let believes = matches!(actor.doing, Doing::Unconfirmed(_));
        if self.twist != Twist::WindowOutlivesConnection && !believes {
            actor.windows = LANES.map(|_| Window::default());
        }
        actor.ends_task();
        self.judge(state);
    }
}

fn finished(job: &ClaimedJob, how: How) -> Finished {
    match how {
        How::Completed => Finished::completed(job),
        How::Failed => Finished::failed_for_good(job, b"no"),
        How::Retried => Finished::failed(job, b"not yet", Some(Span::ZERO)),
    }
}
