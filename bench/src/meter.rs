//! What a measurement cost: time, processor time of both sides, write-ahead log, transactions, dead rows.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::lab::{Lab, Place};

/// Ticks a second in `/proc/PID/stat`: 100 on every Linux that is in use.
const TICKS_PER_SECOND: u64 = 100;

/// A measurement's cost, as totals. One job's share is a quotient with [`Cost::jobs`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Cost {
    /// Units of work done: jobs, or rows where a scenario says so.
    pub(crate) jobs: u64,
    /// Wall time, in seconds.
    pub(crate) seconds: f64,
    /// User and system time of all server processes, in microseconds.
    pub(crate) server_cpu_us: f64,
    /// User and system time of this process, in microseconds.
    pub(crate) client_cpu_us: f64,
    /// Write-ahead log without full-page images, in bytes.
    pub(crate) wal_bytes: f64,
    /// Its records.
    pub(crate) wal_records: f64,
    /// Full-page images, in bytes: they depend on when the last checkpoint was.
    pub(crate) page_image_bytes: f64,
    /// Committed transactions.
    pub(crate) transactions: i64,
    /// Rows that an update or a delete left dead, by relation, catalogs included.
    pub(crate) dead: BTreeMap<String, i64>,
}

impl Cost {
    /// Jobs a second.
    pub(crate) fn rate(&self) -> f64 {
        self.jobs as f64 / self.seconds
    }

    /// One job's share of `total`.
    pub(crate) fn each(&self, total: f64) -> f64 {
        if self.jobs == 0 { 0.0 } else { total / self.jobs as f64 }
    }

    /// Dead rows a job.
    pub(crate) fn dead_each(&self) -> f64 {
        self.each(self.dead.values().sum::<i64>() as f64)
    }
}

/// A measurement under way.
pub(crate) struct Meter {
    before: Reading,
    begun: Instant,
}

/// A measurement whose work is done; the connections that did it must close before it is read.
pub(crate) struct Stopped {
    before: Reading,
    seconds: f64,
    server_cpu_us: f64,
    client_cpu_us: f64,
}

struct Reading {
    lsn: String,
    server_cpu: Duration,
    client_cpu: Duration,
    transactions: i64,
    dead: BTreeMap<String, i64>,
}

impl Meter {
    /// Starts after a checkpoint, when nobody else is connected.
    pub(crate) async fn start(lab: &Lab, place: &Place) -> Result<Self> {
        place.alone().await?;
        place.sql.batch_execute("checkpoint").await?;
        let before = Reading::take(lab, place).await?;
        Ok(Self { before, begun: Instant::now() })
    }

    /// Stops the clocks.
    pub(crate) fn stop(self, lab: &Lab) -> Result<Stopped> {
        let seconds = self.begun.elapsed().as_secs_f64();
        let server = server_cpu(lab.pid()?)?.saturating_sub(self.before.server_cpu);
        let client = client_cpu()?.saturating_sub(self.before.client_cpu);
        Ok(Stopped {
            before: self.before,
            seconds,
            server_cpu_us: server.as_secs_f64() * 1e6,
            client_cpu_us: client.as_secs_f64() * 1e6,
        })
    }
}

impl Stopped {
    /// Reads the server's counters, once the contender is gone.
    pub(crate) async fn read(self, lab: &Lab, place: &Place, jobs: u64) -> Result<Cost> {
        place.alone().await?;
        let after = Reading::take(lab, place).await?;
        let wal = wal_between(lab, place, &self.before.lsn, &after.lsn).await?;
        let mut dead = after.dead;
        for (relation, rows) in &self.before.dead {
            *dead.entry(relation.clone()).or_default() -= rows;
        }
        dead.retain(|_, rows| *rows > 0);
        Ok(Cost {
            jobs,
            seconds: self.seconds,
            server_cpu_us: self.server_cpu_us,
            client_cpu_us: self.client_cpu_us,
            wal_bytes: wal.bytes - wal.page_image_bytes,
            wal_records: wal.records,
            page_image_bytes: wal.page_image_bytes,
            transactions: after.transactions - self.before.transactions,
            dead,
        })
    }
}

impl Reading {
    async fn take(lab: &Lab, place: &Place) -> Result<Self> {
        let sql = &place.sql;
        let flush = "select pg_current_wal_flush_lsn()::text";
        let lsn = sql.query_one(flush, &[]).await?.get(0);
        let commits = "select xact_commit from pg_stat_database where datname = current_database()";
        let transactions = sql.query_one(commits, &[]).await?.get(0);
        // Children of the rings are one relation here: their numbers say nothing.
        let dead = "select regexp_replace(schemaname || '.' || relname, '_[0-9]+$', ''),
                           sum(n_tup_upd + n_tup_del)::bigint
                      from pg_stat_all_tables group by 1 having sum(n_tup_upd + n_tup_del) > 0";
        let rows = sql.query(dead, &[]).await?;
        Ok(Self {
            lsn,
            server_cpu: server_cpu(lab.pid()?)?,
            client_cpu: client_cpu()?,
            transactions,
            dead: rows.iter().map(|row| (row.get(0), row.get(1))).collect(),
        })
    }
}

struct Wal {
    bytes: f64,
    records: f64,
    page_image_bytes: f64,
}

async fn wal_between(lab: &Lab, place: &Place, from: &str, to: &str) -> Result<Wal> {
    let span = "select ($1::text::pg_lsn - $2::text::pg_lsn)::float8";
    let bytes: f64 = place.sql.query_one(span, &[&to, &from]).await?.get(0);
    if !lab.has_walinspect() || bytes == 0.0 {
        // PostgreSQL 14 can't say which part of it is images of pages.
        return Ok(Wal { bytes, records: f64::NAN, page_image_bytes: 0.0 });
    }
    let stats = "select coalesce(sum(count), 0)::float8, coalesce(sum(fpi_size), 0)::float8
                   from pg_get_wal_stats($1::text::pg_lsn, $2::text::pg_lsn)";
    let row = place.sql.query_one(stats, &[&from, &to]).await?;
    Ok(Wal { bytes, records: row.get(0), page_image_bytes: row.get(1) })
}

/// Processor time of the postmaster, of its children, and of those that have ended.
fn server_cpu(postmaster: u32) -> Result<Duration> {
    let mut before = children(postmaster)?;
    loop {
        let mut sum = on_cpu(postmaster).context("the postmaster is gone")? + ended(postmaster)?;
        for child in &before {
            sum += on_cpu(*child).unwrap_or_default();
        }
        // One that ended meanwhile, as sessions do when their work is measured, may be in neither part.
        let after = children(postmaster)?;
        if after == before {
            return Ok(sum);
        }
        before = after;
    }
}

fn children(postmaster: u32) -> Result<BTreeSet<u32>> {
    let mut children = BTreeSet::new();
    for entry in fs::read_dir("/proc").context("the bench needs Linux's /proc")? {
        let pid = entry?.file_name().to_str().and_then(|name| name.parse().ok());
        children.extend(pid.filter(|pid| parent(*pid) == Some(postmaster)));
    }
    Ok(children)
}

/// Time that a single-threaded process ran, to the nanosecond.
pub(crate) fn on_cpu(pid: u32) -> Option<Duration> {
    let text = fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?;
    text.split(' ').next()?.parse().ok().map(Duration::from_nanos)
}

/// The fields of `/proc/PID/stat` after the program's name.
fn stat(pid: &str) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let after_name = text.rsplit_once(')')?.1;
    Some(after_name.split_whitespace().map(str::to_owned).collect())
}

fn parent(pid: u32) -> Option<u32> {
    stat(&pid.to_string())?.get(1)?.parse().ok()
}

fn ticks(fields: &[String], places: [usize; 2]) -> Result<Duration> {
    let mut sum = 0;
    for place in places {
        sum += fields.get(place).context("/proc/PID/stat is short")?.parse::<u64>()?;
    }
    Ok(Duration::from_millis(sum * 1000 / TICKS_PER_SECOND))
}

/// Time of children that have ended.
pub(crate) fn ended(pid: u32) -> Result<Duration> {
    ticks(&stat(&pid.to_string()).context("the postmaster is gone")?, [13, 14])
}

/// Time of all threads of this process.
fn client_cpu() -> Result<Duration> {
    ticks(&stat("self").context("the bench needs Linux's /proc")?, [11, 12])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_its_processor() {
        let before = client_cpu().expect("Linux");
        // Who looks uses it, however little of it there is; the clock ticks every 10 ms.
        let mut looks = (0..1_000_000).map(|_| client_cpu().expect("Linux"));
        assert!(looks.any(|now| now > before));
        assert_eq!(parent(std::process::id()), Some(std::os::unix::process::parent_id()));
    }
}
