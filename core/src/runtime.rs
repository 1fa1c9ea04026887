//! The decisions of a running process, as machines without a clock.
//!
//! Each takes inputs by `handle_*`, gives outputs by `poll(now)` until that answers `None`, and
//! says by `next_wake` when to poll again if no input comes before. After `poll(now)` answered
//! `None`, `next_wake` is `None` or later than `now`, so a host that follows it never spins. The
//! host owns timers, connections and tasks; nothing is lost if it polls late.

use core::fmt;

use crate::time::Span;

pub mod batcher;
pub mod duties;
pub mod leader;
pub mod lookout;
pub mod policy;
pub mod scheduler;
pub mod wakes;

/// Microseconds on the host's monotonic clock, from any start. It times waiting only and never
/// becomes data: what is stored bears the database's [`crate::Instant`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tick(pub u64);

impl Tick {
    /// This tick plus `span`, saturating.
    #[must_use]
    pub const fn after(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.us() as u64))
    }

    /// How long ago `earlier` was; zero if it lies ahead.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Span {
        Span::from_us(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Display for Tick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tick {}.{:06}s", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}

/// A wait that doubles each time that nothing was found, up to a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pace {
    first: Span,
    longest: Span,
    next: Span,
}

impl Pace {
    /// Starts at `first`; never waits longer than the longer of the two.
    #[must_use]
    pub const fn new(first: Span, longest: Span) -> Self {
        Self { first, longest, next: first }
    }

    /// The wait that is due; the next will be twice as long.
    pub fn widen(&mut self) -> Span {
        let due = self.next;
        self.next = doubled(due).min(self.longest).max(self.first);
        due
    }

    /// Starts again at the first wait and gives it out.
    pub fn restart(&mut self) -> Span {
        self.next = self.first;
        self.widen()
    }
}

/// A wait after failures: it doubles up to a bound, and each is drawn from its upper half, so that
/// many processes that failed together don't come back together. The draw is a function of the
/// seed: the same seed waits the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Backoff {
    pace: Pace,
    draws: u64,
    failures: u32,
}

impl Backoff {
    /// Waits between half of `first` and `longest`. Give each process a `seed` of its own.
    #[must_use]
    pub const fn new(first: Span, longest: Span, seed: u64) -> Self {
        Self { pace: Pace::new(first, longest), draws: seed, failures: 0 }
    }

    /// Notes one more failure and gives the wait before the next try.
    pub fn failed(&mut self) -> Span {
        self.failures = self.failures.saturating_add(1);
        self.draws = self.draws.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let longest = self.pace.widen().us() as u64;
        let half = longest / 2;
        Span::from_us(longest - scrambled(self.draws) % (half + 1))
    }

    /// Forgets the failures.
    pub fn succeeded(&mut self) {
        self.failures = 0;
        self.pace.next = self.pace.first;
    }

    /// How often it failed in a row.
    #[must_use]
    pub const fn failures(&self) -> u32 {
        self.failures
    }
}

const fn doubled(span: Span) -> Span {
    Span::from_us((span.us() as u64).saturating_mul(2))
}

/// The finaliser of splitmix64: neighbouring numbers become unrelated ones.
const fn scrambled(mut n: u64) -> u64 {
    n = (n ^ (n >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    n = (n ^ (n >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    n ^ (n >> 31)
}

/// The earlier of two wakes, where `None` is never.
pub(crate) fn earlier(a: Option<Tick>, b: Option<Tick>) -> Option<Tick> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (one, None) | (None, one) => one,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_saturate() {
        assert_eq!(Tick(5).after(Span::from_us(7)), Tick(12));
        assert_eq!(Tick(u64::MAX).after(Span::FOREVER), Tick(u64::MAX));
        assert_eq!(Tick(7).since(Tick(5)), Span::from_us(2));
        assert_eq!(Tick(5).since(Tick(7)), Span::ZERO);
    }

    #[test]
    fn a_pace_doubles_to_its_bound_and_restarts() {
        let mut pace = Pace::new(Span::from_ms(50), Span::from_ms(300));
        let waits = [(); 5].map(|()| pace.widen().ms_up());
        assert_eq!(waits, [50, 100, 200, 300, 300]);
        assert_eq!(pace.restart(), Span::from_ms(50));
        assert_eq!(pace.widen(), Span::from_ms(100));
        let mut forever = Pace::new(Span::FOREVER, Span::FOREVER);
        assert_eq!([forever.widen(), forever.widen()], [Span::FOREVER; 2]);
    }

    #[test]
    fn a_backoff_stays_in_the_upper_half_and_seeds_differ() {
        let (first, longest) = (Span::from_ms(100), Span::from_secs(5));
        for seed in 0..50 {
            let mut backoff = Backoff::new(first, longest, seed);
            let mut bound = 100_000;
            for failures in 1..=100 {
                let wait = backoff.failed().us();
                assert!(wait * 2 >= bound && wait <= bound, "{wait} after {failures}");
                assert_eq!(backoff.failures(), failures);
                bound = (bound * 2).min(longest.us());
            }
            backoff.succeeded();
            assert_eq!(backoff.failures(), 0);
            assert!(backoff.failed() <= first);
        }
        let first_wait = |seed| Backoff::new(first, longest, seed).failed();
        assert_ne!(first_wait(1), first_wait(2));
        assert_eq!(Backoff::new(Span::ZERO, Span::ZERO, 1).failed(), Span::ZERO);
    }
}
