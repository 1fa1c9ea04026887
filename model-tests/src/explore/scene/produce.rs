//! A producer's transaction, a part of a statement an act: id first, positions second, rows third.

use awa_core::{JobId, Kind, LaneId, LaneSeq, NewJob, Reply, Segment};

use super::{Doing, Scene, State, Twist};
use crate::ledger::{self, Violation};
use crate::world::{Applied, SessionId, Stage};

/// A producer's transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Enqueue {
    /// A job for each of these lanes, in this order.
    pub lanes: &'static [i64],
    /// When it looks which segment is open.
    pub look: Look,
    /// Whether it may abort.
    pub aborts: bool,
    /// A savepoint before the first job, under which a position is drawn that comes to nothing.
    pub savepoint: Option<Savepoint>,
}

/// What becomes of a savepoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Savepoint {
    /// It is undone.
    Undone,
    /// It is released.
    Released,
}

/// When a producer looks which segment is open. What it saw may be stale when the row is inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Look {
    /// With the insert.
    AtInsert,
    /// As an act of its own, before everything else.
    Before,
    /// The same in the snapshot of a REPEATABLE READ transaction.
    OldSnapshot,
}

/// How far a producer's transaction is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Progress {
    acts: u8,
    pub(super) cursor: Option<Segment>,
    drawn: Option<LaneSeq>,
    pub(super) put: Vec<(JobId, LaneId)>,
    /// The Ledger knows of it.
    begun: bool,
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    Look,
    AssignXid,
    Savepoint(Savepoint),
    Draw,
    Insert { lane: i64 },
    Commit,
}

impl Enqueue {
    /// One job for each of `lanes`, into the segment that is open at the insert, never aborted.
    #[must_use]
    pub const fn of(lanes: &'static [i64]) -> Self {
        Self { lanes, look: Look::AtInsert, aborts: false, savepoint: None }
    }

    /// The same, and it may abort.
    #[must_use]
    pub const fn or_abort(mut self) -> Self {
        self.aborts = true;
        self
    }

    /// The same, with another look.
    #[must_use]
    pub const fn looking(mut self, look: Look) -> Self {
        self.look = look;
        self
    }

    /// The same, with a savepoint first.
    #[must_use]
    pub const fn after(mut self, savepoint: Savepoint) -> Self {
        self.savepoint = Some(savepoint);
        self
    }

    pub(super) fn act(&self, progress: &Progress) -> Act {
        let looks = (self.look != Look::AtInsert).then_some(Act::Look);
        let saves = self.savepoint.map(Act::Savepoint);
        let jobs = self.lanes.iter().flat_map(|lane| [Act::Draw, Act::Insert { lane: *lane }]);
        let acts = looks.into_iter().chain([Act::AssignXid]).chain(saves).chain(jobs);
        acts.chain([Act::Commit]).nth(progress.acts.into()).unwrap_or(Act::Commit)
    }
}

/// Ids and positions are never negative.
pub(super) fn number(job: JobId) -> u64 {
    job.0.unsigned_abs()
}

pub(super) fn ledger_lane(lane: LaneId) -> ledger::Lane {
    ledger::Lane { queue: 1, priority: lane.0 as i16, shard: 0 }
}

impl Scene {
    fn new_job(&self, a: u8, lane: i64) -> NewJob {
        // Where nobody looks, all jobs are alike, so that more states are.
        let args = if self.books { u32::from(a) * 10 + lane as u32 } else { lane as u32 };
        let kind = Kind::new("k").unwrap_or_else(|error| panic!("{error}"));
        NewJob::new(LaneId(lane), kind, args.to_string(), 2, None)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// The next act of a producer; `None` if it must wait.
    pub(super) fn produce(
        &self,
        state: &mut State,
        a: u8,
        task: &Enqueue,
        mut progress: Progress,
    ) -> Option<()> {
        let s = SessionId(a);
        if progress.acts == 0 {
            match task.look {
                Look::OldSnapshot => state.world.begin_repeatable_read(s),
                Look::AtInsert | Look::Before => state.world.begin(s),
            }
        }
        let act = task.act(&progress);
        match act {
            Act::Look => progress.cursor = Some(self.look(state, s)),
            Act::AssignXid => {
                state.world.micro_enqueue(s, &Stage::AssignXid);
            }
            Act::Savepoint(end) => {
                let undone = end == Savepoint::Undone;
                state.world.micro_enqueue(s, &Stage::Savepoint { undone });
            }
            Act::Draw => {
                if !progress.begun {
                    progress.begun = true;
                    state.told(|ledger| ledger.begin_enqueue(a.into()));
                }
                progress.drawn = Some(self.draw(state, a));
            }
            Act::Insert { lane } => {
                let at = progress.cursor.unwrap_or_else(|| self.look(state, s));
                let seq = progress.drawn?;
                let insert = Stage::Insert(self.new_job(a, lane), at, seq);
                match state.world.micro_enqueue(s, &insert) {
                    Applied::Reply(Reply::Enqueued(_)) => {}
                    // A wait of its own makes no difference to anyone: it holds nothing new.
                    Applied::Waits { .. } => return None,
                    other => panic!("an insert is answered with {other:?}"),
                }
                progress.put.push((JobId(seq.0), LaneId(lane)));
                progress.drawn = None;
            }
            Act::Commit => {
                state.world.commit(s);
                self.has_enqueued(state, a, &progress);
                state.actors[usize::from(a)].ends_task();
                return Some(());
            }
        }
        progress.acts += 1;
        state.actors[usize::from(a)].doing = Doing::Producing(progress);
        Some(())
    }

    fn look(&self, state: &mut State, s: SessionId) -> Segment {
        match state.world.micro_enqueue(s, &Stage::ReadCursor) {
            Applied::Reply(Reply::CursorRead(open)) => open,
            other => panic!("the cursor is answered with {other:?}"),
        }
    }

    fn draw(&self, state: &mut State, a: u8) -> LaneSeq {
        let actor = &mut state.actors[usize::from(a)];
        if let Some(kept) = actor.kept.take() {
            return kept;
        }
        let mut draw = || match state.world.micro_enqueue(SessionId(a), &Stage::DrawPosition) {
            Applied::Reply(Reply::PositionRead(drawn)) => drawn,
            other => panic!("a position is answered with {other:?}"),
        };
        let drawn = draw();
        if self.twist == Twist::PositionKept {
            actor.kept = Some(draw());
        }
        drawn
    }

    fn has_enqueued(&self, state: &mut State, a: u8, progress: &Progress) {
        let jobs = progress.put.iter().map(|(job, lane)| ledger::NewJob {
            job: number(*job),
            lane: ledger_lane(*lane),
            kind: 1,
            body: digest(&self.new_job(a, lane.0).args),
            max_attempts: 2,
            run_at_us: None,
        });
        let jobs: Vec<_> = jobs.collect();
        state.told(|ledger| ledger.commit_enqueue(a.into(), &jobs));
        state.jobs.extend(progress.put.iter().copied());
        state.jobs.sort();
    }
}

/// The args of a scene's job are a number, and that is what the Ledger knows of its body.
pub(super) fn digest(args: &str) -> u64 {
    args.trim().parse().unwrap_or(u64::MAX)
}

impl Progress {
    pub(super) fn says_drawn(&self) -> String {
        self.drawn.map_or_else(|| "draws".to_owned(), |drawn| format!("draws {drawn}"))
    }
}

impl State {
    /// A producer's transaction is undone.
    pub(super) fn gives_up(&mut self, a: u8, progress: &Progress) {
        if progress.begun {
            self.told(|ledger| ledger.abort_enqueue(a.into()));
        }
    }

    /// Tells the Ledger something, and keeps its first objection.
    pub(super) fn told(&mut self, tell: impl FnOnce(&mut ledger::Ledger) -> Result<(), Violation>) {
        if let Err(violation) = tell(&mut self.ledger) {
            self.breaks(super::judge::objection(&violation));
        }
    }
}
