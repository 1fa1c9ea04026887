//! Leader election: which process does the maintenance.
//!
//! The host holds a session advisory lock on a connection of its own: the one session state that
//! the engine allows itself (law 17). Leadership saves work and is not what makes maintenance
//! safe: two leaders, as after a network split, only meet on the ring's locks.

use super::{Backoff, Tick};
use crate::time::Span;

/// How an [`Election`] goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ElectionConfig {
    /// The wait before trying again while another leads.
    pub try_every: Span,
    /// How often a leader makes sure of its lock.
    pub confirm_every: Span,
    /// The wait after a first error.
    pub retry_first: Span,
    /// The longest wait after errors in a row.
    pub retry_longest: Span,
    /// Spreads the tries of several processes.
    pub seed: u64,
}

impl ElectionConfig {
    /// Tries every 10 s, so that a lost leader is replaced within 10 s of its session's end, and
    /// confirms every 30 s.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self {
            try_every: Span::from_secs(10),
            confirm_every: Span::from_secs(30),
            retry_first: Span::from_ms(500),
            retry_longest: Span::from_secs(10),
            seed,
        }
    }
}

/// What the host does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ElectionAction {
    /// Try to take the lock, without waiting for it; then [`Election::handle_try_result`] or
    /// [`Election::handle_failed`].
    TryAcquire,
    /// This process leads from now on.
    Lead,
    /// See that the lock's session lives and holds it; then [`Election::handle_confirmed`] or
    /// [`Election::handle_lost`].
    Confirm,
    /// This process no longer leads: begin no duty.
    StepDown,
    /// Give the lock up; then [`Election::handle_released`]. Closing its connection is as good.
    Release,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    /// Tries again at the tick.
    Waiting(Tick),
    Trying,
    /// Holds the lock and hasn't said so yet.
    Won,
    /// Leads; confirms at the tick.
    Leading(Tick),
    Confirming,
    /// Has stepped down of its own accord and holds the lock still.
    Resigned,
    Releasing,
    /// Lost the lock and hasn't said so yet.
    Lost,
    /// Resigned for good.
    Out,
}

/// One process's part in the election.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Election {
    config: ElectionConfig,
    stage: Stage,
    resigning: bool,
    /// When to try next once a loss was said.
    retry_at: Tick,
    tries: Backoff,
    errors: Backoff,
}

impl Election {
    /// Tries at once.
    #[must_use]
    pub const fn new(config: ElectionConfig) -> Self {
        Self {
            config,
            stage: Stage::Waiting(Tick(0)),
            resigning: false,
            retry_at: Tick(0),
            // Waits of one length, spread over its upper half.
            tries: Backoff::new(config.try_every, config.try_every, config.seed),
            errors: Backoff::new(config.retry_first, config.retry_longest, config.seed),
        }
    }

    /// Whether this process leads: between `Lead` and `StepDown`.
    #[must_use]
    pub const fn is_leading(&self) -> bool {
        matches!(self.stage, Stage::Leading(_) | Stage::Confirming | Stage::Lost)
    }

    /// The try is over: the lock is held now, or another process holds it.
    pub fn handle_try_result(&mut self, held: bool, now: Tick) {
        if self.stage == Stage::Trying {
            self.errors.succeeded();
            self.stage =
                if held { Stage::Won } else { Stage::Waiting(now.after(self.tries.failed())) };
        }
    }

    /// The lock's session lives and holds it.
    pub fn handle_confirmed(&mut self, now: Tick) {
        if self.stage == Stage::Confirming {
            self.errors.succeeded();
            self.stage = Stage::Leading(now.after(self.config.confirm_every));
        }
    }

    /// The try failed: nothing is held.
    pub fn handle_failed(&mut self, now: Tick) {
        self.handle_lost(now);
    }

    /// The lock's connection is gone, or the lock isn't held after all; may come at any time.
    pub fn handle_lost(&mut self, now: Tick) {
        match self.stage {
            Stage::Trying | Stage::Won => {
                self.stage = Stage::Waiting(now.after(self.errors.failed()));
            }
            Stage::Leading(_) | Stage::Confirming => {
                self.retry_at = now.after(self.errors.failed());
                self.stage = Stage::Lost;
            }
            Stage::Resigned | Stage::Releasing => self.stage = Stage::Out,
            Stage::Waiting(_) | Stage::Lost | Stage::Out => {}
        }
    }

    /// The lock is given up.
    pub fn handle_released(&mut self) {
        if self.stage == Stage::Releasing {
            self.stage = Stage::Out;
        }
    }

    /// Takes part no longer: steps down, gives the lock up, tries no more. A try under way is
    /// waited for, so that no lock is left behind.
    pub fn resign(&mut self) {
        self.resigning = true;
    }

    /// Whether a resignation is complete: nothing is held and nothing under way.
    #[must_use]
    pub const fn is_out(&self) -> bool {
        matches!(self.stage, Stage::Out)
    }

    /// What to do now. Call until `None`.
    pub fn poll(&mut self, now: Tick) -> Option<ElectionAction> {
        let (stage, action) = match self.stage {
            Stage::Waiting(_) if self.resigning => {
                self.stage = Stage::Out;
                return None;
            }
            Stage::Waiting(until) if until <= now => (Stage::Trying, ElectionAction::TryAcquire),
            Stage::Won if self.resigning => (Stage::Releasing, ElectionAction::Release),
            Stage::Won => {
                let confirm_at = now.after(self.config.confirm_every);
                (Stage::Leading(confirm_at), ElectionAction::Lead)
            }
            Stage::Leading(_) if self.resigning => (Stage::Resigned, ElectionAction::StepDown),
            Stage::Leading(until) if until <= now => (Stage::Confirming, ElectionAction::Confirm),
            Stage::Lost => (Stage::Waiting(self.retry_at), ElectionAction::StepDown),
            Stage::Resigned => (Stage::Releasing, ElectionAction::Release),
            Stage::Waiting(_)
            | Stage::Trying
            | Stage::Leading(_)
            | Stage::Confirming
            | Stage::Releasing
            | Stage::Out => return None,
        };
        self.stage = stage;
        Some(action)
    }

    /// When to poll again if nothing comes before.
    #[must_use]
    pub const fn next_wake(&self) -> Option<Tick> {
        match self.stage {
            Stage::Waiting(_) | Stage::Leading(_) if self.resigning => Some(Tick(0)),
            Stage::Waiting(until) | Stage::Leading(until) => Some(until),
            Stage::Won | Stage::Lost | Stage::Resigned => Some(Tick(0)),
            Stage::Trying | Stage::Confirming | Stage::Releasing | Stage::Out => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Tick = Tick(1_000_000);

    fn leader() -> Election {
        let mut election = Election::new(ElectionConfig::new(7));
        assert_eq!(election.poll(START), Some(ElectionAction::TryAcquire));
        assert_eq!(election.poll(START), None);
        assert_eq!(election.next_wake(), None);
        election.handle_try_result(true, START);
        assert!(!election.is_leading());
        assert_eq!(election.poll(START), Some(ElectionAction::Lead));
        assert!(election.is_leading());
        election
    }

    #[test]
    fn a_leader_confirms_and_steps_down_when_its_lock_is_lost() {
        let mut election = leader();
        let confirm_at = START.after(Span::from_secs(30));
        assert_eq!(election.next_wake(), Some(confirm_at));
        assert_eq!(election.poll(START), None);
        assert_eq!(election.poll(confirm_at), Some(ElectionAction::Confirm));
        election.handle_confirmed(confirm_at);
        assert_eq!(election.poll(confirm_at), None);

        election.handle_lost(confirm_at);
        election.handle_lost(confirm_at);
        assert_eq!(election.poll(confirm_at), Some(ElectionAction::StepDown));
        assert!(!election.is_leading());
        assert_eq!(election.poll(confirm_at), None);
        let again = election.next_wake().expect("tries again");
        assert!(again > confirm_at && again <= confirm_at.after(Span::from_ms(500)));
        assert_eq!(election.poll(again), Some(ElectionAction::TryAcquire));
    }

    #[test]
    fn an_idle_follower_tries_about_every_ten_seconds() {
        let mut election = Election::new(ElectionConfig::new(3));
        let (mut now, mut tries) = (START, 0);
        let end = START.after(Span::from_secs(3600));
        while now < end {
            assert_eq!(election.poll(now), Some(ElectionAction::TryAcquire));
            election.handle_try_result(false, now);
            assert_eq!(election.poll(now), None);
            let wake = election.next_wake().expect("tries again");
            assert!(wake > now);
            (now, tries) = (wake, tries + 1);
        }
        assert!((360..=720).contains(&tries), "{tries}");
    }

    #[test]
    fn errors_back_off_to_a_bound() {
        let mut election = Election::new(ElectionConfig::new(3));
        let mut now = START;
        for _ in 0..100 {
            assert_eq!(election.poll(now), Some(ElectionAction::TryAcquire));
            election.handle_failed(now);
            let wake = election.next_wake().expect("tries again");
            assert!(wake > now && wake <= now.after(Span::from_secs(10)));
            now = wake;
        }
    }

    #[test]
    fn a_resignation_steps_down_then_releases() {
        let mut election = leader();
        election.resign();
        assert_eq!(election.next_wake(), Some(Tick(0)));
        assert_eq!(election.poll(START), Some(ElectionAction::StepDown));
        assert_eq!(election.poll(START), Some(ElectionAction::Release));
        assert!(!election.is_out());
        election.handle_released();
        assert!(election.is_out());
        assert_eq!((election.poll(START), election.next_wake()), (None, None));
    }

    #[test]
    fn a_resignation_leaves_no_lock_behind() {
        // While trying: the lock is won after all, and given up without leading.
        let mut trying = Election::new(ElectionConfig::new(7));
        assert_eq!(trying.poll(START), Some(ElectionAction::TryAcquire));
        trying.resign();
        assert_eq!(trying.poll(START), None);
        let mut won = trying;
        won.handle_try_result(true, START);
        assert_eq!(won.poll(START), Some(ElectionAction::Release));
        // Not won: out at once.
        trying.handle_try_result(false, START);
        assert_eq!((trying.poll(START), trying.is_out()), (None, true));
        // While confirming, with the lock lost meanwhile: steps down, then out.
        let mut confirming = leader();
        let later = START.after(Span::from_secs(30));
        assert_eq!(confirming.poll(later), Some(ElectionAction::Confirm));
        confirming.resign();
        assert_eq!(confirming.poll(later), None);
        confirming.handle_lost(later);
        assert_eq!(confirming.poll(later), Some(ElectionAction::StepDown));
        assert_eq!((confirming.poll(later), confirming.is_out()), (None, true));
    }
}
