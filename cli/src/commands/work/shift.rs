//! What all attempts of `awa work` share: the command, how their ends are counted, and the order to
//! stop at once.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use awa::core::Attempt as Number;
use awa::core::rules::{AfterFailure, after_failure};
use awa::{Attempt, Client, Failure, WorkerStats};
use indicatif::ProgressBar;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::exec::{self, Verdict};
use crate::wording::counted;

/// Why an attempt is handed back before the worker's patience is over.
const AT_ONCE: &str = "the worker was told to stop at once";
/// A command that this host could not start is tried again after so long.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(200);

pub(super) struct Shift {
    pub(super) exec: String,
    pub(super) client: Client,
    pub(super) tally: Tally,
    /// Turns true when commands must be killed and their jobs handed back.
    pub(super) hurry: watch::Sender<bool>,
    /// Stands aside for what is said.
    pub(super) bar: ProgressBar,
    /// Whether it was said that the command can't be run: it is the same for each job.
    pub(super) said: AtomicBool,
    /// Whether it was said that this host can't start more commands.
    pub(super) said_short: AtomicBool,
}

impl Shift {
    pub(super) async fn attempt(&self, attempt: Attempt) -> Result<(), Failure> {
        let open = Open { tally: &self.tally, attempt: &attempt };
        let mut hurry = self.hurry.subscribe();
        let verdict = tokio::select! {
            biased;
            _ = hurry.wait_for(|hurry| *hurry) => None,
            verdict = self.run(&attempt) => Some(verdict),
        };
        let Some(verdict) = verdict else {
            return self.hand_back(open).await;
        };
        if let Verdict::NotRun(why) = &verdict {
            self.tally.not_run.fetch_add(1, Ordering::Relaxed);
            self.say_not_run(&attempt, why);
        }
        open.count(&verdict);
        match verdict {
            Verdict::Completed => Ok(()),
            Verdict::TryAgain(why) | Verdict::NotRun(why) => Err(Failure::retry(why)),
            Verdict::Failed(why) => Err(Failure::permanent(why)),
        }
    }

    /// What the host is short of costs the job no attempt: it waits until others have ended, or for its
    /// deadline.
    async fn run(&self, attempt: &Attempt) -> Verdict {
        loop {
            match exec::start(&self.exec, attempt) {
                Ok(child) => return exec::hand(child, attempt).await,
                Err(error) if exec::is_shortage(&error) => {
                    self.say_short(&error);
                    tokio::time::sleep(SHORTAGE_PAUSE).await;
                }
                Err(error) => return Verdict::NotRun(format!("sh could not be started: {error}")),
            }
        }
    }

    async fn hand_back(&self, open: Open<'_>) -> Result<(), Failure> {
        match self.client.hand_back(open.attempt, AT_ONCE).await {
            Ok(_) => {
                self.tally.handed_back.fetch_add(1, Ordering::Relaxed);
                // It has ended already: this is refused as stale.
                open.close();
                Err(Failure::retry(AT_ONCE))
            }
            Err(error) => {
                self.say(&format!("{} could not be handed back yet: {error}", open.attempt.job()));
                // The worker hands it back when its patience is over.
                std::future::pending().await
            }
        }
    }

    fn say_short(&self, error: &std::io::Error) {
        if !self.said_short.swap(true, Ordering::Relaxed) {
            self.say(&format!("a command must wait, since this host can't start it: {error}"));
            self.say("fewer at a time (--concurrency) would not have to; this is said once");
        }
    }

    fn say_not_run(&self, attempt: &Attempt, why: &str) {
        if !self.said.swap(true, Ordering::Relaxed) {
            let job = attempt.job();
            self.say(&format!("{job}: {why}"));
            self.say("such jobs are tried again later; this is said once");
        }
    }

    /// A line on standard error, above the bar where there is one.
    pub(super) fn say(&self, text: &str) {
        self.bar.suspend(|| eprintln!("awa: {text}"));
    }
}

/// Ends by what becomes of the job.
#[derive(Debug, Default)]
pub(super) struct Tally {
    completed: AtomicU64,
    failed: AtomicU64,
    retried: AtomicU64,
    not_run: AtomicU64,
    /// Those that were handed back at once, and not by the worker when its patience was over.
    handed_back: AtomicU64,
}

impl Tally {
    fn add(&self, attempt: &Attempt, verdict: &Verdict) {
        let failure = || match after_failure(Number(attempt.number()), attempt.max_attempts(), None)
        {
            AfterFailure::Retry(_) => &self.retried,
            AfterFailure::Terminal => &self.failed,
        };
        let count = match verdict {
            Verdict::Completed => &self.completed,
            Verdict::TryAgain(_) | Verdict::NotRun(_) => failure(),
            Verdict::Failed(_) => &self.failed,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends so far, those left out that were handed back.
    pub(super) fn ended(&self) -> u64 {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        of(&self.completed) + of(&self.failed) + of(&self.retried)
    }

    /// A few words while work goes on.
    pub(super) fn brief(&self) -> String {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let (completed, failed) = (of(&self.completed), of(&self.failed));
        let retried = of(&self.retried);
        format!("{completed} completed, {failed} failed, {retried} retried")
    }

    /// What was done, once the worker has shut down: every claim is in one of four numbers.
    pub(super) fn summary(&self, stats: WorkerStats) -> Summary {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Summary {
            claimed: stats.claimed,
            completed: of(&self.completed),
            failed: of(&self.failed),
            retried: of(&self.retried),
            handed_back: stats.claimed - self.ended(),
            stale: stats.stale - of(&self.handed_back),
            rejected: stats.rejected,
            not_run: of(&self.not_run),
        }
    }
}

/// An attempt whose end is not counted yet. One that the worker stops at its deadline is a failure; one
/// that it stops otherwise is handed back, which is what is left of the claims in the end.
struct Open<'a> {
    tally: &'a Tally,
    attempt: &'a Attempt,
}

impl Open<'_> {
    fn count(self, verdict: &Verdict) {
        self.tally.add(self.attempt, verdict);
        self.close();
    }

    fn close(self) {
        std::mem::forget(self);
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        let now = tokio::time::Instant::now();
        if self.attempt.deadline().is_some_and(|deadline| deadline <= now) {
            self.tally.add(self.attempt, &Verdict::TryAgain(String::new()));
        }
    }
}

/// What a worker did from its start to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Summary {
    /// Attempts that began.
    claimed: u64,
    completed: u64,
    /// For good.
    failed: u64,
    /// Failed, and to be tried again.
    retried: u64,
    /// Stopped, or not even begun, because the worker was stopped.
    handed_back: u64,
    /// Of all these, ends that came too late.
    stale: u64,
    /// Of all these, ends that the server would not store.
    rejected: u64,
    /// Of the failures, those whose command could not be run.
    not_run: u64,
}

impl Summary {
    pub(super) fn sentences(&self) -> String {
        let mut text = format!(
            "Claimed {}: {} completed, {} failed for good, {} will be retried, {} handed back.",
            counted(self.claimed, "job"),
            self.completed,
            self.failed,
            self.retried,
            self.handed_back
        );
        if self.not_run > 0 {
            text.push_str(&format!(
                " The command could not be run in {}.",
                counted(self.not_run, "attempt")
            ));
        }
        if self.stale > 0 {
            text.push_str(&format!(
                " {} came too late and changed nothing: the job had been rescued or cancelled.",
                counted(self.stale, "end")
            ));
        }
        if self.rejected > 0 {
            text.push_str(&format!(
                " The server would not store {}: the job is tried again past its deadline.",
                counted(self.rejected, "end")
            ));
        }
        text
    }

    pub(super) fn to_json(self) -> Value {
        json!({
            "claimed": self.claimed,
            "completed": self.completed,
            "failed": self.failed,
            "retried": self.retried,
            "handed_back": self.handed_back,
            "stale": self.stale,
            "rejected": self.rejected,
            "not_run": self.not_run,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_claim_is_accounted_for() {
        let tally = Tally::default();
        for (count, n) in [(&tally.completed, 5), (&tally.failed, 1), (&tally.retried, 2)] {
            count.store(n, Ordering::Relaxed);
        }
        tally.handed_back.store(1, Ordering::Relaxed);
        let stats = WorkerStats { claimed: 11, stale: 2, ..WorkerStats::default() };
        let summary = tally.summary(stats);
        assert_eq!(
            summary.sentences(),
            "Claimed 11 jobs: 5 completed, 1 failed for good, 2 will be retried, 3 handed back. \
             1 end came too late and changed nothing: the job had been rescued or cancelled."
        );
        assert_eq!(
            summary.to_json().to_string(),
            r#"{"claimed":11,"completed":5,"failed":1,"handed_back":3,"not_run":0,"rejected":0,"retried":2,"stale":1}"#
        );
    }

    #[test]
    fn one_job_is_told_in_the_singular() {
        let tally = Tally::default();
        tally.retried.store(1, Ordering::Relaxed);
        tally.not_run.store(1, Ordering::Relaxed);
        let stats = WorkerStats { claimed: 1, rejected: 1, ..WorkerStats::default() };
        assert_eq!(
            tally.summary(stats).sentences(),
            "Claimed 1 job: 0 completed, 0 failed for good, 1 will be retried, 0 handed back. \
             The command could not be run in 1 attempt. \
             The server would not store 1 end: the job is tried again past its deadline."
        );
    }
}
