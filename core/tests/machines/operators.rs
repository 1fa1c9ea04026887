use awa_core::job::{Location, ReadyRef, TerminalFilter, TerminalRef};
use awa_core::limits::MOVE_ROWS_MAX;
use awa_core::machine::cancel::{Cancel, CancelOutcome};
use awa_core::machine::delete::{DeleteCompleted, DeleteOutcome};
use awa_core::machine::retry::{
    DiscardFailed, DiscardOutcome, MovePiece, PieceOutcome, RetryFailed, RetryFailedOutcome,
};
use awa_core::{
    Fault, JobId, JobState, Kind, LaneId, LaneSeq, Machine, Refusal, Reply, Slot, Step, Turn,
    UserError,
};

use crate::script::{Script, fault, outcome, plan, queue, withstands};

const JOB: JobId = JobId(42);

fn place(lane: i64) -> ReadyRef {
    ReadyRef { slot: Slot(3), lane: LaneId(lane), lane_seq: LaneSeq(42) }
}

fn row(job: i64) -> TerminalRef {
    TerminalRef { job: JobId(job), lane: LaneId(7), lane_seq: LaneSeq(1000 + job) }
}

fn at(location: Location) -> Reply {
    Reply::Located(Some(location))
}

fn ready(lane: i64) -> Reply {
    at(Location::Ready(place(lane)))
}

fn deferred() -> Reply {
    at(Location::Deferred { state: JobState::Scheduled })
}

fn ended(state: JobState) -> Reply {
    at(Location::Terminal { state, row: row(42) })
}

fn moved(jobs: &[i64]) -> Reply {
    Reply::Moved(jobs.iter().map(|job| (JobId(*job), LaneId(7))).collect())
}

// --- cancel ---

/// R026-18, law 10, H13: looked for, the lane locked, looked for again, and only then spent.
#[test]
fn a_waiting_job_is_tombstoned_under_its_lanes_lock() {
    let script = vec![vec![ready(7)], vec![Reply::Locked, ready(7)], vec![moved(&[42])]];
    assert_eq!(
        plan(Cancel::new(JOB), script.clone()),
        "\
turn 1, ask
  locate job 42
turn 2, ask
  lock lane 7
  locate job 42
turn 3, last, with COMMIT
  tombstone lane 7 @42 in slot 3
commit: Ok(Cancelled)
"
    );
    withstands(&Cancel::new(JOB), &script, Result::is_err);
}

#[test]
fn a_deferred_job_is_cancelled_where_it_is() {
    let script = vec![vec![deferred()], vec![moved(&[42])]];
    assert_eq!(
        plan(Cancel::new(JOB), script.clone()),
        "\
turn 1, ask
  locate job 42
turn 2, ask
  cancel deferred job 42
commit: Ok(Cancelled)
"
    );
    withstands(&Cancel::new(JOB), &script, Result::is_err);
}

/// Promoted between the look and the cancel: it is found again in its lane.
#[test]
fn a_job_on_the_move_is_followed() {
    let script = vec![
        vec![deferred()],
        vec![moved(&[])],
        vec![ready(7)],
        vec![Reply::Locked, ready(7)],
        vec![moved(&[42])],
    ];
    assert_eq!(outcome(Cancel::new(JOB), script), Ok(CancelOutcome::Cancelled));
    // Claimed and retried while the lane's lock was waited for.
    let script = vec![vec![ready(7)], vec![Reply::Locked, deferred()], vec![moved(&[42])]];
    assert_eq!(outcome(Cancel::new(JOB), script), Ok(CancelOutcome::Cancelled));
    // Under the lock that is already held, a second look is enough.
    let script = vec![
        vec![ready(7)],
        vec![Reply::Locked, deferred()],
        vec![moved(&[])],
        vec![ready(7)],
        vec![moved(&[42])],
    ];
    assert_eq!(outcome(Cancel::new(JOB), script), Ok(CancelOutcome::Cancelled));
}

/// Four looks, then it is the operator's turn.
#[test]
fn a_job_is_not_followed_for_ever() {
    let mut script: Script = vec![];
    for _ in 0..4 {
        script.push(vec![deferred()]);
        script.push(vec![moved(&[])]);
    }
    assert_eq!(outcome(Cancel::new(JOB), script.clone()), Ok(CancelOutcome::KeptMoving));
    script.truncate(6);
    script.push(vec![ready(7)]);
    assert_eq!(outcome(Cancel::new(JOB), script), Ok(CancelOutcome::KeptMoving));
}

/// Two lane locks in one transaction would be taken in no fixed order.
#[test]
fn a_job_that_changed_lanes_is_let_go() {
    let script = vec![vec![ready(7)], vec![Reply::Locked, ready(8)]];
    assert_eq!(outcome(Cancel::new(JOB), script), Ok(CancelOutcome::KeptMoving));
}

/// H12: the other side is told what it is.
#[test]
fn what_cannot_be_cancelled_is_named() {
    for (found, expected) in [
        (Reply::Located(None), CancelOutcome::NotFound),
        (at(Location::Running(place(7))), CancelOutcome::Running),
        (at(Location::Compact(place(7))), CancelOutcome::AlreadyEnded(JobState::Completed)),
        (ended(JobState::Completed), CancelOutcome::AlreadyEnded(JobState::Completed)),
        (ended(JobState::Failed), CancelOutcome::AlreadyEnded(JobState::Failed)),
        (ended(JobState::Cancelled), CancelOutcome::AlreadyEnded(JobState::Cancelled)),
    ] {
        assert_eq!(outcome(Cancel::new(JOB), vec![vec![found.clone()]]), Ok(expected));
        let claimed_meanwhile = vec![vec![ready(7)], vec![Reply::Locked, found]];
        assert_eq!(outcome(Cancel::new(JOB), claimed_meanwhile), Ok(expected));
    }
}

#[test]
fn a_position_spent_in_spite_of_the_lock_is_a_fault() {
    let script = |last| vec![vec![ready(7)], vec![Reply::Locked, ready(7)], vec![last]];
    let what = "positions spent under their lane's lock";
    assert_eq!(
        fault(Cancel::new(JOB), script(moved(&[]))),
        Fault::Unbalanced { what, expected: 1, found: 0 }
    );
    let what = "other jobs that a cancel took";
    let other = Fault::Unbalanced { what, expected: 0, found: 1 };
    assert_eq!(fault(Cancel::new(JOB), script(moved(&[41]))), other);
    assert_eq!(fault(Cancel::new(JOB), vec![vec![deferred()], vec![moved(&[41])]]), other);
}

// --- compatibility delete ---

/// R026-17: hidden, not reopened.
#[test]
fn a_compact_success_is_hidden() {
    let script = vec![vec![at(Location::Compact(place(7)))], vec![moved(&[42])]];
    assert_eq!(
        plan(DeleteCompleted::new(JOB), script.clone()),
        "\
turn 1, ask
  locate job 42
turn 2, last, with COMMIT
  hide the success lane 7 @42 in slot 3
commit: Ok(Deleted)
"
    );
    withstands(&DeleteCompleted::new(JOB), &script, Result::is_err);
}

/// R026-22: a success of the general path leaves with its negative delta.
#[test]
fn a_success_of_the_general_path_is_discarded() {
    let script = vec![vec![ended(JobState::Completed)], vec![moved(&[42])]];
    let text = plan(DeleteCompleted::new(JOB), script.clone());
    assert!(text.contains("  discard 1 terminal rows\ncommit: Ok(Deleted)"), "{text}");
    withstands(&DeleteCompleted::new(JOB), &script, Result::is_err);
}

#[test]
fn only_successes_are_deleted() {
    for (found, state) in [
        (ready(7), JobState::Available),
        (deferred(), JobState::Scheduled),
        (at(Location::Deferred { state: JobState::Retryable }), JobState::Retryable),
        (at(Location::Running(place(7))), JobState::Running),
        (ended(JobState::Failed), JobState::Failed),
        (ended(JobState::Cancelled), JobState::Cancelled),
    ] {
        let refused = Ok(DeleteOutcome::NotCompleted(state));
        assert_eq!(outcome(DeleteCompleted::new(JOB), vec![vec![found]]), refused);
    }
    let gone = Ok(DeleteOutcome::NotFound);
    assert_eq!(outcome(DeleteCompleted::new(JOB), vec![vec![Reply::Located(None)]]), gone);
    let raced = vec![vec![at(Location::Compact(place(7)))], vec![moved(&[])]];
    assert_eq!(outcome(DeleteCompleted::new(JOB), raced), gone);
    let other = vec![vec![at(Location::Compact(place(7)))], vec![moved(&[41])]];
    assert_eq!(
        fault(DeleteCompleted::new(JOB), other),
        Fault::Unbalanced { what: "other jobs that a delete took", expected: 0, found: 1 }
    );
}

// --- retry and discard ---

fn by_queue() -> TerminalFilter {
    TerminalFilter::Queue(queue("mail"))
}

fn by_kind() -> TerminalFilter {
    TerminalFilter::Kind(Kind::new("mail").expect("a kind"))
}

fn matched(jobs: &[i64]) -> Reply {
    Reply::Matched(jobs.iter().copied().map(row).collect())
}

fn piece(filter: TerminalFilter, limit: i64) -> MovePiece {
    RetryFailed::new(filter, limit).expect("in range").next().expect("a piece")
}

#[test]
fn a_queue_is_retried_in_a_piece() {
    let script = vec![vec![matched(&[3, 5]), Reply::PrunedFailed(Some(9))], vec![moved(&[3, 5])]];
    assert_eq!(
        plan(piece(by_queue(), 100), script.clone()),
        "\
turn 1, ask
  match up to 100 terminal rows of queue mail
  read pruned failures of queue mail
turn 2, last, with COMMIT
  retry 2 terminal rows
commit: Ok(Moved { matched: 2, moved: [(JobId(3), LaneId(7)), (JobId(5), LaneId(7))], \
         next: None, pruned_failed: Some(9) })
"
    );
    withstands(&piece(by_queue(), 100), &script, Result::is_err);
}

#[test]
fn a_kind_has_no_count_of_pruned_failures() {
    let script = vec![vec![matched(&[3])], vec![moved(&[3])]];
    let text = plan(piece(by_kind(), 100), script.clone());
    assert!(text.starts_with("turn 1, ask\n  match up to 100 terminal rows of kind mail\nturn 2"));
    assert!(text.ends_with("pruned_failed: None })\n"), "{text}");
    withstands(&piece(by_kind(), 100), &script, Result::is_err);
}

#[test]
fn discarding_deletes_what_fits() {
    let mut scan = DiscardFailed::new(TerminalFilter::Job(JOB), 1).expect("in range");
    let script = vec![vec![matched(&[42])], vec![moved(&[42])]];
    let text = plan(scan.next().expect("a piece"), script.clone());
    assert!(text.contains("of job 42\nturn 2, last, with COMMIT\n  discard 1 terminal rows\n"));
    withstands(&scan.next().expect("a piece"), &script, Result::is_err);
    scan.take(outcome(scan.next().expect("a piece"), script).expect("moved")).expect("known");
    assert_eq!(scan.outcome(), DiscardOutcome { discarded: vec![JOB], matched: 1 });
    assert_eq!(scan.next(), None);
}

/// A database with failed jobs `1..=count` of one queue, of which every `stuck`th is matched but
/// never moves. Answers the steps of one piece after another.
fn run(scan: &mut RetryFailed, count: i64, stuck: i64) -> Vec<String> {
    let mut asked = Vec::new();
    while let Some(mut piece) = scan.next() {
        assert!(asked.len() < 10, "the scan doesn't end: {asked:?}");
        let mut turn = piece.start();
        let did = loop {
            let steps = match turn {
                Turn::Ask(steps) | Turn::Last(steps) => steps,
                Turn::Commit(Ok(did)) | Turn::Rollback(Ok(did)) => break did,
                other => panic!("{other:?}"),
            };
            let answer = |step: &Step| {
                if let Step::MatchTerminal { after, limit, .. } = step {
                    asked.push(step.to_string());
                    let from = after.map_or(1, |after| after.0 + 1);
                    matched(&(from..=count).take(*limit as usize).collect::<Vec<_>>())
                } else if let Step::RetryTerminal { rows } = step {
                    let moving = rows.iter().map(|row| row.job.0).filter(|job| job % stuck != 0);
                    moved(&moving.collect::<Vec<_>>())
                } else {
                    Reply::PrunedFailed(Some(6))
                }
            };
            turn = piece.resume(steps.iter().map(answer).collect());
        };
        scan.take(did).expect("a known queue");
    }
    asked
}

/// R032-09, law 13: `matched` is counted over the whole scan, and what did not move shows.
#[test]
fn pieces_add_up_to_one_outcome() {
    let mut scan = RetryFailed::new(by_queue(), i64::MAX).expect("in range");
    let asked = run(&mut scan, 2 * MOVE_ROWS_MAX + 5, 1000);
    assert_eq!(
        asked,
        [
            "match up to 10000 terminal rows of queue mail",
            "match up to 10000 terminal rows of queue mail after job 10000",
            "match up to 10000 terminal rows of queue mail after job 20000",
        ]
    );
    let RetryFailedOutcome { retried, matched, pruned_failed_count } = scan.outcome();
    assert_eq!((matched, retried.len()), (20_005, 19_985));
    assert_eq!(pruned_failed_count, Some(6));
    assert_eq!(scan.lanes(), [LaneId(7)]);
}

#[test]
fn the_limit_is_the_callers() {
    let mut scan = RetryFailed::new(by_queue(), MOVE_ROWS_MAX + 3).expect("in range");
    let asked = run(&mut scan, 3 * MOVE_ROWS_MAX, i64::MAX);
    assert_eq!(asked[1..], ["match up to 3 terminal rows of queue mail after job 10000"]);
    assert_eq!(scan.outcome().matched, 10_003);
    assert!(RetryFailed::new(by_queue(), 0).is_err());
}

/// A page that is exactly full may be the last: the next finds nothing and writes nothing.
#[test]
fn an_empty_page_ends_the_scan() {
    let mut scan = RetryFailed::new(by_queue(), i64::MAX).expect("in range");
    assert_eq!(run(&mut scan, MOVE_ROWS_MAX, i64::MAX).len(), 2);
    assert_eq!(scan.outcome().matched, 10_000);
    let empty = vec![vec![matched(&[]), Reply::PrunedFailed(Some(0))]];
    let text = plan(piece(by_queue(), 5), empty);
    assert!(text.contains("roll back: Ok(Moved { matched: 0"), "{text}");
}

/// A refused piece is given again, from the same place.
#[test]
fn a_refused_piece_is_repeated() {
    let scan = RetryFailed::new(by_kind(), 10).expect("in range");
    let mut first = scan.next().expect("a piece");
    let Turn::Ask(_) = first.start() else { panic!("no question") };
    let refused = first.resume(vec![Reply::Refused(Refusal::Conflict)]);
    assert_eq!(refused, Turn::Rollback(Err(Refusal::Conflict)));
    assert_eq!(scan.next(), Some(piece(by_kind(), 10)));
}

#[test]
fn a_queue_that_was_never_declared_is_the_users_error() {
    let mut scan = RetryFailed::new(by_queue(), 10).expect("in range");
    let script = vec![vec![matched(&[]), Reply::PrunedFailed(None)]];
    let did = outcome(scan.next().expect("a piece"), script).expect("an outcome");
    let queue = "mail".to_owned();
    assert_eq!(did, PieceOutcome::UnknownQueue { queue: queue.clone() });
    assert_eq!(scan.take(did), Err(UserError::UnknownQueue { queue }));
    assert_eq!(scan.next(), None);
}

/// The scan ends and counts each job once only if pages go up; a job that a page holds twice moves
/// and counts once.
#[test]
fn pages_go_up() {
    let twice = vec![vec![matched(&[3, 3, 5])], vec![moved(&[3, 5])]];
    let text = plan(piece(by_kind(), 100), twice);
    assert!(text.contains("  retry 2 terminal rows\n") && text.contains("matched: 2"), "{text}");

    let what = "rows matched out of the order of their jobs";
    let falling = vec![vec![matched(&[5, 3])]];
    let fell = Fault::Unbalanced { what, expected: 0, found: 1 };
    assert_eq!(fault(piece(by_kind(), 100), falling), fell);

    let mut scan = RetryFailed::new(by_kind(), i64::MAX).expect("in range");
    let full: Vec<i64> = (1..=MOVE_ROWS_MAX).collect();
    let script = vec![vec![matched(&full)], vec![moved(&full)]];
    scan.take(outcome(scan.next().expect("a piece"), script).expect("moved")).expect("known");
    let again = vec![vec![matched(&[MOVE_ROWS_MAX])]];
    assert_eq!(fault(scan.next().expect("a piece"), again), fell);
}

#[test]
fn more_than_was_asked_for_is_a_fault() {
    let beyond = Fault::Unbalanced { what: "rows matched beyond the limit", expected: 0, found: 1 };
    assert_eq!(fault(piece(by_kind(), 1), vec![vec![matched(&[3, 5])]]), beyond);
    let what = "jobs moved beyond those that fit";
    let script = vec![vec![matched(&[3])], vec![moved(&[3, 5])]];
    assert_eq!(
        fault(piece(by_kind(), 9), script),
        Fault::Unbalanced { what, expected: 0, found: 1 }
    );
    let script = vec![vec![matched(&[3]), Reply::PrunedFailed(Some(-1))]];
    let negative = Fault::Negative { what: "pruned failures", value: -1 };
    assert_eq!(fault(piece(by_queue(), 9), script), negative);
}
