//! A scene: actors with scripts, in one World. Every interleaving of their statements is a run.
//!
//! Producers act a statement's part at a time (transaction id, position, row, COMMIT); everybody
//! else drives the shipped machines of `awa-core`, a step an act. Crashes, lost confirmations and
//! aborts are actions of their own. The Ledger is told what was committed and judges it; see
//! [`judge`] for the promises.

use std::fmt;
use std::sync::Arc;

use awa_core::machine::close::Finish;
use awa_core::machine::declare::DeclareQueue;
use awa_core::{ClaimedJob, JobId, LaneId, LaneSeq, QueueName, Window};

use super::{Broken, Model, Witness};
use crate::drive::run;
use crate::ledger::Ledger;
use crate::world::{SessionId, World};

mod act;
mod errand;
mod judge;
mod produce;
mod script;
mod tell;
pub mod witness;

pub use errand::{Errand, Outcome};
pub use judge::promise;
pub use produce::{Enqueue, Look, Savepoint};
pub use script::{How, Opening, Scene, Task, Twist};

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
    /// What a standby has replayed.
    standby: Option<Arc<State>>,
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
    /// In a machine's, with the batch that it is a part of.
    Running(Errand, Option<Finish>),
    /// B5: the machine was told that its COMMIT came through, and it was not yet sent.
    Unconfirmed(Outcome, Option<Finish>),
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

fn queue() -> QueueName {
    QueueName::new(QUEUE).unwrap_or_else(|error| panic!("{error}"))
}

impl Scene {
    fn task(&self, state: &State, a: u8) -> Option<&Task> {
        self.actors[usize::from(a)].get(usize::from(state.actors[usize::from(a)].at))
    }

    /// Of actors with one script, the one with the smaller number begins first: until it has begun,
    /// they are alike, and a run in which they change places is the same run.
    fn must_let_begin(&self, state: &State, a: u8) -> bool {
        let place = usize::from(a);
        let untouched = |actor: &Actor| actor.at == 0 && actor.doing == Doing::Nothing;
        place > 0
            && self.actors[place] == self.actors[place - 1]
            && untouched(&state.actors[place])
            && untouched(&state.actors[place - 1])
    }
}

impl State {
    /// Whether a transaction or a task ended on the way to `after`.
    fn ends_before(&self, after: &Self) -> bool {
        (0u8..).zip(self.actors.iter().zip(&after.actors)).any(|(a, (was, is))| {
            let s = SessionId(a);
            was.at != is.at || self.world.is_open(s) && !after.world.is_open(s)
        })
    }
}

impl Model for Scene {
    type State = State;
    type Action = Action;

    fn initial(&self) -> Vec<State> {
        let mut world = World::new(self.slots.0, 1, self.slots.1);
        let declare = DeclareQueue::new(queue(), 1).unwrap_or_else(|error| panic!("{error}"));
        run(&mut world, SessionId(0), declare).unwrap_or_else(|failure| panic!("{failure:?}")).ok();
        (world.mutation, world.patience) = (self.mutation, self.patience);
        let mut state = State {
            world,
            ledger: Ledger::default(),
            jobs: Vec::new(),
            actors: self.actors.iter().map(|_| Actor::fresh()).collect(),
            hand: Vec::new(),
            crashes_left: self.crashes,
            standby: None,
            broken: None,
        };
        for opening in &self.prologue {
            match *opening {
                Opening::Acts(a, count) => (0..count).for_each(|_| {
                    self.go(&mut state, a).unwrap_or_else(|| panic!("{opening:?} is stuck"));
                }),
                Opening::Tasks(a, count) => {
                    let until = state.actors[usize::from(a)].at + count;
                    while state.actors[usize::from(a)].at < until {
                        self.go(&mut state, a).unwrap_or_else(|| panic!("{opening:?} is stuck"));
                    }
                }
            }
        }
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (a, actor) in (0u8..).zip(&state.actors) {
            let task = self.task(state, a);
            if task.is_none() && actor.doing == Doing::Nothing || self.must_let_begin(state, a) {
                continue;
            }
            actions.push(Action::Go(a));
            let producing = matches!(actor.doing, Doing::Producing(_));
            if producing && matches!(task, Some(Task::Enqueue(enqueue)) if enqueue.aborts) {
                actions.push(Action::Abort(a));
            }
            if state.crashes_left > 0 && !producing && state.world.is_open(SessionId(a)) {
                actions.extend([Action::Crash(a), Action::Unheard(a)]);
            }
        }
    }

    fn next(&self, state: &State, action: &Action) -> Option<State> {
        let mut next = state.clone();
        match action {
            Action::Go(a) => self.go(&mut next, *a)?,
            Action::Abort(a) => self.dies(&mut next, *a)?,
            Action::Crash(a) => {
                next.crashes_left -= 1;
                self.dies(&mut next, *a)?;
            }
            Action::Unheard(a) => {
                next.crashes_left -= 1;
                self.commits_unheard(&mut next, *a)?;
            }
        }
        Some(next)
    }

    fn check(&self, before: Option<&State>, state: &State) -> Result<(), Broken> {
        if let Some(broken) = &state.broken {
            return Err(broken.clone());
        }
        // What is committed, and what anyone believes, changes where a transaction ends.
        if before.is_none_or(|before| before.ends_before(state)) {
            self.judge(state)
        } else {
            Ok(())
        }
    }

    fn at_rest(&self, state: &State) -> bool {
        state.actors.iter().all(|actor| actor.doing == Doing::Nothing)
    }

    fn sometimes(&self) -> Vec<Witness<State>> {
        self.witnesses.clone()
    }

    fn narrate(&self, before: &State, action: &Action, after: &State) -> String {
        tell::line(self, before, *action, after)
    }
}
