//! The worker's operations: claims, and the ways out of an attempt.

use std::collections::{BTreeMap, BTreeSet};

use awa_core::limits::CLAIM_BYTES_MAX;
use awa_core::machine::claim::{Claim, ClaimOutcome};
use awa_core::machine::close::{Closed, Finish, Finished, Path};
use awa_core::machine::rescue::Rescue;
use awa_core::rules::backoff;
use awa_core::{ClaimedJob, Ending, JobState, ReceiptId, Span};

use super::op::{How, LaneName, Whose};
use super::play::{Player, Said, Wrong, digest, listed, numbered};
use super::{Acts, Storage};
use crate::ledger::{Claimed, Lane, State};

impl<S: Storage> Player<S> {
    pub(super) fn claim(
        &mut self,
        name: LaneName,
        limit: u16,
        for_s: Option<u64>,
        acts: &mut Acts,
    ) -> Said {
        let lane = self.lane(name)?;
        let window = self.windows.remove(&lane).unwrap_or_default();
        let deadline = for_s.map(Span::from_secs);
        let claim = Claim::new(lane, window, limit.into(), CLAIM_BYTES_MAX, deadline)?;
        let (jobs, bounded) = match self.storage.run(claim, acts) {
            Ok(ClaimOutcome::Claimed { jobs, window, bounded, .. }) => {
                self.windows.insert(lane, window);
                (jobs, bounded)
            }
            Ok(ClaimOutcome::Refused { refusal, window }) => {
                self.windows.insert(lane, window);
                return Ok(Err(super::Trouble::Refused(refusal)));
            }
            Err(trouble) => return Ok(Err(trouble)),
        };
        let claimed: Vec<Claimed> = jobs.iter().map(claimed).collect();
        let LaneName { queue, priority, shard } = name;
        let lane = Lane { queue: numbered(queue), priority, shard };
        // Nobody else is at work, so only the limit can have stopped it.
        self.owe(|ledger| ledger.claim(lane, &claimed, usize::from(limit), true))?;
        let mut said = listed(jobs.iter().map(|job| job.receipt.job.0));
        for job in jobs.iter().filter(|job| job.attempt.0 > 1 || job.receipt.run_lease.0 > 1) {
            let receipt = job.receipt;
            said += &format!("; {}: {}, {}", receipt.job, job.attempt, receipt.run_lease);
        }
        if bounded {
            said += "; perhaps more";
        }
        for job in jobs {
            self.attempts.insert(job.receipt.id(), job.clone());
            self.open.push(job.clone());
            self.ever.push(job);
        }
        Ok(Ok(said))
    }

    fn whose(&self, whose: &Whose) -> Vec<ClaimedJob> {
        let nth = |jobs: &[ClaimedJob], n: u16| {
            let place = usize::from(n).checked_rem(jobs.len());
            place.map(|place| jobs[place].clone()).into_iter().collect()
        };
        match whose {
            Whose::All => self.open.clone(),
            Whose::Any(n) => nth(&self.open, *n),
            Whose::Old(n) => nth(&self.ever, *n),
            Whose::Jobs(jobs) => {
                let newest = |job: &i64| self.ever.iter().rev().find(|j| j.receipt.job.0 == *job);
                jobs.iter().filter_map(newest).cloned().collect()
            }
        }
    }

    pub(super) fn finish(&mut self, whose: &Whose, how: How, acts: &mut Acts) -> Said {
        let jobs = self.whose(whose);
        let ended = |job: &ClaimedJob| match how {
            How::Complete => Finished::completed(job),
            How::Fail => Finished::failed_for_good(job, b"broken"),
            How::Postpone(s) => Finished::failed(job, b"later", Some(Span::from_secs(s))),
            How::HandBack => Finished::handed_back(job, "the worker stopped"),
        };
        let batch: Vec<Finished> = jobs.iter().map(ended).collect();
        let endings: BTreeMap<ReceiptId, Ending> =
            batch.iter().map(|f| (f.receipt.id(), f.ending.clone())).collect();
        let mut plan = Finish::new(batch);
        while let Some(close) = plan.next() {
            match self.ask(close, acts) {
                Ok(closed) => {
                    self.closed(&closed, &endings)?;
                    plan.take(closed);
                }
                Err(trouble) => return Ok(Err(trouble)),
            }
        }
        let outcome = plan.into_outcome();
        for receipt in &outcome.stale {
            self.refused(*receipt)?;
        }
        let named: BTreeSet<ReceiptId> = endings.into_keys().collect();
        self.open.retain(|job| !named.contains(&job.receipt.id()));
        let mut said = format!("closed {}", listed(self.job_ids(&outcome.closed)));
        if !outcome.stale.is_empty() {
            said += &format!("; stale {}", listed(self.job_ids(&outcome.stale)));
        }
        Ok(Ok(said))
    }

    fn job_ids(&self, receipts: &[ReceiptId]) -> Vec<i64> {
        receipts.iter().map(|r| self.attempts.get(r).map_or(-1, |a| a.receipt.job.0)).collect()
    }

    /// These attempts ended as they said.
    fn closed(
        &mut self,
        closed: &Closed,
        endings: &BTreeMap<ReceiptId, Ending>,
    ) -> Result<(), Wrong> {
        let now = self.clock();
        for receipt in &closed.closed {
            let (job, lease) = self.attempt(*receipt)?;
            if closed.path == Path::HandBack {
                self.owe(|ledger| ledger.hand_back(job, lease, Some(State::Available)))?;
                continue;
            }
            match endings.get(receipt) {
                None => return Err(Wrong(format!("{receipt} was closed and not named"))),
                Some(Ending::Completed) => {
                    self.owe(|ledger| ledger.complete(job, lease, now, Some(State::Completed)))?;
                }
                Some(Ending::Failed { .. }) => {
                    self.owe(|ledger| ledger.fail(job, lease, now, Some(State::Failed)))?;
                }
                Some(Ending::Retry { delay, .. }) => {
                    let (run_at, told) = (now.saturating_add(delay.us()), Some(State::Retryable));
                    self.owe(|ledger| ledger.fail_retryable(job, lease, run_at, now, told))?;
                }
            }
        }
        Ok(())
    }

    fn refused(&mut self, receipt: ReceiptId) -> Result<(), Wrong> {
        let now = self.clock();
        let (job, lease) = self.attempt(receipt)?;
        self.owe(|ledger| ledger.complete(job, lease, now, None))
    }

    fn attempt(&self, receipt: ReceiptId) -> Result<(u64, i64), Wrong> {
        let attempt = self.attempts.get(&receipt);
        let attempt = attempt.ok_or_else(|| Wrong(format!("{receipt} was never given")))?;
        Ok((attempt.receipt.job.0 as u64, attempt.receipt.run_lease.0))
    }

    pub(super) fn rescue(&mut self, acts: &mut Acts) -> Said {
        let rescued = match self.ask(Rescue::new(1_000)?, acts) {
            Ok(rescued) => rescued,
            Err(trouble) => return Ok(Err(trouble)),
        };
        let now = self.clock();
        let mut said = Vec::new();
        for receipt in &rescued.closed {
            let (job, lease) = self.attempt(*receipt)?;
            let (attempt, max) = {
                let known = &self.attempts[receipt];
                (known.attempt, known.max_attempts)
            };
            let (state, word) = if attempt.0 < max {
                (State::Retryable, JobState::Retryable)
            } else {
                (State::Failed, JobState::Failed)
            };
            let run_at = now.saturating_add(backoff(attempt).us());
            self.owe(|ledger| ledger.fail_retryable(job, lease, run_at, now, Some(state)))?;
            said.push(format!("job {job} is {word}"));
        }
        Ok(Ok(if said.is_empty() { "nobody is overdue".to_owned() } else { said.join(", ") }))
    }
}

fn claimed(job: &ClaimedJob) -> Claimed {
    Claimed {
        job: job.receipt.job.0 as u64,
        attempt: job.attempt.0,
        run_lease: job.receipt.run_lease.0,
        body: digest(&job.kind, &job.args, job.max_attempts, job.payload.as_deref()),
    }
}
