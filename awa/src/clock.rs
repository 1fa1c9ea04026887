//! The host's monotonic clock as the runtime machines count it. It times waiting only.

use std::time::Duration;

use awa_driver::core::runtime::Tick;
use tokio::time::Instant;

/// A wake that never comes: nothing waits for longer than this without looking again.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// Ticks since it was started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostClock {
    started: Instant,
}

impl HostClock {
    pub(crate) fn start() -> Self {
        Self { started: Instant::now() }
    }

    pub(crate) fn now(self) -> Tick {
        self.tick(Instant::now())
    }

    pub(crate) fn tick(self, at: Instant) -> Tick {
        let us = at.saturating_duration_since(self.started).as_micros();
        Tick(u64::try_from(us).unwrap_or(u64::MAX))
    }

    /// When a timer for `wake` rings; `None` is never, and rings once an hour.
    pub(crate) fn at(self, wake: Option<Tick>) -> Instant {
        let longest = Instant::now() + LONGEST_WAIT;
        let wake = wake.and_then(|Tick(us)| self.started.checked_add(Duration::from_micros(us)));
        wake.map_or(longest, |at| at.min(longest))
    }
}
