//! A machine decides; a driver does. `start` and `resume` give a [`Turn`]; between them lies one
//! flush of steps.
//!
//! A machine is one transaction. Its outcome is an `Ok` that says what became of the operation, or
//! the [`Refusal`](crate::Refusal) that undid it: then nothing changed and it can be tried again.
//! Work that takes several transactions hands out machines one by one and adds up their outcomes:
//! [`close::Finish`], [`retry::RetryFailed`], [`retry::DiscardFailed`].

use alloc::vec::Vec;

use crate::fault::Fault;
use crate::reply::Reply;
use crate::step::Step;

pub mod cancel;
pub mod claim;
pub mod close;
pub mod declare;
pub mod delete;
pub mod enqueue;
pub mod explain;
pub mod poll;
pub mod promote;
pub mod prune;
pub mod read;
pub mod rebuild;
mod replies;
pub mod rescue;
pub mod retry;
pub mod rollup;
pub mod rotate;
pub mod walk;

/// What a machine wants next.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Turn<O> {
    /// Run these in order, in the machine's transaction, in one flush; resume with a reply for each
    /// up to the first refusal.
    Ask(Vec<Step>),
    /// The same with COMMIT in the flush: nothing is left to decide. Resume with the replies once
    /// the COMMIT is confirmed, or with those up to the refusal that undid it.
    Last(Vec<Step>),
    /// Commit (unless `Last` has) and give this to the caller.
    Commit(O),
    /// Roll back (unless a refusal has) and give this to the caller.
    Rollback(O),
    /// The books don't balance: roll back and report.
    Bug(Fault),
}

/// An operation of the engine as a plain value.
pub trait Machine {
    /// What the caller gets.
    type Outcome;

    /// The first turn. Called once.
    fn start(&mut self) -> Turn<Self::Outcome>;

    /// The turn after the steps that were asked for.
    fn resume(&mut self, replies: Vec<Reply>) -> Turn<Self::Outcome>;
}
