//! Producers never wait for one another, and whatever they commit is claimed once: in whatever order
//! they commit, from whatever snapshot, into whatever slot.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use awa::core::machine::close::Finished;
use awa::core::{ClaimedJob, Window};
use awa::tokio_postgres::{IsolationLevel, Transaction};
use awa::{CancelOutcome, JobId, PruneOutcome, Ring, Slot};
use awa_devpg::{Options, Server};
use common::{Bench, connect, connect_to, job};
use tokio::sync::Barrier;

fn ids(jobs: &[ClaimedJob]) -> Vec<JobId> {
    jobs.iter().map(|job| job.receipt.job).collect()
}

async fn enqueue_one(bench: &Bench, transaction: &Transaction<'_>) -> JobId {
    bench.client.enqueue_in(transaction, vec![job(0)]).await.unwrap()[0]
}

/// H01: positions that a rollback took are gaps, and so is a cancelled job's: the claim steps over them.
#[tokio::test]
async fn gaps_of_rollbacks_and_cancels_are_stepped_over() {
    let bench = Bench::new().await;
    let mut producer = connect().await;
    let rolled_back = producer.transaction().await.unwrap();
    bench.client.enqueue_in(&rolled_back, (0..7).map(job).collect()).await.unwrap();
    rolled_back.rollback().await.unwrap();
    let a = bench.client.enqueue(job(1)).await.unwrap();
    let b = bench.client.enqueue(job(2)).await.unwrap();
    assert_eq!((a, b), (JobId(8), JobId(9)), "the rollback gave no position back");
    assert_eq!(bench.client.cancel(a).await.unwrap(), CancelOutcome::Cancelled);
    let (jobs, window) = bench.claim_from(Window::default(), 10).await;
    assert_eq!(ids(&jobs), [b]);
    assert_eq!(ids(&bench.claim_from(window, 10).await.0), [], "nothing is claimed twice");
}

/// H01: several gaps, some of them inside the stretch of positions that is spent already, one of them
/// as wide as a crash leaves it; with a window and with none (a restarted worker) the claims are exact.
#[tokio::test]
async fn gaps_inside_the_spent_range_and_after_a_crash_cost_no_job() {
    let bench = Bench::new().await;
    let mut producer = connect().await;
    let (mut window, mut expected, mut claimed) = (Window::default(), Vec::new(), Vec::new());
    for round in 0..12 {
        for _ in 0..3 {
            expected.extend(bench.enqueue(2).await);
            let rolled_back = producer.transaction().await.unwrap();
            enqueue_one(&bench, &rolled_back).await;
            rolled_back.rollback().await.unwrap();
        }
        if round == 5 {
            // After a crash a sequence goes on where its last WAL record says: up to 32 values on.
            bench
                .execute("select setval('S.position_seq', last_value + 32) from S.position_seq")
                .await;
        }
        let cancelled = expected.remove(expected.len() - 3);
        assert_eq!(bench.client.cancel(cancelled).await.unwrap(), CancelOutcome::Cancelled);
        // Every third round leaves some for the next, and every fourth remembers nothing.
        let from = if round % 4 == 3 { Window::default() } else { window };
        let (jobs, next) = bench.claim_from(from, if round % 3 == 2 { 3 } else { 100 }).await;
        claimed.extend(ids(&jobs));
        window = next;
    }
    claimed.extend(ids(&bench.claim_from(window, 100).await.0));
    assert_eq!(claimed, expected, "in order, each once");
    assert_eq!(bench.claim(100).await, []);
}

/// H02: the later position commits first and is claimed; the earlier is found when it commits, by the
/// claimer that went past it and by one that remembers nothing. Nobody waited.
#[tokio::test]
async fn a_later_position_may_commit_first() {
    for forgets in [false, true] {
        let bench = Bench::alone().await;
        let (mut one, mut two) = (connect_to(&bench).await, connect_to(&bench).await);
        let (first, second) = (one.transaction().await.unwrap(), two.transaction().await.unwrap());
        // A producer that waited would fail here, and not hang the test.
        second.batch_execute("set local lock_timeout = '60s'").await.unwrap();
        let earlier = enqueue_one(&bench, &first).await;
        let later = enqueue_one(&bench, &second).await;
        assert!(earlier < later);
        second.commit().await.unwrap();
        let (jobs, window) = bench.claim_from(Window::default(), 10).await;
        assert_eq!(ids(&jobs), [later], "an open producer holds nobody up");
        assert_eq!(bench.ungranted().await, 0);
        let window = if forgets { Window::default() } else { window };
        let (jobs, window) = bench.claim_from(window, 10).await;
        assert_eq!(jobs, []);
        first.commit().await.unwrap();
        let (jobs, window) = bench.claim_from(window, 10).await;
        assert_eq!(ids(&jobs), [earlier]);
        assert_eq!(bench.claim_from(window, 10).await.0, []);
    }
}

/// H03: a REPEATABLE READ and a SERIALIZABLE producer read before a rotation and enqueue after it, beside
/// a READ COMMITTED one; the slot that they know has been pruned meanwhile. Their rows lie there under
/// the old generation, are claimed once, and hold the slot until they are done.
#[tokio::test]
async fn a_producer_in_an_old_snapshot_writes_to_a_slot_that_is_gone() {
    let bench = Bench::alone().await;
    let mut window = Window::default();
    // The job of this round, and in the second one what the first round's last producer left.
    for (ended, level) in [(1, IsolationLevel::RepeatableRead), (2, IsolationLevel::Serializable)] {
        let open = bench.client.ring(Ring::Queue).await.unwrap().current;
        let (mut old, mut new) = (connect_to(&bench).await, connect_to(&bench).await);
        let snapshot = old.build_transaction().isolation_level(level).start().await.unwrap();
        let read = "select current_slot from S.queue_ring_state";
        let seen: i32 = snapshot.query_one(&bench.spelled(read), &[]).await.unwrap().get(0);
        assert_eq!(Slot(seen), open.slot);

        bench.enqueue(1).await;
        bench.complete(1).await;
        bench.client.rotate(Ring::Queue).await.unwrap();
        let pruned = bench.client.prune(Ring::Queue, Some(open.slot), Duration::ZERO).await;
        assert!(
            matches!(pruned, Ok(PruneOutcome::Pruned { folded_other, .. }) if folded_other == ended),
            "{pruned:?}"
        );

        let committed = new.transaction().await.unwrap();
        committed.batch_execute("set local lock_timeout = '60s'").await.unwrap();
        let stale = enqueue_one(&bench, &snapshot).await;
        let call = bench.spelled("select S.enqueue('q', 'k', '{}')");
        let called = JobId(snapshot.query_one(&call, &[]).await.unwrap().get(0));
        let fresh = enqueue_one(&bench, &committed).await;
        snapshot.commit().await.unwrap();
        committed.commit().await.unwrap();
        let there = format!(
            "select count(*) from S.ready_entries_{seen} where ready_generation = {}",
            open.generation.0
        );
        assert_eq!(bench.number(&there).await, 2, "in the slot that was pruned");

        let (jobs, next) = bench.claim_from(window, 10).await;
        assert_eq!(ids(&jobs), [stale, called, fresh], "each once, in lane order");
        window = next;
        let (none, _) = bench.claim_from(Window::default(), 10).await;
        assert_eq!(none, []);
        bench.finish(jobs.iter().map(Finished::completed).collect()).await;
    }
    // The ring comes round to the slots again, which takes the rows of the old generations with it.
    for _ in 0..20 {
        bench.client.rotate(Ring::Queue).await.unwrap();
        bench.client.prune_oldest(Duration::ZERO).await.unwrap();
    }
    let counts = bench.client.counts("q").await.unwrap();
    assert_eq!((counts.total(), counts.pruned_other), (8, 8), "{counts:?}");
    assert_eq!(bench.rows("ready_entries").await, 0);
}

/// H04, H03: a producer whose snapshot is older than a whole wrap of the ring: the slot that it knows is
/// open again as another generation when it commits. Its job is claimed from there, and the gates,
/// which ignore generation, keep the slot until the job is done.
#[tokio::test]
async fn a_producer_older_than_a_whole_wrap_is_claimed_from_its_reused_slot() {
    let bench = Bench::new().await;
    let mut old = connect().await;
    let repeatable = old.build_transaction().isolation_level(IsolationLevel::RepeatableRead);
    let producing = repeatable.start().await.unwrap();
    producing.execute("select pg_current_xact_id()", &[]).await.unwrap();
    let mut window = Window::default();
    let mut turn = 0;
    while turn == 0 || bench.client.ring(Ring::Queue).await.unwrap().current.slot != Slot(0) {
        turn += 1;
        bench.enqueue(1).await;
        let (jobs, next) = bench.claim_from(window, 10).await;
        window = next;
        assert_eq!(jobs.len(), 1, "turn {turn}: an open producer holds nobody up");
        bench.finish(jobs.iter().map(Finished::completed).collect()).await;
        bench.client.rotate(Ring::Queue).await.unwrap();
        bench.client.prune_oldest(Duration::ZERO).await.unwrap();
    }
    let id = enqueue_one(&bench, &producing).await;
    let again = bench.client.ring(Ring::Queue).await.unwrap().current;
    producing.commit().await.unwrap();
    assert_eq!((turn, again.generation.0), (16, 17));
    let label = "select ready_generation from S.ready_entries_0";
    assert_eq!(bench.number(label).await, 1, "under the label of sixteen generations ago");

    bench.client.rotate(Ring::Queue).await.unwrap();
    let waiting = bench.client.prune(Ring::Queue, Some(Slot(0)), Duration::ZERO).await.unwrap();
    assert!(
        matches!(waiting, PruneOutcome::SkippedActive { slot: Slot(0), witness, .. } if witness == id.0),
        "{waiting}"
    );
    let (jobs, _) = bench.claim_from(window, 10).await;
    assert_eq!(ids(&jobs), [id]);
    let running = bench.client.prune(Ring::Queue, Some(Slot(0)), Duration::ZERO).await.unwrap();
    assert!(matches!(running, PruneOutcome::SkippedActive { slot: Slot(0), .. }), "{running}");
    bench.finish(jobs.iter().map(Finished::completed).collect()).await;
    let done = bench.client.prune(Ring::Queue, Some(Slot(0)), Duration::ZERO).await.unwrap();
    assert!(matches!(done, PruneOutcome::Pruned { slot: Slot(0), folded_other: 1, .. }), "{done}");
    assert_eq!(bench.client.counts("q").await.unwrap().total(), 17);
}

/// H61: eight producers enqueue, by the library, by the SQL function and by a bulk statement, and all hold
/// their transactions open at once: none waited for another, and nobody waits now.
#[tokio::test(flavor = "multi_thread")]
async fn eight_open_producers_hold_nobody_up() {
    let bench = Arc::new(Bench::alone().await);
    let (enqueued, looked) = (Arc::new(Barrier::new(9)), Arc::new(Barrier::new(9)));
    let producers = (0..8).map(|n| {
        let (bench, enqueued, looked) =
            (Arc::clone(&bench), Arc::clone(&enqueued), Arc::clone(&looked));
        tokio::spawn(async move {
            let mut sql = connect_to(&bench).await;
            let transaction = sql.transaction().await.unwrap();
            // A producer that waited would fail here, and not hang the test.
            transaction.batch_execute("set local lock_timeout = '60s'").await.unwrap();
            let made = if n % 4 == 3 {
                let call = bench.spelled(
                    "select S.enqueue('q', 'k', to_jsonb(g)) from generate_series(1, 5) g",
                );
                transaction.query(&call, &[]).await.map(|rows| rows.len()).ok()
            } else {
                let jobs = (0..if n % 4 == 2 { 5 } else { 1 }).map(job).collect();
                bench.client.enqueue_in(&transaction, jobs).await.map(|ids| ids.len()).ok()
            };
            enqueued.wait().await;
            looked.wait().await;
            transaction.commit().await.unwrap();
            made.expect("no producer waits for another")
        })
    });
    let producers: Vec<_> = producers.collect();
    enqueued.wait().await;
    // All eight have written and none has ended.
    assert_eq!(bench.ungranted().await, 0);
    let open = "select count(*) from pg_stat_activity where datname = current_database()
                  and state = 'idle in transaction' and backend_xid is not null";
    assert_eq!(bench.number(open).await, 8);
    assert_eq!(bench.claim(100).await, [], "nothing is visible yet");
    looked.wait().await;
    let mut made = 0;
    for producer in producers {
        made += producer.await.unwrap();
    }
    assert_eq!(made, 24);
    assert_eq!(bench.claim(100).await.len(), made);
}

/// H02, H61, H05: a storm. Six producers commit and roll back batches of their own pace, three claimers
/// with memories of their own claim, one of them rolling back now and then. Every committed job is
/// claimed exactly once.
#[tokio::test(flavor = "multi_thread")]
async fn in_a_storm_every_job_is_claimed_once() {
    let bench = Arc::new(Bench::new().await);
    let (finished, claims) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let producers: Vec<_> = (0..6_u64)
        .map(|n| {
            let (bench, finished) = (Arc::clone(&bench), Arc::clone(&finished));
            let claims = Arc::clone(&claims);
            tokio::spawn(async move {
                let mut sql = connect().await;
                let mut kept = Vec::new();
                for round in 0..40_u64 {
                    let transaction = sql.transaction().await.unwrap();
                    let size = (n * 7 + round * 5) % 4 + 1;
                    let jobs = (0..size).map(|i| job(i as i64)).collect();
                    let made = bench.client.enqueue_in(&transaction, jobs).await.unwrap();
                    // Stays open while so many claims go by.
                    let until = claims.load(Ordering::Acquire) + (n * 3 + round) % 8;
                    while claims.load(Ordering::Acquire) < until {
                        tokio::task::yield_now().await;
                    }
                    if (n + round) % 6 == 0 {
                        transaction.rollback().await.unwrap();
                    } else {
                        transaction.commit().await.unwrap();
                        kept.extend(made);
                    }
                }
                finished.fetch_add(1, Ordering::AcqRel);
                kept
            })
        })
        .collect();
    let lane = bench.lane().await;
    let claimers: Vec<_> = (0..3)
        .map(|n| {
            let (bench, finished) = (Arc::clone(&bench), Arc::clone(&finished));
            let claims = Arc::clone(&claims);
            tokio::spawn(async move {
                let (mut window, mut taken, mut round) = (Window::default(), Vec::new(), 0);
                loop {
                    let over = finished.load(Ordering::Acquire) == 6;
                    round += 1;
                    if n == 0 && round % 4 == 0 {
                        let claim = claim_of(lane, window.clone());
                        bench.client.run(common::Staged::undone(claim)).await.unwrap();
                    }
                    let (jobs, next) = bench.claim_from(window, 9).await;
                    window = next;
                    claims.fetch_add(1, Ordering::AcqRel);
                    if over && jobs.is_empty() {
                        return taken;
                    }
                    taken.extend(ids(&jobs));
                }
            })
        })
        .collect();
    let mut expected = Vec::new();
    for producer in producers {
        expected.extend(producer.await.unwrap());
    }
    let mut taken = Vec::new();
    for claimer in claimers {
        taken.extend(claimer.await.unwrap());
    }
    let (made, claimed) = (expected.len(), taken.len());
    let (expected, taken) = (BTreeSet::from_iter(expected), BTreeSet::from_iter(taken));
    assert_eq!(expected.difference(&taken).collect::<Vec<_>>(), [] as [&JobId; 0], "lost");
    assert_eq!(claimed, made, "and none twice");
    assert_eq!(bench.claim(100).await, [], "nor is anything left");
}

fn claim_of(lane: awa::core::LaneId, window: Window) -> awa::core::machine::claim::Claim {
    let bytes = awa::limits::CLAIM_BYTES_MAX;
    awa::core::machine::claim::Claim::new(lane, window, 9, bytes, None).unwrap()
}

/// H62: while one producer stays open for as long as it likes, others enqueue and are claimed. The rows
/// that a claim reads, of bodies and of evidence, stay as few as without it; its own job is found when
/// it commits, for the price of the gaps since.
#[tokio::test]
async fn an_open_producer_leaves_the_cost_of_claims_flat() {
    // Whoever has a transaction id on the server makes a claim look at evidence again that had been written
    // since it was given: a server of its own has no other tests.
    let options = Options { ignore_database_url: true, ..Options::default() };
    let server = Server::acquire(&options).unwrap();
    let mut bench = Bench::at(server.url(), "awa").await;
    let slow = connect_to(&bench).await;
    let mut window = Window::default();
    let mut costs = Vec::new();
    for phase in 0..4 {
        // Phase 0 is the measure: nobody is open. Then the producer opens and stays.
        if phase == 1 {
            slow.batch_execute("begin").await.unwrap();
            let call = bench.spelled("select S.enqueue('q', 'slow')");
            slow.execute(&call, &[]).await.unwrap();
        }
        bench.settle(1).await;
        let before = reads(&bench).await;
        for _ in 0..30 {
            bench.enqueue(40).await;
            let (jobs, next) = bench.claim_from(window, 100).await;
            window = next;
            assert_eq!(jobs.len(), 40);
        }
        bench.settle(1).await;
        let after = reads(&bench).await;
        costs.push((after.0 - before.0, after.1 - before.1));
    }
    // A few rows each of the 30 claims. Were the open producer to hold the bound down, it would be all rows
    // of all rounds since.
    let evidence_max = 30 * 10;
    for (bodies, evidence) in &costs {
        assert_eq!(*bodies, 1200, "{costs:?}: what was claimed was read, and nothing else");
        assert!(*evidence <= evidence_max, "{costs:?}");
    }
    slow.batch_execute("commit").await.unwrap();
    let before = reads(&bench).await;
    let (jobs, _) = bench.claim_from(window, 100).await;
    assert_eq!(jobs.iter().map(|j| j.kind.as_str()).collect::<Vec<_>>(), ["slow"]);
    bench.settle(1).await;
    let sweep = reads(&bench).await.0 - before.0;
    assert!(sweep <= 200, "{sweep} bodies read for one job");
}

/// Rows that were read so far: bodies, evidence.
async fn reads(bench: &Bench) -> (i64, i64) {
    let columns = "seq_tup_read + coalesce(idx_tup_fetch, 0)";
    let bodies = bench.statistic(columns, "^ready_entries_").await;
    (bodies, bench.statistic(columns, "^ready_claim_attempt_batches_").await)
}
