//! How actors act.

use std::mem;
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
use awa_core::{
    ClaimedJob, LaneId, LaneSeq, Sample, Snapshot, Span, TerminalFilter, Window, Xid, limits,
};

use super::errand::Twisted;
use super::{
    Actor, Broken, Doing, Errand, How, LANES, Scene, State, Task, Twist, produce, promise, queue,
};
use crate::drive::{Driving, Progress};
use crate::world::{Patience, SessionId};

/// A window that makes a claim look past `cursor` and nowhere else.
pub(super) fn from_cursor(cursor: LaneSeq) -> Window {
    let seen = Snapshot { xmin: Xid(0), xmax: Xid(0), open: Vec::new() };
    let samples = vec![Sample { position: cursor, xid: Xid(0) }];
    Window { seen: Some(seen), frontier: Some(cursor), samples }
}

impl Scene {
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
            | Twist::NobodyShutOut
            | Twist::PollForgets
            | Twist::ShutsClaimsFirst
            | Twist::WindowOutlivesConnection => actor.window(lane).clone(),
        }
    }

    /// The machine that the task wants, with the batch that it is a part of; `None` if there is
    /// nothing to do for it yet.
    pub(super) fn errand(
        &self,
        state: &mut State,
        a: u8,
        task: Task,
    ) -> Option<(Errand, Option<Finish>)> {
        let s = SessionId(a);
        let actor = &mut state.actors[usize::from(a)];
        let bytes_max = limits::CLAIM_BYTES_MAX;
        let legal = "scenes are legal";
        let errand = match task {
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
                return Some((Errand::Close(Driving::new(s, finish.next()?)), Some(finish)));
            }
            Task::Rotate(ring) => Errand::Rotate(Driving::new(s, Rotate::ring(ring))),
            Task::Prune(ring) => {
                let prune = Prune::oldest(ring, self.floor);
                Errand::Prune(Driving::new(s, Twisted::new(prune, self.twist)))
            }
            Task::Rollup(slot) => Errand::Rollup(Driving::new(s, Rollup::new(slot))),
            Task::Promote => Errand::Promote(Driving::new(s, Promote::new(100).expect(legal))),
            Task::Retry => {
                let retry = RetryFailed::new(TerminalFilter::Queue(queue()), 100).expect(legal);
                Errand::Retry(Driving::new(s, retry.next()?))
            }
            Task::Cancel(job) => Errand::Cancel(Driving::new(s, Cancel::new(job))),
            Task::Rescue => Errand::Rescue(Driving::new(s, Rescue::new(100).expect(legal))),
            Task::Enqueue(_) | Task::Wait(_) | Task::Replicate | Task::FailOver => return None,
        };
        Some((errand, None))
    }

    /// The next act of actor `a`; `None` if it can't act now.
    pub(super) fn go(&self, state: &mut State, a: u8) -> Option<()> {
        let place = usize::from(a);
        match mem::replace(&mut state.actors[place].doing, Doing::Nothing) {
            Doing::Nothing => self.begin(state, a),
            Doing::Producing(progress) => match *self.task(state, a)? {
                Task::Enqueue(enqueue) => self.produce(state, a, &enqueue, progress),
                other => panic!("{other:?} produces"),
            },
            Doing::Running(errand, finish) => self.run(state, a, errand, finish),
            Doing::Unconfirmed(outcome, finish) => {
                state.world.commit(SessionId(a));
                self.has_run(state, a, finish, outcome);
                Some(())
            }
        }
    }

    fn begin(&self, state: &mut State, a: u8) -> Option<()> {
        match *self.task(state, a)? {
            Task::Enqueue(enqueue) => {
                self.produce(state, a, &enqueue, produce::Progress::default())
            }
            Task::Wait(span) => {
                state.world.now = state.world.now.after(span);
                state.actors[usize::from(a)].ends_task();
                Some(())
            }
            Task::Replicate => {
                let mut copy = state.clone();
                (0..copy.actors.len()).for_each(|a| copy.connection_breaks(a as u8));
                state.standby = Some(Arc::new(copy));
                state.actors[usize::from(a)].ends_task();
                Some(())
            }
            Task::FailOver => self.fail_over(state, a),
            task => {
                let (errand, finish) = self.errand(state, a, task)?;
                self.run(state, a, errand, finish)
            }
        }
    }

    /// The next act of a machine.
    fn run(
        &self,
        state: &mut State,
        a: u8,
        mut errand: Errand,
        finish: Option<Finish>,
    ) -> Option<()> {
        let before = state.world.is_open(SessionId(a)).then(|| state.world.clone());
        match errand.step(&mut state.world) {
            // It waited before already.
            Progress::Waits { .. } if before.is_some_and(|before| before == state.world) => {
                return None;
            }
            Progress::Waits { .. } | Progress::Stepped => {
                let undone = !state.world.is_open(SessionId(a));
                if undone && self.patience == Patience::Patient {
                    // Nothing but a circle of waits is refused there.
                    let detail = format!("{} is undone", SessionId(a));
                    state.breaks(Broken { name: promise::NO_DEADLOCK, detail });
                }
                state.actors[usize::from(a)].doing = Doing::Running(errand, finish);
            }
            Progress::Done(outcome) => {
                self.believes(state, a, &outcome);
                if state.world.is_open(SessionId(a)) {
                    state.actors[usize::from(a)].doing = Doing::Unconfirmed(outcome, finish);
                } else {
                    self.has_run(state, a, finish, outcome);
                }
            }
            Progress::Failed(failure) => {
                state.actors[usize::from(a)].ends_task();
                let detail = format!("{failure:?}");
                state.breaks(Broken { name: promise::NO_FAULT, detail });
            }
        }
        Some(())
    }

    /// The COMMIT comes through unheard; `None` if none is next.
    pub(super) fn commits_unheard(&self, state: &mut State, a: u8) -> Option<()> {
        let place = usize::from(a);
        let doing = mem::replace(&mut state.actors[place].doing, Doing::Nothing);
        let Doing::Running(mut errand, _) = doing else { return None };
        if errand.next_step().is_some() {
            return None;
        }
        let Progress::Done(outcome) = errand.step(&mut state.world) else { return None };
        if state.world.is_open(SessionId(a)) {
            state.world.commit(SessionId(a));
        }
        let at = state.actors[place].at;
        self.loses_connection(state, a);
        self.has_run(state, a, None, outcome);
        state.actors[place].at = at + 1;
        Some(())
    }

    fn fail_over(&self, state: &mut State, a: u8) -> Option<()> {
        let standby = state.standby.take()?;
        (state.world, state.ledger) = (standby.world.clone(), standby.ledger.clone());
        state.jobs.clone_from(&standby.jobs);
        // What was in hand may never have been, and no worker of a scene runs on.
        state.hand.clear();
        for other in 0..state.actors.len() as u8 {
            let idle = state.actors[usize::from(other)].doing == Doing::Nothing;
            self.loses_connection(state, other);
            if !idle || other == a {
                state.actors[usize::from(other)].ends_task();
            }
        }
        Some(())
    }

    fn loses_connection(&self, state: &mut State, a: u8) {
        if self.twist != Twist::WindowOutlivesConnection {
            state.actors[usize::from(a)].windows = LANES.map(|_| Window::default());
        }
    }

    /// The actor's backend dies in the middle of things; `None` if it isn't.
    pub(super) fn dies(&self, state: &mut State, a: u8) -> Option<()> {
        if !state.world.is_open(SessionId(a)) {
            return None;
        }
        if !matches!(state.actors[usize::from(a)].doing, Doing::Unconfirmed(..)) {
            self.loses_connection(state, a);
        }
        state.connection_breaks(a);
        state.actors[usize::from(a)].ends_task();
        Some(())
    }
}

impl State {
    fn connection_breaks(&mut self, a: u8) {
        self.world.crash(SessionId(a));
        if let Doing::Producing(progress) = self.actors[usize::from(a)].doing.clone() {
            self.gives_up(a, &progress);
        }
    }
}

fn finished(job: &ClaimedJob, how: How) -> Finished {
    match how {
        How::Completed => Finished::completed(job),
        How::Failed => Finished::failed_for_good(job, b"no"),
        How::Retried => Finished::failed(job, b"not yet", Some(Span::ZERO)),
        How::HandedBack => Finished::handed_back(job, "stopped"),
    }
}
