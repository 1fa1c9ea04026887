//! From enqueue to the end of an attempt.

use super::*;

#[test]
fn a_transaction_begins_and_ends_once() {
    let mut ledger = Ledger::default();
    illegal(&ledger, Violation::TransactionUnknown(1), |l| l.commit_enqueue(1, &[job(1)]));
    illegal(&ledger, Violation::TransactionUnknown(1), |l| l.abort_enqueue(1));
    legal(&mut ledger, |l| l.begin_enqueue(1));
    illegal(&ledger, Violation::TransactionReused(1), |l| l.begin_enqueue(1));
    legal(&mut ledger, |l| l.commit_enqueue(1, &[job(1)]));
    illegal(&ledger, Violation::TransactionUnknown(1), |l| l.commit_enqueue(1, &[job(2)]));
    legal(&mut ledger, |l| l.begin_enqueue(1));
    legal(&mut ledger, |l| l.abort_enqueue(1));
    illegal(&ledger, Violation::TransactionUnknown(1), |l| l.abort_enqueue(1));
}

#[test]
fn a_job_is_enqueued_once() {
    let mut ledger = with([1]);
    legal(&mut ledger, |l| l.begin_enqueue(9));
    illegal(&ledger, Violation::JobReused(1), |l| l.commit_enqueue(9, &[job(1)]));
    illegal(&ledger, Violation::JobReused(2), |l| l.commit_enqueue(9, &[job(2), job(2)]));
    legal(&mut ledger, |l| l.commit_enqueue(9, &[job(2), job(3)]));
}

#[test]
fn h01_a_rolled_back_enqueue_and_a_cancelled_job_leave_the_lane_to_the_rest() {
    let mut ledger = Ledger::default();
    legal(&mut ledger, |l| l.begin_enqueue(1));
    legal(&mut ledger, |l| l.abort_enqueue(1));
    enqueue(&mut ledger, &[job(2), job(3)]);
    legal(&mut ledger, |l| l.cancel(2, NOW, CANCELLED));
    illegal(&ledger, Violation::LeftBehind("claim", 3), |l| l.claim(LANE, &[], 10, true));
    illegal(&ledger, Violation::WrongState("claim", 1, None), |l| {
        l.claim(LANE, &[took(1, 1, 1)], 10, false)
    });
    illegal(&ledger, Violation::WrongState("claim", 2, CANCELLED), |l| {
        l.claim(LANE, &[took(2, 1, 1), took(3, 1, 1)], 10, true)
    });
    legal(&mut ledger, |l| l.claim(LANE, &[took(3, 1, 1)], 10, true));
}

#[test]
fn an_open_producer_hides_its_jobs_and_holds_nobody_up() {
    let mut ledger = Ledger::default();
    legal(&mut ledger, |l| l.begin_enqueue(1));
    enqueue(&mut ledger, &[job(2)]);
    illegal(&ledger, Violation::WrongState("claim", 1, None), |l| {
        l.claim(LANE, &[took(1, 1, 1)], 1, true)
    });
    legal(&mut ledger, |l| l.claim(LANE, &[took(2, 1, 1)], 10, true));
    legal(&mut ledger, |l| l.commit_enqueue(1, &[job(1)]));
    legal(&mut ledger, |l| l.claim(LANE, &[took(1, 1, 1)], 10, true));
}

#[test]
fn the_lane_keeps_the_order_of_enqueues_that_did_not_overlap() {
    let mut ledger = with([1, 2]);
    illegal(&ledger, Violation::OutOfOrder(2, 1), |l| l.claim(LANE, &[took(2, 1, 1)], 1, false));
    legal(&mut ledger.clone(), |l| l.claim(LANE, &[took(2, 1, 1), took(1, 1, 1)], 2, true));
    legal(&mut ledger, |l| l.claim(LANE, &[took(1, 1, 1)], 1, true));
    legal(&mut ledger, |l| l.claim(LANE, &[took(2, 1, 1)], 1, true));
}

#[test]
fn overlapping_enqueues_have_no_order_but_bind_those_that_begin_later() {
    let mut ledger = Ledger::default();
    legal(&mut ledger, |l| l.begin_enqueue(1));
    legal(&mut ledger, |l| l.begin_enqueue(2));
    legal(&mut ledger, |l| l.commit_enqueue(1, &[job(1), job(11)]));
    legal(&mut ledger, |l| l.begin_enqueue(3));
    legal(&mut ledger, |l| l.commit_enqueue(2, &[job(2)]));
    legal(&mut ledger, |l| l.commit_enqueue(3, &[job(3)]));
    for first in [1, 11, 2] {
        legal(&mut ledger.clone(), |l| l.claim(LANE, &[took(first, 1, 1)], 1, true));
    }
    illegal(&ledger, Violation::OutOfOrder(3, 1), |l| l.claim(LANE, &[took(3, 1, 1)], 1, true));
    legal(&mut ledger, |l| l.claim(LANE, &[took(1, 1, 1), took(11, 1, 1)], 2, true));
    legal(&mut ledger, |l| l.claim(LANE, &[took(3, 1, 1)], 1, true));
}

#[test]
fn lanes_are_apart() {
    let mut ledger = with([1]);
    enqueue(&mut ledger, &[NewJob { lane: OTHER_LANE, ..job(2) }]);
    illegal(&ledger, Violation::WrongLane(2, OTHER_LANE, LANE), |l| {
        l.claim(LANE, &[took(1, 1, 1), took(2, 1, 1)], 10, true)
    });
    legal(&mut ledger, |l| l.claim(OTHER_LANE, &[took(2, 1, 1)], 10, true));
    illegal(&ledger, Violation::LeftBehind("claim", 1), |l| l.claim(LANE, &[], 10, true));
}

#[test]
fn a_claim_stops_at_its_limit_or_says_why() {
    let mut ledger = with([1, 2, 3]);
    let two = [took(1, 1, 1), took(2, 1, 1)];
    illegal(&ledger, Violation::OverLimit("claim", 1, 2), |l| l.claim(LANE, &two, 1, true));
    illegal(&ledger, Violation::LeftBehind("claim", 3), |l| l.claim(LANE, &two, 3, true));
    legal(&mut ledger.clone(), |l| l.claim(LANE, &two, 3, false));
    legal(&mut ledger, |l| l.claim(LANE, &two, 2, true));
}

#[test]
fn h05_a_claim_that_rolled_back_never_was() {
    // What it had taken is claimed again with the same attempt; its leases may be lost.
    let mut ledger = with([1, 2]);
    let again = [took(1, 1, 7), took(2, 1, 8)];
    illegal(&ledger, Violation::LeftBehind("claim", 1), |l| l.claim(LANE, &[], 2, true));
    illegal(&ledger, Violation::WrongAttempt(1, 0, 2), |l| {
        l.claim(LANE, &[took(1, 2, 7), took(2, 2, 8)], 2, true)
    });
    illegal(&ledger, Violation::StaleAccepted(1, 5), |l| l.complete(1, 5, NOW, COMPLETED));
    legal(&mut ledger, |l| l.claim(LANE, &again, 2, true));
    let running = Some(State::Running);
    illegal(&ledger, Violation::WrongState("claim", 1, running), |l| {
        l.claim(LANE, &[took(1, 2, 9)], 2, true)
    });
}

#[test]
fn a_claim_lists_a_job_once_with_its_own_body() {
    let mut ledger = with([1]);
    illegal(&ledger, Violation::ListedTwice("claim", 1), |l| {
        l.claim(LANE, &[took(1, 1, 1), took(1, 2, 2)], 10, true)
    });
    illegal(&ledger, Violation::BodyChanged(1, body(1), 5), |l| {
        l.claim(LANE, &[Claimed { body: 5, ..took(1, 1, 1) }], 10, true)
    });
    legal(&mut ledger, |l| l.claim(LANE, &[took(1, 1, 1)], 10, true));
}

#[test]
fn attempts_count_up_and_leases_never_go_back() {
    let mut ledger = with([1]);
    legal(&mut ledger, |l| l.claim(LANE, &[took(1, 1, 5)], 1, true));
    legal(&mut ledger, |l| l.fail_retryable(1, 5, NOW, NOW, RETRYABLE));
    legal(&mut ledger, |l| l.promote(&[1], NOW, ALL, true));
    for attempt in [1, 3] {
        illegal(&ledger, Violation::WrongAttempt(1, 1, attempt), |l| {
            l.claim(LANE, &[took(1, attempt, 6)], 1, true)
        });
    }
    for lease in [4, 5] {
        illegal(&ledger, Violation::LeaseNotFresh(1, Some(5), lease), |l| {
            l.claim(LANE, &[took(1, 2, lease)], 1, true)
        });
    }
    legal(&mut ledger, |l| l.claim(LANE, &[took(1, 2, 6)], 1, true));
}

#[test]
fn h14_an_attempt_completes_once() {
    let mut ledger = with([1]);
    legal(&mut ledger, |l| l.claim(LANE, &[took(1, 1, 5)], 1, true));
    let refused = Violation::WrongOutcome(1, State::Completed, REFUSED);
    illegal(&ledger, refused, |l| l.complete(1, 5, NOW, REFUSED));
    let lost = Violation::WrongOutcome(1, State::Completed, FAILED);
    illegal(&ledger, lost, |l| l.complete(1, 5, NOW, FAILED));
    illegal(&ledger, Violation::StaleAccepted(1, 4), |l| l.complete(1, 4, NOW, COMPLETED));
    legal(&mut ledger, |l| l.complete(1, 5, NOW, COMPLETED));
    illegal(&ledger, Violation::StaleAccepted(1, 5), |l| l.complete(1, 5, NOW, COMPLETED));
    legal(&mut ledger, |l| l.complete(1, 5, NOW, REFUSED));
    legal(&mut ledger, |l| l.observe_counts(1, &Counts::from([(State::Completed, 1)])));
    illegal(&ledger, Violation::NotConserved(1, 1, 2), |l| {
        l.observe_counts(1, &Counts::from([(State::Completed, 2)]))
    });
}

#[test]
fn h15_an_attempt_that_ended_otherwise_is_stale() {
    let mut ledger = with([1, 2]);
    let stale = |ledger: &mut Ledger, job| {
        illegal(ledger, Violation::StaleAccepted(job, 5), |l| l.complete(job, 5, NOW, COMPLETED));
        illegal(ledger, Violation::StaleAccepted(job, 5), |l| l.fail(job, 5, NOW, FAILED));
        legal(ledger, |l| l.complete(job, 5, NOW, REFUSED));
        legal(ledger, |l| l.fail_retryable(job, 5, NOW, NOW, REFUSED));
    };
    legal(&mut ledger, |l| l.claim(LANE, &[took(1, 1, 5), took(2, 1, 5)], 2, true));
    legal(&mut ledger, |l| l.fail_retryable(1, 5, NOW, NOW, RETRYABLE)); // a rescue
    stale(&mut ledger, 1);
    legal(&mut ledger, |l| l.cancel(1, NOW, CANCELLED));
    stale(&mut ledger, 1);
    legal(&mut ledger, |l| l.fail(2, 5, NOW, FAILED));
    legal(&mut ledger, |l| l.retry(Scope::One(2), &retried(&[2], 1, None), true));
    stale(&mut ledger, 2);
    legal(&mut ledger, |l| l.claim(LANE, &[took(2, 1, 6)], 1, true));
    stale(&mut ledger, 2);
    legal(&mut ledger, |l| l.complete(2, 6, NOW, COMPLETED));
    legal(&mut ledger, |l| l.complete(404, 5, NOW, REFUSED));
    illegal(&ledger, Violation::StaleAccepted(404, 5), |l| l.complete(404, 5, NOW, COMPLETED));
}

#[test]
fn a_failure_is_retryable_exactly_while_attempts_remain() {
    let mut ledger = with([1]);
    legal(&mut ledger, |l| l.claim(LANE, &[took(1, 1, 1)], 1, true));
    illegal(&ledger, Violation::WrongOutcome(1, State::Retryable, FAILED), |l| {
        l.fail_retryable(1, 1, NOW, NOW, FAILED)
    });
    legal(&mut ledger, |l| l.fail_retryable(1, 1, NOW + 5, NOW, RETRYABLE));
    illegal(&ledger, Violation::NotDue(1, NOW + 5, NOW + 4), |l| {
        l.promote(&[1], NOW + 4, ALL, true)
    });
    legal(&mut ledger, |l| l.promote(&[1], NOW + 5, ALL, true));
    legal(&mut ledger, |l| l.claim(LANE, &[took(1, 2, 2)], 1, true));
    illegal(&ledger, Violation::WrongOutcome(1, State::Failed, RETRYABLE), |l| {
        l.fail_retryable(1, 2, NOW, NOW, RETRYABLE)
    });
    // Its `finalized_at` is now, not the instant at which it would have been retried.
    legal(&mut ledger, |l| l.fail_retryable(1, 2, NOW + 9 * SECOND, NOW, FAILED));
    illegal(&ledger, Violation::InsideFloor(1, NOW, NOW + SECOND), |l| {
        l.prune(NOW + SECOND, Some(1), &pruned(&[1], 0, 1))
    });
    legal(&mut ledger, |l| l.prune(NOW + 2 * SECOND, Some(1), &pruned(&[1], 0, 1)));
}

#[test]
fn a_waiting_attempt_keeps_its_lease() {
    let mut ledger = with([1]);
    legal(&mut ledger, |l| l.claim(LANE, &[took(1, 1, 1)], 1, true));
    illegal(&ledger, Violation::StaleAccepted(1, 2), |l| {
        l.wait_external(1, 2, Some(State::Waiting))
    });
    legal(&mut ledger, |l| l.wait_external(1, 1, Some(State::Waiting)));
    legal(&mut ledger, |l| l.observe_counts(1, &Counts::from([(State::Waiting, 1)])));
    illegal(&ledger, Violation::StaleAccepted(1, 2), |l| l.complete(1, 2, NOW, COMPLETED));
    legal(&mut ledger, |l| l.complete(1, 1, NOW, COMPLETED));
}

#[test]
fn what_has_not_begun_can_be_cancelled_and_nothing_else() {
    let mut ledger = with([1, 2, 3]);
    enqueue(&mut ledger, &[NewJob { run_at_us: Some(NOW), ..job(4) }]);
    legal(&mut ledger, |l| l.claim(LANE, &[took(1, 1, 1), took(2, 1, 1)], 2, true));
    legal(&mut ledger, |l| l.fail_retryable(2, 1, NOW, NOW, RETRYABLE));
    for (waiting, state) in [(2, State::Retryable), (3, State::Available), (4, State::Scheduled)] {
        assert_eq!(ledger.state(waiting), Some(state));
        let refused = Violation::WrongOutcome(waiting, State::Cancelled, REFUSED);
        illegal(&ledger, refused, |l| l.cancel(waiting, NOW, REFUSED));
        legal(&mut ledger, |l| l.cancel(waiting, NOW, CANCELLED));
    }
    let running = Violation::WrongState("cancel", 1, Some(State::Running));
    illegal(&ledger, running, |l| l.cancel(1, NOW, CANCELLED));
    illegal(&ledger, Violation::WrongState("cancel", 404, None), |l| l.cancel(404, NOW, CANCELLED));
    for refused in [1, 2, 404] {
        legal(&mut ledger, |l| l.cancel(refused, NOW, REFUSED));
    }
}

#[test]
fn exactly_the_due_jobs_are_promoted() {
    let mut ledger = with([9]);
    for (id, at) in [(1, NOW - 1), (2, NOW), (3, NOW + 1)] {
        enqueue(&mut ledger, &[NewJob { run_at_us: Some(at), ..job(id) }]);
    }
    illegal(&ledger, Violation::WrongState("claim", 1, Some(State::Scheduled)), |l| {
        l.claim(LANE, &[took(1, 1, 1)], 1, true)
    });
    illegal(&ledger, Violation::NotDue(3, NOW + 1, NOW), |l| l.promote(&[1, 2, 3], NOW, ALL, true));
    illegal(&ledger, Violation::LeftBehind("promote", 2), |l| l.promote(&[1], NOW, ALL, true));
    illegal(&ledger, Violation::LeftBehind("promote", 1), |l| l.promote(&[], NOW, 1, true));
    illegal(&ledger, Violation::OverLimit("promote", 1, 2), |l| l.promote(&[1, 2], NOW, 1, true));
    illegal(&ledger, Violation::WrongState("promote", 9, Some(State::Available)), |l| {
        l.promote(&[1, 2, 9], NOW, ALL, true)
    });
    illegal(&ledger, Violation::ListedTwice("promote", 1), |l| l.promote(&[1, 1], NOW, ALL, false));
    legal(&mut ledger.clone(), |l| l.promote(&[1], NOW, ALL, false));
    legal(&mut ledger, |l| l.promote(&[2], NOW, 1, true));
    legal(&mut ledger, |l| l.promote(&[1], NOW, ALL, true));
    // Promoted later, claimed no earlier; what is enqueued after the promotion comes after it.
    enqueue(&mut ledger, &[job(10)]);
    illegal(&ledger, Violation::OutOfOrder(2, 9), |l| l.claim(LANE, &[took(2, 1, 1)], 1, true));
    legal(&mut ledger, |l| l.claim(LANE, &[took(9, 1, 1)], 1, true));
    illegal(&ledger, Violation::OutOfOrder(10, 2), |l| l.claim(LANE, &[took(10, 1, 1)], 1, true));
    legal(&mut ledger, |l| l.claim(LANE, &[took(2, 1, 1)], 1, true));
}
