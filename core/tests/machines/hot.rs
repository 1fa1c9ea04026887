use awa_core::job::{Ending, Exit};
use awa_core::limits::{CLAIM_BYTES_MAX, ENQUEUE_ROWS_MAX, ERROR_BYTES_MAX, MOVE_ROWS_MAX};
use awa_core::machine::claim::{Claim, ClaimOutcome};
use awa_core::machine::close::{Close, Closed, Finish, FinishOutcome, Finished, Path};
use awa_core::machine::enqueue::{
    Copied, Enqueue, EnqueueCopy, EnqueueDeferred, Enqueued, Wake, lanes_of,
};
use awa_core::machine::promote::{Promote, Promoted};
use awa_core::reply::Claimed;
use awa_core::rules::BodyTraits;
use awa_core::{
    Fault, JobId, LaneId, LaneSeq, Machine, Receipt, ReceiptId, Refusal, Reply, Sample, Snapshot,
    Span, Step, Turn, UserError, Window, Xid,
};

use crate::script::{
    Script, at_hour, claimed_job, fault, new_job, outcome, plan, receipt, segment, withstands,
};

fn lanes(numbers: &[i64]) -> Vec<LaneId> {
    numbers.iter().copied().map(LaneId).collect()
}

fn jobs(numbers: &[i64]) -> Vec<JobId> {
    numbers.iter().copied().map(JobId).collect()
}

// --- enqueue ---

fn enqueue(lanes: &[i64]) -> Enqueue {
    Enqueue::new(lanes.iter().map(|lane| new_job(*lane)).collect()).expect("few jobs")
}

/// Law 1, H44, H61: one flush, no lock, and no NOTIFY before the COMMIT.
#[test]
fn enqueue_is_one_step_that_waits_for_nobody() {
    let script = vec![vec![Reply::Enqueued(jobs(&[11, 12, 13]))]];
    assert_eq!(
        plan(enqueue(&[5, 2, 5]), script.clone()),
        "\
turn 1, last, with COMMIT
  enqueue 3 jobs
commit: Ok(Enqueued { jobs: [JobId(11), JobId(12), JobId(13)], lanes: [LaneId(2), LaneId(5)] })
"
    );
    withstands(&enqueue(&[5, 2, 5]), &script, Result::is_err);
}

/// The same value in a transaction that the caller owns.
#[test]
fn enqueue_can_be_driven_by_its_caller() {
    let mut machine = enqueue(&[3]);
    assert_eq!(machine.take_steps(), vec![Step::EnqueueReady { jobs: vec![new_job(3)] }]);
    let done = Enqueued { jobs: jobs(&[9]), lanes: lanes(&[3]) };
    assert_eq!(machine.resume(vec![Reply::Enqueued(jobs(&[9]))]), Turn::Commit(Ok(done)));

    let mut deferred = EnqueueDeferred::new(vec![(new_job(3), at_hour(200))]).expect("one job");
    let step = Step::EnqueueDeferred { jobs: vec![(new_job(3), at_hour(200))] };
    assert_eq!(deferred.take_steps(), vec![step]);
}

#[test]
fn an_id_short_is_a_fault() {
    let what = "ids of enqueued jobs";
    let short = Fault::Unbalanced { what, expected: 2, found: 1 };
    assert_eq!(fault(enqueue(&[1, 1]), vec![vec![Reply::Enqueued(jobs(&[9]))]]), short);
    let deferred = EnqueueDeferred::new(vec![(new_job(1), at_hour(1))]).expect("one job");
    let what = "ids of deferred jobs";
    let over = Fault::Unbalanced { what, expected: 1, found: 2 };
    assert_eq!(fault(deferred, vec![vec![Reply::Enqueued(jobs(&[9, 10]))]]), over);
}

#[test]
fn no_jobs_ask_nothing() {
    let nothing = Enqueued { jobs: vec![], lanes: vec![] };
    assert_eq!(outcome(enqueue(&[]), vec![]), Ok(nothing.clone()));
    assert_eq!(outcome(EnqueueDeferred::new(vec![]).expect("none"), vec![]), Ok(nothing));
    let copy = EnqueueCopy::new(vec![]).expect("none");
    assert_eq!(outcome(copy, vec![]), Ok(Copied { rows: 0, lanes: vec![] }));
}

#[test]
fn one_call_holds_a_bounded_number_of_jobs() {
    let refused = |e: Result<(), UserError>| {
        let text = e.expect_err("too many").to_string();
        assert_eq!(text, "jobs is 100001; it must lie between 0 and 100000");
    };
    let many = vec![new_job(1); ENQUEUE_ROWS_MAX + 1];
    let dated = many.iter().cloned().map(|job| (job, at_hour(1))).collect();
    refused(EnqueueDeferred::new(dated).map(drop));
    refused(EnqueueCopy::new(many.clone()).map(drop));
    refused(
        Enqueue::new(many[..ENQUEUE_ROWS_MAX].to_vec()).map(drop).and(Enqueue::new(many).map(drop)),
    );
}

#[test]
fn a_copy_reads_the_cursor_and_copies() {
    let machine = EnqueueCopy::new(vec![new_job(4), new_job(1)]).expect("two jobs");
    let script = vec![vec![Reply::CursorRead(segment(3, 8))], vec![Reply::Copied(2)]];
    assert_eq!(
        plan(machine.clone(), script.clone()),
        "\
turn 1, ask
  read the cursor
turn 2, last, with COMMIT
  copy 2 jobs to slot 3 g8
commit: Ok(Copied { rows: 2, lanes: [LaneId(1), LaneId(4)] })
"
    );
    withstands(&machine, &script, Result::is_err);
    let short = vec![script[0].clone(), vec![Reply::Copied(1)]];
    assert_eq!(
        fault(machine, short),
        Fault::Unbalanced { what: "copied jobs", expected: 2, found: 1 }
    );
}

#[test]
fn deferred_jobs_wake_nobody() {
    let machine = EnqueueDeferred::new(vec![(new_job(4), at_hour(200))]).expect("one job");
    let script = vec![vec![Reply::Enqueued(jobs(&[7]))]];
    assert_eq!(
        plan(machine.clone(), script.clone()),
        "\
turn 1, last, with COMMIT
  defer 1 jobs
commit: Ok(Enqueued { jobs: [JobId(7)], lanes: [] })
"
    );
    withstands(&machine, &script, Result::is_err);
}

/// H44: each lane once, and nothing to send where there is no lane.
#[test]
fn a_wake_names_each_lane_once() {
    assert_eq!(Wake::lanes(vec![]), None);
    assert_eq!(lanes_of(&[(JobId(1), LaneId(4)), (JobId(2), LaneId(4))]), lanes(&[4]));
    let machine = Wake::lanes(lanes(&[7, 3, 7])).expect("lanes");
    let script = vec![vec![Reply::Woken]];
    let text = plan(machine.clone(), script.clone());
    assert_eq!(text, "turn 1, last, with COMMIT\n  wake lane 3, lane 7\ncommit: Ok(())\n");
    withstands(&machine, &script, Result::is_err);
}

// --- claim ---

fn snapshot(text: &str) -> Snapshot {
    Snapshot::parse(text).expect("a snapshot")
}

fn known_window() -> Window {
    Window {
        seen: Some(snapshot("50:60:55")),
        frontier: None,
        samples: vec![Sample { position: LaneSeq(100), xid: Xid(58) }],
    }
}

fn claim() -> Claim {
    Claim::new(LaneId(7), known_window(), 512, CLAIM_BYTES_MAX, None).expect("in range")
}

fn took(bounded: bool, last: Option<i64>, seqs: u16) -> Claimed {
    Claimed {
        seen: snapshot("61:70:"),
        bounded,
        last: last.map(LaneSeq),
        attempted_at: at_hour(100),
        deadline_at: None,
        jobs: (1..=seqs).map(|i| claimed_job(receipt(4096, i), 1, BodyTraits::default())).collect(),
    }
}

fn claimed(position: i64, claimed: Claimed, own: Option<u64>) -> Script {
    vec![vec![
        Reply::Locked,
        Reply::PositionRead(LaneSeq(position)),
        Reply::Claimed(claimed),
        Reply::OwnXid(own.map(Xid)),
    ]]
}

fn window_after(script: Script) -> Window {
    match outcome(claim(), script) {
        ClaimOutcome::Claimed { window, .. } => window,
        ClaimOutcome::Refused { refusal, .. } => panic!("{refusal}"),
    }
}

/// DESIGN 5a: the lock in a statement of its own, the position before the transaction has an id,
/// the id after the claim; all in one flush.
#[test]
fn a_claim_is_one_flush() {
    let script = claimed(120, took(false, Some(119), 1), Some(70));
    let text = plan(claim(), script.clone());
    let (steps, said) = text.split_once("commit: ").expect("a commit");
    assert_eq!(
        steps,
        "\
turn 1, last, with COMMIT
  lock lane 7
  read the last position
  claim up to 512 jobs or 67108864 bytes of lane 7 since 50:60:55
  read the own transaction id
"
    );
    assert!(said.starts_with("Claimed { jobs: [ClaimedJob"), "{said}");
    withstands(&claim(), &script, |o| match o {
        // Nothing of the claim happened, and nothing that was known became wrong.
        ClaimOutcome::Refused { window, .. } => *window == known_window(),
        ClaimOutcome::Claimed { .. } => false,
    });
}

/// The sample is the position with the own id; everything visible was taken, so there is no frontier.
#[test]
fn an_unbounded_claim_saw_everything() {
    let window = window_after(claimed(120, took(false, Some(119), 2), Some(70)));
    assert_eq!(window.seen, Some(snapshot("61:70:")));
    assert_eq!(window.frontier, None);
    let sample = Sample { position: LaneSeq(120), xid: Xid(70) };
    assert_eq!(window.samples, vec![known_window().samples[0], sample]);
}

/// A bound that struck moves the frontier no further than the last position taken.
#[test]
fn a_bounded_claim_stops_at_its_last_position() {
    let window = window_after(claimed(120, took(true, Some(110), 2), Some(70)));
    assert_eq!(window.frontier, Some(LaneSeq(110)));
}

/// An empty claim writes nothing and is given no id: no sample, but the snapshot counts.
#[test]
fn an_empty_claim_moves_the_snapshot_only() {
    let window = window_after(claimed(120, took(false, None, 0), None));
    assert_eq!(window.seen, Some(snapshot("61:70:")));
    assert_eq!(window.samples, known_window().samples);
}

/// A failover took the sequence back: nothing remembered holds, whether or not an id was given.
#[test]
fn another_history_drops_the_window() {
    assert_eq!(window_after(claimed(99, took(false, Some(98), 1), Some(70))), Window::default());
    assert_eq!(window_after(claimed(99, took(false, None, 0), None)), Window::default());
    let ahead = Window { frontier: Some(LaneSeq(130)), ..known_window() };
    assert!(
        ahead.is_of_another_history(LaneSeq(129)) && !ahead.is_of_another_history(LaneSeq(130))
    );
    assert!(!known_window().is_of_another_history(LaneSeq(100)));
}

/// "Bounded" without a last position would let the next claim look past rows that were left.
#[test]
fn a_bound_that_struck_nowhere_is_a_fault() {
    let what = "last positions of a bounded claim";
    assert_eq!(
        fault(claim(), claimed(120, took(true, None, 0), None)),
        Fault::Unbalanced { what, expected: 1, found: 0 }
    );
}

#[test]
fn a_claim_is_bounded_by_rows_and_bytes() {
    let new = |limit, bytes| Claim::new(LaneId(1), Window::default(), limit, bytes, None).map(drop);
    for (limit, bytes) in [(1, 1), (4096, CLAIM_BYTES_MAX)] {
        assert_eq!(new(limit, bytes), Ok(()));
    }
    for (limit, bytes) in [(0, 1), (4097, 1), (1, 0), (1, CLAIM_BYTES_MAX + 1), (i64::MIN, 1)] {
        let refused = new(limit, bytes);
        assert!(matches!(refused, Err(UserError::OutOfRange { .. })), "{limit} {bytes}");
    }
}

#[test]
fn a_deadline_is_asked_for_and_given() {
    let deadline = Some(Span::from_secs(30));
    let machine = Claim::new(LaneId(1), Window::default(), 1, 10, deadline).expect("in range");
    let due = at_hour(100).after(Span::from_secs(30));
    let script = claimed(1, Claimed { deadline_at: Some(due), ..took(true, Some(1), 1) }, Some(3));
    let text = plan(machine.clone(), script.clone());
    assert!(
        text.contains("  claim up to 1 jobs or 10 bytes of lane 1 from the start, due in 30s\n")
    );
    match outcome(machine, script) {
        ClaimOutcome::Claimed { deadline_at, attempted_at, bounded, jobs, .. } => {
            assert_eq!((deadline_at, attempted_at, bounded), (Some(due), at_hour(100), true));
            assert_eq!(jobs.len(), 1);
        }
        ClaimOutcome::Refused { refusal, .. } => panic!("{refusal}"),
    }
}

// --- close ---

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

/// Runs a batch against a database that closes exactly `compact` and then `general`.
fn finish(batch: Vec<Finished>, compact: &[i64], general: &[i64]) -> (Vec<String>, FinishOutcome) {
    let mut plan_of_batch = Vec::new();
    let mut finish = Finish::new(batch);
    while let Some(mut close) = finish.next() {
        assert!(plan_of_batch.len() < 2, "more than two transactions: {plan_of_batch:?}");
        let Turn::Last(steps) = close.start() else { panic!("no steps") };
        plan_of_batch.push(steps[1].to_string());
        let closed = if steps[1].name() == "CompleteCompact" { compact } else { general };
        let turn = close.resume(vec![Reply::Locked, Reply::Closed(ids(closed))]);
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
        let (steps, done) = finish(batch, &[4096, 4098], &[4097]);
        assert_eq!(steps, ["complete 2 attempts compactly", "close 1 attempts"]);
        assert_eq!(done, FinishOutcome { closed: ids(&[4096, 4098, 4097]), stale: vec![] });
    }
}

#[test]
fn a_batch_of_plain_successes_is_one_transaction() {
    let batch = (1..=3).map(|i| success(receipt(4096, i), BodyTraits::default())).collect();
    let (steps, done) = finish(batch, &[4096, 4097, 4098], &[]);
    assert_eq!(steps, ["complete 3 attempts compactly"]);
    assert_eq!(done, FinishOutcome { closed: ids(&[4096, 4097, 4098]), stale: vec![] });
}

/// R026-27 to R026-29: what the compact path left, the general path looks at; H15: what that leaves
/// is stale, and nothing else is told.
#[test]
fn what_the_compact_path_left_goes_the_general_way() {
    let batch = (1..=3).map(|i| success(receipt(4096, i), BodyTraits::default())).collect();
    let (steps, done) = finish(batch, &[4096], &[4098]);
    assert_eq!(steps, ["complete 3 attempts compactly", "close 2 attempts"]);
    assert_eq!(done, FinishOutcome { closed: ids(&[4096, 4098]), stale: ids(&[4097]) });
}

/// H14: named twice in one batch, it ends once, as it said first.
#[test]
fn an_attempt_named_twice_ends_once() {
    let job = claimed_job(receipt(4096, 1), 3, BodyTraits::default());
    let batch = vec![Finished::failed(&job, b"no", None), Finished::completed(&job)];
    let (steps, done) = finish(batch, &[], &[4096]);
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

/// DESIGN 8: no error text keeps a terminal fact from being stored.
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

// --- promote ---

#[test]
fn due_jobs_are_promoted_and_the_next_one_is_told() {
    let machine = Promote::new(100).expect("in range");
    let moved = vec![(JobId(4), LaneId(2)), (JobId(3), LaneId(2))];
    let script = |now, due| vec![vec![Reply::Promoted(moved.clone()), Reply::NextDue { now, due }]];
    let soon = script(at_hour(100), Some(at_hour(101)));
    let text = plan(machine.clone(), soon.clone());
    let steps = "turn 1, last, with COMMIT\n  promote up to 100 due jobs\n  read when the next job is due\n";
    assert!(text.starts_with(steps), "{text}");
    withstands(&machine, &soon, Result::is_err);
    let idle = |due| -> Option<Span> {
        let done: Promoted = outcome(machine.clone(), script(at_hour(100), due)).expect("promoted");
        assert_eq!(done.jobs, moved);
        done.idle_for()
    };
    assert_eq!(idle(Some(at_hour(101))), Some(Span::from_secs(3600)));
    assert_eq!(idle(Some(at_hour(99))), Some(Span::ZERO));
    assert_eq!(idle(None), None);
}

#[test]
fn promotion_is_bounded() {
    for (limit, fits) in [(1, true), (MOVE_ROWS_MAX, true), (0, false), (MOVE_ROWS_MAX + 1, false)]
    {
        assert_eq!(Promote::new(limit).is_ok(), fits, "{limit}");
    }
    let moved = vec![(JobId(4), LaneId(2)), (JobId(3), LaneId(2))];
    let script = vec![vec![Reply::Promoted(moved), Reply::NextDue { now: at_hour(1), due: None }]];
    assert_eq!(
        fault(Promote::new(1).expect("in range"), script),
        Fault::Unbalanced { what: "jobs promoted beyond the limit", expected: 0, found: 1 }
    );
}
