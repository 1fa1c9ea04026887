use awa_core::fault::Field;
use awa_core::job::{Ending, Exit, OverdueAttempt};
use awa_core::limits::{ERROR_BYTES_MAX, RESCUE_ROWS_MAX};
use awa_core::machine::close::{Close, Closed, Finish, FinishOutcome, Finished, Path};
use awa_core::machine::rescue::{Rescue, Rescued};
use awa_core::rules::BodyTraits;
use awa_core::{
    Attempt, Fault, Machine, Place, Receipt, ReceiptId, Refusal, Reply, Span, Step, Turn, UserError,
};

use crate::script::{claimed_job, fault, outcome, plan, receipt, withstands};

fn ids(numbers: &[i64]) -> Vec<ReceiptId> {
    numbers.iter().copied().map(ReceiptId).collect()
}

/// R026-08, law 8: one fence a batch, ascending, each once, before the statement that decides.
#[test]
fn successes_are_closed_compactly() {
    let receipts = vec![receipt(8192, 1), receipt(4096, 2), receipt(4096, 1), receipt(4096, 2)];
    let machine = Close::compact(receipts);
    let script = vec![vec![Reply::Locked, Reply::Closed(ids(&[4096, 8192]))]];
    let text = plan(machine.clone(), script.clone());
    let steps = "turn 1, last, with COMMIT\n  fence batch 4096, batch 8192\n  complete 3 attempts compactly\n";
    assert!(text.starts_with(steps), "{text}");
    let closed =
        Closed { path: Path::Compact, closed: ids(&[4096, 8192]), left: vec![receipt(4096, 2)] };
    assert_eq!(outcome(machine.clone(), script.clone()), Ok(closed));
    withstands(&machine, &script, Result::is_err);
}

fn failed(receipt: Receipt) -> Exit {
    Exit { receipt, ending: Ending::Failed { error: "no".to_owned() } }
}

#[test]
fn anything_is_closed_on_the_general_path() {
    let machine = Close::general(vec![failed(receipt(8192, 1)), failed(receipt(4096, 1))]);
    let script = vec![vec![Reply::Locked, Reply::Closed(ids(&[8192]))]];
    let text = plan(machine.clone(), script.clone());
    let steps = "turn 1, last, with COMMIT\n  fence batch 4096, batch 8192\n  close 2 attempts\n";
    assert!(text.starts_with(steps), "{text}");
    withstands(&machine, &script, Result::is_err);
    let left = outcome(machine, script).expect("closed").left;
    assert_eq!(left, vec![receipt(4096, 1)]);
}

/// H14: of two endings of one attempt the first holds, wherever they stand in the batch.
#[test]
fn the_general_path_closes_an_attempt_once() {
    let success = Exit { receipt: receipt(4096, 1), ending: Ending::Completed };
    let exits = vec![failed(receipt(4096, 2)), success.clone(), failed(receipt(4096, 1))];
    let mut machine = Close::general(exits);
    let Turn::Last(steps) = machine.start() else { panic!("no steps") };
    let exits = vec![success, failed(receipt(4096, 2))];
    assert_eq!(steps[1], Step::CloseAttempts { exits });
}

#[test]
fn closing_what_was_not_named_is_a_fault() {
    for closed in [ids(&[4096, 5000]), ids(&[4096, 4096])] {
        let machine = Close::compact(vec![receipt(4096, 1)]);
        let what = "attempts closed and left, of those named";
        assert_eq!(
            fault(machine, vec![vec![Reply::Locked, Reply::Closed(closed)]]),
            Fault::Unbalanced { what, expected: 1, found: 2 }
        );
    }
}

#[test]
fn closing_nothing_asks_nothing() {
    for machine in [Close::compact(vec![]), Close::general(vec![])] {
        let done = outcome(machine, vec![]).expect("nothing");
        assert!(done.closed.is_empty() && done.left.is_empty());
    }
    assert_eq!(Finish::new(vec![]).next(), None);
}

/// Runs a batch against a database that closes exactly these: on the compact path, by handing back, on the
/// general path.
fn finish(batch: Vec<Finished>, closes: [&[i64]; 3]) -> (Vec<String>, FinishOutcome) {
    let mut plan_of_batch = Vec::new();
    let mut finish = Finish::new(batch);
    while let Some(mut close) = finish.next() {
        assert!(plan_of_batch.len() < 3, "more than three transactions: {plan_of_batch:?}");
        let Turn::Last(steps) = close.start() else { panic!("no steps") };
        plan_of_batch.push(steps[1].to_string());
        let names = ["CompleteCompact", "HandBack", "CloseAttempts"];
        let path = names.iter().position(|name| *name == steps[1].name()).expect("a way out");
        let turn = close.resume(vec![Reply::Locked, Reply::Closed(ids(closes[path]))]);
        let Turn::Commit(Ok(did)) = turn else { panic!("{turn:?}") };
        finish.take(did);
    }
    (plan_of_batch, finish.into_outcome())
}

fn success(receipt: Receipt, traits: BodyTraits) -> Finished {
    Finished::completed(&claimed_job(receipt, 1, traits))
}

/// R026-15, H45: only the ineligible job leaves the compact path.
#[test]
fn one_ineligible_job_takes_only_itself_off_the_compact_path() {
    let ineligible = [
        BodyTraits { unique_key: true, ..BodyTraits::default() },
        BodyTraits { tags: true, ..BodyTraits::default() },
        BodyTraits { errors: true, ..BodyTraits::default() },
        BodyTraits { custom_metadata: true, ..BodyTraits::default() },
    ];
    for traits in ineligible {
        let batch = vec![
            success(receipt(4096, 1), BodyTraits::default()),
            success(receipt(4096, 2), traits),
            success(receipt(4096, 3), BodyTraits::default()),
        ];
        let (steps, done) = finish(batch, [&[4096, 4098], &[], &[4097]]);
        assert_eq!(steps, ["complete 2 attempts compactly", "close 1 attempts"]);
        assert_eq!(done, FinishOutcome { closed: ids(&[4096, 4098, 4097]), stale: vec![] });
    }
}

#[test]
fn a_batch_of_plain_successes_is_one_transaction() {
    let batch = (1..=3).map(|i| success(receipt(4096, i), BodyTraits::default())).collect();
    let (steps, done) = finish(batch, [&[4096, 4097, 4098], &[], &[]]);
    assert_eq!(steps, ["complete 3 attempts compactly"]);
    assert_eq!(done, FinishOutcome { closed: ids(&[4096, 4097, 4098]), stale: vec![] });
}

/// R026-27 to R026-29: what the compact path left, the general path looks at; H15: what that leaves
/// is stale, and nothing else is told.
#[test]
fn what_the_compact_path_left_goes_the_general_way() {
    let batch = (1..=3).map(|i| success(receipt(4096, i), BodyTraits::default())).collect();
    let (steps, done) = finish(batch, [&[4096], &[], &[4098]]);
    assert_eq!(steps, ["complete 3 attempts compactly", "close 2 attempts"]);
    assert_eq!(done, FinishOutcome { closed: ids(&[4096, 4098]), stale: ids(&[4097]) });
}

/// H14: named twice in one batch, it ends once, as it said first.
#[test]
fn an_attempt_named_twice_ends_once() {
    let job = claimed_job(receipt(4096, 1), 3, BodyTraits::default());
    let batch = vec![Finished::failed(&job, b"no", None), Finished::completed(&job)];
    let (steps, done) = finish(batch, [&[], &[], &[4096]]);
    assert_eq!(steps, ["close 1 attempts"]);
    assert_eq!(done, FinishOutcome { closed: ids(&[4096]), stale: ids(&[4096]) });
}

/// A refusal costs nothing: the same transaction is given again.
#[test]
fn a_refused_transaction_is_given_again() {
    let finish = Finish::new(vec![success(receipt(4096, 1), BodyTraits::default())]);
    let mut first = finish.next().expect("work");
    let Turn::Last(_) = first.start() else { panic!("no steps") };
    let refused = first.resume(vec![Reply::Locked, Reply::Refused(Refusal::Conflict)]);
    assert_eq!(refused, Turn::Rollback(Err(Refusal::Conflict)));
    assert_eq!(finish.next(), Some(Close::compact(vec![receipt(4096, 1)])));
}

/// H18, H19, H20: the last attempt ends the job, an asked-for delay doesn't prolong it.
#[test]
fn a_failure_is_retried_until_its_attempts_are_used_up() {
    let ending = |attempt, delay| {
        let job = claimed_job(receipt(4096, 1), attempt, BodyTraits::default());
        Finished::failed(&job, b"no", delay).ending
    };
    let error = || "no".to_owned();
    let (second, minute) = (Span::from_secs(1), Span::from_secs(60));
    assert_eq!(ending(1, None), Ending::Retry { error: error(), delay: second });
    assert_eq!(ending(2, Some(minute)), Ending::Retry { error: error(), delay: minute });
    assert_eq!(ending(3, None), Ending::Failed { error: error() });
    assert_eq!(ending(3, Some(minute)), Ending::Failed { error: error() });
    let job = claimed_job(receipt(4096, 1), 1, BodyTraits::default());
    assert_eq!(Finished::failed_for_good(&job, b"no").ending, Ending::Failed { error: error() });
}

/// No error text keeps a terminal fact from being stored.
#[test]
fn any_error_text_is_made_storable() {
    let job = claimed_job(receipt(4096, 1), 3, BodyTraits::default());
    let hostile = [b"a\0b\xff".as_slice(), &[b'x'; 3 * ERROR_BYTES_MAX]].concat();
    for finished in
        [Finished::failed(&job, &hostile, None), Finished::failed_for_good(&job, &hostile)]
    {
        let Ending::Failed { error } = finished.ending else { panic!("{finished:?}") };
        assert!(!error.contains('\0') && error.len() <= ERROR_BYTES_MAX, "{} bytes", error.len());
    }
}

// --- rescue ---

fn overdue(batch: i64, index: u16, attempt: i16) -> OverdueAttempt {
    OverdueAttempt { receipt: receipt(batch, index), attempt: Attempt(attempt), max_attempts: 3 }
}

fn rescue(limit: i64) -> Rescue {
    Rescue::new(limit).expect("in range")
}

/// R026-08, H11: the fence that every way out holds, and a decision under it.
#[test]
fn overdue_attempts_are_ended_under_their_fences() {
    let found = vec![overdue(8192, 1, 1), overdue(4096, 2, 1), overdue(4096, 1, 1)];
    let script =
        vec![vec![Reply::Overdue(found)], vec![Reply::Locked, Reply::Closed(ids(&[4096, 8192]))]];
    assert_eq!(
        plan(rescue(10), script.clone()),
        "\
turn 1, ask
  find up to 10 overdue attempts
turn 2, last, with COMMIT
  fence batch 4096, batch 8192
  close 3 attempts
commit: Ok(Rescued { closed: [ReceiptId(4096), ReceiptId(8192)], found: 3 })
"
    );
    withstands(&rescue(10), &script, Result::is_err);
}

/// H06, H18: a failure like any other: retried with backoff, and terminal with the last attempt.
#[test]
fn a_rescued_attempt_counts_as_one_that_failed() {
    let mut machine = rescue(10);
    let Turn::Ask(_) = machine.start() else { panic!("no question") };
    let found = vec![overdue(8192, 1, 3), overdue(4096, 1, 2)];
    let Turn::Last(steps) = machine.resume(vec![Reply::Overdue(found)]) else { panic!("no steps") };
    let error = || "the attempt was not over by its deadline".to_owned();
    let retry = Ending::Retry { error: error(), delay: Span::from_secs(2) };
    let exits = vec![
        Exit { receipt: receipt(4096, 1), ending: retry },
        Exit { receipt: receipt(8192, 1), ending: Ending::Failed { error: error() } },
    ];
    assert_eq!(steps[1], Step::CloseAttempts { exits });
}

#[test]
fn nothing_overdue_writes_nothing() {
    let text = plan(rescue(10), vec![vec![Reply::Overdue(vec![])]]);
    assert!(text.ends_with("roll back: Ok(Rescued { closed: [], found: 0 })\n"), "{text}");
    let none = vec![vec![Reply::Overdue(vec![])]];
    assert_eq!(outcome(rescue(1), none), Ok(Rescued::default()));
}

#[test]
fn a_rescue_is_bounded() {
    for (limit, fits) in
        [(1, true), (RESCUE_ROWS_MAX, true), (0, false), (RESCUE_ROWS_MAX + 1, false)]
    {
        assert_eq!(Rescue::new(limit).is_ok(), fits, "{limit}");
    }
    let two = vec![overdue(4096, 1, 1), overdue(4096, 2, 1)];
    let what = "overdue attempts beyond the limit";
    let beyond = Fault::Unbalanced { what, expected: 0, found: 1 };
    assert_eq!(fault(rescue(1), vec![vec![Reply::Overdue(two)]]), beyond);
    let what = "attempts ended beyond those found";
    let script = vec![
        vec![Reply::Overdue(vec![overdue(4096, 1, 1)])],
        vec![Reply::Locked, Reply::Closed(ids(&[4096, 4097]))],
    ];
    assert_eq!(fault(rescue(9), script), Fault::Unbalanced { what, expected: 0, found: 1 });
}

/// H60: what a worker hands back goes to its lane again, whatever attempt it was; it takes no other off its
/// own path, and costs a transaction of its own.
#[test]
fn what_is_handed_back_goes_to_its_lane_again() {
    for attempt in [1, 25, 32_767] {
        let job = claimed_job(receipt(4096, 2), attempt, BodyTraits::default());
        let batch = vec![
            success(receipt(4096, 1), BodyTraits::default()),
            Finished::handed_back(&job, "the worker shut down"),
        ];
        let (steps, done) = finish(batch, [&[4096], &[4097], &[]]);
        assert_eq!(steps, ["complete 1 attempts compactly", "hand back 1 attempts"]);
        assert_eq!(done.closed, ids(&[4096, 4097]), "attempt {attempt}");
        assert!(done.stale.is_empty());
    }
}

/// H60, H30: what can't go back is stale, or its body is gone: the general path finds out which.
#[test]
fn what_could_not_be_handed_back_takes_the_general_path() {
    let back = |index, attempt| {
        let job = claimed_job(receipt(4096, index), attempt, BodyTraits::default());
        Finished::handed_back(&job, "the worker shut down")
    };
    let batch = || vec![back(1, 1), back(2, 32_766), back(3, 32_767)];
    let (steps, done) = finish(batch(), [&[], &[4096], &[4097]]);
    assert_eq!(steps, ["hand back 3 attempts", "close 2 attempts"]);
    assert_eq!((done.closed, done.stale), (ids(&[4096, 4097]), ids(&[4098])));

    let mut plan = Finish::new(batch());
    plan.take(Closed {
        path: Path::HandBack,
        closed: vec![],
        left: vec![receipt(4096, 2), receipt(4096, 3)],
    });
    let mut general = plan.next().expect("two are left");
    let Turn::Last(steps) = general.start() else { panic!("no steps") };
    let error = || "the worker shut down".to_owned();
    let retry = Ending::Retry { error: error(), delay: Span::ZERO };
    let exits = vec![
        Exit { receipt: receipt(4096, 2), ending: retry },
        Exit { receipt: receipt(4096, 3), ending: Ending::Failed { error: error() } },
    ];
    assert_eq!(steps[1], Step::CloseAttempts { exits });
}

/// R026-06: a place outside a batch is refused where it is made, so that no receipt can name an attempt of
/// another batch.
#[test]
fn a_place_lies_within_a_batch() {
    for place in [1, 4096] {
        let receipt = Receipt { index: Place::new(place).expect("in range"), ..receipt(8192, 1) };
        assert_eq!(receipt.id(), ReceiptId(8192 + place - 1));
    }
    for place in [0, 4097, -1, i64::MIN, i64::MAX] {
        let (field, value) = (Field::Place, place);
        let refused = UserError::OutOfRange { field, value, min: 1, max: 4096 };
        assert_eq!(Place::new(place), Err(refused));
    }
}
