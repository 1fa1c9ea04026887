//! What doesn't depend on the machine, against committed limits: round trips, statements, rows and
//! buffers touched, WAL records and bytes, index entries. No clock is read here.

mod operations;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, ensure};
use awa::Client;
use awa::core::{Machine, Reply, Turn};
use serde::{Deserialize, Serialize};

use crate::lab::{Lab, Place};
use crate::report::short;

const LIMITS: &str = include_str!("../limits.json");

/// What an operation took. The first five are of one operation, the others of one job.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Toll {
    /// Flushes that were waited for.
    round_trips: f64,
    /// Statements that the server ran, BEGIN and COMMIT included.
    statements: f64,
    /// Rows that they gave or changed.
    rows: f64,
    /// Buffers that they touched.
    buffers: f64,
    /// Records of write-ahead log.
    wal_records: f64,
    /// Their bytes, without full-page images.
    wal_bytes: f64,
    /// Index entries that were written.
    index_entries: f64,
}

impl Toll {
    fn parts(&self) -> [(&'static str, f64); 7] {
        [
            ("round trips", self.round_trips),
            ("statements", self.statements),
            ("rows", self.rows),
            ("buffers", self.buffers),
            ("WAL records a job", self.wal_records),
            ("WAL bytes a job", self.wal_bytes),
            ("index entries a job", self.index_entries),
        ]
    }
}

/// Measures every operation and compares; `Err` if one took more than its limit.
pub(crate) async fn run(lab: &Lab) -> Result<()> {
    let limits: BTreeMap<String, Toll> =
        serde_json::from_str(LIMITS).context("reading bench/limits.json")?;
    let taken = operations::all(lab).await?;
    let (text, over) = compare(&taken, &limits);
    println!("{text}");
    ensure!(over.is_empty(), "over the limits of bench/limits.json:\n{}", over.join("\n"));
    Ok(())
}

/// Measures every operation and prints what it took, in the form of `bench/limits.json`.
pub(crate) async fn print(lab: &Lab) -> Result<()> {
    let taken: BTreeMap<_, _> = operations::all(lab).await?.into_iter().collect();
    println!("{}", serde_json::to_string_pretty(&taken)?);
    Ok(())
}

/// The table, and a line for each excess or lack.
fn compare(taken: &[(String, Toll)], limits: &BTreeMap<String, Toll>) -> (String, Vec<String>) {
    let (mut text, mut over) = (String::new(), Vec::new());
    for (name, toll) in taken {
        let _ = writeln!(text, "{name}");
        let Some(limit) = limits.get(name) else {
            over.push(format!("{name}: has no limits"));
            continue;
        };
        for ((part, value), (_, most)) in toll.parts().into_iter().zip(limit.parts()) {
            // A value that is no number is within no limit.
            let within = value <= most;
            let mark = if within { " " } else { "!" };
            let _ =
                writeln!(text, "  {mark} {part:<20} {:>10} of {:>10}", short(value), short(most));
            if !within {
                over.push(format!("{name}: {part}: {value} > {most}"));
            }
        }
    }
    for name in limits.keys().filter(|name| taken.iter().all(|(taken, _)| taken != *name)) {
        over.push(format!("{name}: has limits and was not measured"));
    }
    (text, over)
}

/// A machine whose flushes are counted.
struct Counted<M> {
    machine: M,
    flushes: Arc<AtomicU64>,
    /// Whether a flush left the transaction open, so that its end is one more.
    open: bool,
}

impl<M: Machine> Counted<M> {
    fn count(&mut self, turn: Turn<M::Outcome>) -> Turn<M::Outcome> {
        let flushes = match &turn {
            Turn::Ask(_) | Turn::Last(_) => 1,
            Turn::Commit(_) | Turn::Rollback(_) | Turn::Bug(_) => u64::from(self.open),
        };
        self.open = matches!(turn, Turn::Ask(_));
        self.flushes.fetch_add(flushes, Ordering::Relaxed);
        turn
    }
}

impl<M: Machine> Machine for Counted<M> {
    type Outcome = M::Outcome;

    fn start(&mut self) -> Turn<M::Outcome> {
        let turn = self.machine.start();
        self.count(turn)
    }

    fn resume(&mut self, replies: Vec<Reply>) -> Turn<M::Outcome> {
        let turn = self.machine.resume(replies);
        self.count(turn)
    }
}

/// An operation being observed: how often it ran, on how many jobs, and in how many flushes.
struct Observer<'a> {
    place: &'a Place,
    client: Client,
    flushes: Arc<AtomicU64>,
}

/// What the server had counted.
struct Counters {
    lsn: String,
}

impl<'a> Observer<'a> {
    async fn new(place: &'a Place, client: Client) -> Result<Self> {
        place.sql.batch_execute("set pg_stat_statements.track = 'none'").await?;
        Ok(Self { place, client, flushes: Arc::default() })
    }

    /// Runs a machine and counts its flushes.
    async fn run<M: Machine>(&self, machine: M) -> Result<M::Outcome> {
        let machine = Counted { machine, flushes: Arc::clone(&self.flushes), open: false };
        Ok(self.client.run(machine).await?)
    }

    async fn begin(&self) -> Result<Counters> {
        self.flushes.store(0, Ordering::Relaxed);
        let sql = &self.place.sql;
        sql.batch_execute("select pg_stat_statements_reset()").await?;
        let lsn = sql.query_one("select pg_current_wal_flush_lsn()::text", &[]).await?.get(0);
        Ok(Counters { lsn })
    }

    async fn end(&self, before: Counters, operations: u64, jobs: u64) -> Result<Toll> {
        let sql = &self.place.sql;
        let flush = "select pg_current_wal_flush_lsn()::text";
        let lsn: String = sql.query_one(flush, &[]).await?.get(0);
        let ran = "select coalesce(sum(calls), 0)::float8, coalesce(sum(rows), 0)::float8,
                          coalesce(sum(shared_blks_hit + shared_blks_read), 0)::float8
                     from pg_stat_statements s join pg_database d on d.oid = s.dbid
                    where d.datname = current_database()";
        let ran = sql.query_one(ran, &[]).await?;
        // The server's own housekeeping is no part of an operation.
        let written = "select coalesce(sum(count), 0)::float8, coalesce(sum(record_size), 0)::float8,
                              coalesce(sum(count) filter (where \"resource_manager/record_type\" = 'Btree'), 0)::float8
                         from pg_get_wal_stats($1::text::pg_lsn, $2::text::pg_lsn)
                        where \"resource_manager/record_type\" not in ('XLOG', 'Standby')";
        let (records, bytes, entries) = if before.lsn == lsn {
            (0.0, 0.0, 0.0)
        } else {
            let row = sql.query_one(written, &[&before.lsn, &lsn]).await?;
            (row.get(0), row.get(1), row.get(2))
        };
        let (operations, jobs) = (operations as f64, jobs as f64);
        Ok(Toll {
            round_trips: self.flushes.load(Ordering::Relaxed) as f64 / operations,
            statements: ran.get::<_, f64>(0) / operations,
            rows: ran.get::<_, f64>(1) / operations,
            buffers: ran.get::<_, f64>(2) / operations,
            wal_records: records / jobs,
            wal_bytes: bytes / jobs,
            index_entries: entries / jobs,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOLL: Toll = Toll {
        round_trips: 1.0,
        statements: 3.0,
        rows: 4.0,
        buffers: 5.0,
        wal_records: 6.0,
        wal_bytes: 7.0,
        index_entries: 8.0,
    };

    fn over(taken: &[(&str, Toll)], limits: &[(&str, Toll)]) -> Vec<String> {
        let taken: Vec<_> = taken.iter().map(|(n, t)| ((*n).to_owned(), *t)).collect();
        let limits = limits.iter().map(|(n, t)| ((*n).to_owned(), *t)).collect();
        compare(&taken, &limits).1
    }

    #[test]
    fn each_part_has_its_limit() {
        assert!(over(&[("a", TOLL)], &[("a", TOLL)]).is_empty());
        let more = Toll { index_entries: 8.01, ..TOLL };
        assert_eq!(over(&[("a", more)], &[("a", TOLL)]), ["a: index entries a job: 8.01 > 8"]);
        let unknown = Toll { rows: f64::NAN, ..TOLL };
        assert_eq!(over(&[("a", unknown)], &[("a", TOLL)]).len(), 1);
    }

    #[test]
    fn what_has_no_limit_or_was_not_measured_is_said() {
        assert_eq!(over(&[("a", TOLL)], &[]), ["a: has no limits"]);
        assert_eq!(over(&[], &[("a", TOLL)]), ["a: has limits and was not measured"]);
    }

    #[test]
    fn the_committed_limits_can_be_read() {
        let limits: BTreeMap<String, Toll> = serde_json::from_str(LIMITS).expect("limits.json");
        assert!(limits.len() >= 10, "{}", limits.len());
    }
}
