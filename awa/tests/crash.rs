//! Crashes and contention around prune.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;
use std::time::Duration;

use awa::core::machine::prune::Prune;
use awa::core::rules::Floor;
use awa::core::{Machine, Reply, Span, Turn, Window};
use awa::{Client, PruneOutcome, Ring};
use common::Bench;

/// Runs a machine, and something else before it takes its `at`-th turn.
#[derive(Clone)]
struct Interrupted<M> {
    machine: M,
    at: usize,
    turn: usize,
    interrupt: Arc<dyn Fn() + Send + Sync>,
}

impl<M: Machine> Machine for Interrupted<M> {
    type Outcome = M::Outcome;

    fn start(&mut self) -> Turn<M::Outcome> {
        self.machine.start()
    }

    fn resume(&mut self, replies: Vec<Reply>) -> Turn<M::Outcome> {
        self.turn += 1;
        if self.turn == self.at {
            (self.interrupt)();
        }
        self.machine.resume(replies)
    }
}

/// Ends every other session of the database, and waits until they are gone.
fn kill_others(sql: &awa::tokio_postgres::Client) {
    let kill = "select pg_terminate_backend(pid) from pg_stat_activity
                 where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'";
    let left = "select count(*) from pg_stat_activity
                 where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'";
    tokio::task::block_in_place(|| {
        tokio::runtime::Handle::current().block_on(async {
            sql.query(kill, &[]).await.unwrap();
            while sql.query_one(left, &[]).await.unwrap().get::<_, i64>(0) > 0 {
                tokio::task::yield_now().await;
            }
        });
    });
}

/// H26, R032-12: the backend is killed before each turn of a prune with carry. The old state stays whole,
/// counts are exact, and the prune after it does the whole work; after the last turn the new state stands.
#[tokio::test(flavor = "multi_thread")]
async fn a_prune_that_dies_leaves_the_old_or_the_new_state() {
    let floor = Floor::new(Span::from_secs(3600));
    let mut died = 0;
    for at in 1.. {
        let bench = Bench::alone().await;
        bench.fail(3).await;
        bench.enqueue(2).await;
        bench.complete(2).await;
        bench.client.rotate(Ring::Queue).await.unwrap();
        let before = bench.client.counts("q").await.unwrap();
        let Bench { client, sql, url, schema } = bench;
        let sql = Arc::new(sql);
        let killer = Arc::clone(&sql);
        let interrupt: Arc<dyn Fn() + Send + Sync> = Arc::new(move || kill_others(&killer));
        let machine = Prune::oldest(Ring::Queue, floor);
        let result = client.run(Interrupted { machine, at, turn: 0, interrupt }).await;
        // Others of its sessions were ended as well, and it may not have heard of that yet.
        let client = Client::connect(&url, &schema).await.unwrap();
        let after = client.counts("q").await.unwrap();
        match result {
            Err(error) => {
                died += 1;
                assert!(error.is_connection(), "turn {at}: {error}");
                assert_eq!(after, before, "turn {at}");
                let again = client.prune_oldest(Duration::from_secs(3600)).await.unwrap();
                assert!(
                    matches!(
                        again,
                        PruneOutcome::Pruned { carried_failed_rows: 3, folded_other: 2, .. }
                    ),
                    "turn {at}: {again}"
                );
            }
            Ok(outcome) => {
                // The interrupt came after COMMIT, or never.
                let outcome = outcome.unwrap();
                assert!(matches!(outcome, PruneOutcome::Pruned { carried_failed_rows: 3, .. }));
                assert_eq!((after.failed, after.pruned_other), (3, 2));
                break;
            }
        }
    }
    assert_eq!(died, 5, "a prune with carry has six turns");
}

/// H23, R032-14: while prune waits to keep writers out, a producer commits into the slot: the gates are
/// seen again, and the slot is skipped with the job in it.
#[tokio::test(flavor = "multi_thread")]
async fn what_commits_while_prune_waits_is_seen() {
    let bench = Bench::new().await;
    let mut slow = common::connect().await;
    let producing = slow.transaction().await.unwrap();
    let id = bench.client.enqueue_in(&producing, vec![common::job(1)]).await.unwrap()[0];
    bench.client.rotate(Ring::Queue).await.unwrap();
    let pruning = tokio::spawn({
        let client = bench.client.clone();
        async move {
            let patient = std::num::NonZeroU32::new(60_000).unwrap();
            let prune = Prune::oldest(Ring::Queue, Floor::DEFAULT).waiting(patient);
            client.run(prune).await.unwrap().unwrap()
        }
    });
    let waits = format!(
        "select count(*) from pg_locks l join pg_class c on c.oid = l.relation
          where not l.granted and l.mode = 'ShareLock' and c.relname = 'ready_entries_0'
            and c.relnamespace = to_regnamespace('{}')",
        bench.schema
    );
    while bench.number(&waits).await == 0 {
        tokio::task::yield_now().await;
    }
    producing.commit().await.unwrap();
    let outcome = pruning.await.unwrap();
    assert!(
        matches!(outcome, PruneOutcome::SkippedActive { slot: awa::Slot(0), witness, .. } if witness == id.0),
        "{outcome}"
    );
    assert_eq!(bench.claim(1).await[0].receipt.job, id);
}

/// H25, R032-13: a rotation waits for a prune to the end, so the destination of a carry cannot move.
#[tokio::test(flavor = "multi_thread")]
async fn a_rotation_waits_for_a_carry() {
    for at in 1..=5 {
        let bench = Bench::new().await;
        bench.fail(1).await;
        bench.client.rotate(Ring::Queue).await.unwrap();
        let rotating = Arc::new(std::sync::Mutex::new(None));
        let (client, slot, schema) =
            (bench.client.clone(), Arc::clone(&rotating), bench.schema.clone());
        let watcher = Arc::new(common::connect().await);
        let interrupt: Arc<dyn Fn() + Send + Sync> = Arc::new(move || {
            let client = client.clone();
            let task = tokio::spawn(async move { client.rotate(Ring::Queue).await.unwrap() });
            *slot.lock().unwrap() = Some(task);
            let waits = format!(
                "select count(*) from pg_stat_activity a, unnest(pg_blocking_pids(a.pid)) b
                  where a.query like '%\"{schema}\".queue_ring_state%'"
            );
            tokio::task::block_in_place(|| {
                tokio::runtime::Handle::current().block_on(async {
                    while watcher.query_one(&waits, &[]).await.unwrap().get::<_, i64>(0) == 0 {
                        tokio::task::yield_now().await;
                    }
                });
            });
        });
        let machine = Prune::oldest(Ring::Queue, Floor::DEFAULT);
        let outcome = bench.client.run(Interrupted { machine, at, turn: 0, interrupt }).await;
        let outcome = outcome.unwrap().unwrap();
        assert!(
            matches!(outcome, PruneOutcome::Pruned { carried_failed_rows: 1, .. }),
            "{outcome}"
        );
        let task = rotating.lock().unwrap().take().unwrap();
        task.await.unwrap();
        assert_eq!(bench.number("select ready_slot from S.done_entries").await, 1, "turn {at}");
        let current = bench.client.ring(Ring::Queue).await.unwrap().current.slot;
        assert_eq!(current, awa::Slot(2));
    }
}

/// H62: one producer stays open while others enqueue and are claimed. What a claim must look at again
/// never reaches back to the open producer; its own job is found when it commits.
#[tokio::test]
async fn an_open_producer_costs_claims_nothing() {
    let bench = Bench::alone().await;
    let mut slow = common::connect_to(&bench).await;
    let producing = slow.transaction().await.unwrap();
    let id = bench.client.enqueue_in(&producing, vec![common::job(0)]).await.unwrap()[0];
    let mut window = Window::default();
    for n in 1..=40 {
        bench.enqueue(50).await;
        let (jobs, next) = bench.claim_from(window, 50).await;
        window = next;
        assert_eq!(jobs.len(), 50);
        // Positions ascend by 50 a round; the open producer's is the first of all. What the last claim saw
        // may be of no use yet where anyone on the server was given an id just before it.
        let low = window.low(window.seen.as_ref().unwrap()).0;
        assert!(low > 50 * (n - 3), "round {n}: looks back to {low}");
        assert!(window.samples.len() <= awa::core::limits::SAMPLES_KEPT_MAX);
    }
    producing.commit().await.unwrap();
    let (jobs, next) = bench.claim_from(window, 50).await;
    assert_eq!(jobs.iter().map(|j| j.receipt.job).collect::<Vec<_>>(), [id]);
    let (jobs, _) = bench.claim_from(next, 50).await;
    assert!(jobs.is_empty());
}
