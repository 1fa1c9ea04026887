//! The floor, the fold, the carry, and the books after all of them.

use super::*;

const FLOOR_S: u64 = 100;
const CUTOFF: i64 = NOW - 100 * SECOND;

#[test]
fn h27_the_floor_holds_from_the_cutoff_on() {
    let ledger = failed_at(&[CUTOFF - 1, CUTOFF, CUTOFF + 1]);
    let prune = |vanished: &[u64], failed| {
        let report = pruned(vanished, 0, failed);
        move |l: &mut Ledger| l.prune(NOW, Some(FLOOR_S), &report)
    };
    legal(&mut ledger.clone(), prune(&[1], 1));
    legal(&mut ledger.clone(), prune(&[], 0));
    illegal(&ledger, Violation::InsideFloor(2, CUTOFF, NOW), prune(&[1, 2], 2));
    illegal(&ledger, Violation::InsideFloor(3, CUTOFF + 1, NOW), prune(&[1, 3], 2));
    // One microsecond later the second is past it.
    legal(&mut ledger.clone(), |l| l.prune(NOW + 1, Some(FLOOR_S), &pruned(&[1, 2], 0, 2)));
}

#[test]
fn h27_a_floor_of_zero_is_off_and_for_ever_is_safe() {
    let ledger = failed_at(&[0, NOW - 1, NOW, NOW + 1]);
    let all = pruned(&[1, 2, 3, 4], 0, 4);
    legal(&mut ledger.clone(), |l| l.prune(NOW, Some(0), &all));
    illegal(&ledger, Violation::WrongCarry(0, 1), |l| {
        l.prune(NOW, Some(0), &Pruned { carried: 1, ..Pruned::default() })
    });
    for floor_s in [None, Some(u64::MAX), Some(i64::MAX as u64), Some(NOW as u64)] {
        illegal(&ledger, Violation::InsideFloor(1, 0, NOW), |l| l.prune(NOW, floor_s, &all));
        for now in [i64::MIN, 0, NOW, i64::MAX] {
            let keep = Pruned { carried: 4, ..Pruned::default() };
            if floor_s != Some(NOW as u64) || now <= NOW {
                legal(&mut ledger.clone(), |l| l.prune(now, floor_s, &keep));
            }
        }
    }
}

/// A failed job inside the floor, one past it, a completed, a cancelled, and a running one.
fn history() -> Ledger {
    let mut ledger = with(1..=5);
    let claimed = [took(1, 1, 1), took(2, 1, 1), took(3, 1, 1), took(5, 1, 1), took(4, 1, 1)];
    legal(&mut ledger.clone(), |l| l.claim(LANE, &claimed, 5, true));
    legal(&mut ledger, |l| l.cancel(4, NOW, CANCELLED));
    legal(&mut ledger, |l| l.claim(LANE, &claimed[..4], 5, true));
    legal(&mut ledger, |l| l.fail(1, 1, NOW, FAILED));
    legal(&mut ledger, |l| l.fail(2, 1, CUTOFF - 1, FAILED));
    legal(&mut ledger, |l| l.complete(3, 1, NOW, COMPLETED));
    ledger
}

#[test]
fn only_what_is_terminal_vanishes_and_once() {
    let mut ledger = history();
    let prune = |vanished: &[u64], other| {
        let report = pruned(vanished, other, 0);
        move |l: &mut Ledger| l.prune(NOW, Some(FLOOR_S), &report)
    };
    let running = Violation::WrongState("prune", 5, Some(State::Running));
    illegal(&ledger, running, prune(&[3, 5], 2));
    illegal(&ledger, Violation::WrongState("prune", 404, None), prune(&[404], 1));
    illegal(&ledger, Violation::ListedTwice("prune", 3), prune(&[3, 3], 2));
    // Completed and cancelled history is never held by the floor.
    legal(&mut ledger, prune(&[3, 4], 2));
    let gone = Violation::WrongState("prune", 3, Some(State::PrunedOther));
    illegal(&ledger, gone, prune(&[3], 1));
}

#[test]
fn the_fold_splits_failed_from_other() {
    let ledger = history();
    for (other, failed) in [(3, 0), (2, 0), (1, 1), (0, 3), (2, 2), (4, -1)] {
        illegal(&ledger, Violation::WrongFold((2, 1), (other, failed)), |l| {
            l.prune(NOW, Some(FLOOR_S), &pruned(&[2, 3, 4], other, failed))
        });
    }
    legal(&mut ledger.clone(), |l| l.prune(NOW, Some(FLOOR_S), &pruned(&[2, 3, 4], 2, 1)));
}

#[test]
fn only_failed_jobs_inside_the_floor_are_carried() {
    let ledger = history();
    let carry = |carried| {
        move |l: &mut Ledger| l.prune(NOW, Some(FLOOR_S), &Pruned { carried, ..Pruned::default() })
    };
    legal(&mut ledger.clone(), carry(0));
    legal(&mut ledger.clone(), carry(1));
    illegal(&ledger, Violation::WrongCarry(1, 2), carry(2));
    illegal(&ledger, Violation::WrongCarry(1, -1), carry(-1));
}

#[test]
fn h28_a_failed_job_outlives_every_wrap_in_its_floor_exactly_once() {
    let mut ledger = failed_at(&[NOW, NOW, NOW, NOW]);
    let rows = |ids: &[u64]| ids.iter().map(|id| seen(*id, State::Failed, 1)).collect::<Vec<_>>();
    for wrap in 0..4 {
        let held = Pruned { carried: 4 - wrap, ..Pruned::default() };
        legal(&mut ledger, |l| l.prune(NOW + wrap * SECOND, Some(FLOOR_S), &held));
        let early = NOW + wrap * SECOND;
        illegal(&ledger, Violation::InsideFloor(4, NOW, early), |l| {
            l.prune(early, Some(FLOOR_S), &pruned(&[4], 0, 1))
        });
        match wrap {
            0 => {
                legal(&mut ledger, |l| l.observe_jobs(&rows(&[1, 2, 3, 4])));
                illegal(&ledger, Violation::ListedTwice("list", 4), |l| {
                    l.observe_jobs(&rows(&[1, 2, 3, 4, 4]))
                });
                legal(&mut ledger, |l| l.move_to_dlq(&[1]));
            }
            1 => legal(&mut ledger, |l| l.discard(&[2])),
            2 => {
                let back = retried(&[3], 1, None);
                legal(&mut ledger, |l| l.retry(Scope::One(3), &back, true));
                legal(&mut ledger, |l| l.claim(LANE, &[took(3, 1, 2)], 1, true));
                legal(&mut ledger, |l| l.complete(3, 2, NOW, COMPLETED));
                legal(&mut ledger, |l| l.delete_completed(&[3]));
            }
            _ => legal(&mut ledger, |l| l.observe_jobs(&rows(&[4]))),
        }
    }
    let shown = Violation::WrongShown(1, Some(State::Dlq), FAILED);
    illegal(&ledger, shown, |l| l.observe_jobs(&rows(&[1, 4])));
    legal(&mut ledger, |l| l.observe_counts(1, &Counts::from([(State::Failed, 1)])));
    let past = NOW + 101 * SECOND;
    legal(&mut ledger, |l| l.prune(past, Some(FLOOR_S), &pruned(&[4], 0, 1)));
    legal(&mut ledger, |l| l.observe_counts(1, &Counts::from([(State::PrunedFailed, 1)])));
    legal(&mut ledger, |l| l.observe_jobs(&[]));
    let shown = Violation::WrongShown(4, Some(State::PrunedFailed), FAILED);
    illegal(&ledger, shown, |l| l.observe_jobs(&rows(&[4])));
}

/// One job in every state, in queue 1; nothing in queue 2.
fn one_of_each() -> (Ledger, Counts) {
    let mut ledger = with(1..=11);
    enqueue(&mut ledger, &[NewJob { run_at_us: Some(NOW), ..job(12) }]);
    let claimed: Vec<_> = (1..=10).map(|id| took(id, 1, 1)).collect();
    legal(&mut ledger, |l| l.claim(LANE, &claimed, 10, true));
    legal(&mut ledger, |l| l.fail_retryable(2, 1, NOW, NOW, RETRYABLE));
    legal(&mut ledger, |l| l.wait_external(3, 1, Some(State::Waiting)));
    for id in [4, 5, 6] {
        legal(&mut ledger, |l| l.complete(id, 1, NOW, COMPLETED));
    }
    for id in [7, 8, 9] {
        legal(&mut ledger, |l| l.fail(id, 1, NOW, FAILED));
    }
    legal(&mut ledger, |l| l.fail_retryable(10, 1, NOW, NOW, RETRYABLE));
    legal(&mut ledger, |l| l.cancel(10, NOW, CANCELLED));
    legal(&mut ledger, |l| l.delete_completed(&[5]));
    legal(&mut ledger, |l| l.move_to_dlq(&[8]));
    legal(&mut ledger, |l| l.prune(NOW, Some(0), &pruned(&[6, 9], 1, 1)));
    let counts = [
        State::Available,
        State::Scheduled,
        State::Retryable,
        State::Running,
        State::Waiting,
        State::Completed,
        State::Failed,
        State::Cancelled,
        State::PrunedOther,
        State::PrunedFailed,
    ];
    (ledger, counts.into_iter().map(|state| (state, 1)).collect())
}

#[test]
fn h36_every_job_is_counted_once() {
    let (mut ledger, counts) = one_of_each();
    assert_eq!(ledger.counts(1).values().sum::<i64>(), 12);
    legal(&mut ledger, |l| l.observe_counts(1, &counts));
    legal(&mut ledger, |l| l.observe_counts(2, &Counts::new()));
    for state in counts.keys().copied() {
        let with = |n| Counts::from_iter(counts.clone().into_iter().chain([(state, n)]));
        illegal(&ledger, Violation::NotConserved(1, 12, 11), |l| l.observe_counts(1, &with(0)));
        illegal(&ledger, Violation::NotConserved(1, 12, 13), |l| l.observe_counts(1, &with(2)));
        illegal(&ledger, Violation::NotConserved(1, 12, 10), |l| l.observe_counts(1, &with(-1)));
        let lone = Counts::from([(state, 1)]);
        illegal(&ledger, Violation::NotConserved(2, 0, 1), |l| l.observe_counts(2, &lone));
    }
    let far = Counts::from([(State::Failed, i64::MAX), (State::Completed, i64::MAX)]);
    let sum = i128::from(i64::MAX) * 2 + 2;
    illegal(&ledger, Violation::NotConserved(1, 12, sum), |l| l.observe_counts(1, &far));
}

#[test]
fn h36_a_right_sum_does_not_excuse_a_wrong_split() {
    let (ledger, counts) = one_of_each();
    let swapped = |from, to| {
        let moved = counts.clone().into_iter().chain([(from, 0), (to, 2)]);
        Counts::from_iter(moved)
    };
    let folded = swapped(State::PrunedFailed, State::PrunedOther);
    let other = Violation::WrongCount(1, State::PrunedOther, 1, 2);
    illegal(&ledger, other, |l| l.observe_counts(1, &folded));
    let early = swapped(State::Running, State::Completed);
    let running = Violation::WrongCount(1, State::Running, 1, 0);
    illegal(&ledger, running, |l| l.observe_counts(1, &early));
    let negative = Counts::from([(State::Failed, 1), (State::Running, -1)]);
    illegal(&ledger, Violation::WrongCount(2, State::Running, 0, -1), |l| {
        l.observe_counts(2, &negative)
    });
}

#[test]
fn every_retained_job_is_shown_once_with_its_body() {
    let (mut ledger, _) = one_of_each();
    let rows = [
        seen(1, State::Running, 1),
        seen(2, State::Retryable, 1),
        seen(3, State::Waiting, 1),
        seen(4, State::Completed, 1),
        seen(7, State::Failed, 1),
        seen(10, State::Cancelled, 1),
        seen(11, State::Available, 0),
        seen(12, State::Scheduled, 0),
    ];
    legal(&mut ledger, |l| l.observe_jobs(&rows));
    for (at, row) in rows.into_iter().enumerate() {
        let but = |wrong: &[Seen]| [&rows[..at], wrong, &rows[at + 1..]].concat();
        let (id, state, attempt) = (row.job, Some(row.state), row.attempt);
        let hidden = Violation::WrongShown(id, state, None);
        illegal(&ledger, hidden, |l| l.observe_jobs(&but(&[])));
        illegal(&ledger, Violation::ListedTwice("list", id), |l| l.observe_jobs(&but(&[row, row])));
        illegal(&ledger, Violation::WrongShown(id, state, Some(State::Deleted)), |l| {
            l.observe_jobs(&but(&[Seen { state: State::Deleted, ..row }]))
        });
        illegal(&ledger, Violation::WrongAttempt(id, attempt, 9), |l| {
            l.observe_jobs(&but(&[Seen { attempt: 9, ..row }]))
        });
        illegal(&ledger, Violation::BodyChanged(id, body(id), 0), |l| {
            l.observe_jobs(&but(&[Seen { body: 0, ..row }]))
        });
    }
    for (id, state) in [
        (5, Some(State::Deleted)),
        (6, Some(State::PrunedOther)),
        (8, Some(State::Dlq)),
        (9, Some(State::PrunedFailed)),
        (404, None),
    ] {
        let ghost = state.unwrap_or(State::Available);
        for shown in [State::Failed, ghost] {
            let risen = Violation::WrongShown(id, state, Some(shown));
            let all = [&rows[..], &[seen(id, shown, 1)]].concat();
            illegal(&ledger, risen, |l| l.observe_jobs(&all));
        }
    }
}
