//! Whoever turns steps into replies is a driver; this one drives machines in the World, a statement
//! at a time if need be, so that others can be interleaved and crashes put between any two.

use awa_core::{Fault, JobId, Machine, NewJob, Refusal, Reply, Segment, Step, Turn};

use crate::world::{Applied, Mutation, Raised, SessionId, Stage, World};

/// Why a machine came to no outcome. Its transaction is undone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Failure {
    /// The machine found that the books don't balance.
    Bug(Fault),
    /// A statement failed in a way that no machine expects.
    Raised(Raised),
    /// PostgreSQL undid a [`Producing`] to break a deadlock.
    Refused(Refusal),
    /// The machine asked for more after its transaction had ended.
    Overran,
    /// The machine waits, and nobody else is there to go on: [`run`] only.
    Stuck(Vec<SessionId>),
}

/// What one act of a driver did.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Progress<O> {
    /// A statement ran, or the transaction ended; there is more to do.
    Stepped,
    /// The next statement can't begin: these sessions hold what it needs.
    Waits {
        /// Ascending.
        on: Vec<SessionId>,
    },
    /// The machine is at its end.
    Done(O),
    /// It came to no outcome.
    Failed(Failure),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase<O> {
    /// Nothing was done.
    Fresh,
    /// A flush is under way: places of its steps still to run, and replies by place.
    Flush {
        steps: Vec<Step>,
        order: Vec<usize>,
        replies: Vec<Option<Reply>>,
        last: bool,
    },
    /// The transaction ends, well or not, and this is said.
    Ending {
        commits: bool,
        says: Result<O, Failure>,
    },
    /// The COMMIT of a `Last` flush.
    Confirming {
        replies: Vec<Reply>,
    },
    Over,
}

/// A machine on its way through a transaction: a plain value if the machine is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Driving<M: Machine> {
    machine: M,
    session: SessionId,
    phase: Phase<M::Outcome>,
    /// Whether the transaction has kept anyone out yet (mutation B9).
    shut: bool,
}

impl<M: Machine> Driving<M> {
    /// `machine` in a transaction of its own in `session`.
    #[must_use]
    pub const fn new(session: SessionId, machine: M) -> Self {
        Self { machine, session, phase: Phase::Fresh, shut: false }
    }

    /// The machine as it is.
    #[must_use]
    pub const fn machine(&self) -> &M {
        &self.machine
    }

    /// The session that it runs in.
    #[must_use]
    pub const fn session(&self) -> SessionId {
        self.session
    }

    /// The statement that the next act runs; `None` before the first, at the end of a transaction,
    /// and when all is over.
    #[must_use]
    pub fn next_step(&self) -> Option<&Step> {
        match &self.phase {
            Phase::Flush { steps, order, .. } => order.first().and_then(|place| steps.get(*place)),
            Phase::Fresh | Phase::Ending { .. } | Phase::Confirming { .. } | Phase::Over => None,
        }
    }

    /// Whether the machine has come to its end, with an outcome or without.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over)
    }

    /// One act: begin with the first statement, run the next, or end the transaction.
    pub fn step(&mut self, world: &mut World) -> Progress<M::Outcome> {
        if matches!(self.phase, Phase::Fresh) {
            let turn = self.machine.start();
            if let Turn::Ask(_) | Turn::Last(_) = turn {
                world.begin(self.session);
            }
            self.follow(world, turn);
        }
        match std::mem::replace(&mut self.phase, Phase::Over) {
            Phase::Fresh | Phase::Over => Progress::Failed(Failure::Overran),
            Phase::Flush { steps, order, replies, last } => {
                self.run_next(world, steps, order, replies, last)
            }
            Phase::Confirming { replies } => {
                if world.mutation == Mutation::WindowBeforeCommit {
                    // The caller is told first; whether the COMMIT comes through is open.
                    return self.conclude(replies);
                }
                world.commit(self.session);
                self.conclude(replies)
            }
            Phase::Ending { commits, says } => {
                if world.is_open(self.session) {
                    if commits { world.commit(self.session) } else { world.rollback(self.session) }
                }
                says.map_or_else(Progress::Failed, Progress::Done)
            }
        }
    }

    /// What the machine says once its COMMIT is confirmed.
    fn conclude(&mut self, replies: Vec<Reply>) -> Progress<M::Outcome> {
        match self.machine.resume(replies) {
            Turn::Commit(outcome) | Turn::Rollback(outcome) => Progress::Done(outcome),
            Turn::Bug(fault) => Progress::Failed(Failure::Bug(fault)),
            Turn::Ask(_) | Turn::Last(_) => Progress::Failed(Failure::Overran),
        }
    }

    fn run_next(
        &mut self,
        world: &mut World,
        steps: Vec<Step>,
        mut order: Vec<usize>,
        mut replies: Vec<Option<Reply>>,
        last: bool,
    ) -> Progress<M::Outcome> {
        let place = order[0];
        let step = &steps[place];
        let answer = world.mutation.answers(step, self.shut);
        let applied = match answer {
            Some(reply) => Applied::Reply(reply),
            None => world.apply(self.session, step),
        };
        match applied {
            Applied::Waits { on } => {
                self.phase = Phase::Flush { steps, order, replies, last };
                Progress::Waits { on }
            }
            Applied::Raised(raised) => {
                self.phase = Phase::Ending { commits: false, says: Err(Failure::Raised(raised)) };
                Progress::Stepped
            }
            Applied::Reply(reply) => {
                self.shut |= matches!(step, Step::ExcludeWriters { .. } | Step::Exclude { .. });
                let refused = matches!(reply, Reply::Refused(_));
                replies[place] = Some(reply);
                order.remove(0);
                if refused || order.is_empty() {
                    self.flushed(world, replies, last && !refused, refused);
                } else {
                    self.phase = Phase::Flush { steps, order, replies, last };
                }
                Progress::Stepped
            }
        }
    }

    /// The wait of the next statement, a bounded one, is over: it is refused.
    ///
    /// # Panics
    /// The session doesn't wait for a bounded lock.
    pub fn expire(&mut self, world: &mut World) {
        if let Phase::Flush { order, replies, .. } = &mut self.phase
            && let Applied::Reply(refused) = world.expire(self.session)
        {
            let mut replies = std::mem::take(replies);
            replies[order[0]] = Some(refused);
            self.flushed(world, replies, false, true);
        }
    }

    /// The flush is over: the machine goes on.
    fn flushed(
        &mut self,
        world: &mut World,
        replies: Vec<Option<Reply>>,
        commits: bool,
        refused: bool,
    ) {
        let mut replies: Vec<Reply> = replies.into_iter().flatten().collect();
        if refused {
            // The refusal comes last, also where a mutation has changed the order.
            replies.sort_by_key(|reply| matches!(reply, Reply::Refused(_)));
            world.rollback(self.session);
        }
        if commits {
            self.phase = Phase::Confirming { replies };
        } else {
            let turn = self.machine.resume(replies);
            self.follow(world, turn);
        }
    }

    fn follow(&mut self, world: &World, turn: Turn<M::Outcome>) {
        let open = world.is_open(self.session);
        let flush = |steps: Vec<Step>, last| {
            if !open || steps.is_empty() {
                return Phase::Ending { commits: false, says: Err(Failure::Overran) };
            }
            let order = world.mutation.order(&steps);
            let replies = vec![None; steps.len()];
            Phase::Flush { steps, order, replies, last }
        };
        self.phase = match turn {
            Turn::Ask(steps) => flush(steps, false),
            Turn::Last(steps) => flush(steps, true),
            Turn::Commit(outcome) => Phase::Ending { commits: true, says: Ok(outcome) },
            Turn::Rollback(outcome) => Phase::Ending { commits: false, says: Ok(outcome) },
            Turn::Bug(fault) => Phase::Ending { commits: false, says: Err(Failure::Bug(fault)) },
        };
    }

    /// The backend dies under the machine, which never learns of it.
    pub fn crash(&mut self, world: &mut World) {
        world.crash(self.session);
        self.phase = Phase::Over;
    }
}

/// Drives `machine` to its end with nobody else moving.
///
/// # Errors
/// See [`Failure`]. A machine that must wait is rolled back.
pub fn run<M: Machine>(
    world: &mut World,
    session: SessionId,
    machine: M,
) -> Result<M::Outcome, Failure> {
    let mut driving = Driving::new(session, machine);
    loop {
        match driving.step(world) {
            Progress::Stepped => {}
            Progress::Done(outcome) => {
                // Only under mutation B5, and here nothing comes between.
                if world.is_open(session) {
                    world.commit(session);
                }
                return Ok(outcome);
            }
            Progress::Failed(failure) => return Err(failure),
            Progress::Waits { on } => {
                driving.crash(world);
                return Err(Failure::Stuck(on));
            }
        }
    }
}

/// A producer's transaction, an act at a time: read the cursor, be given an id, then a position and
/// a row for each job, COMMIT. The segment that it has read may be stale when it inserts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Producing {
    session: SessionId,
    jobs: Vec<NewJob>,
    next: Option<Stage>,
    at: Option<Segment>,
    ids: Vec<JobId>,
}

impl Producing {
    /// These jobs, in one transaction.
    #[must_use]
    pub const fn new(session: SessionId, jobs: Vec<NewJob>) -> Self {
        Self { session, jobs, next: Some(Stage::ReadCursor), at: None, ids: Vec::new() }
    }

    /// The act that comes next; `None`: COMMIT.
    #[must_use]
    pub const fn next(&self) -> Option<&Stage> {
        self.next.as_ref()
    }

    /// One act. `Done` with the jobs' ids after COMMIT.
    pub fn step(&mut self, world: &mut World) -> Progress<Vec<JobId>> {
        if !world.is_open(self.session) {
            world.begin(self.session);
        }
        let Some(stage) = &self.next else {
            world.commit(self.session);
            return Progress::Done(std::mem::take(&mut self.ids));
        };
        match world.micro_enqueue(self.session, stage) {
            Applied::Waits { on } => Progress::Waits { on },
            Applied::Raised(raised) => Progress::Failed(Failure::Raised(raised)),
            Applied::Reply(reply) => self.take(reply),
        }
    }

    fn take(&mut self, reply: Reply) -> Progress<Vec<JobId>> {
        self.next = if let Reply::CursorRead(at) = reply {
            self.at = Some(at);
            Some(Stage::AssignXid)
        } else if let Reply::PositionRead(seq) = reply {
            let first = self.jobs.first().cloned();
            first.zip(self.at).map(|(job, at)| Stage::Insert(job, at, seq))
        } else if let Reply::Refused(refusal) = reply {
            return Progress::Failed(Failure::Refused(refusal));
        } else {
            if let Reply::Enqueued(ids) = reply {
                self.ids.extend(ids);
                self.jobs.remove(0);
            }
            (!self.jobs.is_empty()).then_some(Stage::DrawPosition)
        };
        Progress::Stepped
    }
}
