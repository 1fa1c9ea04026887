//! What a claim takes, writes and gives back, and who it keeps out.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::time::Duration;

use awa::core::machine::cancel::Cancel;
use awa::core::machine::claim::{Claim, ClaimOutcome};
use awa::core::machine::close::Finished;
use awa::core::machine::prune::Prune;
use awa::core::rules::Floor;
use awa::core::runtime::batcher::BatcherConfig;
use awa::core::runtime::duties::DutiesConfig;
use awa::core::runtime::scheduler::SchedulerConfig;
use awa::core::{Gate, Span, Window};
use awa::{
    CancelOutcome, Job, JobId, Maintenance, PruneOutcome, Ring, RollupOutcome, Slot, limits,
};
use common::stepwise::Stepwise;
use common::{Bench, Staged, job};

/// For a prune that is to wait for what the test does.
const PATIENT_MS: NonZeroU32 = NonZeroU32::new(600_000).unwrap();

async fn claim_of(bench: &Bench, window: Window, limit: i64) -> Claim {
    Claim::new(bench.lane().await, window, limit, limits::CLAIM_BYTES_MAX, None).unwrap()
}

fn ids(outcome: &ClaimOutcome) -> Vec<JobId> {
    match outcome {
        ClaimOutcome::Claimed { jobs, .. } => jobs.iter().map(|j| j.receipt.job).collect(),
        ClaimOutcome::Refused { refusal, .. } => panic!("{refusal}"),
    }
}

/// H05, R026-09: a claim that is rolled back leaves nothing: no evidence, no receipt. The same jobs are
/// claimed again, from the memory that the claimer had before.
#[tokio::test]
async fn a_claim_rolled_back_never_was() {
    let bench = Bench::new().await;
    let jobs = bench.enqueue(5).await;
    let (first, window) = bench.claim_from(Window::default(), 2).await;
    assert_eq!(first.len(), 2);
    for _ in 0..3 {
        let claim = claim_of(&bench, window.clone(), 10).await;
        let undone = bench.client.run(Staged::undone(claim)).await.unwrap();
        assert_eq!(ids(&undone), jobs[2..]);
        assert_eq!(bench.rows("ready_claim_attempt_batches").await, 1);
        assert_eq!(bench.rows("lease_claim_batches").await, 1);
    }
    let counts = bench.client.counts("q").await.unwrap();
    assert_eq!((counts.available, counts.running), (3, 2));
    let again = bench.client.run(claim_of(&bench, window, 10).await).await.unwrap();
    assert_eq!(ids(&again), jobs[2..]);
}

/// H05: the claimer's backend is killed between the claim and its COMMIT.
#[tokio::test(flavor = "multi_thread")]
async fn a_claimer_killed_before_its_commit_claimed_nothing() {
    let bench = Bench::alone().await;
    let jobs = bench.enqueue(3).await;
    let (claim, mut gate) = Staged::stopped(claim_of(&bench, Window::default(), 10).await);
    let claiming = tokio::spawn({
        let client = bench.client.clone();
        async move { client.run(claim).await }
    });
    gate.reached().await;
    let killed = "select count(pg_terminate_backend(pid, 10000)) from pg_stat_activity
                   where datname = current_database() and state = 'idle in transaction'";
    assert_eq!(bench.number(killed).await, 1);
    gate.open();
    let lost = claiming.await.unwrap().unwrap_err();
    assert!(lost.is_connection(), "{lost}");
    let again = bench.client.run(claim_of(&bench, Window::default(), 10).await).await.unwrap();
    assert_eq!(ids(&again), jobs);
}

/// R026-06: every job comes with its receipt: the claim's slot and batch, a one-based place, and an id
/// that no other attempt has; a claim over two segments is two batches.
#[tokio::test]
async fn every_job_comes_with_its_receipt() {
    let bench = Bench::new().await;
    bench.enqueue(3).await;
    bench.client.rotate(Ring::Queue).await.unwrap();
    bench.enqueue(2).await;
    bench.client.rotate(Ring::Claim).await.unwrap();
    let jobs = bench.claim(10).await;
    let places: Vec<_> = jobs.iter().map(|j| j.receipt.index.get()).collect();
    assert_eq!(places, [1, 2, 3, 1, 2]);
    let batches: BTreeSet<_> = jobs.iter().map(|j| j.receipt.batch).collect();
    assert_eq!(batches.len(), 2);
    let receipts: BTreeSet<_> = jobs.iter().map(|j| j.receipt.id()).collect();
    assert_eq!(receipts.len(), 5);
    for job in &jobs {
        let receipt = job.receipt;
        assert_eq!(receipt.claim_slot, Slot(1));
        assert_eq!(receipt.id().0, receipt.batch.0 + i64::from(receipt.index.get()) - 1);
        let stored = format!(
            "select count(*) from S.lease_claim_batches_1 where batch_id = {} and lane_seqs[{}] = {}",
            receipt.batch.0,
            receipt.index.get(),
            receipt.job.0
        );
        assert_eq!(bench.number(&stored).await, 1);
    }
    // Another attempt of the same job has another receipt and the next lease.
    bench.finish(vec![Finished::failed(&jobs[0], b"again", Some(Span::ZERO))]).await;
    assert_eq!(bench.client.promote_due(10).await.unwrap(), 1);
    let second = bench.claim(10).await;
    assert_eq!(second[0].receipt.job, jobs[0].receipt.job);
    assert_eq!(second[0].receipt.run_lease.0, jobs[0].receipt.run_lease.0 + 1);
    assert!(!receipts.contains(&second[0].receipt.id()));
}

/// R026-09: what is spent is known from the evidence in the queue slots alone: a claimer that starts
/// anew after the claim ring was emptied claims nothing twice.
#[tokio::test]
async fn a_new_claimer_needs_no_receipts_to_know_what_is_spent() {
    let bench = Bench::new().await;
    bench.enqueue(4).await;
    bench.complete(3).await;
    bench.client.rotate(Ring::Claim).await.unwrap();
    let pruned = bench.client.prune(Ring::Claim, None, Duration::ZERO).await.unwrap();
    assert!(matches!(pruned, PruneOutcome::Pruned { .. }), "{pruned}");
    assert_eq!(bench.rows("lease_claim_batches").await, 0);
    let left: Vec<_> = bench.claim(10).await.iter().map(|j| j.receipt.job).collect();
    assert_eq!(left, [JobId(4)]);
}

/// R026-13, R032-14: a claim that looked for the open slot before this one was sealed, and commits after
/// prune has passed the slot's gate, is seen: the gate is asked again, and passes once the claim is closed.
#[tokio::test]
async fn a_late_claim_holds_its_slot_though_the_gate_was_passed() {
    let bench = Bench::alone().await;
    bench.enqueue(3).await;
    bench.complete(1).await;
    let claim = claim_of(&bench, Window::default(), 10).await;
    let mut late = Stepwise::begin(&bench, claim).await;
    late.until("ReadOwnXid").await;
    bench.client.rotate(Ring::Claim).await.unwrap();

    let prune = || Prune::oldest(Ring::Claim, Floor::DEFAULT).waiting(PATIENT_MS);
    let mut pruning = Stepwise::begin(&bench, prune()).await;
    pruning.until("Exclude").await;
    let meanwhile = async {
        bench.blocked(1).await;
        late.finish().await.unwrap()
    };
    let (waited, claimed) = tokio::join!(pruning.step(), meanwhile);
    waited.unwrap();
    let ClaimOutcome::Claimed { jobs, .. } = claimed else { panic!("{claimed:?}") };
    pruning.until("ProbeOpenClaims").await;
    let (slot, witness) = (Slot(0), jobs[0].receipt.id().0);
    let skipped = PruneOutcome::SkippedActive { slot, reason: Gate::OpenClaims(slot), witness };
    assert_eq!(pruning.finish().await.unwrap().unwrap(), skipped);

    let ends = [Finished::completed(&jobs[0]), Finished::failed_for_good(&jobs[1], b"broken")];
    assert_eq!(bench.finish(ends.into()).await.closed.len(), 2);
    let mut pruning = Stepwise::begin(&bench, prune()).await;
    pruning.until("Exclude").await;
    let rest: Vec<_> = pruning.ahead().map(|step| step.name()).collect();
    assert_eq!(rest, ["Exclude", "CountClaims"], "nothing under the lock that grows with attempts");
    pruning.until("Truncate").await;
    assert!(matches!(pruning.finish().await.unwrap(), Ok(PruneOutcome::Pruned { .. })));
    assert_eq!(bench.rows("lease_claim_batches").await, 0);
}

/// R026-11: attempts of claims in several slots are closed by one statement, also where the ring has come
/// round, so that later claims lie in lower slots.
#[tokio::test]
async fn attempts_of_several_claim_slots_are_closed_together() {
    let bench = Bench::new().await;
    for _ in 1..limits::CLAIM_SLOTS {
        bench.client.rotate(Ring::Claim).await.unwrap();
    }
    let mut jobs = Vec::new();
    for slot in [limits::CLAIM_SLOTS - 1, 0, 1] {
        bench.enqueue(2).await;
        jobs.extend(bench.claim(2).await);
        assert_eq!(jobs[jobs.len() - 1].receipt.claim_slot, Slot(slot));
        let pruned = bench.client.prune(Ring::Claim, None, Duration::ZERO).await.unwrap();
        assert!(matches!(pruned, PruneOutcome::Pruned { .. }), "{pruned}");
        bench.client.rotate(Ring::Claim).await.unwrap();
    }
    let (even, odd): (Vec<_>, Vec<_>) = jobs.chunks(2).map(|both| (&both[0], &both[1])).unzip();
    let completed = even.into_iter().map(Finished::completed).collect();
    assert_eq!(bench.finish(completed).await.closed.len(), 3);
    let failed = odd.into_iter().map(|job| Finished::failed_for_good(job, b"broken")).collect();
    assert_eq!(bench.finish(failed).await.closed.len(), 3);
}

/// R026-11: claims and completions touch the receipts of the claim slots that they name and no others, and
/// the compact path touches no history that can be retried.
#[tokio::test]
async fn hot_statements_touch_the_children_that_they_name() {
    let mut bench = Bench::alone().await;
    bench.client.rotate(Ring::Claim).await.unwrap();
    bench.client.rotate(Ring::Claim).await.unwrap();
    bench.settle(0).await;
    let touched = "coalesce(seq_scan, 0) + coalesce(idx_scan, 0) + n_tup_ins";
    let named = "^lease_claim(_batches|_closure_batches|_closures)_2$";
    let others = "^(lease_claim.*_[013-7]|done_entries_.*|queue_terminal_count_deltas_.*)$";
    // Making their indexes was a scan of each.
    let before = (bench.statistic(touched, named).await, bench.statistic(touched, others).await);
    bench.enqueue(20).await;
    bench.complete(10).await;
    bench.complete(10).await;
    bench.settle(0).await;
    assert!(bench.statistic(touched, named).await >= before.0 + 4, "what was touched is counted");
    assert_eq!(bench.statistic(touched, others).await, before.1);
    assert_eq!(bench.statistic("n_tup_ins", "^receipt_completion_batches_0$").await, 2);
    let elsewhere =
        "^(ready_entries|ready_claim_attempt_batches|receipt_completion_batches)_([1-9]|1[0-5])$";
    assert_eq!(bench.statistic("n_tup_ins", elsewhere).await, 0);
}

/// R026-01: over whole lives, with every operation that ends or moves a job, no ready row is updated or
/// deleted, and none leaves a dead tuple. What the old sessions did is in the statistics when they end.
#[tokio::test]
async fn no_ready_row_is_ever_updated_or_deleted() {
    let mut bench = Bench::alone().await;
    bench.enqueue(30).await;
    bench.complete(10).await;
    let jobs = bench.claim(12).await;
    let mut ends: Vec<_> = jobs[..6].iter().map(|j| Finished::failed_for_good(j, b"no")).collect();
    ends.extend(jobs[6..].iter().map(|j| Finished::failed(j, b"later", Some(Span::ZERO))));
    assert_eq!(bench.finish(ends).await.closed.len(), 12);
    assert_eq!(bench.client.promote_due(100).await.unwrap(), 6);
    assert_eq!(bench.client.cancel(JobId(30)).await.unwrap(), CancelOutcome::Cancelled);
    assert_eq!(bench.client.retry(JobId(11)).await.unwrap().retried.len(), 1);
    bench.client.discard_failed(awa::TerminalFilter::Job(JobId(12))).await.unwrap();
    bench.client.delete_completed(JobId(1)).await.unwrap();
    bench.client.rotate(Ring::Queue).await.unwrap();
    bench.client.rollup().await.unwrap();
    bench.complete(14).await;
    bench.settle(0).await;
    let written = bench.statistic("n_tup_ins", "^ready_entries_").await;
    assert_eq!(written, 30 + 6 + 1, "each position once");
    assert_eq!(bench.statistic("n_tup_upd + n_tup_del + n_dead_tup", "^ready_").await, 0);
    let hot = "^(receipt_completion|lease_claim|done_entries_[1-9])";
    assert_eq!(bench.statistic("n_tup_upd + n_tup_del + n_dead_tup", hot).await, 0);

    let pruned = bench.client.prune_oldest(Duration::from_secs(3600)).await.unwrap();
    assert!(matches!(pruned, PruneOutcome::Pruned { carried_failed_rows: 4, .. }), "{pruned}");
    bench.settle(0).await;
    assert_eq!(bench.statistic("n_tup_upd + n_tup_del + n_dead_tup", "^ready_").await, 0);
}

/// R026-15: one job off the compact path takes only itself off it. Keys of the engine's own in the
/// metadata don't count.
#[tokio::test]
async fn one_ineligible_job_takes_only_itself_off_the_compact_path() {
    let bench = Bench::new().await;
    let original = r#"{"_awa_original_priority": 4, "_awa_original_queue": "other"}"#;
    let failed_before = bench.client.enqueue(job(0)).await.unwrap();
    let once = bench.claim(1).await;
    bench.finish(vec![Finished::failed(&once[0], b"first try", Some(Span::ZERO))]).await;
    let made = bench
        .client
        .enqueue_many(vec![
            job(1),
            job(2).tag("red").unwrap(),
            job(3).metadata("trace", serde_json::json!("x")).unwrap(),
            job(4).metadata_json(original).unwrap(),
            job(5),
        ])
        .await
        .unwrap();
    bench
        .execute(
            "insert into S.ready_entries (ready_slot, ready_generation, lane_id, kind, args, max_attempts, unique_key)
             select current_slot, generation, (select lane_id from S.queue_lanes where priority = 2), 'k', '6', 1, 'x'
               from S.queue_ring_state",
        )
        .await;
    bench.client.promote_due(10).await.unwrap();
    let jobs = bench.claim(10).await;
    assert_eq!(jobs.len(), 7);
    let traits: Vec<_> = jobs
        .iter()
        .map(|j| (j.traits.unique_key, j.traits.tags, j.traits.errors, j.traits.custom_metadata))
        .collect();
    let none = (false, false, false, false);
    assert_eq!(
        traits,
        [
            none,
            (false, true, false, false),
            (false, false, false, true),
            none,
            none,
            (true, false, false, false),
            (false, false, true, false)
        ]
    );
    let done = bench.finish(jobs.iter().map(Finished::completed).collect()).await;
    assert_eq!((done.closed.len(), done.stale.len()), (7, 0));
    let general = "select count(*) from S.done_entries where state = 'completed' and args is null";
    assert_eq!(bench.number(general).await, 4);
    let compact = bench.spelled("select lane_seqs from S.receipt_completion_batches");
    let rows = bench.sql.query(&compact, &[]).await.unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].get::<_, Vec<i64>>(0), [made[0].0, made[3].0, made[4].0]);
    assert_eq!(jobs[6].receipt.job, failed_before);
    assert_eq!(bench.client.counts("q").await.unwrap().completed, 7);
}

/// H07: two shards hold the same positions, one of them done, the other pending: prune refuses for the
/// pending one, and no count is mistaken for a proof.
#[tokio::test]
async fn a_shard_that_is_done_proves_nothing_for_another() {
    let bench = Bench::new().await;
    bench.client.declare_queue("q", 2).await.unwrap();
    bench
        .execute(
            "insert into S.ready_entries (ready_slot, ready_generation, lane_id, lane_seq, kind, args, max_attempts)
             select 0, 1, l.lane_id, g, 'k', '{}', 1
               from S.queue_lanes l, generate_series(11, 13) g where l.priority = 2;
             select setval('S.position_seq', 13)",
        )
        .await;
    let lanes = "select lane_id from S.queue_lanes where priority = 2 and enqueue_shard =";
    let (done, pending) = (
        awa::core::LaneId(bench.number(&format!("{lanes} 0")).await),
        awa::core::LaneId(bench.number(&format!("{lanes} 1")).await),
    );
    let mut left = 3;
    for lane in [done, pending] {
        let claim = Claim::new(lane, Window::default(), 10, limits::CLAIM_BYTES_MAX, None).unwrap();
        let ClaimOutcome::Claimed { jobs, .. } = bench.client.run(claim).await.unwrap() else {
            panic!()
        };
        assert_eq!(jobs.len(), 3);
        bench.finish(jobs.iter().map(Finished::completed).collect()).await;
        if lane == done {
            bench.client.rotate(Ring::Queue).await.unwrap();
            let refused = bench.client.prune_oldest(Duration::ZERO).await.unwrap();
            assert!(
                matches!(refused, PruneOutcome::SkippedActive { slot: Slot(0), witness: 11, .. }),
                "{refused}"
            );
            let counts = bench.client.counts("q").await.unwrap();
            assert_eq!((counts.completed, counts.available), (3, left));
            left = 0;
        }
    }
    let pruned = bench.client.prune_oldest(Duration::ZERO).await.unwrap();
    assert!(matches!(pruned, PruneOutcome::Pruned { folded_other: 6, .. }), "{pruned}");
    let counts = bench.client.counts("q").await.unwrap();
    assert_eq!((counts.pruned_other, counts.available, counts.total()), (6, left, 6));
}

/// Law 3: a claim waits for the lane in one statement and decides in the next, so what the claim before
/// it took is not taken twice.
#[tokio::test(flavor = "multi_thread")]
async fn two_claimers_of_a_lane_take_turns() {
    let bench = Bench::alone().await;
    let jobs = bench.enqueue(6).await;
    let (first, mut gate) = Staged::stopped(claim_of(&bench, Window::default(), 4).await);
    let second = claim_of(&bench, Window::default(), 4).await;
    let client = bench.client.clone();
    let first = tokio::spawn(async move { client.run(first).await.unwrap() });
    gate.reached().await;
    let client = bench.client.clone();
    let second = tokio::spawn(async move { client.run(second).await.unwrap() });
    bench.blocked(1).await;
    gate.open();
    assert_eq!(ids(&first.await.unwrap()), jobs[..4]);
    assert_eq!(ids(&second.await.unwrap()), jobs[4..]);
}

/// H13, R026-18: a cancel and a claim of one job exclude each other through the lane: whoever commits
/// first has it, and the other is told.
#[tokio::test(flavor = "multi_thread")]
async fn either_the_cancel_or_the_claim_has_the_job() {
    let bench = Bench::alone().await;
    let jobs = bench.enqueue(2).await;
    let (claim, mut gate) = Staged::stopped(claim_of(&bench, Window::default(), 1).await);
    let client = bench.client.clone();
    let claiming = tokio::spawn(async move { client.run(claim).await.unwrap() });
    gate.reached().await;
    let (client, job) = (bench.client.clone(), jobs[0]);
    let cancelling = tokio::spawn(async move { client.cancel(job).await.unwrap() });
    bench.blocked(1).await;
    gate.open();
    assert_eq!(ids(&claiming.await.unwrap()), [jobs[0]]);
    assert_eq!(cancelling.await.unwrap(), CancelOutcome::Running);

    let (cancel, mut gate) = Staged::stopped(Cancel::new(jobs[1]));
    let client = bench.client.clone();
    let cancelling = tokio::spawn(async move { client.run(cancel).await.unwrap().unwrap() });
    gate.reached().await;
    let claim = claim_of(&bench, Window::default(), 10).await;
    let client = bench.client.clone();
    let claiming = tokio::spawn(async move { client.run(claim).await.unwrap() });
    bench.blocked(1).await;
    gate.open();
    assert_eq!(cancelling.await.unwrap(), CancelOutcome::Cancelled);
    assert_eq!(ids(&claiming.await.unwrap()), []);
    let counts = bench.client.counts("q").await.unwrap();
    assert_eq!((counts.running, counts.cancelled, counts.total()), (1, 1, 2));
}

/// R026-31: the defaults, as numbers and as they show.
#[tokio::test]
async fn the_defaults_are_those_of_the_record() {
    let bench = Bench::alone().await;
    let slots = |ring| format!("select slot_count from S.{ring}_ring_state");
    assert_eq!(bench.number(&slots("queue")).await, 16);
    assert_eq!(bench.number(&slots("lease")).await, 8);
    assert_eq!(bench.number(&slots("claim")).await, 8);
    let shards = "select count(*) from S.queue_lanes where queue = 'q' and priority = 2";
    assert_eq!(bench.number(shards).await, 1, "one shard is a lane for each priority");

    let scheduler = SchedulerConfig::for_workers(1024, 0);
    assert_eq!((scheduler.claim_rows, limits::CLAIM_ROWS_DEFAULT), (512, 512));
    for (workers, shards) in [(1, 1), (511, 1), (512, 4), (1024, 4)] {
        let batcher = BatcherConfig::for_workers(workers, 0);
        assert_eq!(batcher.shards.get(), shards, "{workers} workers");
        assert_eq!((batcher.flush_rows.get(), batcher.flush_age), (512, Span::from_ms(1)));
    }
    assert_eq!(DutiesConfig::new(0).rollup_every, Span::from_secs(30));
    assert_eq!(Maintenance::default().failed_retention, Duration::from_secs(72 * 3600));
    assert_eq!(limits::ROLLUP_SLOTS_MAX, 4);

    // Six sealed slots have deltas; one tick folds four of them.
    for _ in 0..6 {
        bench.fail(1).await;
        bench.client.rotate(Ring::Queue).await.unwrap();
    }
    for expected in [4, 2] {
        let folded = bench.rollup_tick().await;
        assert!(folded.iter().all(|f| matches!(f, RollupOutcome::Folded { .. })), "{folded:?}");
        assert_eq!(folded.len(), expected);
    }

    // A worker with room for more claims 512 at a time, on receipts and without leases.
    let jobs: Vec<Job> = (0..600).map(job).collect();
    bench.client.copy(jobs).await.unwrap();
    let worker = awa::Worker::new(bench.client.clone()).maintenance(None).queue("q", 1024).unwrap();
    let worker = worker.handler("k", |_, _: i64| async { Ok(()) }).start().await.unwrap();
    worker.watch().wait_for(|s| s.completed == 600).await.unwrap();
    worker.shutdown(Duration::from_secs(10)).await.unwrap();
    let batches = bench
        .spelled("select array_agg(n order by batch_id) from S.lease_claim_batches where n > 1");
    let sizes: Vec<i32> = bench.sql.query_one(&batches, &[]).await.unwrap().get(0);
    assert_eq!(sizes, [512, 88]);
    let widest =
        bench.number("select max(completed_count) from S.receipt_completion_batches").await;
    assert!(widest <= 512, "{widest} successes in one flush");
    assert_eq!(bench.rows("leases").await, 0);
}
