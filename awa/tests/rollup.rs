//! Folding pending deltas into the counters, trusting the counters, making them anew; and what a prune
//! reclaims of one segment while it leaves all others alone.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use awa::core::machine::close::Finished;
use awa::core::machine::rebuild::{Distrust, Rebuild};
use awa::core::machine::rollup::{FindRollups, Rollup, RollupPlan};
use awa::core::{Gate, Step};
use awa::tokio_postgres::IsolationLevel;
use awa::{PruneOutcome, QueueCounts, Ring, RollupOutcome, Slot, TerminalFilter};
use common::stepwise::Stepwise;
use common::{Bench, connect_to};

const HOUR: Duration = Duration::from_secs(3600);
/// Far longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(120);

async fn rotate(bench: &Bench, times: usize) {
    for _ in 0..times {
        bench.client.rotate(Ring::Queue).await.unwrap();
    }
}

async fn counts(bench: &Bench) -> QueueCounts {
    bench.client.counts("q").await.unwrap()
}

fn folded(slot: i32, rows: i64) -> RollupOutcome {
    RollupOutcome::Folded { slot: Slot(slot), rows, sum: rows }
}

/// R026-24: sealed slots that have deltas are folded, oldest first; an empty old prefix
/// hides nothing, an empty slot is not touched, the open slot is left alone. Counters are inserted in the
/// order of their keys.
#[tokio::test]
async fn a_rollup_folds_sealed_slots_with_deltas_oldest_first() {
    let bench = Bench::alone().await;
    bench.client.declare_queue("other", 2).await.unwrap();
    // Slots 0, 1 and 4 stay empty; 2, 3, 5, 6, 7 hold deltas of several lanes, 8 is open.
    rotate(&bench, 2).await;
    for slot in 2..=8 {
        if slot != 4 {
            bench.fail(3).await;
            let lanes = format!(
                "insert into S.queue_terminal_count_deltas
                        (ready_slot, counter_bucket, ready_generation, lane_id, delta, state)
                 select {slot}, 7 - lane_id % 8, {slot} + 1, lane_id, 0, 'failed'
                   from S.queue_lanes where queue = 'other' order by lane_id desc"
            );
            bench.execute(&lanes).await;
        }
        if slot < 8 {
            rotate(&bench, 1).await;
        }
    }
    let before = counts(&bench).await;
    // Three deltas with rows, eight that add nothing: eleven rows, a sum of three.
    let did = |slot| RollupOutcome::Folded { slot: Slot(slot), rows: 11, sum: 3 };
    let first = bench.client.rollup().await.unwrap();
    assert_eq!(first, [did(2), did(3), did(5), did(6)], "so many at a time");
    assert_eq!(counts(&bench).await, before);
    assert_eq!(bench.client.rollup().await.unwrap(), [did(7)]);
    assert_eq!(bench.client.rollup().await.unwrap(), []);
    assert_eq!(counts(&bench).await, before);
    let pending = "select distinct ready_slot::text from S.queue_terminal_count_deltas";
    assert_eq!(bench.texts(pending).await, ["8"]);
    let written = "select format('%s %s %s', lane_id, counter_bucket, state) from S.queue_terminal_live_counts
         where ready_slot = 2 order by ctid";
    let by_key = written.replace("order by ctid", "order by lane_id, counter_bucket, state");
    assert_eq!(bench.texts(written).await, bench.texts(&by_key).await);
    let not_sealed = bench.client.run(Rollup::new(Slot(8))).await.unwrap().unwrap();
    assert!(matches!(not_sealed, RollupOutcome::NotSealed { slot: Slot(8), .. }));
}

/// R026-24, R026-13: a slot that can still get deltas is skipped, with what was found: an unclaimed ready
/// row, an open receipt, an active lease. Each is looked for in its place: leases and ready rows before
/// the exclusive lock, receipts after it.
#[tokio::test]
async fn a_rollup_skips_what_is_still_in_use() {
    let bench = Bench::alone().await;
    bench.fail(1).await;
    let waiting = bench.enqueue(1).await[0];
    rotate(&bench, 1).await;
    let slot = Slot(0);
    let skipped = |reason, witness| RollupOutcome::SkippedActive { slot, reason, witness };
    let outcome = bench.client.rollup().await.unwrap();
    assert_eq!(outcome, [skipped(Gate::PendingReady(slot), waiting.0)]);

    let claimed = bench.claim(1).await;
    let outcome = bench.client.rollup().await.unwrap();
    let receipt = claimed[0].receipt.id().0;
    assert_eq!(outcome, [skipped(Gate::OpenReceipts(slot), receipt)]);

    let lease = format!(
        "insert into S.leases (lease_slot, claim_slot, lease_generation, job_id, run_lease, receipt_id,
                ready_slot, ready_generation, lane_id, lane_seq, state, heartbeat_at)
         select 0, 0, 1, {0}, 1, {receipt}, 0, 1, lane_id, {0}, 'waiting_external', now()
           from S.queue_lanes where queue = 'q' and priority = 2",
        waiting.0
    );
    bench.execute(&lease).await;
    let outcome = bench.client.rollup().await.unwrap();
    assert_eq!(outcome, [skipped(Gate::ActiveLeases(slot), waiting.0)]);
    assert_eq!(counts(&bench).await.waiting_external, 1);

    bench.finish(vec![Finished::failed_for_good(&claimed[0], b"broken")]).await;
    let mut rolling = Stepwise::begin(&bench, Rollup::new(slot)).await;
    let mut names = Vec::new();
    while let Some(name) = rolling.next().map(Step::name) {
        names.push(name);
        rolling.step().await.unwrap();
    }
    let order = [
        "LockRing",
        "ObserveRing",
        "ProbePinnedHorizon",
        "LockSlot",
        "ProbeActiveLeases",
        "ProbePendingReady",
        "ExcludeDeltas",
        "ProbeOpenReceipts",
        "FoldDeltas",
        "TruncateDeltas",
    ];
    assert_eq!(names, order);
    assert_eq!(rolling.finish().await.unwrap().unwrap(), folded(0, 2));
}

/// Law 7, R026-31: the four oldest slots are held, one by a job that runs on, three by a reader that sits on
/// its locks without a snapshot; the maintainer's tick folds the one behind them all the same. When they are
/// free it folds four, and the last at the next tick.
#[tokio::test]
async fn held_slots_do_not_hide_those_behind_them() {
    let bench = Bench::alone().await;
    for _ in 0..5 {
        bench.fail(1).await;
        rotate(&bench, 1).await;
    }
    let exact = counts(&bench).await;
    let running = "insert into S.leases (lease_slot, claim_slot, lease_generation, job_id, run_lease, receipt_id,
                ready_slot, ready_generation, lane_id, lane_seq, state, heartbeat_at)
         select 0, 0, 1, 1, 1, 1, 0, 1, lane_id, 1, 'waiting_external', now()
           from S.queue_lanes where queue = 'q' and priority = 2";
    bench.execute(running).await;
    let mut other = connect_to(&bench).await;
    let reader = other.transaction().await.unwrap();
    for slot in 1..=3 {
        let read = format!("select count(*) from S.queue_terminal_count_deltas_{slot}");
        // As a script: a prepared query's portal would keep its snapshot.
        reader.batch_execute(&bench.spelled(&read)).await.unwrap();
    }
    let blocked = |slot| RollupOutcome::Blocked { slot: Slot(slot) };
    let (slot, witness) = (Slot(0), 1);
    let active = RollupOutcome::SkippedActive { slot, reason: Gate::ActiveLeases(slot), witness };
    let did = bench.rollup_tick().await;
    assert_eq!(did, [active, blocked(1), blocked(2), blocked(3), folded(4, 1)]);
    bench.fail(1).await;
    rotate(&bench, 1).await;
    reader.rollback().await.unwrap();
    bench.execute("delete from S.leases").await;
    let did = bench.rollup_tick().await;
    assert_eq!(did, [folded(0, 1), folded(1, 1), folded(2, 1), folded(3, 1)]);
    assert_eq!(bench.rollup_tick().await, [folded(5, 1)]);
    assert_eq!(counts(&bench).await.failed, exact.failed + 1);
}

/// R026-24: folding and truncating commit together: the backend is killed between any two statements, and
/// the state is the old one to the last row. What is folded once is not folded again.
#[tokio::test]
async fn a_rollup_that_dies_has_done_nothing() {
    let bench = Bench::alone().await;
    bench.fail(3).await;
    rotate(&bench, 1).await;
    let (before, exact) = (bench.picture().await, counts(&bench).await);
    for kills in 0.. {
        let mut dying = Stepwise::begin(&bench, Rollup::new(Slot(0))).await;
        for _ in 0..kills {
            dying.step().await.unwrap();
        }
        let nothing_is_left = dying.next().is_none();
        bench.kill(dying.pid()).await;
        assert!(dying.finish().await.unwrap_err().is_connection());
        assert_eq!(bench.picture().await, before, "killed after {kills} statements");
        if nothing_is_left {
            assert_eq!(kills, 10);
            break;
        }
    }
    assert_eq!(bench.client.rollup().await.unwrap(), [folded(0, 3)]);
    let after = bench.picture().await;
    assert_eq!(bench.client.rollup().await.unwrap(), []);
    assert_eq!((bench.picture().await, counts(&bench).await), (after, exact));
}

/// R026-25, H39: while another backend pins the horizon, by a snapshot that it sits on or by an id in a
/// transaction left open, a rollup defers before it changes or locks anything, and names the backend;
/// counts stay exact. Once it lets go, the deltas are folded.
#[tokio::test]
async fn a_rollup_defers_while_the_horizon_is_pinned() {
    let bench = Bench::alone().await;
    bench.fail(2).await;
    rotate(&bench, 1).await;
    for (level, pins) in [
        (IsolationLevel::RepeatableRead, "select pg_backend_pid()"),
        (IsolationLevel::ReadCommitted, "select pg_backend_pid() from pg_current_xact_id()"),
    ] {
        let mut other = connect_to(&bench).await;
        let pinning = other.build_transaction().isolation_level(level).start().await.unwrap();
        let pid: i32 = pinning.query_one(pins, &[]).await.unwrap().get(0);
        // What is younger than this is traffic: a tenth of a second idle, or a second in all.
        let (since, counts_from_ms) = match level {
            IsolationLevel::RepeatableRead => ("state_change", 100),
            _ => ("xact_start", 1000),
        };
        let age = format!(
            "coalesce((select extract(epoch from clock_timestamp() - {since}) * 1000
                         from pg_stat_activity where state = 'idle in transaction' and pid = {pid}), 0)"
        );
        bench.until(&age, |ms| ms > counts_from_ms + 50).await;
        let before = bench.picture().await;
        let deferred = RollupOutcome::Deferred { pinned_by: pid.into() };
        assert_eq!(bench.client.rollup().await.unwrap(), [deferred], "{pins}");
        let mut rolling = Stepwise::begin(&bench, Rollup::new(Slot(0))).await;
        for _ in 0..3 {
            rolling.step().await.unwrap();
        }
        assert_eq!(rolling.next(), None, "nothing after it has seen the horizon");
        assert_eq!(rolling.finish().await.unwrap().unwrap(), deferred);
        assert_eq!(bench.picture().await, before);
        assert_eq!(counts(&bench).await.failed, 2);
        pinning.rollback().await.unwrap();
    }
    assert_eq!(bench.client.rollup().await.unwrap(), [folded(0, 2)]);
    assert_eq!(counts(&bench).await.failed, 2);
}

/// R026-25: a lagging rollup does not hold retention up: a prune folds a slot whose deltas are pending,
/// with the horizon pinned.
#[tokio::test]
async fn a_prune_does_not_wait_for_a_rollup() {
    let bench = Bench::alone().await;
    bench.fail(2).await;
    rotate(&bench, 1).await;
    let mut other = connect_to(&bench).await;
    let level = IsolationLevel::RepeatableRead;
    let pinning = other.build_transaction().isolation_level(level).start().await.unwrap();
    pinning.query_one("select 1", &[]).await.unwrap();
    let mut deferred = false;
    while !deferred {
        // Until its snapshot is old enough to count, a rollup would fold the slot: it is only planned.
        let plan = bench.client.run(FindRollups).await.unwrap().unwrap();
        deferred = matches!(plan, RollupPlan::Deferred { .. });
    }
    let pruned = bench.client.prune_oldest(Duration::ZERO).await.unwrap();
    assert!(matches!(pruned, PruneOutcome::Pruned { folded_failed: 2, .. }), "{pruned}");
    let now = counts(&bench).await;
    assert_eq!((now.failed, now.pruned_failed), (0, 2));
    pinning.rollback().await.unwrap();
}

/// H39: under steady traffic, in which some transaction has a snapshot or an id at nearly every moment, the
/// rollup goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_rollup_goes_on_under_steady_traffic() {
    let bench = Bench::alone().await;
    let stop = Arc::new(AtomicBool::new(false));
    bench.fail(4).await;
    rotate(&bench, 1).await;
    let mut traffic = Vec::new();
    for _ in 0..3 {
        let (client, stop) = (bench.another_client().await, Arc::clone(&stop));
        traffic.push(tokio::spawn(async move {
            let (mut sent, mut longest) = (0, Duration::ZERO);
            while !stop.load(Ordering::SeqCst) {
                let begun = Instant::now();
                client.enqueue(common::job(sent)).await.unwrap();
                client.counts("q").await.unwrap();
                longest = longest.max(begun.elapsed());
                sent += 1;
            }
            (sent, longest)
        }));
    }
    bench.until("select max(lane_seq) from S.ready_entries", |n| n > 20).await;
    let (begun, mut deferred) = (Instant::now(), false);
    loop {
        let did = bench.client.rollup().await.unwrap();
        // Readers may hold the child for longer than the rollup waits, and a machine that has much else to do
        // may make a transaction of theirs as old as one that pins the horizon. Nothing else may keep it.
        match did[..] {
            [RollupOutcome::Folded { .. }] => assert_eq!(did, [folded(0, 4)]),
            [RollupOutcome::Blocked { .. }] => {}
            [RollupOutcome::Deferred { .. }] => deferred = true,
            _ => panic!("{did:?}"),
        }
        if let [RollupOutcome::Folded { .. }] = did[..] {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{did:?} is all that came of it");
    }
    stop.store(true, Ordering::SeqCst);
    let (mut sent, mut longest) = (0, Duration::ZERO);
    for task in traffic {
        let (some, took) = task.await.unwrap();
        (sent, longest) = (sent + some, longest.max(took));
    }
    // A tenth of a second is the least at which a transaction counts as one that pins.
    assert!(!deferred || longest >= Duration::from_millis(100), "put off for traffic: {longest:?}");
    assert_eq!(counts(&bench).await.total(), sent + 4);
}

/// H38, R026-23, R026-26, R032-16: with the marker unset, counts come from history and are the same, however
/// wrong the counters are; with the marker set they come from the counters. Migrating again and a new
/// client change neither. A rebuild makes the counters from history, carried rows among it, clears the
/// ledger and is trusted.
#[tokio::test]
async fn distrusted_counters_are_not_read_and_a_rebuild_mends_them() {
    let bench = Bench::alone().await;
    let failed = bench.fail(5).await;
    let general = common::job(1).tag("general").unwrap();
    bench.client.enqueue(general).await.unwrap();
    bench.enqueue(2).await;
    bench.complete(3).await;
    let cancelled = bench.enqueue(1).await[0];
    bench.client.cancel(cancelled).await.unwrap();
    rotate(&bench, 1).await;
    bench.client.rollup().await.unwrap();
    bench.client.prune_oldest(HOUR).await.unwrap();
    bench.fail(2).await;
    let exact = counts(&bench).await;
    assert_eq!((exact.failed, exact.pruned_other, exact.total()), (7, 4, 11));

    let wrong = "delete from S.queue_terminal_count_deltas where counter_bucket % 2 = 0;
        insert into S.queue_terminal_live_counts (ready_slot, counter_bucket, lane_id, state, count)
        select 1, 3, lane_id, 'failed', 100 from S.queue_lanes where queue = 'q' and priority = 2";
    bench.execute(wrong).await;
    let left = bench.number("select sum(delta) from S.queue_terminal_count_deltas").await;
    assert!(left > 0 && left < 7);
    assert_eq!(counts(&bench).await.failed, 100 + left, "trusted counters are what is read");

    bench.client.run(Distrust {}).await.unwrap().unwrap();
    assert_eq!(counts(&bench).await, exact);
    // Starting again, in every way that there is, leaves the marker alone.
    let done = awa::migrate(&bench.url, &bench.schema).await.unwrap();
    assert!(done.applied.is_empty());
    let again = bench.another_client().await;
    assert_eq!(again.counts("q").await.unwrap(), exact);
    again.declare_queue("q", 1).await.unwrap();
    assert_eq!(bench.texts("select trusted::text from S.terminal_count_trust").await, ["false"]);

    assert_eq!(bench.client.rebuild_counts().await.unwrap().rows, 7);
    assert_eq!(bench.texts("select trusted::text from S.terminal_count_trust").await, ["true"]);
    assert_eq!(bench.rows("queue_terminal_count_deltas").await, 0);
    assert_eq!(counts(&bench).await, exact);
    awa::migrate(&bench.url, &bench.schema).await.unwrap();
    assert_eq!(bench.another_client().await.counts("q").await.unwrap(), exact);
    assert_eq!(bench.texts("select trusted::text from S.terminal_count_trust").await, ["true"]);

    // The rebuilt counters are the right ones for what comes: buckets cancel, carries move.
    bench.client.retry(failed[0]).await.unwrap();
    bench.client.discard_failed(TerminalFilter::Job(failed[1])).await.unwrap();
    bench.complete(1).await;
    rotate(&bench, 1).await;
    assert!(matches!(bench.client.rollup().await.unwrap()[..], [RollupOutcome::Folded { .. }]));
    assert_eq!(counts(&bench).await.failed, 5);
    let negative = "select count(*) from S.queue_terminal_live_counts where count < 0";
    assert_eq!(bench.number(negative).await, 0, "a delete cancels its own bucket");
    bench.client.prune_oldest(HOUR).await.unwrap();
    let last = counts(&bench).await;
    bench.client.run(Distrust {}).await.unwrap().unwrap();
    assert_eq!((counts(&bench).await, last.failed, last.total()), (last, 5, 10));
}

/// R026-26: a rebuild that dies between any two statements leaves counters, ledger and marker as they were.
/// One that doesn't leaves no dead row in the ledger: it is truncated.
#[tokio::test]
async fn a_rebuild_that_dies_has_done_nothing() {
    let bench = Bench::alone().await;
    bench.fail(2).await;
    bench.client.run(Distrust {}).await.unwrap().unwrap();
    let before = bench.picture().await;
    for kills in 0.. {
        let mut dying = Stepwise::begin(&bench, Rebuild::default()).await;
        for _ in 0..kills {
            dying.step().await.unwrap();
        }
        let nothing_is_left = dying.next().is_none();
        bench.kill(dying.pid()).await;
        assert_eq!(bench.picture().await, before, "killed after {kills} statements");
        if nothing_is_left {
            assert_eq!(kills, 6);
            break;
        }
    }
    let ledger = "select sum(pg_relation_size(inhrelid)) from pg_inherits
         where inhparent = to_regclass('S.queue_terminal_count_deltas')";
    assert!(bench.number(ledger).await > 0);
    assert_eq!(bench.client.rebuild_counts().await.unwrap().rows, 2);
    assert_eq!(bench.number(ledger).await, 0);
    assert_eq!(counts(&bench).await.failed, 2);
}

/// R026-20: a prune reclaims all of a segment together, whatever generation its rows bear: bodies,
/// tombstones, evidence, compact batches and what hides them, history, pending deltas and folded
/// counters. No row of another slot is touched.
#[tokio::test]
async fn a_prune_reclaims_one_segment_whole_and_no_other() {
    let bench = Bench::alone().await;
    for _ in 0..2 {
        bench.fail(2).await;
        let succeeded = bench.enqueue(2).await;
        bench.complete(2).await;
        bench.client.delete_completed(succeeded[0]).await.unwrap();
        let cancelled = bench.enqueue(1).await[0];
        bench.client.cancel(cancelled).await.unwrap();
        rotate(&bench, 1).await;
    }
    assert_eq!(bench.client.rollup().await.unwrap(), [folded(0, 3), folded(1, 3)]);
    bench
        .client
        .discard_failed(TerminalFilter::Queue(awa::QueueName::new("q").unwrap()))
        .await
        .unwrap();
    bench.execute("update S.done_entries_0 set ready_generation = 0").await;
    let tables = [
        "ready_entries",
        "ready_tombstones",
        "ready_claim_attempt_batches",
        "receipt_completion_batches",
        "receipt_completion_tombstones",
        "done_entries",
        "queue_terminal_count_deltas",
        "queue_terminal_live_counts",
    ];
    let in_slot = async |slot: i32| {
        let mut rows = Vec::new();
        for table in tables {
            let query = format!(
                "select to_jsonb(t)::text from S.{table} t where ready_slot = {slot} order by 1"
            );
            rows.push((table, bench.texts(&query).await));
        }
        rows
    };
    let other = in_slot(1).await;
    for (table, rows) in other.iter().chain(&in_slot(0).await) {
        assert!(!rows.is_empty(), "{table}");
    }
    let before = counts(&bench).await;
    let pruned = bench.client.prune_oldest(HOUR).await.unwrap();
    assert!(
        matches!(pruned, PruneOutcome::Pruned { slot: Slot(0), folded_other: 2, .. }),
        "{pruned}"
    );
    for (table, rows) in in_slot(0).await {
        assert_eq!(rows, [""; 0], "{table}");
    }
    assert_eq!(in_slot(1).await, other);
    assert_eq!(counts(&bench).await.total(), before.total());
}
