//! What claims, completions and the other ways out of an attempt do to the tables.
#![allow(clippy::unwrap_used)]

mod world_common;

use awa_core::machine::close::{Close, Finished};
use awa_core::machine::rescue::Rescue;
use awa_core::rules::BodyTraits;
use awa_core::{
    Ending, Exit, Generation, JobState, LaneId, NewJob, Reply, Ring, Segment, Span, Step, Window,
};
use awa_model_tests::drive::run;
use awa_model_tests::world::World;
use world_common::*;

fn enqueue_to(w: &mut World, lanes: &[LaneId]) {
    let jobs = lanes.iter().map(|lane| job_of(*lane, "1")).collect();
    alone(w, A, &Step::EnqueueReady { jobs });
}

fn exit(w: &mut World, receipt: awa_core::Receipt, ending: Ending) -> usize {
    run(w, C, Close::general(vec![Exit { receipt, ending }])).unwrap().unwrap().closed.len()
}

fn retry(error: &str, secs: u64) -> Ending {
    Ending::Retry { error: error.to_owned(), delay: Span::from_secs(secs) }
}

#[test]
fn a_claim_takes_a_lane_in_order_over_all_slots_and_groups_by_segment() {
    let mut w = world();
    let stale = alone(&mut w, B, &Step::ReadCursor);
    enqueue(&mut w, 1);
    rotate(&mut w, Ring::Queue);
    enqueue(&mut w, 1);
    let Reply::CursorRead(to) = stale else { panic!("{stale:?}") };
    assert_eq!(alone(&mut w, B, &Step::CopyReady { to, jobs: vec![job()] }), Reply::Copied(1));
    let jobs = claim_all(&mut w);
    assert_eq!(ids(&jobs), [1, 2, 3]);
    let receipts: Vec<_> =
        jobs.iter().map(|j| (j.receipt.batch.0, j.receipt.index.get())).collect();
    assert_eq!(receipts, [(4096, 1), (8192, 1), (4096, 2)]);
    assert_eq!(jobs[2].receipt.id().0, 4097);
    let claims = rows(&w, "lease_claim_batches");
    assert!(
        claims[0].contains("lane_seqs=[1, 3] n=2 ready_generation=1 ready_slot=0 run_leases=[1]")
    );
    assert!(claims[1].contains("lane_seqs=[2] n=1 ready_generation=2 ready_slot=1"));
    // Nothing is settled for a claimer without samples: exact islands.
    let evidence = rows(&w, "ready_claim_attempt_batches");
    assert!(evidence[0].contains("ranges={[1,2),[3,4)}"), "{evidence:?}");
}

/// Evidence covers what lies between settled positions, and nothing that may still come.
#[test]
fn evidence_covers_settled_gaps_only() {
    let mut w = world();
    enqueue_to(&mut w, &[LANE, OTHER, LANE, LANE, OTHER, LANE]);
    let (_, window) = claim(&mut w, Window::default(), 1);
    enqueue_to(&mut w, &[LANE, OTHER, LANE]);
    let (jobs, _) = claim(&mut w, window, 10);
    assert_eq!(ids(&jobs), [3, 4, 6, 7, 9]);
    let evidence = rows(&w, "ready_claim_attempt_batches");
    assert!(evidence[1].contains("first_seq=2 lane_id=1 last_seq=9 n=5"), "{evidence:?}");
    // From 2 on, because 1 was the first claim's. Up to 6 that claim had seen all drawn; who drew 8 may
    // still come.
    assert!(evidence[1].contains("ranges={[2,8),[9,10)}"), "{evidence:?}");
}

/// H47: bounded by rows and by bytes, but never to nothing.
#[test]
fn a_claim_stops_at_its_bounds() {
    // limit, bytes, jobs taken, bounded. Each job has 4 bytes of args.
    for (limit, bytes, takes, bounded) in [
        (3, 99, 2, false),
        (2, 99, 2, true),
        (1, 99, 1, true),
        (9, 8, 2, false),
        (9, 7, 1, true),
        (9, 1, 1, true),
    ] {
        let mut w = world();
        let jobs = vec![job_of(LANE, "1234"); 2];
        alone(&mut w, A, &Step::EnqueueReady { jobs });
        let window = Window::default();
        let step = Step::ClaimReady { lane: LANE, window, limit, bytes_max: bytes, deadline: None };
        let Reply::Claimed(claimed) = alone(&mut w, C, &step) else { panic!() };
        assert_eq!((claimed.jobs.len(), claimed.bounded), (takes, bounded), "{limit} {bytes}");
        assert_eq!(claimed.last.map(|p| p.0), Some(takes as i64));
    }
}

/// Claims keep to their lane; a poll names those that hold something.
#[test]
fn a_poll_sees_what_a_claim_would_take() {
    let mut w = world();
    enqueue_to(&mut w, &[OTHER, LANE]);
    let lanes =
        vec![(OTHER, Window::default()), (LANE, Window::default()), (LaneId(3), Window::default())];
    let poll = |w: &mut World| match alone(w, B, &Step::PollLanes { lanes: lanes.clone() }) {
        Reply::Polled { holding, .. } => holding,
        reply => panic!("{reply:?}"),
    };
    assert_eq!(poll(&mut w), [LANE, OTHER]);
    assert_eq!(ids(&claim_all(&mut w)), [2]);
    assert_eq!(poll(&mut w), [OTHER]);
}

/// R026-04, R026-05: one row a group, one closure a claim, no job's own row, no delta.
#[test]
fn compact_completion_writes_a_row_a_group() {
    let mut w = world();
    enqueue(&mut w, 3);
    let (first, window) = claim(&mut w, Window::default(), 2);
    let (second, _) = claim(&mut w, window, 2);
    assert_eq!(complete(&mut w, &[&first[..], &second[..]].concat()), 3);
    let facts = rows(&w, "receipt_completion_batches");
    assert_eq!(facts.len(), 1);
    assert_eq!(
        facts[0],
        "attempted_at=set attempts=[1] claim_slot=0 completed_count=3 finalized_at=set first_seq=1 \
         job_ids=null lane_id=1 lane_seqs=[1, 2, 3] last_seq=3 ready_generation=1 ready_slot=0 \
         run_leases=[1]"
    );
    let closures = rows(&w, "lease_claim_closure_batches");
    assert_eq!(
        closures[0],
        "batch_id=4096 claim_slot=0 n=2 ready_generation=1 ready_slot=0 receipts={[4096,4098)}"
    );
    assert!(closures[1].contains("n=1") && closures[1].contains("receipts={[8192,8193)}"));
    for table in ["done_entries", "queue_terminal_count_deltas", "lease_claim_closures"] {
        assert!(rows(&w, table).is_empty(), "{table}");
    }
    assert_eq!(w.check_invariants(), Ok(()));
}

/// R026-07, H14, H15: what doesn't prove its claim, or is closed, is left alone.
#[test]
fn only_open_attempts_that_prove_their_claim_close() {
    let mut w = world();
    enqueue(&mut w, 2);
    let jobs = claim_all(&mut w);
    let good = jobs[0].receipt;
    let closes = |w: &mut World, receipt| match alone(
        w,
        C,
        &Step::CompleteCompact { receipts: vec![receipt] },
    ) {
        Reply::Closed(closed) => closed.len(),
        reply => panic!("{reply:?}"),
    };
    let place = |n| awa_core::Place::new(n).unwrap();
    for wrong in [
        awa_core::Receipt { claim_slot: slot(1), ..good },
        awa_core::Receipt { batch: awa_core::BatchId(8192), ..good },
        awa_core::Receipt { index: place(2), ..good },
        awa_core::Receipt { index: place(3), ..good },
        awa_core::Receipt { job: jobs[1].receipt.job, ..good },
        awa_core::Receipt { run_lease: awa_core::RunLease(2), ..good },
    ] {
        assert_eq!(closes(&mut w, wrong), 0, "{wrong:?}");
    }
    let twice = Step::CompleteCompact { receipts: vec![good, good] };
    assert_eq!(alone(&mut w, C, &twice), Reply::Closed(vec![good.id()]));
    assert_eq!(closes(&mut w, good), 0);
    assert_eq!(exit(&mut w, good, Ending::Completed), 0);
    assert_eq!(fail(&mut w, &jobs[1]), 1);
    assert_eq!(closes(&mut w, jobs[1].receipt), 0);
    assert_eq!(w.check_invariants(), Ok(()));
}

/// R026-27, R026-28: a materialised lease keeps an attempt off the compact path.
#[test]
fn a_lease_goes_the_general_way() {
    let mut w = world();
    enqueue(&mut w, 1);
    let jobs = claim_all(&mut w);
    let at = Segment { slot: slot(1), generation: Generation(2) };
    w.plant_lease(at, &jobs[0].receipt, JobState::WaitingExternal);
    assert_eq!(w.scanned_counts(&queue()).unwrap().waiting_external, 1);
    assert_eq!(complete(&mut w, &jobs), 0);
    assert_eq!(exit(&mut w, jobs[0].receipt, Ending::Completed), 1);
    assert!(rows(&w, "leases").is_empty() && rows(&w, "attempt_state").is_empty());
    let counts = w.scanned_counts(&queue()).unwrap();
    assert_eq!((counts.completed, counts.running, counts.waiting_external), (1, 0, 0));
}

/// R026-02, R026-22: a narrow row with its delta; the payload only where it differs.
#[test]
fn the_general_path_writes_narrow_rows_with_deltas() {
    let mut w = world();
    enqueue(&mut w, 2);
    let jobs = claim_all(&mut w);
    assert_eq!(exit(&mut w, jobs[0].receipt, Ending::Completed), 1);
    assert_eq!(fail(&mut w, &jobs[1]), 1);
    let done = rows(&w, "done_entries");
    let narrow = "args=null attempt=1 attempted_at=set created_at=null finalized_at=set";
    assert!(done.iter().all(|d| d.starts_with(narrow)), "{done:?}");
    assert!(done[0].contains("payload=null") && done[0].contains("state=completed"));
    let errors = r#"payload={"errors": [{"at": "set", "error": "boom", "attempt": 1}]}"#;
    assert!(done[1].contains(errors) && done[1].contains("state=failed"), "{done:?}");
    let deltas = rows(&w, "queue_terminal_count_deltas");
    assert_eq!(
        deltas[0],
        "counter_bucket=1 delta=1 lane_id=1 ready_generation=1 ready_slot=0 state=completed"
    );
    assert_eq!(rows(&w, "lease_claim_closures").len(), 2);
    assert_eq!(w.check_invariants(), Ok(()));
}

/// H20: a job that is tried again keeps its body, its leases and the newest errors.
#[test]
fn a_retry_defers_the_job_with_its_body() {
    let mut w = world();
    let payload = r#"{"tags":["a"],"metadata":{"k":1}}"#;
    let new = NewJob { payload: Some(payload.to_owned()), max_attempts: 99, ..job() };
    alone(&mut w, A, &Step::EnqueueReady { jobs: vec![new] });
    for round in 1..=18 {
        let jobs = claim_all(&mut w);
        assert_eq!((jobs[0].attempt.0, jobs[0].receipt.run_lease.0), (round, round.into()));
        assert_eq!(jobs[0].args, r#"{"to": "x"}"#);
        let traits = jobs[0].traits;
        let expected =
            BodyTraits { tags: true, errors: round > 1, custom_metadata: true, unique_key: false };
        assert_eq!(traits, expected);
        assert_eq!(exit(&mut w, jobs[0].receipt, retry(&format!("no {round}"), 5)), 1);
        assert_eq!(exit(&mut w, jobs[0].receipt, retry("late", 5)), 0);
        let early = alone(&mut w, A, &Step::PromoteDue { limit: 9 });
        assert_eq!(early, Reply::Promoted(vec![]), "not due yet");
        w.now = w.now.after(Span::from_secs(5));
        let due = alone(&mut w, A, &Step::PromoteDue { limit: 9 });
        assert_eq!(due, Reply::Promoted(vec![(jobs[0].receipt.job, LANE)]));
        assert_eq!(w.check_invariants(), Ok(()));
    }
    let jobs = claim_all(&mut w);
    let payload = jobs[0].payload.clone().unwrap();
    assert_eq!(payload.matches("error\":").count(), 16);
    assert!(payload.contains("no 3\"") && !payload.contains("no 2\""), "{payload}");
    assert!(rows(&w, "ready_entries").iter().skip(1).all(|r| r.contains("moved_job_id=1")));
}

/// H06, H18, R026-14: attempts past their deadline end as failures, longest overdue first.
#[test]
fn overdue_attempts_are_found_and_ended() {
    let mut w = world();
    enqueue(&mut w, 3);
    let claim_one = |w: &mut World, secs: Option<u64>| {
        let deadline = secs.map(Span::from_secs);
        let (limit, bytes_max) = (1, 99);
        let step =
            Step::ClaimReady { lane: LANE, window: Window::default(), limit, bytes_max, deadline };
        alone(w, C, &step);
    };
    claim_one(&mut w, Some(60));
    claim_one(&mut w, Some(30));
    claim_one(&mut w, None);
    let overdue = |w: &mut World| match alone(w, B, &Step::FindOverdue { limit: 9 }) {
        Reply::Overdue(attempts) => attempts.iter().map(|o| o.receipt.job.0).collect::<Vec<_>>(),
        reply => panic!("{reply:?}"),
    };
    // The deadline itself is too late, to the microsecond, as it is for PostgreSQL.
    let due = w.now.after(Span::from_secs(30));
    w.now = due.before(Span::from_us(1));
    assert_eq!(overdue(&mut w), [] as [i64; 0]);
    w.now = due;
    assert_eq!(overdue(&mut w), [2]);
    w.now = w.now.after(Span::from_secs(31));
    assert_eq!(overdue(&mut w), [2, 1]);
    let rescued = run(&mut w, B, Rescue::new(9).unwrap()).unwrap().unwrap();
    assert_eq!((rescued.found, rescued.closed.len()), (2, 2));
    assert_eq!(overdue(&mut w), [] as [i64; 0]);
    let counts = w.scanned_counts(&queue()).unwrap();
    assert_eq!((counts.retryable, counts.running), (2, 1));
    assert_eq!(w.check_invariants(), Ok(()));
}

/// R026-15, H45: one flush splits into the two paths.
#[test]
fn only_eligible_successes_are_compact() {
    let mut w = world();
    let tagged = NewJob { payload: Some(r#"{"tags":["a"]}"#.to_owned()), ..job() };
    let own =
        NewJob { payload: Some(r#"{"metadata":{"_awa_original_queue":"q"}}"#.to_owned()), ..job() };
    alone(&mut w, A, &Step::EnqueueReady { jobs: vec![job(), tagged, own] });
    let jobs = claim_all(&mut w);
    let finished: Vec<Finished> = jobs.iter().map(Finished::completed).collect();
    let mut plan = awa_core::machine::close::Finish::new(finished);
    while let Some(close) = plan.next() {
        let did = run(&mut w, C, close).unwrap().unwrap();
        plan.take(did);
    }
    assert_eq!(plan.into_outcome().closed.len(), 3);
    assert!(rows(&w, "receipt_completion_batches")[0].contains("lane_seqs=[1, 3]"));
    assert_eq!(rows(&w, "done_entries").len(), 1);
}
