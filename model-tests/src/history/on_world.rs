//! The World as a storage.

use awa_core::{Instant, JobId, LaneId, LaneSeq, Machine, Refusal, Reply, Segment, Span, Step};

use super::{Acts, Storage, Trouble};
use crate::drive::{Driving, Failure, Progress};
use crate::world::{Applied, Raised, SessionId, World};

const WORKER: SessionId = SessionId(1);

/// A World with one worker and producers.
#[derive(Clone, Debug)]
pub struct OnWorld {
    /// The World itself.
    pub world: World,
    /// How far the clock goes with each machine.
    tick: Span,
}

impl OnWorld {
    /// On this World, in which nothing is under way.
    #[must_use]
    pub const fn new(world: World) -> Self {
        Self { world, tick: Span::ZERO }
    }

    /// The same with a clock that goes a millisecond with each machine: no two operations fall on
    /// one instant, as they never do on PostgreSQL, where ties would be broken otherwise.
    #[must_use]
    pub const fn ticking(world: World) -> Self {
        Self { world, tick: Span::from_ms(1) }
    }
}

const fn session(producer: u8) -> SessionId {
    SessionId(2 + producer)
}

fn raised(raised: Raised) -> Trouble {
    match raised {
        Raised::DuplicateKey(_) => Trouble::DuplicateKey,
        Raised::BadJson(text) => Trouble::Other(format!("not JSON: {text}")),
    }
}

impl Storage for OnWorld {
    fn run<M: Machine>(&mut self, machine: M, acts: &mut Acts) -> Result<M::Outcome, Trouble> {
        self.advance(self.tick);
        let mut driving = Driving::new(WORKER, machine);
        loop {
            if !acts.spend() {
                driving.crash(&mut self.world);
                return Err(Trouble::Crashed);
            }
            match driving.step(&mut self.world) {
                Progress::Stepped => {}
                Progress::Done(outcome) => return Ok(outcome),
                Progress::Waits { on } => {
                    driving.crash(&mut self.world);
                    return Err(Trouble::Other(format!("waits for {on:?}")));
                }
                Progress::Failed(Failure::Bug(fault)) => return Err(Trouble::Bug(fault)),
                Progress::Failed(Failure::Raised(what)) => return Err(raised(what)),
                Progress::Failed(Failure::Refused(refusal)) => {
                    return Err(Trouble::Refused(refusal));
                }
                Progress::Failed(failure @ (Failure::Overran | Failure::Stuck(_))) => {
                    return Err(Trouble::Other(format!("{failure:?}")));
                }
            }
        }
    }

    fn begin(&mut self, producer: u8, repeatable_read: bool) {
        if repeatable_read {
            self.world.begin_repeatable_read(session(producer));
        } else {
            self.world.begin(session(producer));
        }
    }

    fn say(&mut self, producer: u8, steps: Vec<Step>) -> Result<Vec<Reply>, Trouble> {
        let mut replies = Vec::new();
        for step in steps {
            match self.world.apply(session(producer), &step) {
                Applied::Reply(Reply::Refused(refusal)) => return Err(Trouble::Refused(refusal)),
                Applied::Reply(reply) => replies.push(reply),
                Applied::Waits { .. } => return Err(Trouble::Refused(Refusal::LockTimeout)),
                Applied::Raised(what) => return Err(raised(what)),
            }
        }
        Ok(replies)
    }

    fn end(&mut self, producer: u8, commits: bool) {
        if commits {
            self.world.commit(session(producer));
        } else {
            self.world.rollback(session(producer));
        }
    }

    fn now(&mut self) -> Instant {
        self.world.now
    }

    fn advance(&mut self, by: Span) {
        self.world.now = self.world.now.after(by);
    }

    fn shifted(&self) -> Span {
        Span::ZERO
    }

    fn dump(&mut self) -> String {
        self.world.dump()
    }

    fn check(&mut self) -> Result<(), String> {
        self.world
            .check_invariants()
            .map_err(|broken| format!("{}: {}", broken.name, broken.detail))
    }

    fn plant_failure(&mut self, at: Segment, lane: LaneId, seq: i64, job: i64) {
        self.world.plant_failure(at, lane, LaneSeq(seq), JobId(job));
    }
}
