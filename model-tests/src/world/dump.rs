//! All tables as text, to be compared with PostgreSQL's.
//!
//! A line is `table: column=value ...`, columns by name, lines sorted. Values are what
//! `jsonb_each_text(to_jsonb(row))` gives, with `null` for NULL; columns of time say `set` or `null`, also
//! where they are arrays, and so does `at` in each of a payload's errors. Tables and columns are
//! those of v026 and v032; `lease_claims`, which no step writes, is left out.

use std::fmt::Display;

use awa_core::{JobId, LaneSeq};

use super::World;
use super::json::without_times;
use super::rows::{Body, Taken};
use super::table::Ranges;

type Columns<'a> = &'a [(&'a str, &'a dyn Display)];

fn or_null<T: Display>(value: Option<T>) -> String {
    value.map_or_else(|| "null".to_owned(), |value| value.to_string())
}

fn set<T>(value: Option<T>) -> &'static str {
    if value.is_some() { "set" } else { "null" }
}

fn payload(payload: Option<&String>) -> String {
    or_null(payload.map(|text| without_times(text)))
}

/// An array whose one element stands for all where they are the same.
fn shared(values: impl Iterator<Item = i64>) -> String {
    let mut values: Vec<i64> = values.collect();
    if values.iter().all(|v| *v == values[0]) {
        values.truncate(1);
    }
    array(values)
}

fn array(values: impl IntoIterator<Item = i64>) -> String {
    let shown: Vec<String> = values.into_iter().map(|v| v.to_string()).collect();
    format!("[{}]", shown.join(", "))
}

/// NULL where each job is called by its position.
fn job_ids(jobs: &[&Taken]) -> String {
    let own = jobs.iter().all(|t| t.job.0 == t.seq.0);
    or_null((!own).then(|| array(jobs.iter().map(|t| t.job.0))))
}

fn moved(job: JobId, seq: LaneSeq) -> String {
    or_null((job.0 != seq.0).then_some(job.0))
}

/// The columns that all jobs' bodies have, and what is left of them in a narrow row.
fn body(body: Option<&Body>) -> [(&'static str, String); 6] {
    [
        ("args", or_null(body.map(|b| &b.args))),
        ("created_at", set(body).to_owned()),
        ("max_attempts", or_null(body.map(|b| b.max_attempts))),
        ("run_at", set(body).to_owned()),
        ("unique_key", "null".to_owned()),
        ("unique_states", "null".to_owned()),
    ]
}

struct Dump(Vec<String>);

impl Dump {
    fn row(&mut self, table: &str, columns: Columns<'_>) {
        self.row_with(table, columns, &[]);
    }

    fn row_with(&mut self, table: &str, columns: Columns<'_>, more: &[(&str, String)]) {
        let own = columns.iter().map(|(name, value)| format!("{name}={value}"));
        let mut all: Vec<String> =
            own.chain(more.iter().map(|(name, value)| format!("{name}={value}"))).collect();
        all.sort();
        self.0.push(format!("{table}: {}", all.join(" ")));
    }
}

impl World {
    /// What is committed: see the module's documentation.
    #[must_use]
    pub fn dump(&self) -> String {
        let mut out = Dump(Vec::new());
        self.dump_rings(&mut out);
        self.dump_queue_ring(&mut out);
        self.dump_terminal(&mut out);
        self.dump_attempts(&mut out);
        self.dump_counts(&mut out);
        out.0.sort();
        out.0.join("\n") + "\n"
    }

    fn dump_rings(&self, out: &mut Dump) {
        let (t, view) = (&self.tables, self.committed());
        for q in t.queues.seen(&view) {
            out.row(
                "queues",
                &[("queue", &q.queue), ("shards", &q.shards), ("declared_at", &"set")],
            );
        }
        for l in t.lanes.seen(&view) {
            let key: Columns<'_> = &[("lane_id", &l.lane.0), ("queue", &l.queue)];
            let rest: Columns<'_> = &[("priority", &l.priority.0), ("enqueue_shard", &l.shard.0)];
            out.row("queue_lanes", &[key, rest].concat());
        }
        for c in t.cursors.seen(&view) {
            let at: Columns<'_> =
                &[("current_slot", &c.current.slot.0), ("generation", &c.current.generation.0)];
            let rest: Columns<'_> = &[("slot_count", &c.slots), ("singleton", &true)];
            out.row(&format!("{}_ring_state", c.ring), &[at, rest].concat());
        }
        for r in t.slots.seen(&view) {
            let key: Columns<'_> = &[("slot", &r.slot.0), ("generation", &r.generation.0)];
            let sealed_at = set(r.sealed_at);
            let rest: Columns<'_> =
                &[("state", &r.state), ("opened_at", &"set"), ("sealed_at", &sealed_at)];
            out.row(&format!("{}_ring_slots", r.ring), &[key, rest].concat());
        }
    }

    fn dump_queue_ring(&self, out: &mut Dump) {
        let (t, view) = (&self.tables, self.committed());
        for r in t.ready.seen(&view) {
            let columns: Columns<'_> = &[
                ("ready_slot", &r.at.slot.0),
                ("ready_generation", &r.at.generation.0),
                ("lane_id", &r.lane.0),
                ("lane_seq", &r.seq.0),
                ("job_id", &r.job.0),
                ("moved_job_id", &moved(r.job, r.seq)),
                ("attempt", &r.attempt.0),
                ("run_lease", &r.run_lease.0),
                ("kind", &r.body.kind),
                ("payload", &payload(r.body.payload.as_ref())),
            ];
            out.row_with("ready_entries", columns, &body(Some(&r.body)));
        }
        let tombstones = t.tombstones.seen(&view).map(|r| ("ready_tombstones", "tombstoned_at", r));
        let hidden =
            t.hidden.seen(&view).map(|r| ("receipt_completion_tombstones", "deleted_at", r));
        for (table, time, r) in tombstones.chain(hidden) {
            let columns: Columns<'_> = &[
                ("ready_slot", &r.at.slot.0),
                ("ready_generation", &r.at.generation.0),
                ("lane_id", &r.lane.0),
                ("lane_seq", &r.seq.0),
                ("job_id", &r.job.0),
                (time, &"set"),
            ];
            out.row(table, columns);
        }
        for e in t.evidence.seen(&view) {
            let ranges: Vec<(i64, i64)> = e.ranges.iter().collect();
            let columns: Columns<'_> = &[
                ("ready_slot", &e.at.slot.0),
                ("ready_generation", &e.at.generation.0),
                ("lane_id", &e.lane.0),
                ("n", &e.n),
                ("batch_id", &or_null(e.batch.map(|b| b.0))),
                ("first_seq", &or_null(ranges.first().map(|r| r.0))),
                ("last_seq", &or_null(ranges.last().map(|r| r.1 - 1))),
                ("ranges", &e.ranges),
                ("spent_at", &"set"),
            ];
            out.row("ready_claim_attempt_batches", columns);
        }
    }

    fn dump_terminal(&self, out: &mut Dump) {
        let (t, view) = (&self.tables, self.committed());
        for d in t.done.seen(&view) {
            let differs = d.body.as_ref().map_or(d.payload.as_ref(), |b| b.payload.as_ref());
            let columns: Columns<'_> = &[
                ("ready_slot", &d.at.slot.0),
                ("ready_generation", &d.at.generation.0),
                ("lane_id", &d.lane.0),
                ("lane_seq", &d.seq.0),
                ("job_id", &d.job.0),
                ("state", &d.state),
                ("attempt", &d.attempt.0),
                ("run_lease", &d.run_lease.0),
                ("attempted_at", &set(d.attempted_at)),
                ("finalized_at", &"set"),
                ("kind", &d.kind),
                ("payload", &payload(differs)),
            ];
            out.row_with("done_entries", columns, &body(d.body.as_deref()));
        }
        for c in t.compact.seen(&view) {
            let jobs: Vec<&Taken> = c.jobs.iter().map(|(taken, _)| taken).collect();
            let columns: Columns<'_> = &[
                ("ready_slot", &c.at.slot.0),
                ("ready_generation", &c.at.generation.0),
                ("lane_id", &c.lane.0),
                ("claim_slot", &c.claim_slot.0),
                ("completed_count", &jobs.len()),
                ("finalized_at", &"set"),
                ("first_seq", &or_null(jobs.first().map(|t| t.seq.0))),
                ("last_seq", &or_null(jobs.last().map(|t| t.seq.0))),
                ("lane_seqs", &array(jobs.iter().map(|t| t.seq.0))),
                ("job_ids", &job_ids(&jobs)),
                ("run_leases", &shared(jobs.iter().map(|t| t.run_lease.0))),
                ("attempts", &shared(jobs.iter().map(|t| i64::from(t.attempt.0)))),
                ("attempted_at", &"set"),
            ];
            out.row("receipt_completion_batches", columns);
        }
        for d in t.deferred.seen(&view) {
            let columns: Columns<'_> = &[
                ("job_id", &d.job.0),
                ("lane_id", &d.lane.0),
                ("attempted_at", &set(d.attempted_at)),
                ("run_lease", &d.run_lease.0),
                ("attempt", &d.attempt.0),
                ("state", &d.state),
                ("kind", &d.body.kind),
                ("payload", &payload(d.body.payload.as_ref())),
            ];
            out.row_with("deferred_jobs", columns, &body(Some(&d.body)));
        }
    }

    fn dump_attempts(&self, out: &mut Dump) {
        let (t, view) = (&self.tables, self.committed());
        for c in t.claims.seen(&view) {
            let jobs: Vec<&Taken> = c.jobs.iter().collect();
            let columns: Columns<'_> = &[
                ("claim_slot", &c.slot.0),
                ("n", &jobs.len()),
                ("batch_id", &c.batch.0),
                ("ready_slot", &c.ready.slot.0),
                ("ready_generation", &c.ready.generation.0),
                ("lane_id", &c.lane.0),
                ("claimed_at", &"set"),
                ("deadline_at", &set(c.deadline_at)),
                ("lane_seqs", &array(jobs.iter().map(|t| t.seq.0))),
                ("job_ids", &job_ids(&jobs)),
                ("run_leases", &shared(jobs.iter().map(|t| t.run_lease.0))),
                ("attempts", &shared(jobs.iter().map(|t| i64::from(t.attempt.0)))),
            ];
            out.row("lease_claim_batches", columns);
        }
        for c in t.closure_batches.seen(&view) {
            let receipts = Ranges::of(c.receipts.iter().map(|r| (r.0, r.0 + 1)));
            let columns: Columns<'_> = &[
                ("claim_slot", &c.slot.0),
                ("n", &c.receipts.len()),
                ("batch_id", &c.batch.0),
                ("ready_slot", &c.ready.slot.0),
                ("ready_generation", &c.ready.generation.0),
                ("receipts", &receipts),
            ];
            out.row("lease_claim_closure_batches", columns);
        }
        for c in t.closures.seen(&view) {
            let columns: Columns<'_> = &[
                ("claim_slot", &c.slot.0),
                ("batch_id", &c.batch.0),
                ("receipt_id", &c.receipt.0),
                ("ready_slot", &c.ready.slot.0),
                ("ready_generation", &c.ready.generation.0),
                ("closed_at", &"set"),
            ];
            out.row("lease_claim_closures", columns);
        }
        for l in t.leases.seen(&view) {
            let columns: Columns<'_> = &[
                ("lease_slot", &l.at.slot.0),
                ("lease_generation", &l.at.generation.0),
                ("claim_slot", &l.claim_slot.0),
                ("job_id", &l.job.0),
                ("run_lease", &l.run_lease.0),
                ("receipt_id", &l.receipt.0),
                ("ready_slot", &l.ready.slot.0),
                ("ready_generation", &l.ready.generation.0),
                ("lane_id", &l.lane.0),
                ("lane_seq", &l.seq.0),
                ("state", &l.state),
                ("heartbeat_at", &"set"),
                ("deadline_at", &"null"),
            ];
            out.row("leases", columns);
        }
        for p in t.progress.seen(&view) {
            let key: Columns<'_> = &[("job_id", &p.job.0), ("run_lease", &p.run_lease.0)];
            let rest: Columns<'_> = &[("heartbeat_at", &"set"), ("progress", &"null")];
            out.row("attempt_state", &[key, rest].concat());
        }
    }

    fn dump_counts(&self, out: &mut Dump) {
        let (t, view) = (&self.tables, self.committed());
        for d in t.deltas.seen(&view) {
            let columns: Columns<'_> = &[
                ("ready_slot", &d.at.slot.0),
                ("ready_generation", &d.at.generation.0),
                ("lane_id", &d.lane.0),
                ("counter_bucket", &d.bucket.0),
                ("state", &d.state),
                ("delta", &d.delta),
            ];
            out.row("queue_terminal_count_deltas", columns);
        }
        for c in t.folded.seen(&view) {
            let columns: Columns<'_> = &[
                ("ready_slot", &c.slot.0),
                ("lane_id", &c.lane.0),
                ("counter_bucket", &c.bucket.0),
                ("state", &c.state),
                ("count", &c.count),
            ];
            out.row("queue_terminal_live_counts", columns);
        }
        for r in t.rollups.seen(&view) {
            let columns: Columns<'_> = &[
                ("lane_id", &r.lane.0),
                ("pruned_completed_count", &r.other),
                ("pruned_failed_count", &r.failed),
            ];
            out.row("queue_terminal_rollups", columns);
        }
        for trust in t.trust.seen(&view) {
            out.row("terminal_count_trust", &[("singleton", &true), ("trusted", &trust.trusted)]);
        }
    }
}
