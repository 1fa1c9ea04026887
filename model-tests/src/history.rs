//! Histories: operations of the whole engine, one after another, that run on any storage.
//!
//! An [`Op`] is a line of text; a history is a list of them, made up by chance ([`random`]) or
//! written by hand ([`scenario`]). [`Player`] plays one on a [`Storage`] with the machines that ship,
//! tells the [`crate::ledger::Ledger`] what they said, looks at what can be seen, and gives their
//! answers as text: equal text and an equal dump on two storages mean that the two agree.

mod attempts;
mod observe;
mod on_world;
pub mod op;
mod operate;
mod parse;
mod play;
pub mod random;
pub mod scenario;

use std::collections::BTreeMap;
use std::fmt;

use awa_core::{Fault, Instant, Machine, Refusal, Reply, Span, Step};

pub use on_world::OnWorld;
pub use op::Op;
pub use play::{Player, Rings, Wrong};

/// How many acts a session has left before its backend dies. An act is a statement, or the COMMIT or
/// ROLLBACK that ends a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acts(Option<u32>);

impl Acts {
    /// It doesn't die.
    #[must_use]
    pub const fn all() -> Self {
        Self(None)
    }

    /// It dies after `n` acts.
    #[must_use]
    pub const fn only(n: u32) -> Self {
        Self(Some(n))
    }

    /// One act; false: the backend is dead before it.
    pub fn spend(&mut self) -> bool {
        match &mut self.0 {
            None => true,
            Some(0) => false,
            Some(left) => {
                *left -= 1;
                true
            }
        }
    }
}

/// Why a machine gave no outcome. Its transaction is undone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// It can be tried again.
    Refused(Refusal),
    /// The backend died first.
    Crashed,
    /// A row with its key exists (H31).
    DuplicateKey,
    /// The books don't balance.
    Bug(Fault),
    /// Anything else: a fault of the harness.
    Other(String),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => write!(f, "refused: {refusal}"),
            Self::Crashed => f.write_str("crashed"),
            Self::DuplicateKey => f.write_str("raised: a row with its key exists"),
            Self::Bug(fault) => write!(f, "bug: {fault}"),
            Self::Other(what) => write!(f, "trouble: {what}"),
        }
    }
}

/// Something that runs machines: one worker's session, and producers with sessions of their own.
pub trait Storage {
    /// Runs a machine to its end in the worker's session, unless that dies.
    ///
    /// # Errors
    /// See [`Trouble`].
    fn run<M: Machine>(&mut self, machine: M, acts: &mut Acts) -> Result<M::Outcome, Trouble>;

    /// A producer begins a transaction, which stays open.
    fn begin(&mut self, producer: u8, repeatable_read: bool);

    /// Runs statements in a producer's open transaction.
    ///
    /// # Errors
    /// See [`Trouble`]; the transaction can then only be rolled back.
    fn say(&mut self, producer: u8, steps: Vec<Step>) -> Result<Vec<Reply>, Trouble>;

    /// A producer's transaction ends.
    fn end(&mut self, producer: u8, commits: bool);

    /// The database's clock.
    fn now(&mut self) -> Instant;

    /// Time passes: either the clock moves, or all stored instants move the other way.
    fn advance(&mut self, by: Span);

    /// How far [`Storage::advance`] has moved stored instants rather than the clock.
    fn shifted(&self) -> Span;

    /// All tables as [`crate::world::World::dump`] shows them.
    fn dump(&mut self) -> String;

    /// What the storage can say about its own invariants.
    ///
    /// # Errors
    /// The one that doesn't hold.
    fn check(&mut self) -> Result<(), String>;

    /// A narrow failure that no attempt left, at this place: an orphan (H30), or one that stands
    /// where a carry wants to go (H31).
    fn plant_failure(&mut self, at: awa_core::Segment, lane: awa_core::LaneId, seq: i64, job: i64);
}

/// A dump with pending deltas added up by what they count: one statement may write one or several.
#[must_use]
pub fn comparable(dump: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut sums: BTreeMap<String, i64> = BTreeMap::new();
    for line in dump.lines() {
        let delta = line.strip_prefix("queue_terminal_count_deltas: ").and_then(|columns| {
            let (mut key, mut delta) = (Vec::new(), None);
            for column in columns.split(' ') {
                match column.strip_prefix("delta=") {
                    Some(n) => delta = n.parse::<i64>().ok(),
                    None => key.push(column),
                }
            }
            delta.map(|n| (key.join(" "), n))
        });
        match delta {
            Some((key, n)) => *sums.entry(key).or_default() += n,
            None => lines.push(line.to_owned()),
        }
    }
    let sums = sums.into_iter().filter(|(_, n)| *n != 0);
    lines.extend(sums.map(|(key, n)| format!("queue_terminal_count_deltas: {key} sum={n}")));
    lines.sort();
    lines.join("\n") + "\n"
}
