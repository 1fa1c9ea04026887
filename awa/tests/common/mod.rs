//! A private server for the test binary, and an installation of its own for each test.

// Each test binary uses a part of it.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

pub mod stepwise;

use std::sync::atomic::{AtomicU32, Ordering};

use awa::core::machine::claim::{Claim, ClaimOutcome};
use awa::core::machine::close::{Finish, FinishOutcome, Finished};
use awa::core::machine::rollup::{FindRollups, RollupPlan, RollupTick};
use awa::core::{ClaimedJob, Instant, LaneId, Window, limits};
use awa::tokio_postgres::{self, NoTls};
use awa::{Client, Job};
use awa_devpg::Server;

/// One installation, and two ways to it: the library's and plain SQL.
pub struct Bench {
    pub client: Client,
    pub schema: String,
    pub sql: tokio_postgres::Client,
    /// How its database is reached.
    pub url: String,
}

/// The server's connection string.
pub fn url() -> &'static str {
    Server::shared().unwrap_or_else(|e| panic!("{e}")).url()
}

/// The same for another database of the server. `$DATABASE_URL` may be of either form.
pub fn of_database(url: &str, name: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        // Of a key that stands twice the last value counts.
        return format!("{url} dbname={name}");
    };
    let (place, options) = rest.split_once('?').map_or((rest, None), |(p, o)| (p, Some(o)));
    let host = place.split_once('/').map_or(place, |(host, _)| host);
    let options = options.map(|options| format!("?{options}")).unwrap_or_default();
    format!("{scheme}://{host}/{name}{options}")
}

/// A plain connection.
pub async fn connect() -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// A schema's name that no other test uses.
pub fn fresh_schema() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("t{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

impl Bench {
    /// A migrated schema with the queue `q`.
    pub async fn new() -> Self {
        Self::in_schema(&fresh_schema()).await
    }

    pub async fn in_schema(schema: &str) -> Self {
        Self::at(url(), schema).await
    }

    /// The same in a database of its own, where no other test's transaction pins the horizon.
    pub async fn alone() -> Self {
        let name = fresh_schema();
        connect().await.batch_execute(&format!("create database {name}")).await.unwrap();
        Self::at(&of_database(url(), &name), &name).await
    }

    /// The same on any server.
    pub async fn at(url: &str, schema: &str) -> Self {
        awa::migrate(url, schema).await.unwrap();
        let client = Client::connect(url, schema).await.unwrap();
        client.declare_queue("q", 1).await.unwrap();
        let (sql, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
        tokio::spawn(connection);
        Self { client, schema: schema.to_owned(), sql, url: url.to_owned() }
    }

    /// `text` with `S.` standing for the quoted schema.
    pub fn spelled(&self, text: &str) -> String {
        text.replace("S.", &format!("\"{}\".", self.schema.replace('"', "\"\"")))
    }

    /// One number from the database.
    pub async fn number(&self, query: &str) -> i64 {
        let query = format!("select ({})::bigint", self.spelled(query));
        self.sql.query_one(&query, &[]).await.unwrap().get(0)
    }

    /// Runs statements as they are.
    pub async fn execute(&self, script: &str) {
        self.sql.batch_execute(&self.spelled(script)).await.unwrap();
    }

    /// Enqueues `n` jobs of kind `k` on `q`, each with its number as args. Nothing of it is under way
    /// when it returns, not even the wake.
    pub async fn enqueue(&self, n: usize) -> Vec<awa::JobId> {
        let jobs = (0..n).map(|i| job(i as i64)).collect();
        let ids = self.client.enqueue_many(jobs).await.unwrap();
        self.client.wakes_sent().await;
        ids
    }

    /// The lane of `q` with priority 2.
    pub async fn lane(&self) -> LaneId {
        LaneId(
            self.number("select lane_id from S.queue_lanes where queue = 'q' and priority = 2")
                .await,
        )
    }

    /// Claims up to `limit` jobs of the lane, with a window of no memory.
    pub async fn claim(&self, limit: i64) -> Vec<ClaimedJob> {
        self.claim_from(Window::default(), limit).await.0
    }

    /// Claims with a window, and gives the next one.
    pub async fn claim_from(&self, window: Window, limit: i64) -> (Vec<ClaimedJob>, Window) {
        let lane = self.lane().await;
        let claim = Claim::new(lane, window, limit, limits::CLAIM_BYTES_MAX, None).unwrap();
        match self.client.run(claim).await.unwrap() {
            ClaimOutcome::Claimed { jobs, window, .. } => (jobs, window),
            ClaimOutcome::Refused { refusal, .. } => panic!("{refusal}"),
        }
    }

    /// Takes finished attempts to their end.
    pub async fn finish(&self, batch: Vec<Finished>) -> FinishOutcome {
        let mut plan = Finish::new(batch);
        while let Some(close) = plan.next() {
            plan.take(self.client.run(close).await.unwrap().unwrap());
        }
        plan.into_outcome()
    }

    /// Claims `n` jobs and completes them.
    pub async fn complete(&self, n: usize) {
        let jobs = self.claim(n as i64).await;
        assert_eq!(jobs.len(), n);
        let done = self.finish(jobs.iter().map(Finished::completed).collect()).await;
        assert_eq!(done.closed.len(), n);
    }

    /// Enqueues, claims and fails `n` jobs for good.
    pub async fn fail(&self, n: usize) -> Vec<awa::JobId> {
        let ids = self.enqueue(n).await;
        let jobs = self.claim(n as i64).await;
        assert_eq!(jobs.len(), n);
        let failed = jobs.iter().map(|job| Finished::failed_for_good(job, b"broken"));
        let done = self.finish(failed.collect()).await;
        assert_eq!(done.closed.len(), n);
        ids
    }

    /// What the maintainer does at a tick of the rollup.
    pub async fn rollup_tick(&self) -> Vec<awa::RollupOutcome> {
        let plan = self.client.run(FindRollups).await.unwrap().unwrap();
        let RollupPlan::Slots(slots) = plan else { panic!("{plan:?}") };
        let mut tick = RollupTick::new(slots);
        while let Some(rollup) = tick.next_rollup() {
            tick.take(self.client.run(rollup).await.unwrap().unwrap());
        }
        tick.into_outcomes()
    }

    /// Seals every slot that can be sealed, so that the ring is full.
    pub async fn fill_ring(&self) {
        while let awa::RotateOutcome::Rotated { .. } =
            self.client.rotate(awa::Ring::Queue).await.unwrap()
        {}
    }

    /// The database's clock.
    pub async fn now(&self) -> Instant {
        self.client.clock().await.unwrap()
    }
}

/// A job of kind `k` on `q` with a number as its args.
pub fn job(number: i64) -> Job {
    Job::new("k", &number).unwrap().queue("q").unwrap()
}

/// Surveys, carries and folds slot 0 into slot 1 at a cutoff of the test's own, and rolls back. Gives
/// what was surveyed to be carried, what was carried, and what was folded as failed.
#[derive(Clone, Debug)]
pub struct CarryAt {
    pub cutoff: awa::core::rules::Cutoff,
}

impl awa::core::Machine for CarryAt {
    type Outcome = (i64, i64, i64);

    fn start(&mut self) -> awa::core::Turn<Self::Outcome> {
        use awa::core::{Generation, Segment, Slot, Step};
        let (from, cutoff) = (Slot(0), Some(self.cutoff));
        let to = Segment { slot: Slot(1), generation: Generation(2) };
        awa::core::Turn::Ask(vec![
            Step::SurveyTerminal { slot: from, cutoff },
            Step::CarryForward { from, to, cutoff: self.cutoff },
            Step::FoldRollup { slot: from, cutoff },
        ])
    }

    fn resume(&mut self, replies: Vec<awa::core::Reply>) -> awa::core::Turn<Self::Outcome> {
        use awa::core::Reply;
        match replies.as_slice() {
            [Reply::Surveyed(found), Reply::Carried { rows, .. }, Reply::Folded { failed, .. }] => {
                awa::core::Turn::Rollback((found.carried, *rows, *failed))
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Another plain connection to the bench's own database.
pub async fn connect_to(bench: &Bench) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(&bench.url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// A machine whose transaction is stopped after its last step and before its COMMIT, or is undone there.
pub struct Staged<M> {
    machine: M,
    undo: bool,
    stop: Option<(tokio::sync::oneshot::Sender<()>, std::sync::mpsc::Receiver<()>)>,
}

/// Tells when a machine has stopped, and lets it go on.
pub struct Gate {
    reached: Option<tokio::sync::oneshot::Receiver<()>>,
    go: std::sync::mpsc::Sender<()>,
}

impl<M> Staged<M> {
    /// Rolls back where the machine would commit.
    pub fn undone(machine: M) -> Self {
        Self { machine, undo: true, stop: None }
    }

    /// Stops where the machine would commit, until the gate opens. Needs a runtime of several threads.
    pub fn stopped(machine: M) -> (Self, Gate) {
        let (reaching, reached) = tokio::sync::oneshot::channel();
        let (go, going) = std::sync::mpsc::channel();
        let staged = Self { machine, undo: false, stop: Some((reaching, going)) };
        (staged, Gate { reached: Some(reached), go })
    }

    fn staged<O>(&mut self, turn: awa::core::Turn<O>) -> awa::core::Turn<O> {
        use awa::core::Turn;
        match turn {
            Turn::Last(steps) => Turn::Ask(steps),
            Turn::Commit(outcome) => {
                if let Some((reaching, going)) = self.stop.take() {
                    reaching.send(()).unwrap();
                    tokio::task::block_in_place(|| going.recv()).unwrap();
                }
                if self.undo { Turn::Rollback(outcome) } else { Turn::Commit(outcome) }
            }
            other @ (Turn::Ask(_) | Turn::Rollback(_) | Turn::Bug(_)) => other,
        }
    }
}

impl<M: awa::core::Machine> awa::core::Machine for Staged<M> {
    type Outcome = M::Outcome;

    fn start(&mut self) -> awa::core::Turn<M::Outcome> {
        let turn = self.machine.start();
        self.staged(turn)
    }

    fn resume(&mut self, replies: Vec<awa::core::Reply>) -> awa::core::Turn<M::Outcome> {
        let turn = self.machine.resume(replies);
        self.staged(turn)
    }
}

impl Gate {
    /// Waits until the machine has stopped.
    pub async fn reached(&mut self) {
        self.reached.take().unwrap().await.unwrap();
    }

    /// Lets it commit.
    pub fn open(self) {
        self.go.send(()).unwrap();
    }
}

impl Bench {
    /// Waits until `n` sessions of this database wait for a lock. For a bench that is alone.
    pub async fn blocked(&self, n: i64) {
        let waiting = async {
            while self.ungranted().await < n {
                tokio::task::yield_now().await;
            }
        };
        // Whoever does not wait never will: that is a failure, not a test that hangs.
        let patience = std::time::Duration::from_secs(60);
        tokio::time::timeout(patience, waiting).await.expect("sessions wait for a lock");
    }

    /// Sessions of this database that wait for a lock; for one on the database itself nobody does, but those
    /// that notify, whose commits PostgreSQL lets pass one at a time in the whole server.
    pub async fn ungranted(&self) -> i64 {
        self.number(
            "select count(distinct l.pid) from pg_locks l join pg_stat_activity a on a.pid = l.pid
              where not l.granted and a.datname = current_database()
                and not (l.locktype = 'object' and l.classid = 'pg_database'::regclass)",
        )
        .await
    }

    /// Another client of this bench's installation.
    pub async fn another_client(&self) -> Client {
        Client::connect(&self.url, &self.schema).await.unwrap()
    }

    /// Replaces the client and waits until at most `remaining` other sessions are left: what the old
    /// client did is in the statistics then. For a bench that is alone and whose client nobody else has.
    pub async fn settle(&mut self, remaining: i64) {
        let others = "select count(*) from pg_stat_activity
             where datname = current_database() and pid <> pg_backend_pid()
               and backend_type = 'client backend'";
        // Connecting only checks the version: the new client's first session is dropped here, too.
        self.client = self.another_client().await;
        while self.number(others).await > remaining {
            tokio::task::yield_now().await;
        }
        // PostgreSQL 14 reads statistics that were written at most half a second ago. Later ones are there.
        let now = "select (extract(epoch from clock_timestamp()) * 1000000)::bigint";
        let written =
            "select coalesce(extract(epoch from pg_stat_get_snapshot_timestamp()) * 1000000,
                                       9223372036854775807)::bigint";
        let enough = self.number(now).await + 600_000;
        while self.number(written).await < enough {
            tokio::task::yield_now().await;
        }
    }

    /// The sum of columns of `pg_stat_all_tables` over this schema's tables whose names match.
    pub async fn statistic(&self, columns: &str, tables: &str) -> i64 {
        self.number(&format!(
            "select coalesce(sum({columns}), 0) from pg_stat_all_tables
              where schemaname = '{}' and relname ~ '{tables}'",
            self.schema
        ))
        .await
    }

    /// How many rows a table of the schema has.
    pub async fn rows(&self, table: &str) -> i64 {
        self.number(&format!("select count(*) from S.{table}")).await
    }
}
