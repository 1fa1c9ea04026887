//! Ways out of an attempt and out of a lane: what each writes, and that each happens once.
#![allow(clippy::unwrap_used)]

mod common;

use awa::core::machine::claim::{Claim, ClaimOutcome};
use awa::core::machine::close::{Close, Finished};
use awa::core::machine::rescue::Rescue;
use awa::core::{ClaimedJob, Ending, Exit, Fault, Span, Window};
use awa::{CancelOutcome, JobId, JobState, ListFilter, Ring, TerminalFilter, limits};
use common::{Bench, Staged, job};

/// What a narrow row of history keeps to itself: all the columns that its ready row has.
const BODY: &str =
    "num_nonnulls(args, max_attempts, run_at, created_at, unique_key, unique_states)";

async fn claim_until(bench: &Bench, deadline: Span) -> Vec<ClaimedJob> {
    let (lane, bytes) = (bench.lane().await, limits::CLAIM_BYTES_MAX);
    let claim = Claim::new(lane, Window::default(), 100, bytes, Some(deadline)).unwrap();
    match bench.client.run(claim).await.unwrap() {
        ClaimOutcome::Claimed { jobs, .. } => jobs,
        ClaimOutcome::Refused { refusal, .. } => panic!("{refusal}"),
    }
}

/// R026-02: a job that failed, and one that succeeded on the general path, leave identity and order alone;
/// the payload stands there only where it differs from the ready row's.
#[tokio::test]
async fn history_is_narrow_while_its_body_is_retained() {
    let bench = Bench::new().await;
    let failed = bench.client.enqueue(job(1).priority(3).unwrap()).await.unwrap();
    let tagged = bench.client.enqueue(job(2).tag("red").unwrap()).await.unwrap();
    let lane = awa::core::LaneId(
        bench.number("select lane_id from S.queue_lanes where priority = 3").await,
    );
    let claim = Claim::new(lane, Window::default(), 1, limits::CLAIM_BYTES_MAX, None).unwrap();
    let ClaimOutcome::Claimed { jobs, .. } = bench.client.run(claim).await.unwrap() else {
        panic!()
    };
    bench.finish(vec![Finished::failed_for_good(&jobs[0], b"broken")]).await;
    bench.complete(1).await;
    for (id, state, payload) in [(failed, "failed", true), (tagged, "completed", false)] {
        let row = format!(
            "select count(*) from S.done_entries d join S.ready_entries r
                using (ready_slot, ready_generation, lane_id, lane_seq, job_id, kind)
              where d.job_id = {} and d.state = '{state}' and d.attempt = 1 and d.run_lease = 1
                and d.attempted_at <= d.finalized_at and (d.payload is not null) = {payload}",
            id.0
        );
        assert_eq!(bench.number(&row).await, 1, "{state}");
    }
    assert_eq!(bench.number(&format!("select sum({BODY}) from S.done_entries")).await, 0);
    let kept = bench.client.load(failed).await.unwrap().unwrap();
    let said: serde_json::Value = serde_json::from_str(&kept.payload.unwrap()).unwrap();
    assert_eq!(said["errors"][0]["error"], "broken");
    assert_eq!(said["errors"][0]["attempt"], 1);
}

/// R026-03: a read that makes a whole job, a retry and a discard all take the body from the ready row; where
/// it is gone, each says so or leaves the row alone, and none makes one up.
#[tokio::test]
async fn a_body_is_found_or_reported() {
    let bench = Bench::new().await;
    let ids = bench.fail(3).await;
    let row = bench.client.load(ids[0]).await.unwrap().unwrap();
    assert_eq!((row.state, row.args.as_deref()), (JobState::Failed, Some("0")));
    assert_eq!((row.max_attempts, row.attempt.0, row.priority.0), (25, 1, 2));
    assert_eq!(bench.client.retry(ids[0]).await.unwrap().retried, [ids[0]]);
    let again = bench.claim(10).await;
    assert_eq!(
        (again[0].receipt.job, again[0].args.as_str(), again[0].attempt.0),
        (ids[0], "0", 1)
    );

    // Nothing does this; but should a body be lost, nothing papers over it.
    bench.execute("delete from S.ready_entries where job_id = 2").await;
    let missing =
        "select count(*) from S.terminal_jobs where body_missing and args is null and job_id = 2";
    assert_eq!(bench.number(missing).await, 1);
    let refused = bench.client.load(ids[1]).await.unwrap_err();
    assert_eq!(refused.as_fault(), Some(&Fault::JobBodyMissing { job: ids[1] }));
    assert!(refused.to_string().contains("job 2 has no retained body"), "{refused}");
    let list =
        ListFilter { queue: None, kind: None, state: JobState::Failed, before: None, limit: 10 };
    let refused = bench.client.list(list).await.unwrap_err();
    assert_eq!(refused.as_fault(), Some(&Fault::JobBodyMissing { job: ids[1] }));
    assert_eq!(bench.client.retry(ids[1]).await.unwrap().retried, []);
    let by_queue = bench.client.retry_failed_by_queue("q").await.unwrap();
    assert_eq!(
        (by_queue.matched, by_queue.retried.as_slice()),
        (2, [ids[2]].as_slice()),
        "the others go on"
    );
    assert_eq!(bench.client.counts("q").await.unwrap().failed, 1);
}

/// R026-04, R026-05: a flush of successes writes one row of history for each segment, lane and claim slot,
/// and one closure for each claim, with the very attempts that it closed; nothing for a job alone.
#[tokio::test]
async fn successes_are_stored_a_group_a_row() {
    let bench = Bench::new().await;
    bench.enqueue(4).await;
    let mut jobs = bench.claim(3).await;
    bench.client.rotate(Ring::Claim).await.unwrap();
    bench.client.rotate(Ring::Queue).await.unwrap();
    bench.enqueue(2).await;
    jobs.extend(bench.claim(10).await);
    assert_eq!(jobs.len(), 6);
    // Out of order and in one flush; the third attempt stays open.
    let done = [5, 0, 3, 1, 4].map(|place: usize| Finished::completed(&jobs[place]));
    assert_eq!(bench.finish(done.to_vec()).await.closed.len(), 5);

    let batches = bench.spelled(
        "select ready_slot, claim_slot, completed_count, first_seq, last_seq, lane_seqs, run_leases, attempts,
                cardinality(attempted_at), job_ids is null
           from S.receipt_completion_batches b join S.queue_lanes l using (lane_id)
          where l.queue = 'q' and l.priority = 2 order by 1, 2",
    );
    let stored: Vec<_> = bench.sql.query(&batches, &[]).await.unwrap();
    let group = |row: &awa::tokio_postgres::Row| {
        let place: (i32, i32, i32) = (row.get(0), row.get(1), row.get(2));
        let span: (i64, i64, Vec<i64>) = (row.get(3), row.get(4), row.get(5));
        (place, span)
    };
    assert_eq!(
        stored.iter().map(group).collect::<Vec<_>>(),
        [
            ((0, 0, 2), (1, 2, vec![1, 2])),
            ((0, 1, 1), (4, 4, vec![4])),
            ((1, 1, 2), (5, 6, vec![5, 6]))
        ]
    );
    for row in &stored {
        // One element stands for all: each job's first lease and attempt, at one instant.
        assert_eq!((row.get::<_, Vec<i64>>(6), row.get::<_, Vec<i16>>(7)), (vec![1], vec![1]));
        assert_eq!((row.get::<_, i32>(8), row.get::<_, bool>(9)), (1, true));
    }
    let closures = bench.spelled(
        "select c.claim_slot, c.ready_slot, c.ready_generation, c.n, c.receipts::text, c.batch_id
           from S.lease_claim_closure_batches c join S.lease_claim_batches b using (claim_slot, batch_id)
          order by c.batch_id",
    );
    let closed = bench.sql.query(&closures, &[]).await.unwrap();
    let closed: Vec<(i32, i32, i64, i32, String, i64)> = closed
        .iter()
        .map(|r| (r.get(0), r.get(1), r.get(2), r.get(3), r.get(4), r.get(5)))
        .collect();
    let range = |first: usize, last: usize| {
        format!("{{[{},{})}}", jobs[first].receipt.id().0, jobs[last].receipt.id().0 + 1)
    };
    let of = |place: usize| jobs[place].receipt.batch.0;
    assert_eq!(
        closed,
        [
            (0, 0, 1, 2, range(0, 1), of(0)),
            (1, 0, 1, 1, range(3, 3), of(3)),
            (1, 1, 2, 2, range(4, 5), of(4))
        ]
    );
    for empty in ["lease_claim_closures", "done_entries", "queue_terminal_count_deltas"] {
        assert_eq!(bench.rows(empty).await, 0, "{empty}");
    }
    assert_eq!(bench.client.counts("q").await.unwrap().running, 1);
}

/// R026-12: the ledger of deltas is for retryable history alone; compact successes are counted from their
/// rows, less those that are hidden.
#[tokio::test]
async fn the_ledger_is_for_retryable_history_alone() {
    let bench = Bench::new().await;
    bench.enqueue(5).await;
    bench.complete(5).await;
    bench.client.delete_completed(JobId(2)).await.unwrap();
    assert_eq!(bench.rows("queue_terminal_count_deltas").await, 0);
    assert_eq!(bench.client.counts("q").await.unwrap().completed, 4);
    bench.fail(2).await;
    assert_eq!(bench.number("select sum(delta) from S.queue_terminal_count_deltas").await, 2);
    let states = "select count(*) from S.queue_terminal_count_deltas where state <> 'failed'";
    assert_eq!(bench.number(states).await, 0);
    bench.client.discard_failed(TerminalFilter::Job(JobId(6))).await.unwrap();
    assert_eq!(bench.number("select sum(delta) from S.queue_terminal_count_deltas").await, 1);
    let counts = bench.client.counts("q").await.unwrap();
    assert_eq!((counts.completed, counts.failed), (4, 1));
}

/// H14: an attempt that one batch names twice, that is completed twice, and that two flushers complete side
/// by side on either path, is counted once.
#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_completed_twice_counts_once() {
    let bench = Bench::alone().await;
    bench.enqueue(5).await;
    let jobs = bench.claim(5).await;
    let done = |place: usize| Finished::completed(&jobs[place]);
    let twice = bench.finish(vec![done(0), done(1), done(0)]).await;
    assert_eq!(twice.closed, [jobs[0].receipt.id(), jobs[1].receipt.id()]);
    assert_eq!(twice.stale, [jobs[0].receipt.id()]);
    let again = bench.finish(vec![done(1), done(2)]).await;
    assert_eq!(
        (again.closed, again.stale),
        (vec![jobs[2].receipt.id()], vec![jobs[1].receipt.id()])
    );

    let exit = |place: usize| Exit { receipt: jobs[place].receipt, ending: Ending::Completed };
    let rivals = [
        (Close::compact(vec![jobs[3].receipt]), Close::compact(vec![jobs[3].receipt])),
        (Close::general(vec![exit(4)]), Close::compact(vec![jobs[4].receipt])),
    ];
    for (first, second) in rivals {
        let (first, mut gate) = Staged::stopped(first);
        let client = bench.client.clone();
        let first = tokio::spawn(async move { client.run(first).await.unwrap().unwrap() });
        gate.reached().await;
        let client = bench.client.clone();
        let second = tokio::spawn(async move { client.run(second).await.unwrap().unwrap() });
        bench.blocked(1).await;
        gate.open();
        let (first, second) = (first.await.unwrap(), second.await.unwrap());
        assert_eq!((first.closed.len(), first.left.len()), (1, 0));
        assert_eq!((second.closed.len(), second.left.len()), (0, 1));
    }
    let counts = bench.client.counts("q").await.unwrap();
    assert_eq!((counts.completed, counts.running, counts.total()), (5, 0, 5));
    let closures = "select (select sum(n) from S.lease_claim_closure_batches)
                         + (select count(*) from S.lease_claim_closures)";
    assert_eq!(bench.number(closures).await, 5);
}

/// H15, H06: after a rescue the attempt's own end is stale, whatever it says and wherever its job is by
/// then: waiting to be tried again, cancelled, running as another attempt, completed by it.
#[tokio::test]
async fn an_end_that_comes_too_late_changes_nothing() {
    let bench = Bench::new().await;
    bench.enqueue(2).await;
    let jobs = claim_until(&bench, Span::from_us(1)).await;
    let rescued = bench.client.rescue_overdue(10).await.unwrap();
    assert_eq!((rescued.closed.len(), rescued.found), (2, 2));
    assert_eq!(bench.client.rescue_overdue(10).await.unwrap().found, 0, "rescued once");
    let late = || async {
        let before = bench.client.counts("q").await.unwrap();
        for end in [
            Finished::completed(&jobs[0]),
            Finished::failed_for_good(&jobs[0], b"late"),
            Finished::failed(&jobs[1], b"late", Some(Span::ZERO)),
        ] {
            let stale = bench.finish(vec![end.clone()]).await;
            assert_eq!((stale.closed.len(), stale.stale.len()), (0, 1), "{end:?}");
        }
        assert_eq!(bench.client.counts("q").await.unwrap(), before);
        before
    };
    assert_eq!(late().await.retryable, 2);
    assert_eq!(bench.client.cancel(jobs[1].receipt.job).await.unwrap(), CancelOutcome::Cancelled);
    assert_eq!(late().await.cancelled, 1);
    // A rescued job waits out its backoff; here its time has come.
    bench.execute("update S.deferred_jobs set run_at = now()").await;
    assert_eq!(bench.client.promote_due(10).await.unwrap(), 1);
    let second = bench.claim(10).await;
    assert_eq!((second[0].attempt.0, second[0].receipt.run_lease.0), (2, 2));
    assert_eq!(late().await.running, 1);
    bench.finish(vec![Finished::completed(&second[0])]).await;
    let counts = late().await;
    assert_eq!((counts.completed, counts.cancelled, counts.total()), (1, 1, 2));
    let said = "select count(*) from S.terminal_jobs where state = 'cancelled' and attempt = 1
                   and payload #>> '{errors,0,error}' = 'the attempt was not over by its deadline'";
    assert_eq!(bench.number(said).await, 1);
}

/// H06, H18: a worker dies between its claim and anything after it. Attempts in time are left alone; one that
/// is overdue is rescued, and with its last attempt its job has failed.
#[tokio::test]
async fn a_dead_workers_jobs_come_back() {
    let bench = Bench::new().await;
    bench.enqueue(2).await;
    let in_time = claim_until(&bench, Span::from_secs(600)).await;
    let once = bench.client.enqueue(job(3).max_attempts(1).unwrap()).await.unwrap();
    claim_until(&bench, Span::from_us(1)).await;
    let rescued = bench.client.rescue_overdue(10).await.unwrap();
    assert_eq!(rescued.closed.len(), 1);
    let row = bench.client.load(once).await.unwrap().unwrap();
    assert_eq!((row.state, row.attempt.0), (JobState::Failed, 1));
    let done = bench.finish(in_time.iter().map(Finished::completed).collect()).await;
    assert_eq!(done.closed.len(), 2, "an attempt in time is nobody else's");
}

/// H11: rescue decides on an attempt and waits for its fence while a completion commits: one closure, one
/// terminal fact, and the rescue says that it ended nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_completion_beats_the_rescue_that_waits_for_it() {
    let bench = Bench::alone().await;
    bench.enqueue(1).await;
    let jobs = claim_until(&bench, Span::from_us(1)).await;
    let (completing, mut gate) = Staged::stopped(Close::compact(vec![jobs[0].receipt]));
    let client = bench.client.clone();
    let completing = tokio::spawn(async move { client.run(completing).await.unwrap().unwrap() });
    gate.reached().await;
    let client = bench.client.clone();
    let rescuing =
        tokio::spawn(async move { client.run(Rescue::new(10).unwrap()).await.unwrap().unwrap() });
    bench.blocked(1).await;
    gate.open();
    assert_eq!(completing.await.unwrap().closed.len(), 1);
    let rescued = rescuing.await.unwrap();
    assert_eq!((rescued.closed.len(), rescued.found), (0, 1));
    let counts = bench.client.counts("q").await.unwrap();
    assert_eq!((counts.completed, counts.retryable, counts.total()), (1, 0, 1));
    assert_eq!(bench.rows("lease_claim_closures").await, 0);
}

/// R026-18: cancelling a job in its lane tombstones the position and writes a wide row; so does cancelling
/// one that waits for a time, at a position of its own. Neither can be claimed or promoted.
#[tokio::test]
async fn a_cancelled_job_is_wide() {
    let bench = Bench::new().await;
    let ready = bench.client.enqueue(job(1).tag("red").unwrap()).await.unwrap();
    let hour = std::time::Duration::from_secs(3600);
    let scheduled =
        bench.client.enqueue(job(2).run_in(hour).max_attempts(3).unwrap()).await.unwrap();
    for id in [ready, scheduled] {
        assert_eq!(bench.client.cancel(id).await.unwrap(), CancelOutcome::Cancelled);
        let again = bench.client.cancel(id).await.unwrap();
        assert_eq!(again, CancelOutcome::AlreadyEnded(JobState::Cancelled));
    }
    assert_eq!(bench.rows("ready_tombstones").await, 1);
    assert_eq!(bench.number("select job_id from S.ready_tombstones").await, ready.0);
    assert_eq!(bench.rows("deferred_jobs").await, 0);
    let wide = "select count(*) from S.done_entries where state = 'cancelled' and num_nonnulls(args, max_attempts, run_at, created_at) = 4";
    assert_eq!(bench.number(wide).await, 2);
    // It needs no ready row: its body is its own.
    bench.execute("delete from S.ready_entries").await;
    let row = bench.client.load(ready).await.unwrap().unwrap();
    assert_eq!((row.args.as_deref(), row.attempt.0), (Some("1"), 0));
    assert_eq!(row.payload.as_deref(), Some(r#"{"tags": ["red"]}"#));
    let row = bench.client.load(scheduled).await.unwrap().unwrap();
    assert_eq!((row.args.as_deref(), row.max_attempts), (Some("2"), 3));
    assert_eq!(bench.claim(10).await, []);
    assert_eq!(bench.client.cancel(JobId(999)).await.unwrap(), CancelOutcome::NotFound);
}

/// R026-19: deleting a terminal row neither deletes nor revives its ready row; a retry appends a fresh one at
/// a new position and leaves the old one inert.
#[tokio::test]
async fn deleting_history_leaves_the_ready_row_inert() {
    let bench = Bench::new().await;
    let failed = bench.fail(2).await;
    let done = bench.enqueue(2).await;
    bench.complete(1).await;
    let cancelled = done[1];
    bench.client.cancel(cancelled).await.unwrap();
    let discarded = bench.client.discard_failed(TerminalFilter::Job(failed[0])).await.unwrap();
    assert_eq!(discarded.discarded, [failed[0]]);
    bench.client.discard_failed(TerminalFilter::Job(cancelled)).await.unwrap();
    bench.client.delete_completed(done[0]).await.unwrap();
    assert_eq!(bench.rows("ready_entries").await, 4, "none is deleted");
    assert_eq!(bench.claim(10).await, [], "none comes alive again");
    for id in [failed[0], cancelled, done[0]] {
        assert!(bench.client.load(id).await.unwrap().is_none());
    }
    assert_eq!(bench.client.retry(failed[1]).await.unwrap().retried, [failed[1]]);
    assert_eq!(bench.rows("ready_entries").await, 5);
    let jobs = bench.claim(10).await;
    assert_eq!(jobs.iter().map(|j| j.receipt.job).collect::<Vec<_>>(), [failed[1]]);
    assert_eq!((jobs[0].attempt.0, jobs[0].receipt.run_lease.0), (1, 2), "the lease goes on");
    let positions = "select count(distinct lane_seq) from S.ready_entries where job_id = 2 and run_lease in (0, 1)";
    assert_eq!(bench.number(positions).await, 2);
}

/// An error of 20 MB with NUL and broken UTF-8 in it is stored, bounded, and keeps no fact from being written.
#[tokio::test]
async fn any_error_text_is_stored() {
    let bench = Bench::new().await;
    bench.enqueue(2).await;
    let jobs = bench.claim(2).await;
    let mut text = b"a\0b\xff\xfe ".to_vec();
    text.resize(20 << 20, b'x');
    let ends = vec![
        Finished::failed_for_good(&jobs[0], &text),
        Finished::failed(&jobs[1], &text, Some(Span::ZERO)),
    ];
    assert_eq!(bench.finish(ends).await.closed.len(), 2);
    for (place, state) in [(0, JobState::Failed), (1, JobState::Retryable)] {
        let row = bench.client.load(jobs[place].receipt.job).await.unwrap().unwrap();
        assert_eq!(row.state, state);
        let said: serde_json::Value = serde_json::from_str(&row.payload.unwrap()).unwrap();
        let error = said["errors"][0]["error"].as_str().unwrap();
        assert!(error.starts_with("a\u{2400}b\u{fffd}\u{fffd} xxx"), "{}", &error[..40]);
        assert!(error.ends_with(" bytes cut]") && error.len() <= limits::ERROR_BYTES_MAX);
    }
}
