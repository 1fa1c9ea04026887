//! The failed-retention floor: what is carried, how it arrives, what is folded, and what an operator is told.
#![allow(clippy::unwrap_used)]

mod common;

use std::time::Duration;

use awa::core::machine::claim::{Claim, ClaimOutcome};
use awa::core::machine::close::Finished;
use awa::core::machine::prune::Prune;
use awa::core::machine::retry::{PieceOutcome, RetryFailed};
use awa::core::rules::{Cutoff, Floor};
use awa::core::{Generation, Instant, Segment, Span, Step, Window, limits};
use awa::{Job, JobId, Maintenance, PruneOutcome, Ring, Slot, TerminalFilter};
use common::stepwise::Stepwise;
use common::{Bench, job};
use serde_json::json;

const HOUR: Duration = Duration::from_secs(3600);

/// Prunes one named slot of the queue ring, which must succeed: (carried, failed, other).
async fn prune(bench: &Bench, slot: i32, floor: Duration) -> (i64, i64, i64) {
    match bench.client.prune(Ring::Queue, Some(Slot(slot)), floor).await.unwrap() {
        PruneOutcome::Pruned { carried_failed_rows, folded_failed, folded_other, .. } => {
            (carried_failed_rows, folded_failed, folded_other)
        }
        other => panic!("{other}"),
    }
}

/// Seals the open slot and prunes it.
async fn turn(bench: &Bench, floor: Duration) -> (i64, i64, i64) {
    let open = bench.client.ring(Ring::Queue).await.unwrap().current.slot.0;
    bench.client.rotate(Ring::Queue).await.unwrap();
    prune(bench, open, floor).await
}

/// Everything that the public surface says of failed jobs, but where it is stored.
async fn failures(bench: &Bench) -> Vec<String> {
    bench
        .texts(
            "select (to_jsonb(t) - 'ready_slot' - 'ready_generation')::text from S.terminal_jobs t
              where state = 'failed' order by job_id",
        )
        .await
}

/// Fails, for good and in all lanes, a job that has everything that a job can have and was tried before.
async fn fail_rich_jobs(bench: &Bench) -> Vec<JobId> {
    bench.client.declare_queue("q", 2).await.unwrap();
    let rich = |n: i64| {
        let job = Job::new("rich", &json!({"n": n, "text": "ü\n\"", "deep": [[{"x": 1.5e3}]]}));
        let job = job.unwrap().queue("q").unwrap().tag("a").unwrap().tag("b").unwrap();
        let job = job.metadata("who", json!({"id": n})).unwrap().max_attempts(7).unwrap();
        job.shard(n % 2).unwrap().priority(1 + n % 4).unwrap()
    };
    let ids = bench.client.enqueue_many((0..8).map(rich).collect()).await.unwrap();
    bench.execute("update S.ready_entries set unique_key = '\\xdeadbeef', unique_states = 5").await;
    let soon = Some(Span::ZERO);
    for last in [false, true] {
        bench.execute("update S.deferred_jobs set run_at = now() - interval '1 day'").await;
        bench.client.promote_due(100).await.unwrap();
        let ending = |job| match last {
            true => Finished::failed_for_good(job, b"the second time"),
            false => Finished::failed(job, b"the first time", soon),
        };
        let ended = bench.finish(claim_all(bench).await.iter().map(ending).collect()).await;
        assert_eq!(ended.closed.len(), 8);
    }
    ids
}

/// Claims what waits in any lane.
async fn claim_all(bench: &Bench) -> Vec<awa::core::ClaimedJob> {
    let mut all = Vec::new();
    for lane in bench.texts("select lane_id::text from S.queue_lanes order by lane_id").await {
        let lane = awa::core::LaneId(lane.parse().unwrap());
        let claim = Claim::new(lane, Window::default(), 100, limits::CLAIM_BYTES_MAX, None);
        match bench.client.run(claim.unwrap()).await.unwrap() {
            ClaimOutcome::Claimed { jobs, .. } => all.extend(jobs),
            ClaimOutcome::Refused { refusal, .. } => panic!("{refusal}"),
        }
    }
    all
}

/// R032-02, R032-03, R032-04, R032-05, R032-15: failures of all lanes with everything that a job can have
/// arrive as they were, in the open segment, wide, needing no ready row, with a delta for each lane and
/// bucket as if they had failed there. Successes and cancellations are not carried.
#[tokio::test]
async fn a_carried_failure_is_the_row_that_it_was() {
    let bench = Bench::new().await;
    let failed = fail_rich_jobs(&bench).await;
    bench.client.enqueue(job(1).tag("general").unwrap()).await.unwrap();
    bench.enqueue(1).await;
    let succeeded = claim_all(&bench).await;
    assert_eq!(succeeded.len(), 2);
    bench.finish(succeeded.iter().map(Finished::completed).collect()).await;
    let cancelled = bench.enqueue(1).await[0];
    bench.client.cancel(cancelled).await.unwrap();
    let before = failures(&bench).await;
    assert_eq!(before.len(), 8);
    assert!(before.iter().all(|row| row.contains("\"errors\"") && row.contains("xdeadbeef")));
    let states =
        bench.texts("select state from S.done_entries group by state order by state").await;
    assert_eq!(states, ["cancelled", "completed", "failed"]);

    // Past the first use of each slot, so that slot and generation are not one number.
    for _ in 0..15 {
        bench.client.rotate(Ring::Queue).await.unwrap();
    }
    for slot in 1..=14 {
        assert_eq!(prune(&bench, slot, HOUR).await, (0, 0, 0));
    }
    bench.client.rotate(Ring::Queue).await.unwrap();
    bench.client.rotate(Ring::Queue).await.unwrap();
    let to = Segment { slot: Slot(2), generation: Generation(18) };
    assert_eq!(bench.client.ring(Ring::Queue).await.unwrap().current, to);
    assert_eq!(prune(&bench, 0, HOUR).await, (8, 0, 3));

    assert_eq!(failures(&bench).await, before);
    assert_eq!(bench.rows("ready_entries").await, 0, "the bodies came along");
    let wide = "select count(*) from S.done_entries
        where ready_slot = 2 and ready_generation = 18 and state = 'failed' and args is not null
          and max_attempts = 7 and run_at is not null and created_at is not null
          and unique_key is not null and unique_states = 5";
    assert_eq!((bench.number(wide).await, bench.rows("done_entries").await), (8, 8));
    let deltas = bench
        .texts(
            "select format('%s %s %s %s %s %s', ready_slot, ready_generation, lane_id, counter_bucket, state, delta)
               from S.queue_terminal_count_deltas order by 1",
        )
        .await;
    let as_if_failed_there = bench
        .texts(
            "select format('2 18 %s %s failed %s', lane_id, job_id % 8, count(*))
               from S.done_entries group by lane_id, job_id % 8 order by 1",
        )
        .await;
    assert_eq!(deltas, as_if_failed_there);
    let ids = bench.texts("select job_id::text from S.done_entries order by job_id").await;
    assert_eq!(ids, failed.iter().map(|id| id.0.to_string()).collect::<Vec<_>>());
}

/// R032-02, R032-06, H27: in a whole prune, by the database's clock: the failure finalised exactly at
/// `now − floor` and the one a microsecond later are carried, the one a microsecond earlier is folded.
#[tokio::test]
async fn the_cutoff_itself_is_inside_the_floor() {
    let bench = Bench::new().await;
    let failed = bench.fail(3).await;
    bench.client.rotate(Ring::Queue).await.unwrap();
    let floor = Floor::new(Span::from_secs(3600));
    let mut pruning = Stepwise::begin(&bench, Prune::oldest(Ring::Queue, floor)).await;
    pruning.until("ExcludeWriters").await;
    let cutoff = pruning.ahead().find_map(|step| match step {
        Step::SurveyTerminal { cutoff, .. } => *cutoff,
        _ => None,
    });
    let Some(Cutoff(at)) = cutoff else { panic!("a floor has a cutoff") };
    for (job, us) in failed.iter().zip([-1, 0, 1]) {
        bench
            .execute(&format!(
                "update S.done_entries set finalized_at = timestamptz 'epoch' + {} * interval '1 us'
                  where job_id = {}",
                at.unix_us() + us,
                job.0
            ))
            .await;
    }
    let expected = PruneOutcome::Pruned {
        slot: Slot(0),
        generation: Generation(1),
        carried_failed_rows: 2,
        folded_failed: 1,
        folded_other: 0,
    };
    assert_eq!(pruning.finish().await.unwrap().unwrap(), expected);
    let kept = bench.texts("select job_id::text from S.done_entries order by job_id").await;
    assert_eq!(kept, [failed[1].0.to_string(), failed[2].0.to_string()]);
    let counts = bench.client.counts("q").await.unwrap();
    assert_eq!((counts.failed, counts.pruned_failed), (2, 1));
}

/// R032-01, H27: the floor counts in whole seconds, a part of one is dropped; zero is off; anything longer
/// than time keeps everything, also what failed when time began.
#[tokio::test]
async fn the_floor_is_in_whole_seconds_and_any_length_is_safe() {
    let bench = Bench::new().await;
    bench.fail(2).await;
    let aged = "update S.done_entries set finalized_at = now() - interval '1000.5 s'
         where job_id = (select min(job_id) from S.done_entries);
        update S.done_entries set finalized_at = 'epoch'
         where job_id = (select max(job_id) from S.done_entries)";
    bench.execute(aged).await;
    // 1000.999 s are 1000: the one that failed 1000.5 s ago is past it. 1100 s: it is inside.
    assert_eq!(turn(&bench, Duration::from_secs(1100)).await, (1, 1, 0));
    assert_eq!(turn(&bench, Duration::from_millis(1_000_999)).await, (0, 1, 0));

    bench.fail(3).await;
    bench.execute("update S.done_entries set finalized_at = '4713-01-01 BC'").await;
    let lengths = [
        Duration::MAX,
        Duration::from_secs(u64::MAX),
        Duration::from_secs(i64::MAX.unsigned_abs()),
        Duration::from_micros(u64::MAX),
    ];
    for for_ever in lengths {
        assert_eq!(turn(&bench, for_ever).await, (3, 0, 0), "{for_ever:?}");
    }
    bench.execute("update S.done_entries set finalized_at = now() + interval '1 day'").await;
    assert_eq!(turn(&bench, Duration::from_secs(1)).await, (3, 0, 0), "any floor keeps these");
    assert_eq!(turn(&bench, Duration::from_nanos(999_999_999)).await, (0, 3, 0), "that is zero");
    assert_eq!(bench.client.counts("q").await.unwrap().pruned_failed, 5);
}

/// R032-06: the permanent counts come from the rows that are truncated. The counters, which say nothing
/// true here, have no part in it.
#[tokio::test]
async fn the_fold_counts_rows_and_not_counters() {
    let bench = Bench::new().await;
    bench.fail(4).await;
    bench.enqueue(2).await;
    bench.complete(2).await;
    bench.execute("update S.done_entries set finalized_at = 'epoch' where job_id % 2 = 0").await;
    bench
        .execute(
            "delete from S.queue_terminal_count_deltas;
             insert into S.queue_terminal_live_counts (ready_slot, counter_bucket, lane_id, state, count)
             select 0, 0, lane_id, 'failed', 4711 from S.queue_lanes",
        )
        .await;
    assert_eq!(turn(&bench, HOUR).await, (2, 2, 2));
    let counts = bench.client.counts("q").await.unwrap();
    assert_eq!((counts.failed, counts.pruned_failed, counts.pruned_other), (2, 2, 2));
    let rollups = bench.texts(
        "select format('%s %s', pruned_completed_count, pruned_failed_count) from S.queue_terminal_rollups",
    );
    assert_eq!(rollups.await, ["2 2"], "and no row for a lane that folds nothing");
}

/// R032-08: what is lost is counted for each queue, over all its lanes, and never goes down: not by a
/// retry, a discard, a rebuild or a prune that drops nothing.
#[tokio::test]
async fn what_left_the_ring_is_counted_for_ever() {
    let bench = Bench::new().await;
    bench.client.declare_queue("other", 1).await.unwrap();
    let (mut lost, mut last) = (0, 0);
    for n in 1..=4 {
        let kept = bench.fail(n).await;
        let floor = if n % 2 == 0 { Duration::ZERO } else { HOUR };
        let (_, folded, _) = turn(&bench, floor).await;
        lost += folded;
        bench.client.retry(kept[0]).await.unwrap();
        if n % 2 == 1 {
            bench.complete(1).await;
            let which = TerminalFilter::Job(*kept.last().unwrap());
            bench.client.discard_failed(which).await.unwrap();
        }
        bench.client.rebuild_counts().await.unwrap();
        let counts = bench.client.counts("q").await.unwrap();
        assert_eq!(counts.pruned_failed, lost);
        assert!(counts.pruned_failed >= last);
        last = counts.pruned_failed;
        assert_eq!(bench.client.counts("other").await.unwrap().pruned_failed, 0);
    }
    // 2 of the second turn; of the fourth all 4, and the one that the third left behind.
    assert_eq!(lost, 7);
    let told = bench.client.retry_failed_by_queue("q").await.unwrap().pruned_failed_count;
    assert_eq!(told, Some(7));
    assert_eq!(
        bench.client.retry_failed_by_queue("other").await.unwrap().pruned_failed_count,
        Some(0)
    );
}

/// R032-09, R032-10: `matched` is what the scan found before; where another operator takes a job in
/// between, fewer are retried, and the two numbers say so. By kind nothing is said of what was pruned.
#[tokio::test]
async fn a_retry_tells_what_matched_from_what_raced() {
    let bench = Bench::new().await;
    bench.fail(2).await;
    turn(&bench, Duration::ZERO).await;
    let failed = bench.fail(3).await;
    let queue = || TerminalFilter::Queue(awa::QueueName::new("q").unwrap());
    let mut scan = RetryFailed::new(queue(), i64::MAX).unwrap();
    let mut piece = Stepwise::begin(&bench, scan.next().unwrap()).await;
    piece.until("RetryTerminal").await;
    let which = TerminalFilter::Job(failed[1]);
    assert_eq!(bench.client.discard_failed(which).await.unwrap().discarded, [failed[1]]);
    let moved: PieceOutcome = piece.finish().await.unwrap().unwrap();
    scan.take(moved).unwrap();
    assert!(scan.next().is_none());
    let outcome = scan.outcome();
    assert_eq!(outcome.retried, [failed[0], failed[2]]);
    assert_eq!((outcome.matched, outcome.pruned_failed_count), (3, Some(2)));

    bench.complete(2).await;
    bench.fail(1).await;
    let by_kind = bench.client.retry_failed_by_kind("k").await.unwrap();
    assert_eq!((by_kind.matched, by_kind.retried.len(), by_kind.pruned_failed_count), (1, 1, None));
    let none = bench.client.retry_failed_by_kind("no such kind").await.unwrap();
    assert_eq!((none.matched, none.retried.len(), none.pruned_failed_count), (0, 0, None));
    let unknown = bench.client.retry_failed_by_queue("nowhere").await.unwrap_err();
    assert!(unknown.as_user_error().is_some(), "{unknown}");
}

/// R032-11, R032-15: 72 hours unless told otherwise, for maintenance and in the rules alike; the lease and
/// the claim ring carry nothing, whatever the floor.
#[tokio::test]
async fn one_knob_and_only_for_the_queue_ring() {
    let three_days = Duration::from_secs(3 * 24 * 3600);
    assert_eq!(Maintenance::default().failed_retention, three_days);
    assert_eq!(Floor::DEFAULT, Floor::new(three_days.into()));
    let bench = Bench::new().await;
    bench.fail(1).await;
    for ring in [Ring::Lease, Ring::Claim] {
        bench.client.rotate(ring).await.unwrap();
        let expected = PruneOutcome::Pruned {
            slot: Slot(0),
            generation: Generation(1),
            carried_failed_rows: 0,
            folded_failed: 0,
            folded_other: 0,
        };
        assert_eq!(bench.client.prune(ring, None, Duration::MAX).await.unwrap(), expected);
    }
    assert_eq!(bench.client.counts("q").await.unwrap().failed, 1);
}

/// R032-17: the TLA+ model has the carried class inside it; the suite checks it, and the twins with the
/// shard bug and with the forgotten carry, by the invariants that they break.
#[test]
fn the_model_of_a_sharded_prune_is_checked_with_its_twins() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let read = |path: &str| std::fs::read_to_string(root.join("correctness").join(path)).unwrap();
    let model = read("storage/AwaShardedPrune.tla");
    for inside in ["CarryForward", "FoldRollup", "ExactCounts", "FailedInsideFloorSurvives"] {
        assert!(model.contains(inside), "{inside}");
    }
    assert!(read("storage/MAPPING.md").contains("CarryForward"));
    let suite: serde_json::Value = serde_json::from_str(&read("suite.json")).unwrap();
    let entry = |name: &str| {
        let models = suite["models"].as_array().unwrap();
        models.iter().find(|m| m["name"] == name).unwrap_or_else(|| panic!("{name}")).clone()
    };
    let spec = "storage/AwaShardedPrune.tla";
    assert_eq!((&entry("main")["expect"], &entry("main")["spec"]), (&json!("pass"), &json!(spec)));
    for (twin, breaks) in [
        ("gate-ignores-shard", "EachJobInOnePlace"),
        ("forgotten-carry", "FailedInsideFloorSurvives"),
    ] {
        let twin = entry(twin);
        assert_eq!((&twin["kind"], &twin["violates"]), (&json!("twin"), &json!(breaks)));
        let config = read(&format!("storage/{}", twin["config"].as_str().unwrap()));
        assert!(config.contains(breaks), "the twin's configuration does not check {breaks}");
    }
}

/// Law 15: history is as old as the newest end in its slot, which may come long after the slot was sealed, on
/// either path; also where the slot holds much. Of what ended before the sealing, nobody need know.
#[tokio::test]
async fn history_counts_from_its_newest_end() {
    let bench = Bench::new().await;
    let late = [bench.enqueue(1).await[0], {
        bench.client.rotate(Ring::Queue).await.unwrap();
        bench.enqueue(1).await[0]
    }];
    let claimed = bench.claim(2).await;
    bench.client.rotate(Ring::Queue).await.unwrap();
    bench.enqueue(1).await;
    bench.complete(1).await;
    bench.client.rotate(Ring::Queue).await.unwrap();
    let much = "insert into S.done_entries (ready_slot, attempt, ready_generation, lane_id, lane_seq, job_id,
                    run_lease, finalized_at, state, kind)
         select 3, 1, 4, lane_id, 100000 + n, 100000 + n, 1, now() - interval '1 day' + n * interval '1 ms',
                'cancelled', 'k'
           from S.queue_lanes, generate_series(1, 20000) as n
          where queue = 'q' and priority = 2 order by n";
    bench.execute(much).await;
    bench
        .finish(vec![
            Finished::completed(&claimed[0]),
            Finished::failed_for_good(&claimed[1], b"no"),
        ])
        .await;

    let (view, loads) = bench.client.measure(Ring::Queue, HOUR).await.unwrap();
    let sealed = |slot: usize| view.slots[slot].sealed_at.unwrap();
    for (slot, job) in late.iter().enumerate() {
        let ended = bench.client.load(*job).await.unwrap().unwrap().finalized_at;
        assert_eq!(loads[slot].newest_fact_at, ended);
        assert!(ended > Some(sealed(slot)), "the slot was sealed before");
    }
    assert!(loads[2].newest_fact_at <= Some(sealed(2)));
    let newest = "select extract(epoch from max(finalized_at)) * 1000000 from S.done_entries_3";
    let newest = Instant::from_unix_us(bench.number(newest).await);
    assert_eq!(loads[3].newest_fact_at, Some(newest));
    assert_eq!(loads[4].newest_fact_at, None);
    for ring in [Ring::Lease, Ring::Claim] {
        let (_, loads) = bench.client.measure(ring, HOUR).await.unwrap();
        assert!(loads.iter().all(|load| load.newest_fact_at.is_none()));
    }
}
