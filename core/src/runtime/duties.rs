//! The leader's duties and when each is due. An idle system is barely touched: what can be known
//! (when the next job or deadline is due) is waited for, the rest is looked at ever more rarely.

use super::{Backoff, Pace, Tick, earlier};
use crate::time::Span;

/// A duty of the leader. Each runs at most once at a time, beside the others: a long prune holds
/// no promotion up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Duty {
    /// Make due scheduled and retryable jobs available.
    Promote,
    /// End attempts whose deadline has passed or whose worker is gone (`R026-14`, H06).
    Rescue,
    /// Observe the three rings and do what [`super::policy::RingPolicy`] says.
    TendRings,
    /// Fold pending terminal counts of at most [`crate::limits::ROLLUP_SLOTS_MAX`] sealed slots
    /// (`R026-24`, `R026-31`).
    Rollup,
}

impl Duty {
    /// Every duty, in the order in which they go when several are due.
    pub const ALL: [Self; 4] = [Self::Promote, Self::Rescue, Self::TendRings, Self::Rollup];
}

/// When duties are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DutiesConfig {
    /// Between two promotions when the last found jobs, and the least between any two.
    pub promote_first: Span,
    /// The longest between two; bounds how late a job is whose schedule nobody announced.
    pub promote_longest: Span,
    /// Between two rescues when the last found something.
    pub rescue_first: Span,
    /// The longest between two.
    pub rescue_longest: Span,
    /// Between two looks at the rings when the last changed something.
    pub rings_first: Span,
    /// The longest between two; bounds by how much a burst can overfill a segment.
    pub rings_longest: Span,
    /// Between two rollups: `terminal_count_rollup_interval`.
    pub rollup_every: Span,
    /// The wait after a first error of a duty.
    pub retry_first: Span,
    /// The longest wait after errors of a duty in a row.
    pub retry_longest: Span,
    /// Spreads retries of several processes.
    pub seed: u64,
}

impl DutiesConfig {
    /// 30 s between rollups (`R026-31`). Idle: a promotion every 2 s, rescue and rings every 10 s,
    /// together 0.75 transactions a second.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self {
            promote_first: Span::from_ms(100),
            promote_longest: Span::from_secs(2),
            rescue_first: Span::from_secs(1),
            rescue_longest: Span::from_secs(10),
            rings_first: Span::from_secs(1),
            rings_longest: Span::from_secs(10),
            rollup_every: Span::from_secs(30),
            retry_first: Span::from_ms(500),
            retry_longest: Span::from_secs(30),
            seed,
        }
    }

    const fn pace(&self, duty: Duty) -> Pace {
        match duty {
            Duty::Promote => Pace::new(self.promote_first, self.promote_longest),
            Duty::Rescue => Pace::new(self.rescue_first, self.rescue_longest),
            Duty::TendRings => Pace::new(self.rings_first, self.rings_longest),
            Duty::Rollup => Pace::new(self.rollup_every, self.rollup_every),
        }
    }

    const fn shortest(&self, duty: Duty) -> Span {
        match duty {
            Duty::Promote => self.promote_first,
            Duty::Rescue => self.rescue_first,
            Duty::TendRings => self.rings_first,
            Duty::Rollup => self.rollup_every,
        }
    }
}

/// What a duty found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DutyReport {
    /// Rows or slots that it moved, folded or changed.
    pub done: u64,
    /// It stopped at a limit: more is to be done at once. Only heeded where `done` is not 0, so
    /// that a row that can't be moved never makes it spin (law 13), and not for a rollup, which
    /// folds a stated number of slots each interval.
    pub more: bool,
    /// How long until something is known to be due, on the database's clock; `None` if nothing is.
    pub next_due: Option<Span>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Schedule {
    at: Tick,
    running: bool,
    /// Neither an announcement nor a known due time brings it forward of this.
    not_before: Tick,
    /// While running: something that is due at this tick was announced.
    announced: Option<Tick>,
    pace: Pace,
    errors: Backoff,
}

/// The duty schedule of one process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Duties {
    config: DutiesConfig,
    leading: bool,
    schedules: [Schedule; Duty::ALL.len()],
}

impl Duties {
    /// No duties until [`Duties::lead`].
    #[must_use]
    pub fn new(config: DutiesConfig) -> Self {
        let schedule = |duty: Duty| Schedule {
            at: Tick::default(),
            running: false,
            not_before: Tick::default(),
            announced: None,
            pace: config.pace(duty),
            errors: Backoff::new(
                config.retry_first,
                config.retry_longest,
                config.seed.wrapping_add(duty as u64),
            ),
        };
        Self { config, leading: false, schedules: Duty::ALL.map(schedule) }
    }

    /// This process leads now: every duty is due, but a rollup only after its interval.
    pub fn lead(&mut self, now: Tick) {
        self.leading = true;
        for duty in Duty::ALL {
            let (schedule, pace) = (&mut self.schedules[duty as usize], self.config.pace(duty));
            schedule.pace = pace;
            schedule.announced = None;
            schedule.not_before = Tick::default();
            schedule.at = match duty {
                Duty::Promote | Duty::Rescue | Duty::TendRings => now,
                Duty::Rollup => now.after(schedule.pace.restart()),
            };
        }
    }

    /// This process no longer leads: no duty begins. One under way ends by itself and is reported
    /// as usual.
    pub fn step_down(&mut self) {
        self.leading = false;
    }

    /// Duties under way; a process that shuts down waits for none.
    #[must_use]
    pub fn running(&self) -> usize {
        self.schedules.iter().filter(|schedule| schedule.running).count()
    }

    /// Something for `duty` will be due in `span`: a job was scheduled, a claim with a deadline was
    /// made. Without announcements it is found within the duty's longest wait.
    pub fn handle_announced(&mut self, duty: Duty, span: Span, now: Tick) {
        let schedule = &mut self.schedules[duty as usize];
        let due = now.after(span);
        if schedule.running {
            schedule.announced = earlier(schedule.announced, Some(due));
        } else {
            schedule.at = schedule.at.min(due.max(schedule.not_before));
        }
    }

    /// A duty is done.
    pub fn handle_done(&mut self, duty: Duty, report: DutyReport, now: Tick) {
        let go_on = report.more && report.done > 0 && duty != Duty::Rollup;
        let shortest = if go_on { Span::ZERO } else { self.config.shortest(duty) };
        let schedule = &mut self.schedules[duty as usize];
        schedule.running = false;
        schedule.errors.succeeded();
        schedule.not_before = now.after(shortest);
        let wait = if report.done > 0 { schedule.pace.restart() } else { schedule.pace.widen() };
        let known = report.next_due.map(|due| now.after(due));
        let known = earlier(known, schedule.announced.take());
        let waited = known.map_or(now.after(wait), |known| known.min(now.after(wait)));
        schedule.at = if go_on { now } else { waited.max(schedule.not_before) };
    }

    /// A duty failed; it is due again after a back-off.
    pub fn handle_failed(&mut self, duty: Duty, now: Tick) {
        let schedule = &mut self.schedules[duty as usize];
        schedule.running = false;
        schedule.announced = None;
        schedule.not_before = now.after(schedule.errors.failed());
        schedule.at = schedule.not_before;
    }

    /// The duty to begin now. Call until `None`.
    pub fn poll(&mut self, now: Tick) -> Option<Duty> {
        let due = Duty::ALL.into_iter().find(|&duty| {
            let schedule = &self.schedules[duty as usize];
            self.leading && !schedule.running && schedule.at <= now
        })?;
        self.schedules[due as usize].running = true;
        Some(due)
    }

    /// When to poll again if nothing comes before.
    #[must_use]
    pub fn next_wake(&self) -> Option<Tick> {
        let idle = self.schedules.iter().filter(|schedule| self.leading && !schedule.running);
        idle.map(|schedule| schedule.at).min()
    }
}
