//! When each flush of a machine was asked for and answered, and how long its locks kept others waiting.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use awa::Client;
use awa::core::{Machine, Reply, Step, Turn};
use tokio::sync::oneshot;

use crate::calls::{self, Latency};
use crate::contender::SCHEMA;
use crate::lab::{Place, connect};

/// Between two reads of a table that is watched: what a reader waited is too short by so much at most.
const PAUSE: Duration = Duration::from_millis(1);

/// A machine whose flushes are timed. Gives the times beside its own outcome.
struct Timed<M> {
    machine: M,
    asked: Option<(Vec<&'static str>, Instant)>,
    flushes: Vec<Flush>,
    /// Who is to be told when this step is asked for.
    telling: Option<(&'static str, oneshot::Sender<()>)>,
}

/// One flush: preparing what the connection had not met before, sending, and reading all answers.
struct Flush {
    steps: Vec<&'static str>,
    asked: Instant,
    answered: Instant,
}

/// The flushes of one machine, in order.
pub(crate) struct Times(Vec<Flush>);

/// What a machine did to itself and to others.
pub(crate) struct Watched<O> {
    pub(crate) outcome: O,
    pub(crate) times: Times,
    /// How long a reader waited at most for the table that was watched; next to nothing if it was never locked.
    pub(crate) waited: Duration,
}

/// Runs a machine. From the flush with `step` on, another session reads `table` again and again: it waits for
/// as long as the table is held exclusively, which is less than until COMMIT is answered, since PostgreSQL
/// removes files after it has released the locks. Its reads are among the transactions.
pub(crate) async fn watched<M: Machine>(
    place: &Place,
    client: &Client,
    machine: M,
    (step, table): (&'static str, &str),
) -> Result<Watched<M::Outcome>> {
    let reader = connect(&place.url).await?;
    let query = format!("select from {SCHEMA}.{table} limit 1");
    reader.batch_execute(&query).await.context("reading the table that is watched")?;
    let (tell, told) = oneshot::channel();
    let over = Arc::new(AtomicBool::new(false));
    let is_over = Arc::clone(&over);
    let reading = tokio::spawn(async move {
        let mut longest = Duration::ZERO;
        // Who tells may go without telling: then the machine never came so far.
        let mut reads = told.await.is_ok();
        while reads {
            let asked = Instant::now();
            reader.batch_execute(&query).await?;
            longest = longest.max(asked.elapsed());
            reads = !is_over.load(Ordering::Relaxed);
            // Reading all the time would be most of what the server does.
            tokio::time::sleep(PAUSE).await;
        }
        anyhow::Ok(longest)
    });
    let ran = client.run(Timed::new(machine, Some((step, tell)))).await;
    over.store(true, Ordering::Relaxed);
    let waited = reading.await??;
    let (outcome, times) = ran?;
    Ok(Watched { outcome, times, waited })
}

impl<M> Timed<M> {
    fn new(machine: M, telling: Option<(&'static str, oneshot::Sender<()>)>) -> Self {
        Self { machine, asked: None, flushes: Vec::new(), telling }
    }

    fn timed<O>(&mut self, turn: Turn<O>) -> Turn<(O, Times)> {
        match turn {
            Turn::Ask(steps) => {
                self.ask(&steps);
                Turn::Ask(steps)
            }
            Turn::Last(steps) => {
                self.ask(&steps);
                Turn::Last(steps)
            }
            Turn::Commit(outcome) => Turn::Commit((outcome, self.times())),
            Turn::Rollback(outcome) => Turn::Rollback((outcome, self.times())),
            Turn::Bug(fault) => Turn::Bug(fault),
        }
    }

    fn ask(&mut self, steps: &[Step]) {
        let names: Vec<_> = steps.iter().map(Step::name).collect();
        if let Some((_, tell)) = self.telling.take_if(|(step, _)| names.contains(step)) {
            // The reader is there until it is told or this is dropped.
            let _ = tell.send(());
        }
        self.asked = Some((names, Instant::now()));
    }

    fn times(&mut self) -> Times {
        Times(std::mem::take(&mut self.flushes))
    }
}

impl<M: Machine> Machine for Timed<M> {
    type Outcome = (M::Outcome, Times);

    fn start(&mut self) -> Turn<Self::Outcome> {
        let turn = self.machine.start();
        self.timed(turn)
    }

    fn resume(&mut self, replies: Vec<Reply>) -> Turn<Self::Outcome> {
        if let Some((steps, asked)) = self.asked.take() {
            self.flushes.push(Flush { steps, asked, answered: Instant::now() });
        }
        let turn = self.machine.resume(replies);
        self.timed(turn)
    }
}

impl Times {
    /// From the first question to the last answer; zero for a machine that asked nothing.
    pub(crate) fn total(&self) -> Duration {
        match (self.0.first(), self.0.last()) {
            (Some(first), Some(last)) => last.answered - first.asked,
            _ => Duration::ZERO,
        }
    }

    /// Those of the machine as one call.
    pub(crate) fn latency(&self) -> Option<Latency> {
        let call = calls::Times::new();
        call.record(self.total());
        call.latency()
    }

    /// The flush with this step. `None`: the machine never came to it.
    pub(crate) fn of(&self, step: &str) -> Option<Duration> {
        let flush = self.0.iter().find(|flush| flush.steps.contains(&step))?;
        Some(flush.answered - flush.asked)
    }
}

/// In milliseconds.
pub(crate) fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use awa::core::Ring;

    /// Two flushes, and what their replies were worth.
    struct Two(usize);

    impl Machine for Two {
        type Outcome = usize;

        fn start(&mut self) -> Turn<usize> {
            Turn::Ask(vec![Step::LockRing { ring: Ring::Queue }])
        }

        fn resume(&mut self, _replies: Vec<Reply>) -> Turn<usize> {
            self.0 += 1;
            match self.0 {
                1 => Turn::Last(vec![Step::FindDeltas]),
                answers => Turn::Commit(answers),
            }
        }
    }

    #[test]
    fn each_flush_is_timed_and_nothing_is_changed() {
        let (tell, mut told) = oneshot::channel();
        let mut machine = Timed::new(Two(0), Some(("FindDeltas", tell)));
        assert!(matches!(machine.start(), Turn::Ask(steps) if steps.len() == 1));
        assert!(told.try_recv().is_err());
        std::thread::sleep(Duration::from_millis(5));
        let last = machine.resume(Vec::new());
        assert!(matches!(last, Turn::Last(steps) if steps == [Step::FindDeltas]));
        assert!(told.try_recv().is_ok());
        let Turn::Commit((outcome, times)) = machine.resume(Vec::new()) else {
            panic!("it commits")
        };
        assert_eq!(outcome, 2);
        let (first, last) = (times.of("LockRing").unwrap(), times.of("FindDeltas").unwrap());
        assert!(first >= Duration::from_millis(5));
        assert!(times.total() >= first + last);
        assert_eq!(times.of("Exclude"), None);
    }
}
