//! Every rule of the Ledger: a history that it admits beside one that it rejects, by name.

mod lanes;
mod retention;
mod retries;

use std::collections::HashSet;

use awa_model_tests::ledger::{
    Claimed, Counts, Judged, Lane, Ledger, NewJob, Pruned, Retried, Scope, Seen, State, Told,
    Violation,
};

const LANE: Lane = Lane { queue: 1, priority: 2, shard: 0 };
const OTHER_LANE: Lane = Lane { queue: 2, priority: 2, shard: 0 };
const ALL: usize = usize::MAX;
const SECOND: i64 = 1_000_000;
const NOW: i64 = 1_000 * SECOND;

fn legal(ledger: &mut Ledger, report: impl FnOnce(&mut Ledger) -> Judged) {
    assert_eq!(report(ledger), Ok(()));
}

/// The report breaks that rule, and leaves the Ledger as it was.
fn illegal(ledger: &Ledger, rule: Violation, report: impl FnOnce(&mut Ledger) -> Judged) {
    let mut judge = ledger.clone();
    assert_eq!(report(&mut judge), Err(rule), "{rule}");
    assert_eq!(&judge, ledger, "a rejected report changes nothing");
}

fn job(job: u64) -> NewJob {
    NewJob { job, lane: LANE, kind: 7, body: body(job), max_attempts: 2, run_at_us: None }
}

fn body(job: u64) -> u64 {
    job * 1_000 + 1
}

fn took(job: u64, attempt: i16, run_lease: i64) -> Claimed {
    Claimed { job, attempt, run_lease, body: body(job) }
}

fn seen(job: u64, state: State, attempt: i16) -> Seen {
    Seen { job, state, attempt, body: body(job) }
}

/// One transaction for each job, one after the other.
fn enqueue(ledger: &mut Ledger, jobs: &[NewJob]) {
    for &new in jobs {
        legal(ledger, |l| l.begin_enqueue(new.job));
        legal(ledger, |l| l.commit_enqueue(new.job, &[new]));
    }
}

fn with(jobs: impl IntoIterator<Item = u64>) -> Ledger {
    let mut ledger = Ledger::default();
    enqueue(&mut ledger, &jobs.into_iter().map(job).collect::<Vec<_>>());
    ledger
}

/// Jobs `1..`, each failed for good at the instant given for it.
fn failed_at(instants: &[i64]) -> Ledger {
    let ids: Vec<u64> = (1..).take(instants.len()).collect();
    let mut ledger = with(ids.iter().copied());
    let claimed: Vec<_> = ids.iter().map(|id| took(*id, 1, 1)).collect();
    legal(&mut ledger, |l| l.claim(LANE, &claimed, ALL, true));
    for (id, at) in ids.iter().zip(instants) {
        legal(&mut ledger, |l| l.fail(*id, 1, *at, Some(State::Failed)));
    }
    ledger
}

fn pruned(vanished: &[u64], other: i64, failed: i64) -> Pruned {
    Pruned { vanished: vanished.to_vec(), carried: 0, other, failed }
}

fn retried(jobs: &[u64], matched: i64, pruned_failed: Option<i64>) -> Retried {
    Retried { jobs: jobs.to_vec(), matched, pruned_failed }
}

const REFUSED: Told = None;
const COMPLETED: Told = Some(State::Completed);
const FAILED: Told = Some(State::Failed);
const RETRYABLE: Told = Some(State::Retryable);
const CANCELLED: Told = Some(State::Cancelled);

#[test]
fn rejected_reports_read_as_sentences() {
    let late = Violation::InsideFloor(4, 10, 20).to_string();
    assert_eq!(late, "failed job 4, final at 10 µs, vanished at 20 µs, inside the floor (R032-02)");
    let stale = Violation::StaleAccepted(3, 8).to_string();
    assert_eq!(stale, "job 3: lease 8 is not live, yet its exit counted (H14, H15)");
}

#[test]
fn equal_obligations_are_equal_values() {
    let (mut one, mut two) = (with([1, 2]), with([1, 2]));
    legal(&mut one, |l| l.claim(LANE, &[took(1, 1, 1), took(2, 1, 1)], 2, true));
    legal(&mut two, |l| l.claim(LANE, &[took(1, 1, 1)], 1, true));
    assert_eq!(HashSet::from([one.clone(), two.clone()]).len(), 2);
    legal(&mut two, |l| l.claim(LANE, &[took(2, 1, 1)], 1, true));
    assert_eq!(one, two);
    // What finds nothing to do leaves no trace, so that a search over states ends.
    legal(&mut two, |l| l.promote(&[], NOW, ALL, true));
    legal(&mut two, |l| l.retry(Scope::Queue(1), &retried(&[], 0, Some(0)), true));
    legal(&mut two, |l| l.prune(NOW, None, &Pruned::default()));
    legal(&mut two, |l| l.begin_enqueue(9));
    legal(&mut two, |l| l.commit_enqueue(9, &[]));
    assert_eq!(HashSet::from([one, two]).len(), 1);
}
