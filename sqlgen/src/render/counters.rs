//! Statements of the counters steps.

use awa_core::limits::QUEUE_SLOTS;
use awa_core::{QueueName, Ring, Slot};

use super::rings::{ACCESS_EXCLUSIVE, SHARE, listed, script, take_locks};
use super::{Cached, Named, sql};
use crate::Statement;
use crate::param::Params;
use crate::registry::{Child, children};

/// Texts that no argument changes.
pub(super) const FIXED: &[Named] =
    &[FIND_DELTAS, REBUILD_COUNTERS, SET_TRUST, READ_COUNTS, READ_PRUNED_FAILED];

const FIND_DELTAS: Named = sql!("FindDeltas");
const REBUILD_COUNTERS: Named = sql!("RebuildCounters");
const SET_TRUST: Named = sql!("SetTrust");
const READ_COUNTS: Named = sql!("ReadCounts");
const READ_PRUNED_FAILED: Named = sql!("ReadPrunedFailed");

const HISTORY: &str = "done_entries";
const DELTAS: &str = "queue_terminal_count_deltas";
const FOLDED: &str = "queue_terminal_live_counts";

pub(super) fn find_deltas(sql: &Cached) -> Statement {
    sql.bind(FIND_DELTAS, Params::new())
}

pub(super) fn exclude_deltas(sql: &Cached, slot: Slot, timeout_ms: u32) -> Statement {
    let deltas = of_slot(DELTAS, slot).map(|child| (child.to_string(), ACCESS_EXCLUSIVE));
    take_locks(sql, sql!("ExcludeDeltas"), deltas, timeout_ms)
}

pub(super) fn fold_deltas(sql: &Cached, slot: Slot) -> Statement {
    sql.bind_slot(sql!("FoldDeltas"), slot, Params::new())
}

pub(super) fn truncate_deltas(sql: &Cached, slot: Slot) -> Statement {
    let deltas = listed(of_slot(DELTAS, slot));
    script(sql, sql!("TruncateDeltas"), &[("children", deltas.as_str())])
}

pub(super) fn exclude_counters(sql: &Cached, timeout_ms: u32) -> Statement {
    let slots = || (0..QUEUE_SLOTS).map(Slot);
    // A parent is locked before its children, as whoever writes through it does.
    let history = std::iter::once(HISTORY.to_owned())
        .chain(slots().flat_map(|slot| of_slot(HISTORY, slot)).map(|child| child.to_string()))
        .map(|table| (table, SHARE));
    let counters = std::iter::once(DELTAS.to_owned())
        .chain(slots().flat_map(|slot| of_slot(DELTAS, slot)).map(|child| child.to_string()))
        .chain(std::iter::once(FOLDED.to_owned()))
        .map(|table| (table, ACCESS_EXCLUSIVE));
    take_locks(sql, sql!("ExcludeCounters"), history.chain(counters), timeout_ms)
}

pub(super) fn rebuild_counters(sql: &Cached) -> Statement {
    sql.bind(REBUILD_COUNTERS, Params::new())
}

pub(super) fn set_trust(sql: &Cached, trusted: bool) -> Statement {
    sql.bind(SET_TRUST, vec![Box::new(trusted)])
}

pub(super) fn read_counts(sql: &Cached, queue: &QueueName) -> Statement {
    sql.bind(READ_COUNTS, vec![Box::new(queue.as_str().to_owned())])
}

pub(super) fn read_pruned_failed(sql: &Cached, queue: &QueueName) -> Statement {
    sql.bind(READ_PRUNED_FAILED, vec![Box::new(queue.as_str().to_owned())])
}

fn of_slot(table: &'static str, slot: Slot) -> impl Iterator<Item = Child> {
    children(Ring::Queue, slot).filter(move |child| child.table == table)
}
