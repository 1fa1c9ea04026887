//! What can happen, and how it is written: [`std::fmt::Display`] here, [`std::str::FromStr`] beside
//! it. A history that failed can be pasted into a scenario file as it was printed.

use std::fmt;

use awa_core::{Ring, Slot, Span};

/// A lane by what it stands for, as `a/2` or, in another shard than the first, `b/2/1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneName {
    /// `a` or `b`.
    pub queue: char,
    /// 1 to 4.
    pub priority: i16,
    /// From 0.
    pub shard: i16,
}

/// Jobs of one making.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Batch {
    /// How many.
    pub count: u8,
    /// Where to.
    pub lane: LaneName,
    /// `k` or `l`.
    pub kind: char,
    /// Attempts that each is given.
    pub attempts: i16,
    /// Whether they have a tag, which keeps them off the compact path (`R026-15`).
    pub tagged: bool,
}

/// Which attempts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Whose {
    /// All that the worker knows to be open.
    All,
    /// One of those, counted round.
    Any(u16),
    /// One of all that it ever had, counted round: perhaps long over (H15).
    Old(u16),
    /// The newest of each of these jobs; a job may be named twice (H14).
    Jobs(Vec<i64>),
}

/// Which job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Which {
    /// This one.
    Job(i64),
    /// One of those ever enqueued, counted back from the newest, and round.
    Any(u16),
}

/// Which failed jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// One job, also if it was cancelled.
    One(Which),
    /// Of a kind.
    Kind(char),
    /// Of a queue.
    Queue(char),
}

/// How attempts end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum How {
    /// Well.
    Complete,
    /// For good.
    Fail,
    /// To be tried again after so many seconds, while attempts remain.
    Postpone(u64),
    /// Stopped by their worker.
    HandBack,
}

/// One operation.
#[allow(missing_docs, reason = "a variant's own text says what its fields are")]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// A producer's transaction of its own: `enqueue 3 a/2`.
    Enqueue(Batch),
    /// The same by COPY.
    Copy(Batch),
    /// Jobs for later: `schedule 3 a/2 in 50s`.
    Schedule(Batch, u64),
    /// A producer's transaction opens: `begin p1`, or `begin p1 repeatable read`.
    Begin {
        producer: u8,
        repeatable_read: bool,
    },
    /// Jobs in it: `produce p1 3 a/2`.
    Produce(u8, Batch),
    Commit(u8),
    Abort(u8),
    /// Up to so many due jobs enter their lanes.
    Promote(u16),
    /// `claim a/2 10`, or with a deadline `claim a/2 10 for 50s`.
    Claim {
        lane: LaneName,
        limit: u16,
        for_s: Option<u64>,
    },
    /// `complete all`, `fail any 3`, `postpone job 7 by 50s`, `hand back all`.
    Finish(Whose, How),
    /// Overdue attempts end.
    Rescue,
    Cancel(Which),
    /// A completed job is deleted from history.
    Delete(Which),
    Retry(Scope),
    Discard(Scope),
    Rotate(Ring),
    /// `prune queue keep 50s`, `prune queue slot 2 keep all`. `None`: for ever.
    Prune {
        ring: Ring,
        slot: Option<Slot>,
        keep_s: Option<u64>,
    },
    Rollup,
    Rebuild,
    Distrust,
    /// The exact counts of a queue.
    Counts(char),
    /// The whole job.
    Show(Which),
    /// Time passes: `advance 50s`, `advance 1us`.
    Advance(Span),
    /// The worker starts again: it knows nothing of its lanes or attempts.
    Restart,
    /// The backend dies so many acts after the operation has begun; what it says later is lost.
    Crash(u32, Box<Op>),
    /// A narrow failure appears that no attempt left: `plant a/2 at 7 job 3 slot 1 2`: position, job,
    /// slot and generation.
    Plant {
        lane: LaneName,
        seq: i64,
        job: i64,
        slot: i32,
        generation: i64,
    },
}

impl fmt::Display for LaneName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.queue, self.priority)?;
        if self.shard == 0 { Ok(()) } else { write!(f, "/{}", self.shard) }
    }
}

impl fmt::Display for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.count, self.lane)?;
        if self.kind != 'k' {
            write!(f, " kind {}", self.kind)?;
        }
        if self.attempts != 3 {
            write!(f, " attempts {}", self.attempts)?;
        }
        f.write_str(if self.tagged { " tagged" } else { "" })
    }
}

impl fmt::Display for Whose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Any(n) => write!(f, "any {n}"),
            Self::Old(n) => write!(f, "old {n}"),
            Self::Jobs(jobs) => {
                f.write_str("job")?;
                jobs.iter().try_for_each(|job| write!(f, " {job}"))
            }
        }
    }
}

impl fmt::Display for Which {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Job(job) => write!(f, "job {job}"),
            Self::Any(n) => write!(f, "any {n}"),
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(which) => which.fmt(f),
            Self::Kind(kind) => write!(f, "kind {kind}"),
            Self::Queue(queue) => write!(f, "queue {queue}"),
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Enqueue(batch) => write!(f, "enqueue {batch}"),
            Self::Copy(batch) => write!(f, "copy {batch}"),
            Self::Schedule(batch, s) => write!(f, "schedule {batch} in {s}s"),
            Self::Begin { producer, repeatable_read } => {
                let level = if *repeatable_read { " repeatable read" } else { "" };
                write!(f, "begin p{producer}{level}")
            }
            Self::Produce(producer, batch) => write!(f, "produce p{producer} {batch}"),
            Self::Commit(producer) => write!(f, "commit p{producer}"),
            Self::Abort(producer) => write!(f, "abort p{producer}"),
            Self::Promote(limit) => write!(f, "promote {limit}"),
            Self::Claim { lane, limit, for_s: None } => write!(f, "claim {lane} {limit}"),
            Self::Claim { lane, limit, for_s: Some(s) } => {
                write!(f, "claim {lane} {limit} for {s}s")
            }
            Self::Finish(whose, How::Complete) => write!(f, "complete {whose}"),
            Self::Finish(whose, How::Fail) => write!(f, "fail {whose}"),
            Self::Finish(whose, How::Postpone(s)) => write!(f, "postpone {whose} by {s}s"),
            Self::Finish(whose, How::HandBack) => write!(f, "hand back {whose}"),
            Self::Rescue => f.write_str("rescue"),
            Self::Cancel(which) => write!(f, "cancel {which}"),
            Self::Delete(which) => write!(f, "delete {which}"),
            Self::Retry(scope) => write!(f, "retry {scope}"),
            Self::Discard(scope) => write!(f, "discard {scope}"),
            Self::Rotate(ring) => write!(f, "rotate {ring}"),
            Self::Prune { ring, slot, keep_s } => {
                write!(f, "prune {ring}")?;
                if let Some(slot) = slot {
                    write!(f, " {slot}")?;
                }
                match keep_s {
                    Some(s) => write!(f, " keep {s}s"),
                    None => f.write_str(" keep all"),
                }
            }
            Self::Rollup => f.write_str("rollup"),
            Self::Rebuild => f.write_str("rebuild"),
            Self::Distrust => f.write_str("distrust"),
            Self::Counts(queue) => write!(f, "counts {queue}"),
            Self::Show(which) => write!(f, "show {which}"),
            Self::Advance(s) => write!(f, "advance {s}"),
            Self::Restart => f.write_str("restart"),
            Self::Crash(acts, op) => write!(f, "crash after {acts}: {op}"),
            Self::Plant { lane, seq, job, slot, generation } => {
                write!(f, "plant {lane} at {seq} job {job} slot {slot} {generation}")
            }
        }
    }
}
