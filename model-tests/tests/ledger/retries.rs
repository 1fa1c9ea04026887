//! Retry, discard, move and delete.

use super::*;

#[test]
fn a_retry_starts_attempts_again_behind_the_lane_but_not_leases() {
    let mut ledger = failed_at(&[NOW]);
    enqueue(&mut ledger, &[job(2)]);
    legal(&mut ledger, |l| l.retry(Scope::One(1), &retried(&[1], 1, None), true));
    illegal(&ledger, Violation::OutOfOrder(1, 2), |l| l.claim(LANE, &[took(1, 1, 2)], 1, true));
    legal(&mut ledger, |l| l.claim(LANE, &[took(2, 1, 1)], 1, true));
    illegal(&ledger, Violation::WrongAttempt(1, 0, 2), |l| {
        l.claim(LANE, &[took(1, 2, 2)], 1, true)
    });
    illegal(&ledger, Violation::LeaseNotFresh(1, Some(1), 1), |l| {
        l.claim(LANE, &[took(1, 1, 1)], 1, true)
    });
    legal(&mut ledger, |l| l.claim(LANE, &[took(1, 1, 2)], 1, true));
}

#[test]
fn one_job_is_retried_if_failed_or_cancelled() {
    let mut ledger = failed_at(&[NOW]);
    enqueue(&mut ledger, &[job(2), job(3), job(4)]);
    legal(&mut ledger, |l| l.claim(LANE, &[took(2, 1, 1)], 1, true));
    legal(&mut ledger, |l| l.complete(2, 1, NOW, COMPLETED));
    legal(&mut ledger, |l| l.cancel(3, NOW, CANCELLED));
    for (id, state) in [(2, State::Completed), (4, State::Available)] {
        illegal(&ledger, Violation::WrongState("retry", id, Some(state)), |l| {
            l.retry(Scope::One(id), &retried(&[id], 1, None), true)
        });
        legal(&mut ledger, |l| l.retry(Scope::One(id), &retried(&[], 0, None), true));
    }
    illegal(&ledger, Violation::OutOfScope(1), |l| {
        l.retry(Scope::One(3), &retried(&[1, 3], 1, None), true)
    });
    for id in [1, 3] {
        legal(&mut ledger, |l| l.retry(Scope::One(id), &retried(&[id], 1, None), true));
    }
}

/// Jobs 1 to 4 failed, 1 and 4 of kind 7 and 8 in queue 1, 2 in queue 2; 3 was pruned; 5 cancelled.
fn failures() -> Ledger {
    let mut ledger = Ledger::default();
    let new = [
        job(1),
        NewJob { lane: OTHER_LANE, ..job(2) },
        job(3),
        NewJob { kind: 8, ..job(4) },
        job(5),
    ];
    enqueue(&mut ledger, &new);
    let claimed = [took(1, 1, 1), took(3, 1, 1), took(4, 1, 1)];
    legal(&mut ledger, |l| l.claim(LANE, &claimed, 3, true));
    legal(&mut ledger, |l| l.claim(OTHER_LANE, &[took(2, 1, 1)], 1, true));
    for id in 1..=4 {
        legal(&mut ledger, |l| l.fail(id, 1, NOW, FAILED));
    }
    legal(&mut ledger, |l| l.cancel(5, NOW, CANCELLED));
    legal(&mut ledger, |l| l.prune(NOW, Some(0), &pruned(&[3], 0, 1)));
    ledger
}

#[test]
fn a_bulk_retry_reports_what_it_matched_and_what_is_past_help() {
    let ledger = failures();
    let by_queue = |jobs: &[u64], matched, gone| {
        let report = retried(jobs, matched, gone);
        move |l: &mut Ledger| l.retry(Scope::Queue(1), &report, true)
    };
    illegal(&ledger, Violation::WrongMatched(2, 3), by_queue(&[1, 4], 3, Some(1)));
    illegal(&ledger, Violation::WrongPrunedFailed(Some(1), None), by_queue(&[1, 4], 2, None));
    illegal(&ledger, Violation::WrongPrunedFailed(Some(1), Some(0)), by_queue(&[1, 4], 2, Some(0)));
    illegal(&ledger, Violation::LeftBehind("retry", 4), by_queue(&[1], 2, Some(1)));
    illegal(&ledger, Violation::OutOfScope(2), by_queue(&[1, 2, 4], 3, Some(1)));
    illegal(&ledger, Violation::OutOfScope(5), by_queue(&[1, 4, 5], 3, Some(1)));
    illegal(&ledger, Violation::ListedTwice("retry", 1), by_queue(&[1, 1], 2, Some(1)));
    let gone = Violation::WrongState("retry", 3, Some(State::PrunedFailed));
    illegal(&ledger, gone, by_queue(&[1, 3, 4], 3, Some(0)));
    legal(&mut ledger.clone(), by_queue(&[1, 4], 2, Some(1)));
    let raced = retried(&[4], 2, Some(1));
    legal(&mut ledger.clone(), |l| l.retry(Scope::Queue(1), &raced, false));

    let kind = Scope::Kind(7);
    illegal(&ledger, Violation::WrongPrunedFailed(None, Some(1)), |l| {
        l.retry(kind, &retried(&[1, 2], 2, Some(1)), true)
    });
    illegal(&ledger, Violation::OutOfScope(4), |l| {
        l.retry(kind, &retried(&[1, 2, 4], 3, None), true)
    });
    legal(&mut ledger.clone(), |l| l.retry(kind, &retried(&[1, 2], 2, None), true));
}

#[test]
fn failed_jobs_are_discarded_or_moved_and_completed_ones_deleted() {
    let mut ledger = failed_at(&[NOW, NOW]);
    enqueue(&mut ledger, &[job(3)]);
    legal(&mut ledger, |l| l.claim(LANE, &[took(3, 1, 1)], 1, true));
    legal(&mut ledger, |l| l.complete(3, 1, NOW, COMPLETED));
    illegal(&ledger, Violation::WrongState("discard", 3, COMPLETED), |l| l.discard(&[1, 3]));
    illegal(&ledger, Violation::WrongState("move to DLQ", 3, COMPLETED), |l| l.move_to_dlq(&[3]));
    illegal(&ledger, Violation::WrongState("delete", 1, FAILED), |l| l.delete_completed(&[1]));
    legal(&mut ledger, |l| l.discard(&[1]));
    legal(&mut ledger, |l| l.move_to_dlq(&[2]));
    legal(&mut ledger, |l| l.delete_completed(&[3]));
    let gone = Some(State::Deleted);
    illegal(&ledger, Violation::WrongState("discard", 1, gone), |l| l.discard(&[1]));
    illegal(&ledger, Violation::WrongState("delete", 3, gone), |l| l.delete_completed(&[3]));
    illegal(&ledger, Violation::WrongState("prune", 3, gone), |l| {
        l.prune(NOW, Some(0), &pruned(&[3], 1, 0))
    });
    legal(&mut ledger, |l| l.observe_counts(1, &Counts::new()));
}

/// H60: what is handed back waits behind its lane with the attempt not counted, however often; only the live
/// attempt can be, and its lease is spent.
#[test]
fn a_job_that_is_handed_back_waits_again_and_has_lost_no_attempt() {
    let back = Some(State::Available);
    let mut ledger = with([1, 2]);
    for lease in 1..=3 {
        legal(&mut ledger, |l| l.claim(LANE, &[took(1, 1, lease), took(2, 1, lease)], 2, true));
        legal(&mut ledger, |l| l.hand_back(1, lease, back));
        legal(&mut ledger, |l| l.hand_back(2, lease, back));
        illegal(&ledger, Violation::StaleAccepted(1, lease), |l| l.hand_back(1, lease, back));
        legal(&mut ledger, |l| l.hand_back(1, lease, None));
    }
    illegal(&ledger, Violation::WrongAttempt(1, 0, 2), |l| {
        l.claim(LANE, &[took(1, 2, 4)], 1, true)
    });
    illegal(&ledger, Violation::OutOfOrder(2, 1), |l| l.claim(LANE, &[took(2, 1, 4)], 1, true));
    legal(&mut ledger, |l| l.claim(LANE, &[took(1, 1, 4)], 1, true));
    let wrong = Violation::WrongOutcome(1, State::Available, Some(State::Retryable));
    illegal(&ledger, wrong, |l| l.hand_back(1, 4, Some(State::Retryable)));
    legal(&mut ledger, |l| l.fail_retryable(1, 4, NOW, NOW, Some(State::Retryable)));
}
