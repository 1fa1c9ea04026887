use awa_core::limits::CLAIM_BYTES_MAX;
use awa_core::machine::claim::{Claim, ClaimOutcome};
use awa_core::machine::poll::{PollLanes, Polled};
use awa_core::reply::Claimed;
use awa_core::rules::BodyTraits;
use awa_core::{Fault, LaneId, LaneSeq, Reply, Sample, Snapshot, Span, UserError, Window, Xid};

use crate::script::{Script, at_hour, claimed_job, fault, outcome, plan, receipt, withstands};

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

/// docs/LAWS.md 5a: the lock in a statement of its own, the position before the transaction has an id,
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

// --- poll ---

/// H43: one statement for all lanes of a worker that waits.
#[test]
fn one_poll_covers_many_lanes() {
    let lanes = vec![(LaneId(1), Window::default()), (LaneId(2), known_window())];
    let machine = PollLanes { lanes };
    let (seen, holding) = (snapshot("61:70:"), vec![LaneId(2)]);
    let script = vec![vec![Reply::Polled { seen: seen.clone(), holding: holding.clone() }]];
    let text = plan(machine.clone(), script.clone());
    assert!(text.starts_with("turn 1, last, with COMMIT\n  poll 2 lanes\ncommit: "), "{text}");
    assert_eq!(outcome(machine.clone(), script.clone()), Ok(Polled { seen, holding }));
    withstands(&machine, &script, Result::is_err);
}
