//! Statements of the rings steps.

use awa_core::rules::Cutoff;
use awa_core::{Gate, Ring, Segment, Slot};
use postgres_types::ToSql;

use super::{Cached, Named, sql};
use crate::param::{Params, Timestamptz};
use crate::registry::{Child, TABLES, children};
use crate::{Mode, Statement};

/// Texts that no argument changes.
pub(super) const FIXED: &[Named] =
    &[PROBE_OPEN_RECEIPTS, PROBE_ACTIVE_LEASES, PROBE_PINNED_HORIZON, OBSERVE_LOADS];

const PROBE_OPEN_RECEIPTS: Named = sql!("ProbeOpenReceipts");
const PROBE_ACTIVE_LEASES: Named = sql!("ProbeActiveLeases");
const PROBE_PINNED_HORIZON: Named = sql!("ProbePinnedHorizon");
const OBSERVE_LOADS: Named = sql!("ObserveLoads");

/// What `ExcludeWriters` locks: those tables of the queue ring whose rows prune must find settled.
const WRITTEN: &[&str] = &["ready_entries", "receipt_completion_tombstones", "done_entries"];

pub(super) fn lock_ring(sql: &Cached, ring: Ring) -> Statement {
    bind_ring(sql, sql!("LockRing"), ring, Params::new())
}

pub(super) fn observe_ring(sql: &Cached, ring: Ring) -> Statement {
    bind_ring(sql, sql!("ObserveRing"), ring, Params::new())
}

pub(super) fn lock_slot(sql: &Cached, ring: Ring, slot: Slot) -> Statement {
    bind_ring(sql, sql!("LockSlot"), ring, vec![Box::new(slot.0)])
}

pub(super) fn mark_pruned(sql: &Cached, ring: Ring, slot: Slot) -> Statement {
    bind_ring(sql, sql!("MarkPruned"), ring, vec![Box::new(slot.0)])
}

pub(super) fn rotate(sql: &Cached, ring: Ring, seal: Segment, open: Segment) -> Statement {
    let params: Params = vec![
        Box::new(seal.slot.0),
        Box::new(seal.generation.0),
        Box::new(open.slot.0),
        Box::new(open.generation.0),
    ];
    bind_ring(sql, sql!("Rotate"), ring, params)
}

pub(super) fn exclude_writers(sql: &Cached, slot: Slot, timeout_ms: u32) -> Statement {
    let written = children(Ring::Queue, slot).filter(|c| WRITTEN.contains(&c.table));
    take_locks(sql, sql!("ExcludeWriters"), written.map(|c| (c.to_string(), SHARE)), timeout_ms)
}

pub(super) fn exclude(sql: &Cached, ring: Ring, slot: Slot, timeout_ms: u32) -> Statement {
    let all = children(ring, slot).map(|c| (c.to_string(), ACCESS_EXCLUSIVE));
    take_locks(sql, sql!("Exclude"), all, timeout_ms)
}

pub(super) fn truncate(sql: &Cached, ring: Ring, slot: Slot) -> Statement {
    let slot_word = slot.0.to_string();
    let emptied = listed(children(ring, slot));
    let words =
        [("ring", ring.as_str()), ("slot", slot_word.as_str()), ("children", emptied.as_str())];
    script(sql, sql!("Truncate"), &words)
}

pub(super) fn probe(sql: &Cached, gate: Gate) -> Statement {
    match gate {
        Gate::PendingReady(slot) => sql.bind_slot(sql!("ProbePendingReady"), slot, Params::new()),
        Gate::OpenReceipts(slot) => sql.bind(PROBE_OPEN_RECEIPTS, vec![Box::new(slot.0)]),
        Gate::ActiveLeases(slot) => sql.bind(PROBE_ACTIVE_LEASES, vec![Box::new(slot.0)]),
        Gate::OpenClaims(slot) => sql.bind_slot(sql!("ProbeOpenClaims"), slot, Params::new()),
        Gate::HeldLeases(slot) => sql.bind_slot(sql!("ProbeHeldLeases"), slot, Params::new()),
        Gate::PinnedHorizon => sql.bind(PROBE_PINNED_HORIZON, Params::new()),
    }
}

pub(super) fn count_claims(sql: &Cached, slot: Slot) -> Statement {
    sql.bind_slot(sql!("CountClaims"), slot, Params::new())
}

pub(super) fn survey_terminal(sql: &Cached, slot: Slot, cutoff: Option<Cutoff>) -> Statement {
    sql.bind_slot(sql!("SurveyTerminal"), slot, vec![instant_of(cutoff)])
}

pub(super) fn carry_forward(sql: &Cached, from: Slot, to: Segment, cutoff: Cutoff) -> Statement {
    let params: Params =
        vec![instant_of(Some(cutoff)), Box::new(to.slot.0), Box::new(to.generation.0)];
    sql.bind_slot(sql!("CarryForward"), from, params)
}

pub(super) fn fold_rollup(sql: &Cached, slot: Slot, cutoff: Option<Cutoff>) -> Statement {
    sql.bind_slot(sql!("FoldRollup"), slot, vec![instant_of(cutoff)])
}

pub(super) fn observe_loads(sql: &Cached, ring: Ring, cutoff: Option<Cutoff>) -> Statement {
    let first = match ring {
        Ring::Queue => return sql.bind(OBSERVE_LOADS, vec![instant_of(cutoff)]),
        Ring::Lease => "leases",
        Ring::Claim => "lease_claim_batches",
    };
    let tables = TABLES.iter().filter(|t| t.ring == Some(ring));
    let tables = tables.map(|t| format!("('{}')", t.name)).collect::<Vec<_>>().join(", ");
    let words = [("ring", ring.as_str()), ("first", first), ("tables", tables.as_str())];
    let (_, text) = sql!("ObserveLoadsTransient");
    let text = text.spell_with(sql.schema(), &words);
    Statement { sql: text.into(), mode: Mode::Bind(Params::new()) }
}

fn instant_of(cutoff: Option<Cutoff>) -> Box<dyn ToSql + Sync + Send> {
    Box::new(cutoff.map(|cutoff| Timestamptz(cutoff.0)))
}

fn bind_ring(sql: &Cached, (_, text): Named, ring: Ring, params: Params) -> Statement {
    let text = text.spell_with(sql.schema(), &[("ring", ring.as_str())]);
    Statement { sql: text.into(), mode: Mode::Bind(params) }
}

pub(super) const SHARE: &str = "share";
pub(super) const ACCESS_EXCLUSIVE: &str = "access exclusive";

/// A script that takes table locks in the order given, within `timeout_ms` altogether.
pub(super) fn take_locks(
    sql: &Cached,
    named: Named,
    locks: impl Iterator<Item = (String, &'static str)>,
    timeout_ms: u32,
) -> Statement {
    let rows =
        locks.zip(1..).map(|((table, mode), place)| format!("({place}, '{table}', '{mode}')"));
    let rows = rows.collect::<Vec<_>>().join(", ");
    let timeout_ms = timeout_ms.to_string();
    script(sql, named, &[("locks", rows.as_str()), ("timeout_ms", timeout_ms.as_str())])
}

/// Children as `place, table` rows, in the order given.
pub(super) fn listed(children: impl Iterator<Item = Child>) -> String {
    let rows = children.zip(1..).map(|(child, place)| format!("({place}, '{child}')"));
    rows.collect::<Vec<_>>().join(", ")
}

pub(super) fn script(sql: &Cached, (_, text): Named, words: &[(&str, &str)]) -> Statement {
    Statement { sql: text.spell_with(sql.schema(), words).into(), mode: Mode::Script }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One table registry: what is measured, and what writers are kept out of, is what there is.
    #[test]
    fn statements_name_the_tables_of_the_registry() {
        let queue: Vec<_> = TABLES.iter().filter(|t| t.ring == Some(Ring::Queue)).collect();
        for table in &queue {
            assert!(OBSERVE_LOADS.1.0.contains(&format!("('{}')", table.name)), "{}", table.name);
        }
        assert!(WRITTEN.iter().all(|name| queue.iter().any(|table| table.name == *name)));
    }
}
