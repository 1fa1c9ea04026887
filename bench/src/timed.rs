//! When each flush of a machine was asked for and answered: how long a prune holds a lock shows nowhere else.

use std::time::{Duration, Instant};

use awa::core::{Machine, Reply, Turn};

/// A machine whose flushes are timed. Gives the times beside its own outcome.
pub(crate) struct Timed<M> {
    machine: M,
    asked: Option<(Vec<&'static str>, Instant)>,
    flushes: Vec<Flush>,
}

/// One flush: preparing what the connection had not met before, sending, and reading all answers.
struct Flush {
    steps: Vec<&'static str>,
    asked: Instant,
    answered: Instant,
}

/// The flushes of one machine, in order.
pub(crate) struct Times(Vec<Flush>);

impl<M> Timed<M> {
    pub(crate) fn new(machine: M) -> Self {
        Self { machine, asked: None, flushes: Vec::new() }
    }

    fn timed<O>(&mut self, turn: Turn<O>) -> Turn<(O, Times)> {
        match turn {
            Turn::Ask(steps) => {
                self.asked =
                    Some((steps.iter().map(awa::core::Step::name).collect(), Instant::now()));
                Turn::Ask(steps)
            }
            Turn::Last(steps) => {
                self.asked =
                    Some((steps.iter().map(awa::core::Step::name).collect(), Instant::now()));
                Turn::Last(steps)
            }
            Turn::Commit(outcome) => Turn::Commit((outcome, self.times())),
            Turn::Rollback(outcome) => Turn::Rollback((outcome, self.times())),
            Turn::Bug(fault) => Turn::Bug(fault),
        }
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
        self.since(0)
    }

    /// From the flush with this step to the last answer, which COMMIT has a part in: at least as long as
    /// the step's lock was held. `None`: the machine never came to it.
    pub(crate) fn from(&self, step: &str) -> Option<Duration> {
        Some(self.since(self.place(step)?))
    }

    /// The flush with this step alone.
    pub(crate) fn of(&self, step: &str) -> Option<Duration> {
        let flush = &self.0[self.place(step)?];
        Some(flush.answered - flush.asked)
    }

    fn place(&self, step: &str) -> Option<usize> {
        self.0.iter().position(|flush| flush.steps.contains(&step))
    }

    fn since(&self, place: usize) -> Duration {
        match (self.0.get(place), self.0.last()) {
            (Some(first), Some(last)) => last.answered - first.asked,
            _ => Duration::ZERO,
        }
    }
}

/// In milliseconds; NaN for what never was.
pub(crate) fn ms(time: Option<Duration>) -> f64 {
    time.map_or(f64::NAN, |time| time.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use awa::core::{Ring, Step};

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
        let mut machine = Timed::new(Two(0));
        assert!(matches!(machine.start(), Turn::Ask(steps) if steps.len() == 1));
        std::thread::sleep(Duration::from_millis(5));
        assert!(
            matches!(machine.resume(Vec::new()), Turn::Last(steps) if steps == [Step::FindDeltas])
        );
        let Turn::Commit((outcome, times)) = machine.resume(Vec::new()) else {
            panic!("it commits")
        };
        assert_eq!(outcome, 2);
        let (first, last) = (times.of("LockRing"), times.of("FindDeltas"));
        assert!(first >= Some(Duration::from_millis(5)));
        assert_eq!(times.from("FindDeltas"), last);
        assert_eq!(times.from("LockRing"), Some(times.total()));
        assert!(times.total() >= first.unwrap() + last.unwrap());
        assert_eq!(times.from("Exclude"), None);
    }
}
