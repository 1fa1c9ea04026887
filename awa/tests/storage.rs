//! What lies where: immutable bodies, narrow and compact history, evidence, one truncate for all.
#![allow(clippy::unwrap_used)]

mod common;

use std::time::Duration;

use awa::core::Window;
use awa::core::machine::close::Finished;
use awa::{JobState, PruneOutcome, Ring};
use common::{Bench, job};

/// R026-01, R026-19: over a whole life no ready row is updated or deleted, and none leaves a dead tuple;
/// a retry appends a fresh row at a new position.
#[tokio::test]
async fn a_ready_row_is_immutable() {
    let mut bench = Bench::alone().await;
    bench.enqueue(20).await;
    bench.complete(10).await;
    let jobs = bench.claim(5).await;
    let failed = jobs.iter().map(|j| Finished::failed_for_good(j, b"broken"));
    bench.finish(failed.collect()).await;
    bench.client.cancel(awa::JobId(16)).await.unwrap();
    let first = bench.number("select lane_seq from S.ready_entries where job_id = 11").await;
    bench.client.retry(awa::JobId(11)).await.unwrap();
    let rows = "select count(*) from S.ready_entries where job_id = 11";
    assert_eq!(bench.number(rows).await, 2);
    let newest = bench.number("select max(lane_seq) from S.ready_entries where job_id = 11").await;
    assert!(newest > first);

    bench.settle(0).await;
    assert_eq!(
        bench.statistic("n_tup_ins", "^ready_entries").await,
        21,
        "what was done is counted"
    );
    assert_eq!(bench.statistic("n_tup_upd + n_tup_del + n_dead_tup", "^ready_").await, 0);
}

/// R026-09, R026-11: a claim writes its evidence in the ready row's slot and its receipts in the claim
/// ring's; completion closes it in the claim's own slot though both rings have turned since.
#[tokio::test]
async fn evidence_lies_with_the_body_and_receipts_with_the_claim() {
    let bench = Bench::new().await;
    bench.enqueue(2).await;
    bench.client.rotate(Ring::Queue).await.unwrap();
    bench.enqueue(1).await;
    bench.client.rotate(Ring::Claim).await.unwrap();
    let jobs = bench.claim(3).await;
    assert_eq!(jobs.len(), 3);
    let evidence = "select count(*) from S.ready_claim_attempt_batches where ready_slot = ";
    assert_eq!(bench.number(&format!("{evidence} 0 and n = 2")).await, 1);
    assert_eq!(bench.number(&format!("{evidence} 1 and n = 1")).await, 1);
    assert_eq!(bench.number("select count(*) from S.lease_claim_batches_1").await, 2);

    bench.client.rotate(Ring::Claim).await.unwrap();
    bench.client.rotate(Ring::Queue).await.unwrap();
    let done = bench.finish(jobs.iter().map(Finished::completed).collect()).await;
    assert_eq!(done.closed.len(), 3);
    assert_eq!(bench.number("select count(*) from S.lease_claim_closure_batches_1").await, 2);
    assert_eq!(
        bench.number("select sum(completed_count) from S.receipt_completion_batches_0").await,
        2
    );
    assert_eq!(
        bench.number("select sum(completed_count) from S.receipt_completion_batches_1").await,
        1
    );
}

/// R026-12, R026-04, R026-05: successes write compact rows, no history of their own, no delta and no
/// closure a job; they are counted from the batch.
#[tokio::test]
async fn a_success_is_counted_from_its_batch() {
    let bench = Bench::new().await;
    bench.enqueue(100).await;
    bench.complete(100).await;
    for empty in ["done_entries", "queue_terminal_count_deltas", "lease_claim_closures"] {
        assert_eq!(bench.number(&format!("select count(*) from S.{empty}")).await, 0, "{empty}");
    }
    assert_eq!(bench.number("select count(*) from S.receipt_completion_batches").await, 1);
    assert_eq!(bench.number("select count(*) from S.lease_claim_closure_batches").await, 1);
    assert_eq!(bench.client.counts("q").await.unwrap().completed, 100);
}

/// R026-16, R026-17: `terminal_jobs` is the one public surface: it spells out compact and narrow rows
/// with their bodies, and leaves hidden completions out, whose receipts stay closed.
#[tokio::test]
async fn terminal_jobs_shows_every_retained_end() {
    let bench = Bench::new().await;
    let done = bench.enqueue(3).await;
    bench.complete(3).await;
    bench.fail(2).await;
    let shown = "select count(*) from S.terminal_jobs where args is not null and not body_missing \
                 and queue = 'q' and priority = 2 and enqueue_shard = 0 and max_attempts = 25";
    assert_eq!(bench.number(shown).await, 5);
    assert_eq!(bench.number("select count(*) from S.terminal_jobs where compact").await, 3);
    assert_eq!(bench.client.retry(done[0]).await.unwrap().retried, [], "not retryable");

    bench.client.delete_completed(done[0]).await.unwrap();
    assert_eq!(bench.number(shown).await, 4);
    assert!(bench.client.load(done[0]).await.unwrap().is_none());
    let counts = bench.client.counts("q").await.unwrap();
    assert_eq!((counts.completed, counts.running), (2, 0));
    // Deleting it twice hides it once.
    bench.client.delete_completed(done[0]).await.unwrap();
    assert_eq!(bench.client.counts("q").await.unwrap().completed, 2);
    assert!(bench.claim(10).await.is_empty(), "nothing comes alive again");
}

/// R026-20, R026-21, R026-24: prune reclaims everything of a segment together, folded counters and
/// pending deltas included, and the permanent rollup takes the count over.
#[tokio::test]
async fn a_segment_is_reclaimed_whole() {
    let bench = Bench::alone().await;
    bench.fail(3).await;
    bench.enqueue(4).await;
    bench.complete(3).await;
    let waiting = bench.client.list(available()).await.unwrap();
    bench.client.cancel(waiting[0].job).await.unwrap();
    let hidden = bench.number("select job_id from S.terminal_jobs where compact limit 1").await;
    bench.client.delete_completed(awa::JobId(hidden)).await.unwrap();
    bench.client.rotate(Ring::Queue).await.unwrap();
    assert_eq!(bench.client.rollup().await.unwrap().len(), 1);
    assert_eq!(bench.number("select sum(count) from S.queue_terminal_live_counts").await, 4);
    assert_eq!(bench.number("select count(*) from S.queue_terminal_count_deltas").await, 0);

    bench.client.prune_oldest(Duration::ZERO).await.unwrap();
    for table in [
        "ready_entries",
        "ready_tombstones",
        "ready_claim_attempt_batches",
        "done_entries",
        "receipt_completion_batches",
        "receipt_completion_tombstones",
        "queue_terminal_count_deltas",
        "queue_terminal_live_counts",
    ] {
        assert_eq!(bench.number(&format!("select count(*) from S.{table}")).await, 0, "{table}");
    }
    let counts = bench.client.counts("q").await.unwrap();
    assert_eq!((counts.pruned_failed, counts.pruned_other), (3, 3), "two completed, one cancelled");
}

fn available() -> awa::ListFilter {
    awa::ListFilter { queue: None, kind: None, state: JobState::Available, before: None, limit: 10 }
}

/// H29, R026-13: closure is proved by sets: a receipt that is closed twice does not close another.
#[tokio::test]
async fn a_receipt_closed_twice_closes_no_other() {
    let bench = Bench::new().await;
    bench.enqueue(2).await;
    let jobs = bench.claim(2).await;
    bench.finish(vec![Finished::completed(&jobs[0])]).await;
    bench
        .execute(
            "insert into S.lease_claim_closure_batches select * from S.lease_claim_closure_batches",
        )
        .await;
    let sums = "select (select sum(n) from S.lease_claim_batches) - (select sum(n) from S.lease_claim_closure_batches)";
    assert_eq!(bench.number(sums).await, 0, "by sums nothing is open");
    bench.client.rotate(Ring::Queue).await.unwrap();
    bench.client.rotate(Ring::Claim).await.unwrap();
    for ring in [Ring::Queue, Ring::Claim] {
        let outcome = bench.client.prune(ring, None, Duration::ZERO).await.unwrap();
        let open = jobs[1].receipt.id().0;
        assert!(
            matches!(outcome, PruneOutcome::SkippedActive { witness, .. } if witness == open),
            "{outcome}"
        );
    }
    assert_eq!(bench.client.counts("q").await.unwrap().running, 1);
}

/// H04: a producer stays open for more than a whole wrap and commits: its job lies in a slot that was
/// sealed and opened again, and runs.
#[tokio::test]
async fn a_producer_open_for_a_whole_wrap_loses_nothing() {
    let bench = Bench::new().await;
    let mut slow = common::connect().await;
    let producing = slow.transaction().await.unwrap();
    let id = bench.client.enqueue_in(&producing, vec![job(1)]).await.unwrap()[0];
    let mut window = Window::default();
    for turn in 0..20 {
        bench.enqueue(1).await;
        let (jobs, next) = bench.claim_from(window, 10).await;
        window = next;
        bench.finish(jobs.iter().map(Finished::completed).collect()).await;
        bench.client.rotate(Ring::Queue).await.unwrap();
        let outcome = bench.client.prune_oldest(Duration::ZERO).await.unwrap();
        if turn == 0 {
            // Writers are in the slot: it is stepped over.
            assert!(matches!(outcome, PruneOutcome::Blocked { slot: awa::Slot(0) }), "{outcome}");
        } else {
            let slot = bench.client.ring(Ring::Queue).await.unwrap().sealed_oldest_first();
            let last = slot.last().unwrap().slot;
            bench.client.prune(Ring::Queue, Some(last), Duration::ZERO).await.unwrap();
        }
    }
    producing.commit().await.unwrap();
    let (jobs, _) = bench.claim_from(window, 10).await;
    assert_eq!(jobs.iter().map(|j| j.receipt.job).collect::<Vec<_>>(), [id]);
    bench.finish(jobs.iter().map(Finished::completed).collect()).await;
    let outcome =
        bench.client.prune(Ring::Queue, Some(awa::Slot(0)), Duration::ZERO).await.unwrap();
    assert!(matches!(outcome, PruneOutcome::Pruned { folded_other: 2, .. }), "{outcome}");
    assert_eq!(bench.client.counts("q").await.unwrap().total(), 21);
}

/// H59: the host's clock never becomes data: a delay counts from the database's now, wherever the host
/// thinks it is; every time that is stored was read on the server.
#[tokio::test]
async fn a_delay_counts_from_the_databases_clock() {
    let bench = Bench::new().await;
    let delayed = job(1).run_in(Duration::from_secs(600));
    let before = bench.now().await;
    let id = bench.client.enqueue(delayed).await.unwrap();
    let after = bench.now().await;
    let row = bench.client.load(id).await.unwrap().unwrap();
    let span = awa::core::Span::from_secs(600);
    assert!(before.after(span) <= row.run_at && row.run_at <= after.after(span));
    assert!(before <= row.created_at && row.created_at <= after);
    // No room that the engine is made of reads the host's wall clock.
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned();
    for room in ["core/src", "sqlgen/src", "driver/src", "awa/src"] {
        let found = std::process::Command::new("grep")
            .args(["-rln", "SystemTime::now", room])
            .current_dir(&root)
            .output()
            .unwrap();
        assert_eq!(String::from_utf8(found.stdout).unwrap(), "", "{room}");
    }
}
