//! The rings: cursors, slots, gates, exclusion, `TRUNCATE`.

use awa_core::job::SlotLoad;
use awa_core::{
    Gate, Instant, Reply, Ring, RingView, Segment, Slot, SlotState, SlotView, Span, Xid,
};

use super::lock::{Key, Mode, Rel, SessionId};
use super::rows::{Cursor, SlotRow};
use super::table::View;
use super::{Done, Mutation, World};
use awa_core::rules::Cutoff;

impl World {
    /// The clock, as the engine observes it.
    pub(crate) fn clock(&self) -> Instant {
        match self.mutation {
            Mutation::HostClock => self.now.after(Span::from_secs(3600)),
            _ => self.now,
        }
    }

    pub(crate) fn lock_ring(&mut self, s: SessionId, ring: Ring) -> Done<Reply> {
        self.lock(s, Key::Ring(ring))?;
        self.xid(s);
        Ok(Reply::Locked)
    }

    pub(crate) fn lock_slot(&mut self, s: SessionId, ring: Ring, slot: Slot) -> Done<Reply> {
        self.lock(s, Key::Slot(ring, slot))?;
        self.xid(s);
        Ok(Reply::Locked)
    }

    pub(crate) fn observe_ring(&self, s: SessionId, ring: Ring) -> Reply {
        let view = self.view(s);
        let rows = self.tables.slots.seen(&view).filter(|row| row.ring == ring);
        let slots = rows.map(|row| SlotView {
            slot: row.slot,
            generation: row.generation,
            state: row.state,
            opened_at: row.opened_at,
            sealed_at: row.sealed_at,
        });
        let (now, current, slots) = (self.clock(), self.open(&view, ring), slots.collect());
        Reply::RingObserved(RingView { ring, now, current, slots })
    }

    fn set_slot(
        &mut self,
        s: SessionId,
        ring: Ring,
        slot: Slot,
        set: impl Fn(&mut SlotRow, Instant),
    ) -> Done<()> {
        self.lock(s, Key::Slot(ring, slot))?;
        let (by, now) = (self.xid(s), self.now);
        let view = self.view(s);
        for mut row in self.tables.slots.take(&view, by, |r| (r.ring, r.slot) == (ring, slot)) {
            set(&mut row, now);
            self.tables.slots.insert(by, row);
        }
        Ok(())
    }

    pub(crate) fn mark_pruned(&mut self, s: SessionId, ring: Ring, slot: Slot) -> Done<Reply> {
        self.set_slot(s, ring, slot, |row, _| {
            (row.state, row.sealed_at) = (SlotState::Pruned, None);
        })?;
        Ok(Reply::Marked)
    }

    pub(crate) fn rotate(
        &mut self,
        s: SessionId,
        ring: Ring,
        seal: Segment,
        open: Segment,
    ) -> Done<Reply> {
        self.lock(s, Key::Ring(ring))?;
        self.lock(s, Key::Slot(ring, seal.slot))?;
        self.lock(s, Key::Slot(ring, open.slot))?;
        self.set_slot(s, ring, seal.slot, |row, now| {
            (row.state, row.sealed_at) = (SlotState::Sealed, Some(now));
        })?;
        self.set_slot(s, ring, open.slot, |row, now| {
            (row.state, row.sealed_at, row.opened_at) = (SlotState::Open, None, now);
            row.generation = open.generation;
        })?;
        let by = self.xid(s);
        let view = self.view(s);
        for row in self.tables.cursors.take(&view, by, |c| c.ring == ring) {
            self.tables.cursors.insert(by, Cursor { current: open, ..row });
        }
        Ok(Reply::Marked)
    }

    /// `SHARE`: no row can come, readers and claims go on.
    pub(crate) fn exclude_writers(&mut self, s: SessionId, slot: Slot) -> Done<Reply> {
        let got = self.hold(s, &[Rel::Ready, Rel::Done, Rel::Hidden], slot, Mode::Share);
        self.bounded(s, got)
    }

    pub(crate) fn exclude(&mut self, s: SessionId, ring: Ring, slot: Slot) -> Done<Reply> {
        let got = self.hold(s, Rel::of_ring(ring), slot, Mode::Exclusive);
        let reply = self.bounded(s, got)?;
        self.xid(s);
        Ok(reply)
    }

    pub(crate) fn truncate(&mut self, s: SessionId, ring: Ring, slot: Slot) -> Done<Reply> {
        self.hold(s, Rel::of_ring(ring), slot, Mode::Exclusive)?;
        if ring == Ring::Queue {
            self.write_counters(s, slot)?;
        }
        let by = self.xid(s);
        for rel in Rel::of_ring(ring) {
            self.clear(by, *rel, slot);
        }
        if ring == Ring::Queue {
            let view = self.view(s);
            self.tables.folded.take(&view, by, |c| c.slot == slot);
        }
        Ok(Reply::Truncated)
    }

    pub(crate) fn clear(&mut self, by: Xid, rel: Rel, slot: Slot) {
        let t = &mut self.tables;
        match rel {
            Rel::Ready => t.ready.truncate(by, |r| r.at.slot == slot),
            Rel::Tombstones => t.tombstones.truncate(by, |r| r.at.slot == slot),
            Rel::Evidence => t.evidence.truncate(by, |r| r.at.slot == slot),
            Rel::Compact => t.compact.truncate(by, |r| r.at.slot == slot),
            Rel::Hidden => t.hidden.truncate(by, |r| r.at.slot == slot),
            Rel::Done => t.done.truncate(by, |r| r.at.slot == slot),
            Rel::Deltas => t.deltas.truncate(by, |r| r.at.slot == slot),
            Rel::Leases => t.leases.truncate(by, |r| r.at.slot == slot),
            Rel::Claims => t.claims.truncate(by, |r| r.slot == slot),
            Rel::ClosureBatches => t.closure_batches.truncate(by, |r| r.slot == slot),
            Rel::Closures => t.closures.truncate(by, |r| r.slot == slot),
        }
    }

    pub(crate) fn probe(&mut self, s: SessionId, gate: Gate) -> Done<Reply> {
        let closures = [Rel::Claims, Rel::ClosureBatches, Rel::Closures];
        match gate {
            Gate::PendingReady(slot) => {
                self.hold(s, &[Rel::Ready, Rel::Evidence], slot, Mode::AccessShare)?;
            }
            Gate::OpenReceipts(_) => self.read(s, &closures)?,
            Gate::OpenClaims(slot) => self.hold(s, &closures, slot, Mode::AccessShare)?,
            Gate::ActiveLeases(_) => self.read(s, &[Rel::Leases])?,
            Gate::HeldLeases(slot) => self.hold(s, &[Rel::Leases], slot, Mode::AccessShare)?,
            Gate::PinnedHorizon => {}
        }
        let view = self.view(s);
        let t = &self.tables;
        let held_by = match gate {
            Gate::PendingReady(slot) => self.pending(&view, slot),
            Gate::OpenReceipts(slot) => {
                self.open_claims(&view, |c| c.ready.slot == slot).keys().next().map(|r| r.0)
            }
            Gate::OpenClaims(slot) => {
                self.open_claims(&view, |c| c.slot == slot).keys().next().map(|r| r.0)
            }
            Gate::ActiveLeases(slot) => {
                t.leases.seen(&view).filter(|l| l.ready.slot == slot).map(|l| l.job.0).min()
            }
            Gate::HeldLeases(slot) => {
                t.leases.seen(&view).filter(|l| l.at.slot == slot).map(|l| l.job.0).min()
            }
            Gate::PinnedHorizon => self.pinned_by(s),
        };
        Ok(Reply::Probed { held_by })
    }

    pub(crate) fn count_claims(&mut self, s: SessionId, slot: Slot) -> Done<Reply> {
        self.hold(s, &[Rel::Claims], slot, Mode::AccessShare)?;
        let view = self.view(s);
        let claims = self.tables.claims.seen(&view).filter(|c| c.slot == slot).count();
        Ok(Reply::ClaimsCounted { claims: claims as i64 })
    }

    /// A ready row of the slot, whatever its label says (law 6), that no evidence beside it covers.
    fn pending(&self, view: &View, slot: Slot) -> Option<i64> {
        let slots = self.tables.slots.seen(view);
        let label = slots.filter(|r| (r.ring, r.slot) == (Ring::Queue, slot)).map(|r| r.generation);
        let label = label.last().filter(|_| self.mutation == Mutation::GateByGeneration);
        let rows = self.tables.ready.seen(view).filter(|r| r.at.slot == slot);
        let rows = rows.filter(|r| label.is_none_or(|label| r.at.generation == label));
        let covers = |r: &&super::rows::Ready| {
            let mut evidence = self.tables.evidence.seen(view);
            evidence.any(|e| e.at.slot == slot && e.lane == r.lane && e.ranges.has(r.seq.0))
        };
        rows.filter(|r| !covers(r)).map(|r| r.seq.0).min()
    }

    /// Exact where PostgreSQL may guess. Bytes are the World's own measure: a hundred a row.
    pub(crate) fn observe_loads(
        &mut self,
        s: SessionId,
        ring: Ring,
        cutoff: Option<Cutoff>,
    ) -> Done<Reply> {
        self.read(s, Rel::of_ring(ring))?;
        let view = self.view(s);
        let t = &self.tables;
        let load = |slot: Slot| {
            let done: Vec<_> = t.done.seen(&view).filter(|d| d.at.slot == slot).collect();
            let compact: Vec<_> = t.compact.seen(&view).filter(|c| c.at.slot == slot).collect();
            let carried = done.iter().filter(|d| self.is_carried(d, cutoff)).count();
            let queue = t.ready.seen(&view).filter(|r| r.at.slot == slot).count()
                + t.tombstones.seen(&view).filter(|r| r.at.slot == slot).count()
                + t.evidence.seen(&view).filter(|r| r.at.slot == slot).count()
                + t.hidden.seen(&view).filter(|r| r.at.slot == slot).count()
                + compact.iter().map(|c| c.jobs.len()).sum::<usize>();
            let claim = t.claims.seen(&view).filter(|c| c.slot == slot).count()
                + t.closure_batches.seen(&view).filter(|c| c.slot == slot).count()
                + t.closures.seen(&view).filter(|c| c.slot == slot).count();
            let (dropped, carried) = match ring {
                Ring::Queue => (queue + done.len() - carried, carried),
                Ring::Lease => (t.leases.seen(&view).filter(|l| l.at.slot == slot).count(), 0),
                Ring::Claim => (claim, 0),
            };
            let facts = done.iter().map(|d| d.finalized_at);
            let facts = facts.chain(compact.iter().map(|c| c.finalized_at));
            SlotLoad {
                slot,
                bytes: 100 * (dropped + carried) as i64,
                has_droppable: dropped > 0,
                droppable_hint: dropped as i64,
                carried_hint: carried as i64,
                newest_fact_at: facts.max().filter(|_| ring == Ring::Queue),
            }
        };
        Ok(Reply::LoadsObserved(self.slots_of(ring).map(load).collect()))
    }
}
