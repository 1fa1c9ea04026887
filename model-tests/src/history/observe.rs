//! What everyone can see, held against what the Ledger owes.

use std::collections::BTreeSet;

use awa_core::machine::read::{CountQueue, ListJobs, LoadJob};
use awa_core::{JobId, JobRow, JobState, ListFilter, QueueCounts};

use super::op::Which;
use super::operate::heard;
use super::play::{Player, Said, Wrong, digest, numbered, queue_name};
use super::{Acts, Storage};
use crate::ledger::{Counts, Seen, State};

fn state(state: JobState) -> State {
    match state {
        JobState::Available => State::Available,
        JobState::Scheduled => State::Scheduled,
        JobState::Retryable => State::Retryable,
        JobState::Running => State::Running,
        JobState::WaitingExternal => State::Waiting,
        JobState::Completed => State::Completed,
        JobState::Failed => State::Failed,
        JobState::Cancelled => State::Cancelled,
    }
}

fn reported(counts: &QueueCounts) -> Counts {
    Counts::from([
        (State::Available, counts.available),
        (State::Scheduled, counts.scheduled),
        (State::Retryable, counts.retryable),
        (State::Running, counts.running),
        (State::Waiting, counts.waiting_external),
        (State::Completed, counts.completed),
        (State::Failed, counts.failed),
        (State::Cancelled, counts.cancelled),
        (State::PrunedOther, counts.pruned_other),
        (State::PrunedFailed, counts.pruned_failed),
    ])
}

impl<S: Storage> Player<S> {
    fn list(&mut self, state: JobState) -> Result<Vec<JobRow>, Wrong> {
        let filter = ListFilter { queue: None, kind: None, state, before: None, limit: 10_000 };
        let listed = self.ask(ListJobs { filter }, &mut Acts::all());
        listed.map_err(|trouble| Wrong(format!("list {state}: {trouble}")))
    }

    /// Available jobs that no producer has told of yet, ascending.
    pub(super) fn unknown_jobs(&mut self) -> Result<Vec<JobId>, Wrong> {
        let known: BTreeSet<i64> = self.jobs.iter().copied().collect();
        let mut jobs: Vec<JobId> = self.list(JobState::Available)?.iter().map(|r| r.job).collect();
        jobs.retain(|job| !known.contains(&job.0));
        jobs.sort();
        Ok(jobs)
    }

    /// Terminal jobs whose facts are no longer there.
    pub(super) fn vanished(&mut self) -> Result<Vec<u64>, Wrong> {
        let mut kept = BTreeSet::new();
        for state in [JobState::Completed, JobState::Failed, JobState::Cancelled] {
            kept.extend(self.list(state)?.iter().map(|row| row.job.0));
        }
        let terminal = [State::Completed, State::Failed, State::Cancelled].map(Some);
        let owed = |job: &&i64| terminal.contains(&self.ledger.state(**job as u64));
        let gone = self.jobs.iter().filter(owed).filter(|job| !kept.contains(job));
        Ok(gone.map(|job| *job as u64).collect())
    }

    fn count(&mut self, queue: char) -> Result<QueueCounts, Wrong> {
        let counted = self.ask(CountQueue { queue: queue_name(queue)? }, &mut Acts::all());
        let counted = counted.map_err(|trouble| Wrong(format!("count {queue}: {trouble}")))?;
        counted.ok_or_else(|| Wrong(format!("queue {queue} is not known")))
    }

    pub(super) fn counts(&mut self, queue: char) -> Said {
        let counts = self.count(queue)?;
        let shown = counts.named().into_iter().filter(|(_, n)| *n != 0);
        let shown: Vec<String> = shown.map(|(what, n)| format!("{n} {what}")).collect();
        Ok(Ok(if shown.is_empty() { "nothing".to_owned() } else { shown.join(", ") }))
    }

    pub(super) fn show(&mut self, which: Which) -> Said {
        let Some(job) = self.which(which) else { return Ok(Ok("no job".to_owned())) };
        Ok(Ok(match heard!(self.ask(LoadJob { job }, &mut Acts::all())) {
            None => format!("{job} is not found"),
            Some(row) => {
                let args = row.args.unwrap_or_default();
                format!(
                    "{job}: {} in {}/{}/{} {} {args} {}, {} of {}",
                    row.state,
                    row.queue,
                    row.priority.0,
                    row.shard.0,
                    row.kind,
                    row.run_lease,
                    row.attempt,
                    row.max_attempts
                )
            }
        }))
    }

    /// The counts of all queues are what the Ledger owes (H36), and the storage's own invariants hold.
    ///
    /// # Errors
    /// What is not so.
    pub fn check_counts(&mut self) -> Result<(), Wrong> {
        if self.planted {
            return Ok(());
        }
        self.storage.check().map_err(Wrong)?;
        for queue in ['a', 'b'] {
            let counts = self.count(queue)?;
            self.ledger.observe_counts(numbered(queue), &reported(&counts))?;
        }
        Ok(())
    }

    /// Every retained job is shown once, in its state, with its body.
    ///
    /// # Errors
    /// What is not so.
    pub fn check_jobs(&mut self) -> Result<(), Wrong> {
        if self.planted {
            return Ok(());
        }
        let mut shown = Vec::new();
        for of in JobState::ALL {
            for listed in self.list(of)? {
                let job = listed.job;
                let loaded = self.ask(LoadJob { job }, &mut Acts::all());
                let loaded = loaded.map_err(|trouble| Wrong(format!("load {job}: {trouble}")))?;
                let row = loaded.ok_or_else(|| Wrong(format!("{job} is listed and not found")))?;
                if row.state != of {
                    return Err(Wrong(format!(
                        "{job} is listed as {of} and loaded as {}",
                        row.state
                    )));
                }
                let args = row.args.as_deref().unwrap_or_default();
                shown.push(Seen {
                    job: job.0 as u64,
                    state: state(row.state),
                    attempt: row.attempt.0,
                    body: digest(&row.kind, args, row.max_attempts, row.payload.as_deref()),
                });
            }
        }
        Ok(self.ledger.observe_jobs(&shown)?)
    }
}
