//! What is compared: Awa, a plain table, and the floor, behind the few calls that each has.

mod clocked;
mod floor;
mod ours;
mod plain;

use std::future::Future;

use anyhow::Result;

pub(crate) use clocked::Clocked;
pub(crate) use floor::Floor;
pub(crate) use ours::{Ours, SCHEMA, failure, lane};
pub(crate) use plain::{Plain, PlainWorker};

use crate::lab::Place;

/// A kind of job that does nothing.
pub(crate) const KIND: &str = "noop";
/// What a failed attempt says.
pub(crate) const ERROR: &str = "connection refused: upstream at 10.0.0.7:8443";

/// The queue with this number.
pub(crate) fn queue_name(queue: usize) -> String {
    format!("q{queue}")
}

/// Args of about `bytes` bytes, never all the same, so that nothing compresses to nothing.
pub(crate) fn args(bytes: usize, number: u64) -> String {
    const FRAME: usize = r#"{"n":00000000,"pad":""}"#.len();
    let mut text = format!(r#"{{"n":{:08},"pad":""#, 10_000_000 + number % 90_000_000);
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for _ in FRAME..bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        text.push(char::from(b'a' + (state % 26) as u8));
    }
    text.push_str("\"}");
    text
}

/// One way to keep a queue in PostgreSQL.
pub(crate) trait Contender: Clone + Send + Sync + Sized + 'static {
    /// Its name in tables and charts.
    const NAME: &'static str;
    /// Jobs that a claim gave.
    type Taken: Send + 'static;
    /// What enqueues.
    type Producer: Producer;
    /// What claims.
    type Claimer: Claimer<Self::Taken>;
    /// What completes.
    type Completer: Completer<Self::Taken>;

    /// Makes its tables and `queues` queues.
    fn install(place: &Place, queues: usize) -> impl Future<Output = Result<Self>> + Send;
    /// What its owner would do after a bulk load. Awa needs nothing.
    fn settle(place: &Place) -> impl Future<Output = Result<()>> + Send;
    /// One more producer.
    fn producer(&self) -> impl Future<Output = Result<Self::Producer>> + Send;
    /// So many producers: each a process of its own, or all of one process, which then share what a service
    /// would share.
    fn producers(
        &self,
        count: usize,
        one_process: bool,
    ) -> impl Future<Output = Result<Vec<Self::Producer>>> + Send;
    /// A claimer for each queue; all share one connection, as in a worker.
    fn claimers(&self, queues: usize) -> impl Future<Output = Result<Vec<Self::Claimer>>> + Send;
    /// One more completer.
    fn completer(&self) -> impl Future<Output = Result<Self::Completer>> + Send;
}

/// Appends jobs: each call is a transaction.
pub(crate) trait Producer: Send + 'static {
    /// Appends jobs with these args to a queue.
    fn enqueue(
        &mut self,
        queue: usize,
        args: Vec<String>,
    ) -> impl Future<Output = Result<()>> + Send;
    /// The same by COPY.
    fn copy(&mut self, queue: usize, args: Vec<String>) -> impl Future<Output = Result<()>> + Send;
}

/// Claims jobs of one queue: each call is a transaction.
pub(crate) trait Claimer<Taken>: Send + 'static {
    /// Up to `limit` jobs with their args; `None` if there are none.
    fn claim(
        &mut self,
        limit: usize,
    ) -> impl Future<Output = Result<Option<(Taken, usize)>>> + Send;
}

/// Completes what was claimed: each call is a transaction.
pub(crate) trait Completer<Taken>: Send + 'static {
    /// All of a claim.
    fn complete(&mut self, taken: Taken) -> impl Future<Output = Result<()>> + Send;
}

/// What can also say that jobs failed for good, and why: each call is a transaction.
pub(crate) trait Ender<Taken>: Completer<Taken> {
    /// Ends all of a claim: in failure those of whose place in the claim `fails` says so.
    fn end(
        &mut self,
        taken: Taken,
        fails: impl Fn(usize) -> bool + Send,
    ) -> impl Future<Output = Result<()>> + Send;
}

/// A connection for each producer, where a process has no more to share.
async fn apart<C: Contender>(contender: &C, count: usize) -> Result<Vec<C::Producer>> {
    let mut producers = Vec::new();
    for _ in 0..count {
        producers.push(contender.producer().await?);
    }
    Ok(producers)
}

#[cfg(test)]
mod tests {
    use super::args;

    #[test]
    fn args_are_as_long_as_they_should_be() {
        for bytes in [28, 100, 1000, 100_000] {
            assert_eq!(args(bytes, 7).len(), bytes);
        }
        assert_ne!(args(100, 1), args(100, 2));
    }
}
