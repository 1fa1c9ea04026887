//! Every table of the schema, once: its ring and what happens to it.

use awa_core::{Ring, Slot};

/// One table of the installation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    /// Its name, without the schema. A ring's table has a child a slot, called `name_slot`.
    pub name: &'static str,
    /// The ring that it turns with; `None` for a plain table.
    pub ring: Option<Ring>,
}

const fn turning(name: &'static str, ring: Ring) -> Table {
    Table { name, ring: Some(ring) }
}

const fn plain(name: &'static str) -> Table {
    Table { name, ring: None }
}

/// The tables in the order in which statements touch them, so the order in which locks are taken:
/// prune locks children in this order, and reads of several tables name them in it.
pub const TABLES: &[Table] = &[
    turning("ready_entries", Ring::Queue),
    turning("ready_tombstones", Ring::Queue),
    turning("ready_claim_attempt_batches", Ring::Queue),
    turning("receipt_completion_batches", Ring::Queue),
    turning("receipt_completion_tombstones", Ring::Queue),
    turning("done_entries", Ring::Queue),
    turning("queue_terminal_count_deltas", Ring::Queue),
    turning("lease_claim_batches", Ring::Claim),
    turning("lease_claims", Ring::Claim),
    turning("lease_claim_closure_batches", Ring::Claim),
    turning("lease_claim_closures", Ring::Claim),
    turning("leases", Ring::Lease),
    plain("attempt_state"),
    plain("deferred_jobs"),
    plain("queue_terminal_live_counts"),
    plain("queue_terminal_rollups"),
    plain("terminal_count_trust"),
    plain("queues"),
    plain("queue_lanes"),
    plain("queue_ring_state"),
    plain("queue_ring_slots"),
    plain("lease_ring_state"),
    plain("lease_ring_slots"),
    plain("claim_ring_state"),
    plain("claim_ring_slots"),
];

/// A ring table's child for one slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Child {
    /// The parent's name.
    pub table: &'static str,
    /// The slot.
    pub slot: Slot,
}

impl core::fmt::Display for Child {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}_{}", self.table, self.slot.0)
    }
}

/// The children of a slot, in lock order.
pub(crate) fn children(ring: Ring, slot: Slot) -> impl Iterator<Item = Child> {
    let of_ring = TABLES.iter().filter(move |t| t.ring == Some(ring));
    of_ring.map(move |t| Child { table: t.name, slot })
}
