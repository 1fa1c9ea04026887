//! Rules that two places must agree on. Each has one `eval` here; what PostgreSQL computes by the
//! same rule is rendered by `awa-sqlgen` from one fragment, and a differential test compares the
//! two at the boundary.

use crate::ids::{Attempt, Bucket, JobId};
use crate::limits::{ATTEMPTS_MAX, COUNTER_BUCKETS};
use crate::state::JobState;
use crate::time::{Instant, Span};

/// The failed-retention floor: how long a failed job stays retryable at least (`R032-01`).
/// Whole seconds; zero switches it off; any length is safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Floor(Span);

impl Floor {
    /// 72 hours (`R032-11`).
    pub const DEFAULT: Self = Self(Span::from_secs(72 * 3600));

    /// A floor of `span`, less its fraction of a second.
    #[must_use]
    pub const fn new(span: Span) -> Self {
        if span.us() == Span::FOREVER.us() {
            Self(span)
        } else {
            Self(Span::from_secs(span.whole_secs() as u64))
        }
    }

    /// The length.
    #[must_use]
    pub const fn span(self) -> Span {
        self.0
    }

    /// The instant from which on a failure is kept; `None` when the floor is off.
    #[must_use]
    pub fn cutoff(self, now: Instant) -> Option<Cutoff> {
        (!self.0.is_zero()).then(|| Cutoff(now.before(self.0)))
    }
}

impl core::fmt::Display for Floor {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.0.fmt(f)
    }
}

/// Failures at or after this instant are carried; earlier ones are folded (`R032-02`, `R032-06`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cutoff(pub Instant);

impl core::fmt::Display for Cutoff {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "cutoff {}", self.0)
    }
}

/// Whether prune carries a terminal row (`R032-02`): only `failed`, only inside the floor.
#[must_use]
pub fn is_carried(state: JobState, finalized_at: Instant, cutoff: Option<Cutoff>) -> bool {
    state == JobState::Failed && cutoff.is_some_and(|c| finalized_at >= c.0)
}

/// The counter row that a job's terminal fact counts in. It follows the job id, so that a delete
/// cancels the very bucket that its insert raised (`R026-22`).
#[must_use]
pub const fn counter_bucket(job: JobId) -> Bucket {
    Bucket((job.0.rem_euclid(COUNTER_BUCKETS as i64)) as i16)
}

/// What decides whether a success can be stored compactly (`R026-15`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct BodyTraits {
    /// The job has a unique key.
    pub unique_key: bool,
    /// It has tags.
    pub tags: bool,
    /// It has failed before.
    pub errors: bool,
    /// Its metadata has keys beside `_awa_original_priority` and `_awa_original_queue`.
    pub custom_metadata: bool,
}

/// Whether a success of such a job takes the compact path (`R026-15`).
#[must_use]
pub const fn is_compact_eligible(body: BodyTraits) -> bool {
    !(body.unique_key || body.tags || body.errors || body.custom_metadata)
}

/// What follows an attempt that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AfterFailure {
    /// Try again after this delay.
    Retry(Span),
    /// No attempts are left.
    Terminal,
}

/// The shortest delay before a retry.
pub const BACKOFF_FIRST: Span = Span::from_secs(1);
/// The longest.
pub const BACKOFF_CAP: Span = Span::from_secs(24 * 3600);

/// Delay before attempt `failed + 1`: doubling from [`BACKOFF_FIRST`], at most [`BACKOFF_CAP`]
/// (H19). Every input is legal; attempt 0 counts as the first.
#[must_use]
pub const fn backoff(failed: Attempt) -> Span {
    let doublings = if failed.0 <= 1 { 0 } else { failed.0 as u32 - 1 };
    // 2^17 s is past the cap already; beyond it nothing need be computed.
    if doublings >= 17 {
        return BACKOFF_CAP;
    }
    let us = BACKOFF_FIRST.us() << doublings;
    if us > BACKOFF_CAP.us() { BACKOFF_CAP } else { Span::from_us(us as u64) }
}

/// Whether the attempt that failed was the last (H18, H20).
#[must_use]
pub const fn after_failure(
    failed: Attempt,
    max_attempts: i16,
    delay: Option<Span>,
) -> AfterFailure {
    if failed.0 >= max_attempts || failed.0 == ATTEMPTS_MAX {
        return AfterFailure::Terminal;
    }
    AfterFailure::Retry(match delay {
        Some(asked) => asked,
        None => backoff(failed),
    })
}
