//! What the plans are made and run on: an installation, emptied or filled.
//!
//! Rows are written in bulk, in the shape in which the engine writes them; the engine's own counts say
//! whether that went well. No ring child is ever vacuumed or analysed.

use std::sync::{Arc, OnceLock};

use awa_core::machine::declare::{DeclareQueue, FindLanes};
use awa_core::machine::read::CountQueue;
use awa_core::machine::rotate::{Rotate, RotateOutcome};
use awa_core::{LaneId, QueueName, Ring, SchemaName};
use awa_devpg::{Options, Server};
use awa_driver::tokio_postgres::Client;
use awa_driver::{Connector, Session, Sql, Statements, migrate};
use awa_sqlgen::TABLES;

use crate::watched::LOAD;

/// Jobs of one claim, and of one flush of a worker.
pub(crate) const BATCH: i64 = 512;
/// Jobs in the backlog, and in history.
pub(crate) const MILLION: i64 = 1_000_000;
/// Queue slots that each of the two lies in.
const SLOTS_EACH: i64 = 4;

/// An installation, and connections that aren't watched.
pub(crate) struct Ground {
    pub(crate) url: &'static str,
    pub(crate) sql: Sql,
    pub(crate) queue: QueueName,
    /// The lane that has the jobs.
    pub(crate) busy: LaneId,
    /// The queue's other lanes, which have none.
    pub(crate) idle: Vec<LaneId>,
    /// A queue that has no jobs at all.
    pub(crate) quiet: QueueName,
    pub(crate) plain: Arc<Client>,
    engine: Session,
}

/// The tests' server, if it lets itself be watched, which takes a superuser; else a private one.
async fn watchable() -> &'static Server {
    static PRIVATE: OnceLock<Server> = OnceLock::new();
    let shared = Server::shared().unwrap();
    let client = Connector::without_tls(shared.url()).unwrap().connect().await.unwrap();
    let Err(refused) = client.batch_execute(LOAD).await else { return shared };
    assert!(!shared.is_private(), "{LOAD}: {refused:?}");
    eprintln!("{LOAD}: {refused:?}; starting a private server");
    let options = Options { ignore_database_url: true, ..Options::default() };
    PRIVATE.get_or_init(|| Server::acquire(&options).unwrap_or_else(|e| panic!("{e}")))
}

impl Ground {
    pub(crate) async fn new() -> Self {
        let url = watchable().await.url();
        let connector = Connector::without_tls(url).unwrap();
        let mut plain = connector.connect().await.unwrap();
        plain.batch_execute("drop schema if exists plans, plans_scratch cascade").await.unwrap();
        let schema = SchemaName::new("plans").unwrap();
        migrate(&mut plain, &schema).await.unwrap();
        let sql = Sql::new(schema);
        let client = connector.connect().await.unwrap();
        let mut engine = Session::new(client, sql.clone(), Statements::Named);
        let names = ["mail", "quiet"].map(|name| QueueName::new(name).unwrap());
        for name in &names {
            engine.run(DeclareQueue::new(name.clone(), 2).unwrap()).await.unwrap().unwrap();
        }
        let [queue, quiet] = names;
        let lanes = engine.run(FindLanes { queue: queue.clone() }).await.unwrap().unwrap();
        let mut idle: Vec<LaneId> = lanes.iter().map(|lane| lane.lane).collect();
        let (busy, plain) = (idle.remove(2), Arc::new(plain));
        let ground = Self { url, sql, queue, busy, idle, quiet, plain, engine };
        ground.execute(SCRATCH).await;
        for table in TABLES.iter().filter(|table| table.ring.is_none()) {
            let off = "set (autovacuum_enabled = off)";
            ground.execute(&format!("alter table plans.{} {off}", table.name)).await;
        }
        ground
    }

    async fn execute(&self, script: &str) {
        let script = script.replace("{lane}", &self.busy.0.to_string());
        self.plain.batch_execute(&script).await.unwrap_or_else(|e| panic!("{e:?}: {script}"));
    }

    /// Empties every child of the rings, as prunes of all slots would, and what is deferred. The latter
    /// is vacuumed, as it is in a quiet hour: then the planner takes it to have no rows.
    pub(crate) async fn truncate_all(&self) {
        let rings = TABLES.iter().filter(|table| table.ring.is_some());
        let names: Vec<_> = rings.map(|table| format!("plans.{}", table.name)).collect();
        self.execute(&format!("truncate {}, plans.deferred_jobs", names.join(", "))).await;
        self.execute("vacuum plans.deferred_jobs").await;
    }

    /// Empties a child of each ring that has no rows: a prune somewhere else in the ring, after which
    /// the server plans every statement again.
    pub(crate) async fn truncate_an_empty_slot(&self) {
        for table in TABLES.iter().filter(|table| table.ring.is_some()) {
            let last = if table.ring == Some(Ring::Queue) { 15 } else { 7 };
            self.execute(&format!("truncate plans.{}_{last}", table.name)).await;
        }
    }

    /// A million jobs that have ended, a tenth of them failed; then a million that wait, and a tenth of
    /// that which wait for a time.
    pub(crate) async fn fill(&mut self) {
        let before = self.count().await;
        for _ in 0..SLOTS_EACH {
            self.execute(APPEND).await;
            self.execute(END).await;
            self.rotate(Ring::Queue).await;
            self.rotate(Ring::Claim).await;
        }
        for _ in 0..SLOTS_EACH {
            self.execute(APPEND).await;
            self.rotate(Ring::Queue).await;
        }
        self.execute(DEFER).await;
        let after = self.count().await;
        // The few that waited before have ended, too.
        assert_eq!(after[0], MILLION, "{after:?}");
        assert_eq!(after[2] + after[3], MILLION + before[0] + before[2] + before[3], "{after:?}");
        assert!(after[3] > MILLION / 11, "{after:?}");
        assert_eq!((after[1], after[4]), (before[1] + MILLION / 10, before[4]), "{after:?}");
    }

    async fn rotate(&mut self, ring: Ring) {
        let rotated = self.engine.run(Rotate::ring(ring)).await.unwrap().unwrap();
        assert!(matches!(rotated, RotateOutcome::Rotated { .. }), "{rotated:?}");
    }

    /// Available, scheduled, completed, failed, running.
    async fn count(&mut self) -> [i64; 5] {
        let counted = self.engine.run(CountQueue { queue: self.queue.clone() }).await.unwrap();
        let n = counted.unwrap().unwrap();
        [n.available, n.scheduled, n.completed, n.failed, n.running]
    }
}

/// Not a temporary table: a session's first one makes a namespace, and all sessions plan anew.
const SCRATCH: &str = "
  create schema plans_scratch;
  create table plans_scratch.ended (ready_slot int, ready_generation bigint, n int, first_seq bigint,
    last_seq bigint, lane_seqs bigint[], batch_id bigint, claim_slot int, state text)";

const APPEND: &str = "
  insert into plans.ready_entries (ready_slot, ready_generation, lane_id, kind, args, max_attempts)
  select s.current_slot, s.generation, {lane}, 'send', '{\"to\": \"ada@example.org\"}', 25
    from plans.queue_ring_state s, generate_series(1, 250000)";

const DEFER: &str = "
  insert into plans.deferred_jobs (job_id, lane_id, run_at, state, kind, args, max_attempts)
  select nextval('plans.position_seq'), {lane}, now() + interval '1 day' + s * interval '1 ms', 'scheduled',
         'send', '{\"to\": \"ada@example.org\"}', 25
    from generate_series(1, 100000) as s";

/// Ends all jobs of the open segment; 512 positions are a claim, and a flush. Every tenth fails.
const END: &str = "
  truncate plans_scratch.ended;
  insert into plans_scratch.ended
  select b.*, nextval('plans.lease_claim_receipt_id_seq'), c.current_slot,
         case when row_number() over (order by b.first_seq) % 10 = 1 then 'failed' else 'completed' end
    from (select r.ready_slot, r.ready_generation, count(*)::int as n, min(r.lane_seq) as first_seq,
                 max(r.lane_seq), array_agg(r.lane_seq order by r.lane_seq)
            from plans.ready_entries r, plans.queue_ring_state s
           where r.ready_slot = s.current_slot and r.lane_id = {lane}
             and r.lane_seq > (select coalesce(max(last_seq), 0) from plans.ready_claim_attempt_batches)
           group by r.ready_slot, r.ready_generation, r.lane_seq / 512) as b,
         plans.claim_ring_state c;
  insert into plans.ready_claim_attempt_batches
         (ready_slot, ready_generation, lane_id, first_seq, last_seq, n, batch_id, spent_at, ranges)
  select ready_slot, ready_generation, {lane}, first_seq, last_seq, n, batch_id, now(),
         int8multirange(int8range(first_seq, last_seq, '[]'))
    from plans_scratch.ended order by first_seq;
  insert into plans.lease_claim_batches
         (claim_slot, batch_id, ready_slot, ready_generation, lane_id, claimed_at, deadline_at, n, lane_seqs,
          run_leases, attempts)
  select claim_slot, batch_id, ready_slot, ready_generation, {lane}, now(), now() - interval '1 second', n,
         lane_seqs, '{1}', '{1}'
    from plans_scratch.ended order by first_seq;
  insert into plans.receipt_completion_batches
         (ready_slot, ready_generation, lane_id, claim_slot, completed_count, finalized_at, first_seq, last_seq,
          lane_seqs, run_leases, attempts, attempted_at)
  select ready_slot, ready_generation, {lane}, claim_slot, n, now(), first_seq, last_seq, lane_seqs, '{1}', '{1}',
         array[now()]
    from plans_scratch.ended where state = 'completed' order by first_seq;
  insert into plans.lease_claim_closure_batches (claim_slot, batch_id, ready_slot, ready_generation, n, receipts)
  select claim_slot, batch_id, ready_slot, ready_generation, n,
         int8multirange(int8range(batch_id, batch_id + n - 1, '[]'))
    from plans_scratch.ended where state = 'completed' order by first_seq;
  insert into plans.done_entries
         (ready_slot, ready_generation, lane_id, lane_seq, job_id, run_lease, attempt, attempted_at, finalized_at,
          state, kind, payload)
  select e.ready_slot, e.ready_generation, {lane}, j.seq, j.seq, 1, 1, now(), now(), 'failed', 'send',
         '{\"errors\": [{\"attempt\": 1, \"error\": \"no route to host\"}]}'
    from plans_scratch.ended e, unnest(e.lane_seqs) as j (seq) where e.state = 'failed';
  insert into plans.queue_terminal_count_deltas
         (ready_slot, ready_generation, lane_id, counter_bucket, state, delta)
  select e.ready_slot, e.ready_generation, {lane}, (j.seq % 8)::smallint, 'failed', count(*)
    from plans_scratch.ended e, unnest(e.lane_seqs) as j (seq) where e.state = 'failed'
   group by e.ready_slot, e.ready_generation, e.batch_id, (j.seq % 8)::smallint;
  insert into plans.lease_claim_closures
         (claim_slot, batch_id, receipt_id, ready_slot, ready_generation, closed_at)
  select e.claim_slot, e.batch_id, e.batch_id + s, e.ready_slot, e.ready_generation, now()
    from plans_scratch.ended e, generate_series(0, e.n - 1) as s where e.state = 'failed'";
