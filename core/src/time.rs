//! Instants of the database's clock, and spans between them. The only clock is PostgreSQL's:
//! an instant enters through a reply, and arithmetic on it saturates.

use core::fmt;
use core::time::Duration;

/// Microseconds since 1970-01-01 UTC on the database's clock, as exact as `timestamptz`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Instant(i64);

/// The first instant that `timestamptz` can hold: 4713-01-01 BC, in microseconds.
const FIRST_US: i64 = -210_866_803_200_000_000;
/// The last instant whose microseconds since 1970 both an `i64` and a `timestamptz` can hold.
const LAST_US: i64 = 9_223_371_331_199_999_999 - 946_684_800_000_000;

impl Instant {
    /// The earliest instant that can be stored.
    pub const FIRST: Self = Self(FIRST_US);
    /// The latest instant that can be stored.
    pub const LAST: Self = Self(LAST_US);

    /// `us` microseconds after 1970; saturates at [`Instant::FIRST`] and [`Instant::LAST`].
    #[must_use]
    pub const fn from_unix_us(us: i64) -> Self {
        if us < FIRST_US {
            Self::FIRST
        } else if us > LAST_US {
            Self::LAST
        } else {
            Self(us)
        }
    }

    /// Microseconds since 1970.
    #[must_use]
    pub const fn unix_us(self) -> i64 {
        self.0
    }

    /// This instant plus `span`, saturating.
    #[must_use]
    pub const fn after(self, span: Span) -> Self {
        Self::from_unix_us(self.0.saturating_add(span.us()))
    }

    /// This instant less `span`, saturating: "keep for ever" gives [`Instant::FIRST`].
    #[must_use]
    pub const fn before(self, span: Span) -> Self {
        Self::from_unix_us(self.0.saturating_sub(span.us()))
    }

    /// How long ago `earlier` was; zero if it lies ahead.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Span {
        let us = self.0.saturating_sub(earlier.0);
        Span::from_us(if us < 0 { 0 } else { us as u64 })
    }
}

impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (s, us) = (self.0.div_euclid(1_000_000), self.0.rem_euclid(1_000_000));
        if us == 0 { write!(f, "t{s}s") } else { write!(f, "t{s}.{us:06}s") }
    }
}

/// A length of time in whole microseconds, never negative. Longer than `i64` microseconds
/// (292,000 years) saturates: arithmetic with it means "for ever".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Span(i64);

impl Span {
    /// No time.
    pub const ZERO: Self = Self(0);
    /// Longer than anything that can be stored.
    pub const FOREVER: Self = Self(i64::MAX);

    /// `us` microseconds.
    #[must_use]
    pub const fn from_us(us: u64) -> Self {
        if us > i64::MAX as u64 { Self::FOREVER } else { Self(us as i64) }
    }

    /// `ms` milliseconds.
    #[must_use]
    pub const fn from_ms(ms: u64) -> Self {
        Self::from_us(ms.saturating_mul(1_000))
    }

    /// `s` seconds.
    #[must_use]
    pub const fn from_secs(s: u64) -> Self {
        Self::from_us(s.saturating_mul(1_000_000))
    }

    /// Microseconds.
    #[must_use]
    pub const fn us(self) -> i64 {
        self.0
    }

    /// Whole milliseconds, rounded up, so that a waiter never wakes early.
    #[must_use]
    pub const fn ms_up(self) -> u64 {
        (self.0 as u64).div_ceil(1_000)
    }

    /// Whole seconds, rounded down.
    #[must_use]
    pub const fn whole_secs(self) -> i64 {
        self.0 / 1_000_000
    }

    /// Whether this is no time at all.
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
}

impl From<Duration> for Span {
    fn from(d: Duration) -> Self {
        Self::from_us(u64::try_from(d.as_micros()).unwrap_or(u64::MAX))
    }
}

impl From<Span> for Duration {
    fn from(s: Span) -> Self {
        Self::from_micros(s.0 as u64)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            i64::MAX => f.write_str("for ever"),
            us if us % 1_000_000 == 0 => write!(f, "{}s", us / 1_000_000),
            us if us % 1_000 == 0 => write!(f, "{}ms", us / 1_000),
            us => write!(f, "{us}us"),
        }
    }
}
