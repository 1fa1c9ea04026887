//! The Ledger: what a queue owes its users, with everything about storage left out.
//!
//! It knows jobs and the one fact that is true of each; no slots, no positions beyond order, no
//! locks. After every operation of an implementation, the harness calls the method of the same
//! name with what the implementation *reported*. The Ledger admits any legal choice (which jobs a
//! claim took, which history a prune dropped) and answers an illegal one with the [`Violation`].
//! A report that it rejects changes nothing.
//!
//! Counts are never stored: each job ever enqueued is in exactly one [`State`], and a count is the
//! number of jobs in it. `PrunedOther`, `PrunedFailed`, `Dlq` and `Deleted` are never left, so the
//! cumulative counts can only grow.
//!
//! Operations are reported in the order of their commits. Instants are microseconds and come from
//! the implementation's own clock reading: the Ledger has none.

use std::collections::{BTreeMap, BTreeSet};

mod report;

pub use report::*;
use report::{State as S, Violation as V};

const DEFERRED: [State; 2] = [S::Scheduled, S::Retryable];
const LIVE: [State; 2] = [S::Running, S::Waiting];
const GONE: [State; 4] = [S::PrunedOther, S::PrunedFailed, S::Dlq, S::Deleted];

type Jobs = BTreeSet<u64>;

fn ensure(holds: bool, broken: Violation) -> Judged {
    if holds { Ok(()) } else { Err(broken) }
}

fn of(counts: &Counts, state: State) -> i64 {
    counts.get(&state).copied().unwrap_or(0)
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Entry {
    new: NewJob,
    state: State,
    attempt: i16,
    run_lease: Option<i64>,
    /// `run_at` of a deferred job, `finalized_at` of a terminal one, else 0.
    at_us: i64,
    /// Commits seen when this entry began, and when it committed; 0 once it left its lane.
    order: (u64, u64),
}

impl Entry {
    fn turn(&mut self, state: State, at_us: i64) {
        (self.state, self.at_us, self.order) = (state, at_us, (0, 0));
    }
}

/// What may make a transition must make it, to the state that is due; nothing else may.
fn transit(may: Option<&mut Entry>, due: (State, i64), told: Told, stray: Violation) -> Judged {
    let Some(e) = may else { return ensure(told.is_none(), stray) };
    ensure(told == Some(due.0), V::WrongOutcome(e.new.job, due.0, told))?;
    e.turn(due.0, due.1);
    Ok(())
}

/// The oracle; see the module's documentation. Starts empty.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Ledger {
    jobs: BTreeMap<u64, Entry>,
    /// Open producer transactions, with the commits seen when each began.
    open: BTreeMap<u64, u64>,
    commits: u64,
}

impl Ledger {
    /// A producer began, at the latest just before its first enqueue took a position.
    pub fn begin_enqueue(&mut self, txn: u64) -> Judged {
        ensure(!self.open.contains_key(&txn), V::TransactionReused(txn))?;
        self.open.insert(txn, self.commits);
        Ok(())
    }

    /// A producer committed: its jobs are visible, the scheduled ones as such.
    pub fn commit_enqueue(&mut self, txn: u64, jobs: &[NewJob]) -> Judged {
        let begun = *self.open.get(&txn).ok_or(V::TransactionUnknown(txn))?;
        let mut fresh = Jobs::new();
        for &NewJob { job, .. } in jobs {
            ensure(!self.jobs.contains_key(&job) && fresh.insert(job), V::JobReused(job))?;
        }
        for &new in jobs {
            let order = (begun, self.commits);
            let (state, at_us) = new.run_at_us.map_or((S::Available, 0), |at| (S::Scheduled, at));
            let entry = Entry { new, state, attempt: 0, run_lease: None, at_us, order };
            self.jobs.insert(new.job, entry);
        }
        self.open.remove(&txn);
        self.commits += u64::from(!jobs.is_empty());
        Ok(())
    }

    /// A producer rolled back: its jobs never were (H01).
    pub fn abort_enqueue(&mut self, txn: u64) -> Judged {
        self.open.remove(&txn).map(drop).ok_or(V::TransactionUnknown(txn))
    }

    /// A claim committed (one that rolled back is not reported, H05). The order within one claim is
    /// free: its jobs are claimed together. `complete` says that only `limit` could stop it: no bound
    /// in bytes, no snapshot older than the newest commit.
    pub fn claim(&mut self, lane: Lane, jobs: &[Claimed], limit: usize, complete: bool) -> Judged {
        let ids: Vec<u64> = jobs.iter().map(|c| c.job).collect();
        let taken = self.admit("claim", &ids, &[S::Available])?;
        ensure(jobs.len() <= limit, V::OverLimit("claim", limit, jobs.len()))?;
        let open = self.jobs.iter().filter(|(_, e)| e.state == S::Available && e.new.lane == lane);
        let left = open.filter(|(job, _)| !taken.contains(job)).map(|(job, e)| (e.order.1, *job));
        let left = left.min();
        for c in jobs {
            let e = &self.jobs[&c.job];
            ensure(e.new.lane == lane, V::WrongLane(c.job, e.new.lane, lane))?;
            let follows = e.attempt.checked_add(1) == Some(c.attempt);
            ensure(follows, V::WrongAttempt(c.job, e.attempt, c.attempt))?;
            let fresh = Some(c.run_lease) > e.run_lease;
            ensure(fresh, V::LeaseNotFresh(c.job, e.run_lease, c.run_lease))?;
            ensure(c.body == e.new.body, V::BodyChanged(c.job, e.new.body, c.body))?;
            let passed_over = left.filter(|left| left.0 < e.order.0);
            passed_over.map_or(Ok(()), |left| Err(V::OutOfOrder(c.job, left.1)))?;
        }
        let behind = left.filter(|_| complete && jobs.len() < limit);
        behind.map_or(Ok(()), |left| Err(V::LeftBehind("claim", left.1)))?;
        for c in jobs {
            if let Some(e) = self.jobs.get_mut(&c.job) {
                e.turn(S::Running, 0);
                (e.attempt, e.run_lease) = (c.attempt, Some(c.run_lease));
            }
        }
        Ok(())
    }

    /// An attempt succeeded at `now_us`: accepted exactly if it is the live one (H14, H15).
    pub fn complete(&mut self, job: u64, lease: i64, now_us: i64, told: Told) -> Judged {
        self.exit(job, lease, (S::Completed, now_us), told)
    }

    /// An attempt failed for good at `now_us`.
    pub fn fail(&mut self, job: u64, lease: i64, now_us: i64, told: Told) -> Judged {
        self.exit(job, lease, (S::Failed, now_us), told)
    }

    /// An attempt failed, or was rescued, at `now_us`: retryable at `run_at_us` while attempts
    /// remain, else failed (H18).
    pub fn fail_retryable(
        &mut self,
        job: u64,
        lease: i64,
        run_at_us: i64,
        now_us: i64,
        told: Told,
    ) -> Judged {
        let remain = self.jobs.get(&job).is_some_and(|e| e.attempt < e.new.max_attempts);
        let due = if remain { (S::Retryable, run_at_us) } else { (S::Failed, now_us) };
        self.exit(job, lease, due, told)
    }

    /// A worker gave a live attempt back: its job waits in its lane, and the attempt is not counted
    /// (H60).
    pub fn hand_back(&mut self, job: u64, lease: i64, told: Told) -> Judged {
        self.exit(job, lease, (S::Available, 0), told)?;
        if told.is_some() {
            let taken = Jobs::from([job]);
            self.each(&taken).for_each(|e| e.attempt -= 1);
            self.re_enter(&taken);
        }
        Ok(())
    }

    /// A live attempt now waits for an external callback; it keeps its lease.
    pub fn wait_external(&mut self, job: u64, lease: i64, told: Told) -> Judged {
        self.exit(job, lease, (S::Waiting, 0), told)
    }

    /// A cancel at `now_us`: available and deferred jobs become cancelled, all others are refused.
    pub fn cancel(&mut self, job: u64, now_us: i64, told: Told) -> Judged {
        let stray = V::WrongState("cancel", job, self.state(job));
        let may = |e: &&mut Entry| e.state == S::Available || DEFERRED.contains(&e.state);
        transit(self.jobs.get_mut(&job).filter(may), (S::Cancelled, now_us), told, stray)
    }

    /// Deferred jobs entered their lanes at `now_us`, in one step. A due job may be left out if
    /// `limit` was reached, or if something else could stop the promotion (`complete` is false).
    pub fn promote(&mut self, jobs: &[u64], now_us: i64, limit: usize, complete: bool) -> Judged {
        let taken = self.admit("promote", jobs, &DEFERRED)?;
        ensure(jobs.len() <= limit, V::OverLimit("promote", limit, jobs.len()))?;
        let may_leave = !complete || jobs.len() == limit;
        for (job, e) in self.jobs.iter().filter(|(_, e)| DEFERRED.contains(&e.state)) {
            let (due, promoted) = (e.at_us <= now_us, taken.contains(job));
            ensure(due || !promoted, V::NotDue(*job, e.at_us, now_us))?;
            ensure(!due || promoted || may_leave, V::LeftBehind("promote", *job))?;
        }
        self.re_enter(&taken);
        Ok(())
    }

    /// A retry, in one step: attempts start again at 0, leases do not. `complete` says that nothing
    /// raced or limited it, so that every matched job must be back.
    pub fn retry(&mut self, scope: Scope, report: &Retried, complete: bool) -> Judged {
        let from = [S::Failed, S::Cancelled];
        let taken = self.admit("retry", &report.jobs, &from)?;
        let mut matched = 0;
        for (job, e) in &self.jobs {
            let in_scope = match scope {
                Scope::One(one) => *job == one && from.contains(&e.state),
                Scope::Kind(kind) => e.new.kind == kind && e.state == S::Failed,
                Scope::Queue(queue) => e.new.lane.queue == queue && e.state == S::Failed,
            };
            let back = taken.contains(job);
            matched += i64::from(in_scope);
            ensure(in_scope || !back, V::OutOfScope(*job))?;
            ensure(back || !in_scope || !complete, V::LeftBehind("retry", *job))?;
        }
        ensure(report.matched == matched, V::WrongMatched(matched, report.matched))?;
        let pruned_from = |queue| of(&self.counts(queue), S::PrunedFailed);
        let pruned = if let Scope::Queue(queue) = scope { Some(pruned_from(queue)) } else { None };
        let told = report.pruned_failed;
        ensure(told == pruned, V::WrongPrunedFailed(pruned, told))?;
        self.each(&taken).for_each(|e| e.attempt = 0);
        self.re_enter(&taken);
        Ok(())
    }

    /// Failed jobs were discarded.
    pub fn discard(&mut self, jobs: &[u64]) -> Judged {
        self.leave("discard", jobs, S::Failed, S::Deleted)
    }

    /// Failed jobs were moved to the dead-letter queue.
    pub fn move_to_dlq(&mut self, jobs: &[u64]) -> Judged {
        self.leave("move to DLQ", jobs, S::Failed, S::Dlq)
    }

    /// Completed jobs were hidden by a tombstone (R026-17); a later prune must not fold them.
    pub fn delete_completed(&mut self, jobs: &[u64]) -> Judged {
        self.leave("delete", jobs, S::Completed, S::Deleted)
    }

    /// A prune that observed `now_us`. `floor_s` in whole seconds: 0 is off, `None` keeps all, and
    /// any value is safe (R032-01). Which history it dropped is its choice, within the floor.
    pub fn prune(&mut self, now_us: i64, floor_s: Option<u64>, report: &Pruned) -> Judged {
        let taken =
            self.admit("prune", &report.vanished, &[S::Completed, S::Failed, S::Cancelled])?;
        let cutoff = floor_s.map(|s| i128::from(now_us) - i128::from(s) * 1_000_000);
        let (mut held, mut fold) = (0, (0, 0));
        for (job, e) in &self.jobs {
            let (gone, failed) = (taken.contains(job), e.state == S::Failed);
            let inside = cutoff.is_none_or(|cutoff| i128::from(e.at_us) >= cutoff);
            let holds = failed && inside && floor_s != Some(0);
            ensure(!gone || !holds, V::InsideFloor(*job, e.at_us, now_us))?;
            held += i64::from(holds && !gone);
            fold.0 += i64::from(gone && !failed);
            fold.1 += i64::from(gone && failed);
        }
        let told = (report.other, report.failed);
        ensure(told == fold, V::WrongFold(fold, told))?;
        ensure((0..=held).contains(&report.carried), V::WrongCarry(held, report.carried))?;
        for e in self.each(&taken) {
            e.turn(if e.state == S::Failed { S::PrunedFailed } else { S::PrunedOther }, 0);
        }
        Ok(())
    }

    /// Exact counts of a queue, without `Dlq` and `Deleted`, which the records' counts don't show:
    /// first that the sum is what was enqueued (H36), then each state.
    pub fn observe_counts(&self, queue: u32, reported: &Counts) -> Judged {
        let own = self.counts(queue);
        let shown = |state: &&State| ![S::Dlq, S::Deleted].contains(*state);
        let sum = |counts: &Counts| counts.values().map(|n| i128::from(*n)).sum::<i128>();
        let hidden = of(&own, S::Dlq) + of(&own, S::Deleted);
        let (enqueued, accounted) = (sum(&own), sum(reported) + i128::from(hidden));
        ensure(enqueued == accounted, V::NotConserved(queue, enqueued, accounted))?;
        for state in own.keys().filter(shown).chain(reported.keys()) {
            let (due, n) = (of(&own, *state), of(reported, *state));
            ensure(due == n, V::WrongCount(queue, *state, due, n))?;
        }
        Ok(())
    }

    /// The whole list of retained jobs: each once, none that is gone, every body intact (H16, H28).
    pub fn observe_jobs(&self, shown: &[Seen]) -> Judged {
        let mut missing = self.jobs.clone();
        missing.retain(|_, e| !GONE.contains(&e.state));
        for row in shown {
            let own = self.state(row.job);
            let retained = own == Some(row.state) && !GONE.contains(&row.state);
            ensure(retained, V::WrongShown(row.job, own, Some(row.state)))?;
            let e = missing.remove(&row.job).ok_or(V::ListedTwice("list", row.job))?;
            ensure(row.attempt == e.attempt, V::WrongAttempt(row.job, e.attempt, row.attempt))?;
            ensure(row.body == e.new.body, V::BodyChanged(row.job, e.new.body, row.body))?;
        }
        let first = missing.first_key_value();
        first.map_or(Ok(()), |(job, e)| Err(V::WrongShown(*job, Some(e.state), None)))
    }

    /// State of a job; `None` if no producer of it committed.
    pub fn state(&self, job: u64) -> Option<State> {
        self.jobs.get(&job).map(|e| e.state)
    }

    /// The Ledger's own counts of a queue; states with no job are left out.
    pub fn counts(&self, queue: u32) -> Counts {
        let mut counts = Counts::new();
        for e in self.jobs.values().filter(|e| e.new.lane.queue == queue) {
            *counts.entry(e.state).or_insert(0) += 1;
        }
        counts
    }

    /// Each listed job once, and in a state that `op` may take it from.
    fn admit(&self, op: &'static str, jobs: &[u64], from: &[State]) -> Result<Jobs, Violation> {
        let mut taken = Jobs::new();
        for &job in jobs {
            ensure(taken.insert(job), V::ListedTwice(op, job))?;
            let state = self.state(job);
            ensure(state.is_some_and(|s| from.contains(&s)), V::WrongState(op, job, state))?;
        }
        Ok(taken)
    }

    fn each(&mut self, taken: &Jobs) -> impl Iterator<Item = &mut Entry> {
        self.jobs.iter_mut().filter(|(job, _)| taken.contains(job)).map(|(_, e)| e)
    }

    fn exit(&mut self, job: u64, lease: i64, due: (State, i64), told: Told) -> Judged {
        let live = |e: &&mut Entry| LIVE.contains(&e.state) && e.run_lease == Some(lease);
        transit(self.jobs.get_mut(&job).filter(live), due, told, V::StaleAccepted(job, lease))
    }

    /// A new position in the same lane, begun and committed in one step.
    fn re_enter(&mut self, taken: &Jobs) {
        let order = (self.commits, self.commits);
        self.each(taken).for_each(|e| (e.state, e.at_us, e.order) = (S::Available, 0, order));
        self.commits += u64::from(!taken.is_empty());
    }

    fn leave(&mut self, op: &'static str, jobs: &[u64], from: State, to: State) -> Judged {
        let taken = self.admit(op, jobs, &[from])?;
        self.each(&taken).for_each(|e| e.turn(to, 0));
        Ok(())
    }
}
