//! A system that holds failures and has nothing to do: measured while it runs, and over days by a clock
//! that is made to run fast.
#![allow(clippy::unwrap_used)]

mod common;

use std::time::Duration;

use awa::core::rules::Floor;
use awa::core::runtime::policy::{
    HeldReason, RingAction, RingObservation, RingPolicy, RingPolicyConfig,
};
use awa::tokio_postgres::{self, NoTls};
use awa::{Client, PruneOutcome, Ring, RotateOutcome, Worker, limits};
use awa_devpg::{Options, Server};
use common::Bench;

/// What a server has done so far.
#[derive(Clone, Copy, Debug)]
struct Done {
    transactions: i64,
    wal_bytes: i64,
    rows_written: i64,
}

/// A server of the test's own: bytes of WAL are the server's, and autovacuum's transactions count too.
struct Quiet {
    server: Server,
    /// A connection to another database, so that what it asks is not counted.
    outside: tokio_postgres::Client,
}

const DATABASE: &str = "quiet";

impl Quiet {
    async fn start() -> Self {
        let settings = vec![("autovacuum".to_owned(), "off".to_owned())];
        let options = Options { ignore_database_url: true, settings, ..Options::default() };
        let server = Server::acquire(&options).unwrap();
        let (outside, connection) = tokio_postgres::connect(server.url(), NoTls).await.unwrap();
        tokio::spawn(connection);
        outside.batch_execute(&format!("create database {DATABASE}")).await.unwrap();
        Self { server, outside }
    }

    fn url(&self) -> String {
        common::of_database(self.server.url(), DATABASE)
    }

    async fn number(&self, query: &str) -> i64 {
        self.outside.query_one(&format!("select ({query})::bigint"), &[]).await.unwrap().get(0)
    }

    /// Waits until nobody is in the database, so that all that was done in it has been reported.
    async fn deserted(&self) {
        let sessions =
            format!("select count(*) from pg_stat_activity where datname = '{DATABASE}'");
        while self.number(&sessions).await > 0 {
            tokio::task::yield_now().await;
        }
    }

    async fn done(&self) -> Done {
        self.deserted().await;
        let of_database = |column: &str| {
            format!("select {column} from pg_stat_database where datname = '{DATABASE}'")
        };
        Done {
            transactions: self.number(&of_database("xact_commit + xact_rollback")).await,
            wal_bytes: self.number("pg_current_wal_insert_lsn() - '0/0'::pg_lsn").await,
            rows_written: self
                .number(&of_database("tup_inserted + tup_updated + tup_deleted"))
                .await,
        }
    }

    /// What a worker of `q` with maintenance does from its start to its end, idle for `span` in between.
    async fn worked_for(&self, span: Duration) -> Done {
        let before = self.done().await;
        let client = Client::connect(&self.url(), "awa").await.unwrap();
        let worker = Worker::new(client).queue("q", 64).unwrap();
        let worker = worker.fallback(|_| async { Ok(()) }).start().await.unwrap();
        let mut watch = worker.maintenance().unwrap().watch();
        watch.wait_for(|s| s.leading && s.rings.len() == 3).await.unwrap();
        // The measurement itself: this is how long nothing happens.
        tokio::time::sleep(span).await;
        let stats = worker.maintenance().unwrap().stats();
        assert_eq!((stats.rotated, stats.pruned, stats.carried_failed_rows), (0, 0, 0));
        worker.shutdown(Duration::from_secs(5)).await.unwrap();
        let after = self.done().await;
        Done {
            transactions: after.transactions - before.transactions,
            wal_bytes: after.wal_bytes - before.wal_bytes,
            rows_written: after.rows_written - before.rows_written,
        }
    }
}

/// A server with 100,000 failures held, and what a worker does on it that idles for `span`.
async fn idled_for(span: Duration) -> Done {
    let quiet = Quiet::start().await;
    let bench = Bench::at(&quiet.url(), "awa").await;
    bench
        .execute(
            "insert into S.done_entries (ready_slot, attempt, max_attempts, ready_generation, lane_id, lane_seq,
                    job_id, run_lease, finalized_at, run_at, created_at, state, kind, args)
             select 0, 1, 1, 1, lane_id, g, g, 1, now(), now(), now(), 'failed', 'k', '{}'
               from S.queue_lanes cross join generate_series(1, 100000) g where priority = 2;
             insert into S.queue_terminal_count_deltas
                    (ready_slot, counter_bucket, ready_generation, lane_id, delta, state)
             select ready_slot, job_id % 8, 1, lane_id, count(*), state
               from S.done_entries group by 1, 2, 4, 6;
             select setval('S.position_seq', 100000);
             checkpoint",
        )
        .await;
    assert_eq!(bench.client.counts("q").await.unwrap().failed, 100_000);
    drop(bench);
    quiet.worked_for(span).await
}

/// H33, R026-14: a worker with maintenance on a system that holds 100,000 failures and has nothing to do: at
/// most two transactions a second, next to no WAL, and not one row written. Two such workers are compared,
/// one of which idles for longer, so that neither figure holds what starting costs, when it looks more
/// often, and stopping.
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_worker_does_next_to_nothing() {
    let (short, long) = (Duration::from_secs(10), Duration::from_secs(28));
    let (less, more) = tokio::join!(idled_for(short), idled_for(long));
    let seconds = (long - short).as_secs() as i64;
    let transactions = more.transactions - less.transactions;
    let wal_bytes = more.wal_bytes - less.wal_bytes;
    println!("idle: {transactions} transactions, {wal_bytes} bytes of WAL in {seconds} s");
    assert!(transactions <= 2 * seconds, "{transactions} transactions in {seconds} s");
    assert!(transactions > 0, "it does look for work");
    for done in [less, more] {
        assert!(done.wal_bytes <= 16 << 10, "{done:?}");
        assert_eq!(done.rows_written, 0, "{done:?}");
    }
}

/// What a ring policy had done to the rings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Turns {
    rotated: usize,
    pruned: usize,
    carried: i64,
}

/// Everything that happened is so much longer ago.
async fn later(bench: &Bench, minutes: u32) {
    let rings = Ring::ALL.map(|ring| {
        format!(
            "update S.{ring}_ring_slots set opened_at = opened_at - interval '{minutes} min',
                                            sealed_at = sealed_at - interval '{minutes} min';"
        )
    });
    let facts = ["done_entries", "receipt_completion_batches"].map(|table| {
        format!("update S.{table} set finalized_at = finalized_at - interval '{minutes} min';")
    });
    bench.execute(&(rings.concat() + &facts.concat())).await;
}

/// Does what the shipped policies want, as maintenance does at each look at the rings.
async fn tend(bench: &Bench, policies: &mut [(Ring, RingPolicy)], turns: &mut Turns) {
    let floor = Floor::DEFAULT.span().into();
    for (ring, policy) in policies {
        loop {
            let (view, loads) = bench.client.measure(*ring, floor).await.unwrap();
            let now = view.now;
            match policy.decide(&RingObservation { view, loads }).unwrap() {
                RingAction::Nothing { .. } => break,
                RingAction::Full { report, .. } => panic!("{report:?}"),
                RingAction::Rotate => {
                    let rotated = bench.client.rotate(*ring).await.unwrap();
                    assert!(matches!(rotated, RotateOutcome::Rotated { .. }), "{rotated:?}");
                    turns.rotated += 1;
                }
                RingAction::Prune { slots, .. } => {
                    let outcome = bench.client.prune(*ring, Some(slots[0].slot), floor).await;
                    match outcome.unwrap() {
                        PruneOutcome::Pruned { carried_failed_rows, .. } => {
                            turns.pruned += 1;
                            turns.carried += carried_failed_rows;
                            policy.handle_pruned(slots[0]);
                        }
                        PruneOutcome::Blocked { .. } | PruneOutcome::SkippedActive { .. } => {
                            policy.handle_held(slots[0], HeldReason::Active, now);
                        }
                        outcome => panic!("{outcome}"),
                    }
                }
            }
        }
    }
}

fn policies() -> Vec<(Ring, RingPolicy)> {
    let slots = |ring| match ring {
        Ring::Queue => limits::QUEUE_SLOTS,
        Ring::Lease => limits::LEASE_SLOTS,
        Ring::Claim => limits::CLAIM_SLOTS,
    };
    let policy = |ring| RingPolicy::new(RingPolicyConfig::default_of(ring, slots(ring) as usize));
    Ring::ALL.map(|ring| (ring, policy(ring))).to_vec()
}

/// H33, R032-11: one failure and one success, and then nothing, for the default floor and longer, under the
/// shipped policies, which are asked every ten minutes: the slot turns once, and the failure is rewritten
/// once, when the success's window is over. Then nothing is done at all for two days. Past the floor
/// the failure's slot turns once more, and it is dropped.
#[tokio::test]
async fn one_held_failure_is_rewritten_once_a_wrap() {
    let bench = Bench::alone().await;
    let mut policies = policies();
    let mut turns = Turns::default();
    bench.fail(1).await;
    bench.enqueue(1).await;
    bench.complete(1).await;
    let mut did = Vec::new();
    for minute in (0..100 * 60).step_by(10) {
        let before = turns;
        tend(&bench, &mut policies, &mut turns).await;
        if turns != before {
            did.push((minute / 60, turns));
        }
        later(&bench, 10).await;
    }
    let hours: Vec<_> = did.iter().map(|(hour, _)| *hour).collect();
    let turns: Vec<_> = did.iter().map(|(_, t)| (t.rotated, t.pruned, t.carried)).collect();
    // The claim ring; the queue ring's first slot is sealed, and pruned after its window; and again.
    assert_eq!(turns, [(1, 1, 0), (2, 1, 0), (2, 2, 1), (3, 2, 1), (3, 3, 1)], "{hours:?}");
    assert_eq!(hours, [0, 2, 26, 72, 96]);
    let counts = bench.client.counts("q").await.unwrap();
    assert_eq!((counts.failed, counts.pruned_failed, counts.pruned_other), (0, 1, 1));
}
