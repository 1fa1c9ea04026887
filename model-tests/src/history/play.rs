//! One worker, some producers and an operator who play a history.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use awa_core::machine::declare::DeclareQueue;
use awa_core::machine::enqueue::{Enqueue, EnqueueCopy, EnqueueDeferred};
use awa_core::machine::promote::Promote;
use awa_core::{
    ClaimedJob, Instant, JobId, Kind, LaneId, Machine, NewJob, QueueName, ReceiptId, Refusal,
    Segment, Span, Step, Turn, UserError, Window,
};

use super::op::{Batch, LaneName, Op, Which};
use super::{Acts, Storage, Trouble};
use crate::ledger::{Judged, Lane, Ledger, NewJob as Owed, Violation};

/// Slots of the three rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rings {
    /// Of the queue ring.
    pub queue: i32,
    /// Of the lease ring.
    pub lease: i32,
    /// Of the claim ring.
    pub claim: i32,
}

impl Rings {
    /// Small ones, which come round soon.
    pub const SMALL: Self = Self { queue: 4, lease: 2, claim: 3 };
}

/// The storage did what it must not, or the history can't be played.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong(pub String);

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Wrong {}

impl From<Violation> for Wrong {
    fn from(broken: Violation) -> Self {
        Self(format!("Ledger: {broken}"))
    }
}

impl From<UserError> for Wrong {
    fn from(error: UserError) -> Self {
        Self(error.to_string())
    }
}

/// What an operation answers, or what kept it from its end.
pub(super) type Said = Result<Result<String, Trouble>, Wrong>;

/// Plays histories on a storage; see the module's documentation.
#[derive(Clone, Debug)]
pub struct Player<S> {
    /// Where it plays.
    pub storage: S,
    pub(super) ledger: Ledger,
    /// A row was planted that the Ledger can't know: it judges no more.
    pub(super) planted: bool,
    pub(super) lanes: BTreeMap<LaneName, LaneId>,
    pub(super) windows: BTreeMap<LaneId, Window>,
    /// Every job ever enqueued, in the order of commits.
    pub(super) jobs: Vec<i64>,
    /// What the worker knows to be open, and what it ever had.
    pub(super) open: Vec<ClaimedJob>,
    pub(super) ever: Vec<ClaimedJob>,
    /// Every attempt there was, also those that a dead worker had.
    pub(super) attempts: BTreeMap<ReceiptId, ClaimedJob>,
    producers: BTreeMap<u8, (u64, Vec<Owed>)>,
    transactions: u64,
    made: i64,
}

/// A number for a queue or a kind.
pub(super) fn numbered(letter: char) -> u32 {
    u32::from(letter)
}

pub(super) fn queue_name(letter: char) -> Result<QueueName, UserError> {
    QueueName::new(letter.encode_utf8(&mut [0; 4]))
}

/// The part of a body that never changes: its errors are added to.
pub(super) fn digest(kind: &str, args: &str, max_attempts: i16, payload: Option<&str>) -> u64 {
    let tagged = payload.is_some_and(|text| text.contains(r#""tags": ["t"]"#));
    let mut hasher = DefaultHasher::new();
    (kind, args, max_attempts, tagged).hash(&mut hasher);
    hasher.finish()
}

/// `jobs 1 2 3`.
pub(super) fn listed(jobs: impl IntoIterator<Item = i64>) -> String {
    let numbers: Vec<String> = jobs.into_iter().map(|job| job.to_string()).collect();
    match numbers.len() {
        0 => "no job".to_owned(),
        1 => format!("job {}", numbers[0]),
        _ => format!("jobs {}", numbers.join(" ")),
    }
}

impl<S: Storage> Player<S> {
    /// On a fresh storage, in which it declares the queues `a`, of one shard, and `b`, of two.
    ///
    /// # Errors
    /// They can't be declared: gives the storage back.
    pub fn new(storage: S) -> Result<Self, (S, Wrong)> {
        let mut player = Self {
            storage,
            ledger: Ledger::default(),
            planted: false,
            lanes: BTreeMap::new(),
            windows: BTreeMap::new(),
            jobs: Vec::new(),
            open: Vec::new(),
            ever: Vec::new(),
            attempts: BTreeMap::new(),
            producers: BTreeMap::new(),
            transactions: 0,
            made: 0,
        };
        match player.declare() {
            Ok(()) => Ok(player),
            Err(wrong) => Err((player.storage, wrong)),
        }
    }

    fn declare(&mut self) -> Result<(), Wrong> {
        for (queue, shards) in [('a', 1), ('b', 2)] {
            let declare = DeclareQueue::new(queue_name(queue)?, shards)?;
            let lanes = self.ask(declare, &mut Acts::all()).map_err(|t| Wrong(t.to_string()))?;
            for lane in lanes {
                let (priority, shard) = (lane.priority.0, lane.shard.0);
                self.lanes.insert(LaneName { queue, priority, shard }, lane.lane);
            }
        }
        Ok(())
    }

    /// Plays one operation, and gives what was said.
    ///
    /// # Errors
    /// What was said is not what is owed.
    pub fn play(&mut self, op: &Op) -> Result<String, Wrong> {
        let Op::Crash(acts, op) = op else {
            return self.told(op, &mut Acts::all());
        };
        let (open, ever) = (self.open.clone(), self.ever.clone());
        let before = self.storage.dump();
        let said = self.told(op, &mut Acts::only(*acts))?;
        // A dead connection takes what was learned over it with it.
        (self.open, self.ever) = (open, ever);
        self.windows.clear();
        if said == Trouble::Crashed.to_string() {
            let after = self.storage.dump();
            if !many_transactions(op) && before != after {
                return Err(Wrong(format!("{op} crashed and left something behind")));
            }
            Ok(said)
        } else {
            Ok(format!("crashed, and nobody heard: {said}"))
        }
    }

    fn told(&mut self, op: &Op, acts: &mut Acts) -> Result<String, Wrong> {
        match self.act(op, acts)? {
            Ok(said) => Ok(said),
            Err(trouble) => match trouble {
                Trouble::Refused(_) | Trouble::Crashed => Ok(trouble.to_string()),
                // With a planted row they are what must be said (H30, H31).
                Trouble::DuplicateKey | Trouble::Bug(_) if self.planted => Ok(trouble.to_string()),
                Trouble::DuplicateKey | Trouble::Bug(_) | Trouble::Other(_) => {
                    Err(Wrong(format!("{op}: {trouble}")))
                }
            },
        }
    }

    fn act(&mut self, op: &Op, acts: &mut Acts) -> Said {
        match op {
            Op::Enqueue(batch) => self.enqueue(*batch, acts),
            Op::Copy(batch) => self.copy(*batch, acts),
            Op::Schedule(batch, s) => self.schedule(*batch, *s, acts),
            Op::Begin { producer, repeatable_read } => self.begin(*producer, *repeatable_read),
            Op::Produce(producer, batch) => self.produce(*producer, *batch),
            Op::Commit(producer) => self.end(*producer, true),
            Op::Abort(producer) => self.end(*producer, false),
            Op::Promote(limit) => self.promote(*limit, acts),
            Op::Claim { lane, limit, for_s } => self.claim(*lane, *limit, *for_s, acts),
            Op::Finish(whose, how) => self.finish(whose, *how, acts),
            Op::Rescue => self.rescue(acts),
            Op::Cancel(which) => self.cancel(*which, acts),
            Op::Delete(which) => self.delete(*which, acts),
            Op::Retry(scope) => self.retry(*scope, acts),
            Op::Discard(scope) => self.discard(*scope, acts),
            Op::Rotate(ring) => self.rotate(*ring, acts),
            Op::Prune { ring, slot, keep_s } => self.prune(*ring, *slot, *keep_s, acts),
            Op::Rollup => self.rollup(acts),
            Op::Rebuild => self.rebuild(acts),
            Op::Distrust => self.distrust(acts),
            Op::Counts(queue) => self.counts(*queue),
            Op::Show(which) => self.show(*which),
            Op::Advance(span) => {
                self.storage.advance(*span);
                Ok(Ok(format!("{span} later")))
            }
            Op::Restart => {
                self.windows.clear();
                self.open.clear();
                Ok(Ok("the worker knows nothing".to_owned()))
            }
            Op::Crash(..) => Err(Wrong("a crash within a crash".to_owned())),
            Op::Plant { lane, seq, job, slot, generation } => {
                let (at, lane) = (segment(*slot, *generation), self.lane(*lane)?);
                self.storage.plant_failure(at, lane, *seq, *job);
                self.planted = true;
                Ok(Ok("planted".to_owned()))
            }
        }
    }

    pub(super) fn ask<M, O>(&mut self, machine: M, acts: &mut Acts) -> Result<O, Trouble>
    where
        M: Machine<Outcome = Result<O, Refusal>>,
    {
        self.storage.run(machine, acts)?.map_err(Trouble::Refused)
    }

    /// Tells the Ledger, unless it can't know what there is.
    pub(super) fn owe(&mut self, tell: impl FnOnce(&mut Ledger) -> Judged) -> Result<(), Wrong> {
        if self.planted {
            return Ok(());
        }
        Ok(tell(&mut self.ledger)?)
    }

    /// Now, on a clock that all instants in the Ledger are of.
    pub(super) fn clock(&mut self) -> i64 {
        let now = self.storage.now();
        now.after(self.storage.shifted()).unix_us()
    }

    pub(super) fn lane(&self, name: LaneName) -> Result<LaneId, Wrong> {
        self.lanes.get(&name).copied().ok_or_else(|| Wrong(format!("there is no lane {name}")))
    }

    pub(super) fn which(&self, which: Which) -> Option<JobId> {
        match which {
            Which::Job(job) => Some(JobId(job)),
            Which::Any(n) => {
                let back = usize::from(n).checked_rem(self.jobs.len())?;
                Some(JobId(self.jobs[self.jobs.len() - 1 - back]))
            }
        }
    }

    /// Jobs to be enqueued, and what is owed for each once its id is known.
    fn make(
        &mut self,
        batch: Batch,
        run_at: Option<i64>,
    ) -> Result<(Vec<NewJob>, Vec<Owed>), Wrong> {
        let lane = self.lane(batch.lane)?;
        let LaneName { queue, priority, shard } = batch.lane;
        let kind = Kind::new(batch.kind.encode_utf8(&mut [0; 4]))?;
        let payload = batch.tagged.then(|| r#"{"tags": ["t"]}"#.to_owned());
        let (mut jobs, mut owed) = (Vec::new(), Vec::new());
        for _ in 0..batch.count {
            self.made += 1;
            let args = format!(r#"{{"n": {}}}"#, self.made);
            owed.push(Owed {
                job: 0,
                lane: Lane { queue: numbered(queue), priority, shard },
                kind: numbered(batch.kind),
                body: digest(kind.as_str(), &args, batch.attempts, payload.as_deref()),
                max_attempts: batch.attempts,
                run_at_us: run_at,
            });
            let attempts = i64::from(batch.attempts);
            jobs.push(NewJob::new(lane, kind.clone(), args, attempts, payload.clone())?);
        }
        Ok((jobs, owed))
    }

    /// A producer's transaction that begins and ends here.
    fn entered(
        &mut self,
        ids: Result<Vec<JobId>, Trouble>,
        owed: Vec<Owed>,
    ) -> Result<Result<String, Trouble>, Wrong> {
        self.transactions += 1;
        let transaction = self.transactions;
        self.owe(|ledger| ledger.begin_enqueue(transaction))?;
        match ids {
            Ok(ids) => {
                let owed = named(&ids, owed)?;
                self.owe(|ledger| ledger.commit_enqueue(transaction, &owed))?;
                self.jobs.extend(ids.iter().map(|id| id.0));
                Ok(Ok(listed(ids.iter().map(|id| id.0))))
            }
            Err(trouble) => {
                self.owe(|ledger| ledger.abort_enqueue(transaction))?;
                Ok(Err(trouble))
            }
        }
    }

    fn enqueue(&mut self, batch: Batch, acts: &mut Acts) -> Said {
        let (jobs, owed) = self.make(batch, None)?;
        let ids = self.ask(Enqueue::new(jobs)?, acts).map(|done| done.jobs);
        self.entered(ids, owed)
    }

    fn copy(&mut self, batch: Batch, acts: &mut Acts) -> Said {
        let (jobs, owed) = self.make(batch, None)?;
        let copied = self.ask(EnqueueCopy::new(jobs)?, acts).map(|copied| copied.rows);
        let ids = match copied {
            Ok(_) => Ok(self.unknown_jobs()?),
            Err(trouble) => Err(trouble),
        };
        self.entered(ids, owed)
    }

    fn schedule(&mut self, batch: Batch, in_s: u64, acts: &mut Acts) -> Said {
        let run_at: Instant = self.storage.now().after(Span::from_secs(in_s));
        let owed_at = run_at.after(self.storage.shifted()).unix_us();
        let (jobs, owed) = self.make(batch, Some(owed_at))?;
        let jobs = jobs.into_iter().map(|job| (job, run_at)).collect();
        let ids = self.ask(EnqueueDeferred::new(jobs)?, acts).map(|done| done.jobs);
        self.entered(ids, owed)
    }

    fn begin(&mut self, producer: u8, repeatable_read: bool) -> Said {
        if self.producers.contains_key(&producer) {
            return Ok(Ok(format!("p{producer} is open")));
        }
        self.storage.begin(producer, repeatable_read);
        if repeatable_read {
            // Its snapshot is that of its first statement.
            if let Err(trouble) = self.storage.say(producer, vec![Step::ReadCursor]) {
                return Ok(Err(trouble));
            }
        }
        self.transactions += 1;
        let transaction = self.transactions;
        self.owe(|ledger| ledger.begin_enqueue(transaction))?;
        self.producers.insert(producer, (transaction, Vec::new()));
        Ok(Ok("open".to_owned()))
    }

    fn produce(&mut self, producer: u8, batch: Batch) -> Said {
        if !self.producers.contains_key(&producer) {
            return Ok(Ok(format!("p{producer} is not open")));
        }
        let (jobs, owed) = self.make(batch, None)?;
        let mut machine = Enqueue::new(jobs)?;
        let replies = match self.storage.say(producer, machine.take_steps()) {
            Ok(replies) => replies,
            Err(trouble) => {
                self.end(producer, false)?.map_err(|t| Wrong(t.to_string()))?;
                return Ok(Err(trouble));
            }
        };
        let ids = match machine.resume(replies) {
            Turn::Commit(Ok(done)) => done.jobs,
            turn => return Err(Wrong(format!("p{producer}: {turn:?}"))),
        };
        let owed = named(&ids, owed)?;
        if let Some((_, all)) = self.producers.get_mut(&producer) {
            all.extend(owed);
        }
        Ok(Ok(listed(ids.iter().map(|id| id.0))))
    }

    fn end(&mut self, producer: u8, commits: bool) -> Said {
        let Some((transaction, owed)) = self.producers.remove(&producer) else {
            return Ok(Ok(format!("p{producer} is not open")));
        };
        self.storage.end(producer, commits);
        if !commits {
            self.owe(|ledger| ledger.abort_enqueue(transaction))?;
            return Ok(Ok("undone".to_owned()));
        }
        self.owe(|ledger| ledger.commit_enqueue(transaction, &owed))?;
        self.jobs.extend(owed.iter().map(|job| job.job as i64));
        Ok(Ok("committed".to_owned()))
    }

    fn promote(&mut self, limit: u16, acts: &mut Acts) -> Said {
        let promoted = match self.ask(Promote::new(limit.into())?, acts) {
            Ok(promoted) => promoted,
            Err(trouble) => return Ok(Err(trouble)),
        };
        let jobs: Vec<i64> = promoted.jobs.iter().map(|(job, _)| job.0).collect();
        let ids: Vec<u64> = jobs.iter().map(|job| *job as u64).collect();
        let now = promoted.now.after(self.storage.shifted()).unix_us();
        self.owe(|ledger| ledger.promote(&ids, now, usize::from(limit), true))?;
        Ok(Ok(listed(jobs)))
    }

    /// Ends all that is open: producers roll back.
    ///
    /// # Errors
    /// The Ledger's.
    pub fn quiesce(&mut self) -> Result<(), Wrong> {
        let open: Vec<u8> = self.producers.keys().copied().collect();
        for producer in open {
            self.end(producer, false)?.map_err(|trouble| Wrong(trouble.to_string()))?;
        }
        Ok(())
    }
}

/// What is owed, with the ids that the jobs were given.
fn named(ids: &[JobId], owed: Vec<Owed>) -> Result<Vec<Owed>, Wrong> {
    if ids.len() != owed.len() {
        return Err(Wrong(format!("{} jobs were enqueued, {} ids came", owed.len(), ids.len())));
    }
    Ok(owed.into_iter().zip(ids).map(|(job, id)| Owed { job: id.0 as u64, ..job }).collect())
}

/// Whether an operation may have committed a part of it before it crashed.
fn many_transactions(op: &Op) -> bool {
    matches!(op, Op::Finish(..) | Op::Rollup)
}

const fn segment(slot: i32, generation: i64) -> Segment {
    Segment { slot: awa_core::Slot(slot), generation: awa_core::Generation(generation) }
}
