//! All tables as text, to be compared with PostgreSQL's.
//!
//! A line is `table: column=value ...`, columns by name, lines sorted. Values are what
//! `jsonb_each_text(to_jsonb(row))` gives, with `null` for NULL; columns of time say `set` or `null`, also
//! where they are arrays, and so does `at` in each of a payload's errors. Tables and columns are
//! those of v026 and v032; `lease_claims`, which no step writes, is left out.

use std::fmt::Display;

use awa_core::{LaneId, Segment};

use super::World;
use super::json::without_times;
use super::rows::{Body, Taken};
use super::table::Ranges;

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

/// The columns that all jobs' bodies have, and what is left of them in a narrow row.
fn body(body: Option<&Body>) -> Vec<(&'static str, String)> {
    vec![
        ("args", or_null(body.map(|b| &b.args))),
        ("created_at", set(body).to_owned()),
        ("max_attempts", or_null(body.map(|b| b.max_attempts))),
        ("run_at", set(body).to_owned()),
        ("unique_key", "null".to_owned()),
        ("unique_states", "null".to_owned()),
    ]
}

/// One line: `row! { out, table; column = value, ... }`, in any order.
macro_rules! row {
    ($out:ident, $table:expr; $($column:ident = $value:expr),* $(,)?) => {
        $out.push(line($table, vec![$((stringify!($column), $value.to_string())),*]))
    };
    ($out:ident, $table:expr, $more:expr; $($column:ident = $value:expr),* $(,)?) => {
        $out.push(line($table, [vec![$((stringify!($column), $value.to_string())),*], $more].concat()))
    };
}

fn line(table: &str, mut columns: Vec<(&'static str, String)>) -> String {
    columns.sort();
    let shown: Vec<String> =
        columns.iter().map(|(name, value)| format!("{name}={value}")).collect();
    format!("{table}: {}", shown.join(" "))
}

/// Where a row of the queue ring lies.
fn at(at: Segment, lane: LaneId) -> Vec<(&'static str, String)> {
    let mut columns = ready(at);
    columns.push(("lane_id", lane.0.to_string()));
    columns
}

/// What a row says of the ready row's segment.
fn ready(at: Segment) -> Vec<(&'static str, String)> {
    let (slot, generation) = (at.slot.0.to_string(), at.generation.0.to_string());
    vec![("ready_slot", slot), ("ready_generation", generation)]
}

/// The arrays of a batch.
fn arrays(jobs: &[&Taken]) -> Vec<(&'static str, String)> {
    // NULL where each job is called by its position.
    let own = jobs.iter().all(|t| t.job.0 == t.seq.0);
    let ids = (!own).then(|| array(jobs.iter().map(|t| t.job.0)));
    vec![
        ("lane_seqs", array(jobs.iter().map(|t| t.seq.0))),
        ("job_ids", or_null(ids)),
        ("run_leases", shared(jobs.iter().map(|t| t.run_lease.0))),
        ("attempts", shared(jobs.iter().map(|t| i64::from(t.attempt.0)))),
    ]
}

impl World {
    /// What is committed: see the module's documentation.
    #[must_use]
    pub fn dump(&self) -> String {
        let mut out = Vec::new();
        self.dump_rings(&mut out);
        self.dump_queue_ring(&mut out);
        self.dump_attempts(&mut out);
        self.dump_counts(&mut out);
        out.sort();
        out.join("\n") + "\n"
    }

    fn dump_rings(&self, out: &mut Vec<String>) {
        let (t, view) = (&self.tables, self.committed());
        for q in t.queues.seen(&view) {
            row! { out, "queues"; queue = q.queue, shards = q.shards, declared_at = "set" }
        }
        for l in t.lanes.seen(&view) {
            row! { out, "queue_lanes"; lane_id = l.lane.0, queue = l.queue, priority = l.priority.0,
            enqueue_shard = l.shard.0 }
        }
        for c in t.cursors.seen(&view) {
            row! { out, &format!("{}_ring_state", c.ring); current_slot = c.current.slot.0,
            generation = c.current.generation.0, slot_count = c.slots, singleton = true }
        }
        for r in t.slots.seen(&view) {
            row! { out, &format!("{}_ring_slots", r.ring); slot = r.slot.0,
            generation = r.generation.0, state = r.state, opened_at = "set",
            sealed_at = set(r.sealed_at) }
        }
    }

    fn dump_queue_ring(&self, out: &mut Vec<String>) {
        let (t, view) = (&self.tables, self.committed());
        for r in t.ready.seen(&view) {
            row! { out, "ready_entries", [at(r.at, r.lane), body(Some(&r.body))].concat();
            lane_seq = r.seq.0, job_id = r.job.0,
            moved_job_id = or_null((r.job.0 != r.seq.0).then_some(r.job.0)),
            attempt = r.attempt.0, run_lease = r.run_lease.0, kind = r.body.kind,
            payload = payload(r.body.payload.as_ref()) }
        }
        for r in t.tombstones.seen(&view) {
            row! { out, "ready_tombstones", at(r.at, r.lane); lane_seq = r.seq.0, job_id = r.job.0,
            tombstoned_at = "set" }
        }
        for r in t.hidden.seen(&view) {
            row! { out, "receipt_completion_tombstones", at(r.at, r.lane); lane_seq = r.seq.0,
            job_id = r.job.0, deleted_at = "set" }
        }
        for e in t.evidence.seen(&view) {
            let ranges: Vec<(i64, i64)> = e.ranges.iter().collect();
            row! { out, "ready_claim_attempt_batches", at(e.at, e.lane); n = e.n,
            batch_id = or_null(e.batch.map(|b| b.0)), ranges = e.ranges, spent_at = "set",
            spent_to = e.spent_to.0,
            first_seq = or_null(ranges.first().map(|r| r.0)),
            last_seq = or_null(ranges.last().map(|r| r.1 - 1)) }
        }
        for d in t.done.seen(&view) {
            let differs = d.body.as_ref().map_or(d.payload.as_ref(), |b| b.payload.as_ref());
            row! { out, "done_entries", [at(d.at, d.lane), body(d.body.as_deref())].concat();
            lane_seq = d.seq.0, job_id = d.job.0, state = d.state, attempt = d.attempt.0,
            run_lease = d.run_lease.0, attempted_at = set(d.attempted_at),
            finalized_at = "set", kind = d.kind, payload = payload(differs) }
        }
        for c in t.compact.seen(&view) {
            let jobs: Vec<&Taken> = c.jobs.iter().map(|(taken, _)| taken).collect();
            row! { out, "receipt_completion_batches", [at(c.at, c.lane), arrays(&jobs)].concat();
            claim_slot = c.claim_slot.0, completed_count = jobs.len(), finalized_at = "set",
            first_seq = or_null(jobs.first().map(|t| t.seq.0)),
            last_seq = or_null(jobs.last().map(|t| t.seq.0)), attempted_at = "set" }
        }
    }

    fn dump_attempts(&self, out: &mut Vec<String>) {
        let (t, view) = (&self.tables, self.committed());
        for d in t.deferred.seen(&view) {
            row! { out, "deferred_jobs", body(Some(&d.body)); job_id = d.job.0, lane_id = d.lane.0,
            attempted_at = set(d.attempted_at), run_lease = d.run_lease.0,
            attempt = d.attempt.0, state = d.state, kind = d.body.kind,
            payload = payload(d.body.payload.as_ref()) }
        }
        for c in t.claims.seen(&view) {
            let jobs: Vec<&Taken> = c.jobs.iter().collect();
            row! { out, "lease_claim_batches", [at(c.ready, c.lane), arrays(&jobs)].concat();
            claim_slot = c.slot.0, n = jobs.len(), batch_id = c.batch.0, claimed_at = "set",
            deadline_at = set(c.deadline_at) }
        }
        for c in t.closure_batches.seen(&view) {
            let receipts = Ranges::of(c.receipts.iter().map(|r| (r.0, r.0 + 1)));
            row! { out, "lease_claim_closure_batches", ready(c.ready); claim_slot = c.slot.0,
            n = c.receipts.len(), batch_id = c.batch.0, receipts = receipts }
        }
        for c in t.closures.seen(&view) {
            row! { out, "lease_claim_closures", ready(c.ready); claim_slot = c.slot.0,
            batch_id = c.batch.0, receipt_id = c.receipt.0, closed_at = "set" }
        }
        for l in t.leases.seen(&view) {
            row! { out, "leases", at(l.ready, l.lane); lease_slot = l.at.slot.0,
            lease_generation = l.at.generation.0, claim_slot = l.claim_slot.0,
            job_id = l.job.0, run_lease = l.run_lease.0, receipt_id = l.receipt.0,
            lane_seq = l.seq.0, state = l.state, heartbeat_at = "set", deadline_at = "null" }
        }
        for p in t.progress.seen(&view) {
            row! { out, "attempt_state"; job_id = p.job.0, run_lease = p.run_lease.0,
            heartbeat_at = "set", progress = "null" }
        }
    }

    fn dump_counts(&self, out: &mut Vec<String>) {
        let (t, view) = (&self.tables, self.committed());
        for d in t.deltas.seen(&view) {
            row! { out, "queue_terminal_count_deltas", at(d.at, d.lane);
            counter_bucket = d.bucket.0, state = d.state, delta = d.delta }
        }
        for c in t.folded.seen(&view) {
            row! { out, "queue_terminal_live_counts"; ready_slot = c.slot.0, lane_id = c.lane.0,
            counter_bucket = c.bucket.0, state = c.state, count = c.count }
        }
        for r in t.rollups.seen(&view) {
            row! { out, "queue_terminal_rollups"; lane_id = r.lane.0,
            pruned_completed_count = r.other, pruned_failed_count = r.failed }
        }
        for trust in t.trust.seen(&view) {
            row! { out, "terminal_count_trust"; singleton = true, trusted = trust.trusted }
        }
    }
}
