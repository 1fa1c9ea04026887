//! PostgreSQL as a storage of histories: one installation on a server of its own, made fresh for
//! each history by deleting what is there, so that ids and positions begin anew.
//!
//! The clock of PostgreSQL goes by itself. Time passes here by moving every stored instant back.
//! It shares the server with no other test, and that runs no autovacuum: snapshots show which transaction
//! ids are in flight in the whole server, and the evidence that a claim writes depends on them.
#![allow(clippy::unwrap_used)]

mod tables;

use std::collections::BTreeMap;

use awa_core::{
    Instant, JobId, LaneId, Machine, Reply, SchemaName, Segment, Span, Step, Turn, rules,
};
use awa_devpg::{Options, Server};
use awa_driver::tokio_postgres::{Client, Statement, error::SqlState};
use awa_driver::{Connector, Embedded, Error, Session, Sql, Statements, migrate};
use awa_model_tests::history::{Acts, Rings, Storage, Trouble};
use tables::Tables;
use tokio::runtime::Runtime;

/// An installation, a worker and producers.
pub(crate) struct OnPostgres {
    runtime: Runtime,
    connector: Connector,
    schema: SchemaName,
    tables: Tables,
    dump: Statement,
    worker: Session,
    /// For what the harness itself does.
    plain: Client,
    /// For transactions that are driven a statement at a time.
    embedded: Embedded,
    producers: BTreeMap<u8, Client>,
    shifted: Span,
    /// Goes last.
    _server: Server,
}

fn server() -> Server {
    let settings = vec![("autovacuum".to_owned(), "off".to_owned())];
    let options = Options { settings, ignore_database_url: true, ..Options::default() };
    Server::acquire(&options).unwrap_or_else(|e| panic!("{e}"))
}

fn trouble(error: &Error) -> Trouble {
    if let Some(fault) = error.as_fault() {
        return Trouble::Bug(fault.clone());
    }
    if let Some(refusal) = error.as_refusal() {
        return Trouble::Refused(refusal);
    }
    match error.sqlstate() {
        Some(state) if *state == SqlState::UNIQUE_VIOLATION => Trouble::DuplicateKey,
        Some(_) | None => Trouble::Other(error.to_string()),
    }
}

impl OnPostgres {
    /// Migrates a schema of that name.
    pub(crate) fn migrated(schema: &str) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.unwrap();
        let server = server();
        let connector = Connector::without_tls(server.url()).unwrap();
        let schema = SchemaName::new(schema).unwrap();
        let sql = Sql::new(schema.clone());
        let (plain, worker, tables, dump) = runtime.block_on(async {
            let mut plain = connector.connect().await.unwrap();
            migrate(&mut plain, &schema).await.unwrap();
            // Hundreds of empty children make a dump look dear; compiling it would be.
            plain.batch_execute("set jit = off").await.unwrap();
            let tables = Tables::of(&plain, &schema).await;
            let dump = plain.prepare(&tables.dump).await.unwrap();
            (plain, connector.connect().await.unwrap(), tables, dump)
        });
        let worker = Session::new(worker, sql.clone(), Statements::Named);
        let (embedded, producers, shifted) = (Embedded::new(sql), BTreeMap::new(), Span::ZERO);
        Self {
            runtime,
            connector,
            schema,
            tables,
            dump,
            worker,
            plain,
            embedded,
            producers,
            shifted,
            _server: server,
        }
    }

    /// As after the migration, with rings of these sizes.
    pub(crate) fn reset(&mut self, rings: Rings) {
        let script = self.tables.reset(rings);
        let open: Vec<u8> = self.producers.keys().copied().collect();
        for producer in open {
            let ended = self.runtime.block_on(self.producers[&producer].batch_execute("rollback"));
            ended.unwrap();
        }
        self.runtime.block_on(self.plain.batch_execute(&script)).unwrap();
        self.shifted = Span::ZERO;
    }

    fn execute(&self, script: &str) {
        self.runtime.block_on(self.plain.batch_execute(script)).unwrap();
    }

    /// Waits until every snapshot that a producer sits on is old enough to count as one that pins the
    /// horizon (`ProbePinnedHorizon`), as it does at once on the World.
    fn let_snapshots_age(&self) {
        let young = "select count(*) from pg_stat_activity
             where datname = current_database() and state like 'idle in transaction%'
               and backend_xmin is not null
               and state_change > clock_timestamp() - interval '100 milliseconds'";
        let count = async || -> i64 { self.plain.query_one(young, &[]).await.unwrap().get(0) };
        while self.runtime.block_on(count()) > 0 {}
    }

    fn producer(&mut self, producer: u8) -> &Client {
        if !self.producers.contains_key(&producer) {
            let client = self.runtime.block_on(self.connector.connect()).unwrap();
            self.producers.insert(producer, client);
        }
        &self.producers[&producer]
    }
}

/// A backend of its own, driven a statement at a time until it is killed.
struct Doomed<'a> {
    client: &'a Client,
    embedded: &'a Embedded,
    acts: &'a mut Acts,
    open: bool,
}

impl Doomed<'_> {
    fn spend(&mut self) -> Result<(), Trouble> {
        if self.acts.spend() { Ok(()) } else { Err(Trouble::Crashed) }
    }

    async fn end(&mut self, how: &str) {
        if std::mem::take(&mut self.open) {
            self.client.batch_execute(how).await.unwrap();
        }
    }

    /// The replies up to a refusal, and whether there was one.
    async fn flush(&mut self, steps: &[Step]) -> Result<(Vec<Reply>, bool), Trouble> {
        if !self.open {
            self.client.batch_execute("begin isolation level read committed").await.unwrap();
            self.open = true;
        }
        let mut replies = Vec::new();
        for step in steps {
            self.spend()?;
            match self.embedded.run(self.client, std::slice::from_ref(step)).await {
                Ok(reply) => replies.extend(reply),
                Err(error) => {
                    self.end("rollback").await;
                    let Some(refusal) = error.as_refusal() else { return Err(trouble(&error)) };
                    replies.push(Reply::Refused(refusal));
                    return Ok((replies, true));
                }
            }
        }
        Ok((replies, false))
    }

    async fn drive<M: Machine>(&mut self, mut machine: M) -> Result<M::Outcome, Trouble> {
        let mut turn = machine.start();
        // After the COMMIT of a last flush, what the machine says costs no act.
        let mut confirmed = false;
        loop {
            let (steps, last) = match turn {
                Turn::Ask(steps) => (steps, false),
                Turn::Last(steps) => (steps, true),
                Turn::Commit(outcome) => {
                    if !confirmed {
                        self.spend()?;
                        self.end("commit").await;
                    }
                    return Ok(outcome);
                }
                Turn::Rollback(outcome) => {
                    if !confirmed {
                        self.spend()?;
                        self.end("rollback").await;
                    }
                    return Ok(outcome);
                }
                Turn::Bug(fault) => {
                    self.end("rollback").await;
                    return Err(Trouble::Bug(fault));
                }
            };
            let (replies, refused) = self.flush(&steps).await?;
            if last && !refused {
                self.spend()?;
                self.end("commit").await;
                confirmed = true;
            }
            turn = machine.resume(replies);
        }
    }
}

impl Storage for OnPostgres {
    fn run<M: Machine>(&mut self, machine: M, acts: &mut Acts) -> Result<M::Outcome, Trouble> {
        if std::any::type_name::<M>().contains("machine::rollup") {
            self.let_snapshots_age();
        }
        if *acts == Acts::all() {
            return self.runtime.block_on(self.worker.run(machine)).map_err(|e| trouble(&e));
        }
        self.runtime.block_on(async {
            let client = self.connector.connect().await.unwrap();
            let pid = client.query_one("select pg_backend_pid()", &[]).await.unwrap();
            let pid: i32 = pid.get(0);
            let embedded = &self.embedded;
            let ran = Doomed { client: &client, embedded, acts, open: false }.drive(machine).await;
            // Waits until it is gone, and with it its locks.
            let gone = "select pg_terminate_backend($1, 10000)";
            let gone: bool = self.plain.query_one(gone, &[&pid]).await.unwrap().get(0);
            assert!(gone, "backend {pid} does not go");
            ran
        })
    }

    fn begin(&mut self, producer: u8, repeatable_read: bool) {
        self.producer(producer);
        let level = if repeatable_read { "repeatable read" } else { "read committed" };
        let begin = format!("begin isolation level {level}");
        self.runtime.block_on(self.producers[&producer].batch_execute(&begin)).unwrap();
    }

    fn say(&mut self, producer: u8, steps: Vec<Step>) -> Result<Vec<Reply>, Trouble> {
        let said = self.embedded.run(&self.producers[&producer], &steps);
        self.runtime.block_on(said).map_err(|error| trouble(&error))
    }

    fn end(&mut self, producer: u8, commits: bool) {
        let end = if commits { "commit" } else { "rollback" };
        self.runtime.block_on(self.producers[&producer].batch_execute(end)).unwrap();
    }

    fn now(&mut self) -> Instant {
        let clock = "select (extract(epoch from clock_timestamp()) * 1000000)::bigint";
        let row = self.runtime.block_on(self.plain.query_one(clock, &[])).unwrap();
        Instant::from_unix_us(row.get(0))
    }

    fn advance(&mut self, by: Span) {
        self.execute(&self.tables.shift(by));
        self.shifted = Span::from_us((self.shifted.us() + by.us()) as u64);
    }

    fn shifted(&self) -> Span {
        self.shifted
    }

    fn dump(&mut self) -> String {
        let rows = self.runtime.block_on(self.plain.query(&self.dump, &[])).unwrap();
        let mut lines: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
        lines.sort();
        lines.join("\n") + "\n"
    }

    fn check(&mut self) -> Result<(), String> {
        Ok(())
    }

    fn plant_failure(&mut self, at: Segment, lane: LaneId, seq: i64, job: i64) {
        let (slot, generation, bucket) =
            (at.slot.0, at.generation.0, rules::counter_bucket(JobId(job)).0);
        let schema = format!("\"{}\"", self.schema.as_str());
        self.execute(&format!(
            "insert into {schema}.done_entries (ready_slot, ready_generation, lane_id, lane_seq, job_id, \
             attempt, run_lease, finalized_at, state, kind) \
             values ({slot}, {generation}, {lane}, {seq}, {job}, 1, 0, now(), 'failed', 'planted'); \
             insert into {schema}.queue_terminal_count_deltas (ready_slot, ready_generation, lane_id, \
             counter_bucket, delta, state) \
             values ({slot}, {generation}, {lane}, {bucket}, 1, 'failed')",
            lane = lane.0
        ));
    }
}
