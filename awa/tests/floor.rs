//! The failed-retention floor, from one prune to many wraps.
#![allow(clippy::unwrap_used)]

mod common;

use std::time::Duration;

use awa::core::machine::retry::RetryFailedOutcome;
use awa::{JobState, Maintenance, PruneOutcome, QueueCounts, Ring};
use common::Bench;

const FOR_EVER: Duration = Duration::MAX;
const HOUR: Duration = Duration::from_secs(3600);

/// Seals everything and prunes it, oldest first: one wrap. Gives (carried, failed, other).
async fn wrap(bench: &Bench, floor: Duration) -> (i64, i64, i64) {
    bench.fill_ring().await;
    let mut sums = (0, 0, 0);
    loop {
        match bench.client.prune_oldest(floor).await.unwrap() {
            PruneOutcome::Pruned { carried_failed_rows, folded_failed, folded_other, .. } => {
                sums.0 += carried_failed_rows;
                sums.1 += folded_failed;
                sums.2 += folded_other;
            }
            PruneOutcome::Noop => return sums,
            other => panic!("{other}"),
        }
    }
}

/// R032-02, R032-03, R032-05, R032-15, R032-16: a failure inside the floor is carried wide, with its
/// delta under the current slot; completed and cancelled jobs are not; it hydrates and can be retried.
#[tokio::test]
async fn a_failure_inside_the_floor_survives_whole() {
    let bench = Bench::new().await;
    let failed = bench.fail(3).await;
    bench.enqueue(2).await;
    bench.complete(2).await;
    let cancelled = bench.enqueue(1).await;
    bench.client.cancel(cancelled[0]).await.unwrap();
    assert_eq!(bench.number("select count(*) from S.done_entries where args is null").await, 3);
    let before = bench.client.load(failed[1]).await.unwrap().unwrap();

    bench.client.rotate(Ring::Queue).await.unwrap();
    let pruned = bench.client.prune_oldest(HOUR).await.unwrap();
    let expected = PruneOutcome::Pruned {
        slot: awa::Slot(0),
        generation: awa::core::Generation(1),
        carried_failed_rows: 3,
        folded_failed: 0,
        folded_other: 3,
    };
    assert_eq!(pruned, expected);
    let wide = "select count(*) from S.done_entries where ready_slot = 1 and ready_generation = 2 \
                and args is not null and max_attempts is not null and run_at is not null \
                and created_at is not null";
    assert_eq!(bench.number(wide).await, 3);
    assert_eq!(bench.number("select count(*) from S.done_entries").await, 3);
    let delta = "select sum(delta) from S.queue_terminal_count_deltas \
                 where ready_slot = 1 and ready_generation = 2 and state = 'failed'";
    assert_eq!(bench.number(delta).await, 3);
    let buckets = "select count(*) from S.queue_terminal_count_deltas c where not exists (select from \
                   S.done_entries d where mod(d.job_id, 8) = c.counter_bucket and d.lane_id = c.lane_id)";
    assert_eq!(bench.number(buckets).await, 0, "a bucket follows the job id");
    assert_eq!(bench.client.load(failed[1]).await.unwrap().unwrap(), before);

    let retried = bench.client.retry(failed[1]).await.unwrap();
    assert_eq!(retried.retried, [failed[1]]);
    let row = bench.client.load(failed[1]).await.unwrap().unwrap();
    assert_eq!((row.state, row.attempt.0, row.run_lease.0), (JobState::Available, 0, 1));
    let counts = bench.client.counts("q").await.unwrap();
    let due = QueueCounts { available: 1, failed: 2, pruned_other: 3, ..QueueCounts::default() };
    assert_eq!(counts, due);
}

/// R032-02, R032-06, H27: at the cutoff carried, one microsecond before it folded; never both.
#[tokio::test]
async fn the_boundary_is_exact_to_the_microsecond() {
    let bench = Bench::new().await;
    bench.fail(3).await;
    // The floor has whole seconds and the clock runs on: rows are placed around a cutoff that a
    // survey, a carry and a fold are then given.
    let cutoff = awa::core::rules::Cutoff(bench.now().await);
    let at = cutoff.0.unix_us();
    for (nth, us) in [(0, at - 1), (1, at), (2, at + 1)] {
        bench
            .execute(&format!(
                "update S.done_entries set finalized_at = timestamptz 'epoch' + {us} * interval '1 us'
                  where job_id = (select job_id from S.done_entries order by job_id offset {nth} limit 1)"
            ))
            .await;
    }
    bench.client.rotate(Ring::Queue).await.unwrap();
    let outcome = bench.client.run(common::CarryAt { cutoff }).await.unwrap();
    assert_eq!(outcome, (2, 2, 1), "surveyed to carry, carried, folded as failed");
}

/// R032-01, H27: a floor of zero carries nothing, any length is safe, and "for ever" keeps all.
#[tokio::test]
async fn any_floor_is_safe() {
    let bench = Bench::new().await;
    bench.fail(4).await;
    assert_eq!(wrap(&bench, FOR_EVER).await, (4, 0, 0));
    assert_eq!(wrap(&bench, Duration::from_secs(u64::MAX)).await, (4, 0, 0));
    assert_eq!(
        wrap(&bench, Duration::from_millis(999)).await,
        (0, 4, 0),
        "less than a second is zero"
    );
    let counts = bench.client.counts("q").await.unwrap();
    assert_eq!((counts.failed, counts.pruned_failed, counts.total()), (0, 4, 4));
}

/// R032-11: one knob, 72 hours unless told otherwise.
#[test]
fn the_floor_is_72_hours_by_default() {
    assert_eq!(Maintenance::default().failed_retention, Duration::from_secs(72 * 3600));
    assert_eq!(awa::core::rules::Floor::DEFAULT.span(), Duration::from_secs(259_200).into());
}

/// R032-08, R032-09: by queue the loss is said, by kind it is not guessed; counts are cumulative.
#[tokio::test]
async fn what_was_dropped_is_counted_and_said() {
    let bench = Bench::new().await;
    bench.fail(2).await;
    wrap(&bench, Duration::ZERO).await;
    let kept = bench.fail(3).await;
    wrap(&bench, FOR_EVER).await;
    let by_kind = bench.client.retry_failed_by_kind("k").await.unwrap();
    let expected = RetryFailedOutcome { retried: kept, matched: 3, pruned_failed_count: None };
    assert_eq!(by_kind, expected);
    let by_queue = bench.client.retry_failed_by_queue("q").await.unwrap();
    let expected =
        RetryFailedOutcome { retried: Vec::new(), matched: 0, pruned_failed_count: Some(2) };
    assert_eq!(by_queue, expected);
    assert_eq!(bench.client.counts("q").await.unwrap().pruned_failed, 2);
}

/// H28, H36, R032-16: through three wraps with retry, discard and delete in between, each failure
/// exists exactly once, whole, and every job stays accounted for after every operation.
#[tokio::test]
async fn failures_go_round_and_round() {
    let bench = Bench::new().await;
    let failed = bench.fail(6).await;
    bench.enqueue(4).await;
    bench.complete(4).await;
    let mut discarded = 0;
    for (turn, job) in failed.iter().take(3).enumerate() {
        assert_eq!(wrap(&bench, HOUR).await.0, 6 - turn as i64);
        match turn {
            0 => {
                let which = awa::TerminalFilter::Job(*job);
                let done = bench.client.discard_failed(which).await.unwrap();
                assert_eq!(done.discarded, [*job]);
                discarded += 1;
            }
            1 => {
                bench.client.retry(*job).await.unwrap();
                bench.complete(1).await;
            }
            _ => {
                // Twice side by side: one winner (H14).
                let (a, b) = tokio::join!(bench.client.retry(*job), bench.client.retry(*job));
                let both = a.unwrap().retried.len() + b.unwrap().retried.len();
                assert_eq!(both, 1);
                bench.complete(1).await;
            }
        }
        let counts = bench.client.counts("q").await.unwrap();
        assert_eq!(counts.total() + discarded, 10, "{counts:?}");
    }
    let left = bench
        .number("select count(distinct job_id) from S.done_entries where args is not null")
        .await;
    let rows = bench.number("select count(*) from S.done_entries where state = 'failed'").await;
    assert_eq!((left, rows), (3, 3));
    bench.client.rebuild_counts().await.unwrap();
    assert_eq!(bench.client.counts("q").await.unwrap().failed, 3);
}

/// H30, R026-03: a narrow failure whose ready row is gone is reported and never given a body; other
/// slots go on, and discarding it is the way out.
#[tokio::test]
async fn a_lost_body_is_a_fault_and_not_an_invention() {
    let bench = Bench::new().await;
    let failed = bench.fail(2).await;
    bench.client.rotate(Ring::Queue).await.unwrap();
    bench.fail(1).await;
    bench.client.rotate(Ring::Queue).await.unwrap();
    bench.execute(&format!("delete from S.ready_entries where job_id = {}", failed[0].0)).await;
    let outcome = bench.client.prune_oldest(HOUR).await.unwrap();
    assert!(matches!(outcome, PruneOutcome::Faulty { slot: awa::Slot(0), .. }), "{outcome}");
    let next = bench.client.prune(Ring::Queue, Some(awa::Slot(1)), HOUR).await.unwrap();
    assert!(matches!(next, PruneOutcome::Pruned { carried_failed_rows: 1, .. }), "{next}");
    assert!(bench.client.load(failed[0]).await.unwrap_err().as_fault().is_some());
    assert!(bench.client.retry(failed[0]).await.unwrap().retried.is_empty());
    assert_eq!(bench.client.counts("q").await.unwrap().failed, 3);

    let which = awa::TerminalFilter::Job(failed[0]);
    assert_eq!(bench.client.discard_failed(which).await.unwrap().discarded, [failed[0]]);
    let outcome = bench.client.prune_oldest(HOUR).await.unwrap();
    assert!(matches!(outcome, PruneOutcome::Pruned { carried_failed_rows: 1, .. }), "{outcome}");
}

/// H31, R032-04: a key that collides at the destination is loud; nothing is lost, other slots go on,
/// and discarding one of the two is the way out.
#[tokio::test]
async fn a_collision_at_the_destination_is_loud() {
    let bench = Bench::new().await;
    let failed = bench.fail(1).await;
    bench.client.rotate(Ring::Queue).await.unwrap();
    bench
        .execute(
            "insert into S.done_entries (ready_slot, attempt, ready_generation, lane_id, lane_seq, job_id,
                                         run_lease, finalized_at, state, kind)
             select 1, attempt, 2, lane_id, lane_seq, 424242, run_lease, finalized_at, state, kind
               from S.done_entries",
        )
        .await;
    let error = bench.client.prune_oldest(HOUR).await.unwrap_err();
    assert_eq!(error.sqlstate().map(|s| s.code()), Some("23505"), "{error}");
    assert_eq!(bench.number("select count(*) from S.done_entries").await, 2);
    assert!(bench.client.load(failed[0]).await.unwrap().is_some());
    let which = awa::TerminalFilter::Job(awa::JobId(424_242));
    assert_eq!(bench.client.discard_failed(which).await.unwrap().discarded.len(), 1);
    let outcome = bench.client.prune_oldest(HOUR).await.unwrap();
    assert!(matches!(outcome, PruneOutcome::Pruned { carried_failed_rows: 1, .. }), "{outcome}");
}

/// H35, R032-07: an older binary that knows no floor folds everything into the first column; the
/// total is right, only the split undercounts.
#[tokio::test]
async fn an_older_binary_beside_ours_keeps_the_total() {
    let bench = Bench::new().await;
    bench.fail(2).await;
    bench
        .execute(
            "begin;
             insert into S.queue_terminal_rollups (lane_id, pruned_completed_count)
             select lane_id, count(*) from S.done_entries group by lane_id;
             truncate S.done_entries_0, S.ready_entries_0, S.ready_claim_attempt_batches_0,
                      S.queue_terminal_count_deltas_0;
             commit",
        )
        .await;
    bench.fail(3).await;
    wrap(&bench, Duration::ZERO).await;
    let counts = bench.client.counts("q").await.unwrap();
    assert_eq!((counts.pruned_other, counts.pruned_failed, counts.total()), (2, 3, 5));
}

/// R032-17: the model has the carried class inside it, and broken twins for the shard bug and for a
/// forgotten carry.
#[test]
fn the_model_and_its_twins_are_there() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let model =
        std::fs::read_to_string(root.join("correctness/storage/AwaShardedPrune.tla")).unwrap();
    assert!(model.contains("CarryForward"));
    assert!(root.join("correctness/storage/MAPPING.md").exists());
    let suite = std::fs::read_to_string(root.join("correctness/suite.json")).unwrap();
    for twin in ["gate-ignores-shard", "forgotten-carry"] {
        assert!(suite.contains(twin), "{twin}");
    }
}
