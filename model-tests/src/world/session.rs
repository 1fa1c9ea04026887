//! Transactions: how they begin, what they see, how they end, and what stands in their way.

use awa_core::{Refusal, Reply, Ring, Segment, Slot, Snapshot, Xid};

use super::lock::{Key, Mode, Rel, SessionId};
use super::table::View;
use super::{Applied, Done, Mutation, Patience, Stop, World};

/// An open transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Txn {
    pub(crate) xid: Option<Xid>,
    /// It was undone and waits for its ROLLBACK.
    aborted: bool,
    repeatable: bool,
    /// The snapshot of its first statement, kept for all others (REPEATABLE READ); or one that
    /// mutation B6 keeps for the claim.
    kept: Option<Snapshot>,
    /// The lock it waits for is bounded.
    pub(crate) bounded: bool,
    /// The youngest id of a savepoint that was released.
    released: Option<Xid>,
    pub(crate) enqueued: i64,
    pub(crate) deleted: i64,
}

impl World {
    /// Begins a READ COMMITTED transaction.
    ///
    /// # Panics
    /// The session has one.
    pub fn begin(&mut self, s: SessionId) {
        let before = self.sessions.insert(s, Txn::default());
        assert!(before.is_none(), "{s} has a transaction");
    }

    /// Begins a REPEATABLE READ transaction of somebody else's: it may read and enqueue. (What it
    /// would update after others did, PostgreSQL refuses; the World doesn't model that.)
    ///
    /// # Panics
    /// The session has one.
    pub fn begin_repeatable_read(&mut self, s: SessionId) {
        self.begin(s);
        self.txn(s).repeatable = true;
    }

    /// Whether the session has a transaction.
    #[must_use]
    pub fn is_open(&self, s: SessionId) -> bool {
        self.sessions.contains_key(&s)
    }

    /// Commits.
    ///
    /// # Panics
    /// The session has no transaction, or one that can only be rolled back.
    pub fn commit(&mut self, s: SessionId) {
        self.usable(s);
        let txn = self.sessions.remove(&s).unwrap_or_default();
        self.completes(txn.released);
        self.enqueued += txn.enqueued;
        self.deleted += txn.deleted;
        self.finish(s, txn.xid, true);
    }

    /// Rolls back. The positions and batch numbers that it drew stay drawn.
    ///
    /// # Panics
    /// The session has no transaction.
    pub fn rollback(&mut self, s: SessionId) {
        let txn = self.sessions.remove(&s);
        assert!(txn.is_some(), "{s} has no transaction");
        self.completes(txn.as_ref().and_then(|txn| txn.released));
        self.finish(s, txn.and_then(|txn| txn.xid), false);
    }

    /// The backend dies, between two statements or in the middle of one that waits. Does nothing
    /// to a session without a transaction.
    pub fn crash(&mut self, s: SessionId) {
        if self.is_open(s) {
            self.rollback(s);
        }
    }

    /// The wait of a bounded lock request is over.
    ///
    /// # Panics
    /// The session doesn't wait for a bounded lock.
    pub fn expire(&mut self, s: SessionId) -> Applied {
        assert!(self.txn(s).bounded, "{s} doesn't wait for a bounded lock");
        self.answer(s, Err(Stop::Refused(Refusal::LockTimeout)))
    }

    pub(crate) fn usable(&mut self, s: SessionId) {
        assert!(!self.txn(s).aborted, "{s} can only be rolled back");
        self.txn(s).bounded = false;
    }

    pub(crate) fn answer(&mut self, s: SessionId, ran: Done<Reply>) -> Applied {
        match ran {
            Ok(reply) => {
                self.locks.goes_on(s);
                Applied::Reply(reply)
            }
            Err(Stop::Waits(on)) if self.locks.waits(s, &on) => Applied::Waits { on },
            // Whoever closes the circle is the one that PostgreSQL undoes.
            Err(Stop::Waits(_)) => self.undo(s, Applied::Reply(Reply::Refused(Refusal::Conflict))),
            Err(Stop::Refused(refusal)) => self.undo(s, Applied::Reply(Reply::Refused(refusal))),
            Err(Stop::Raised(raised)) => self.undo(s, Applied::Raised(raised)),
        }
    }

    /// PostgreSQL undoes a transaction and lets its locks go when a statement of it fails, not
    /// when the client says ROLLBACK.
    fn undo(&mut self, s: SessionId, says: Applied) -> Applied {
        let xid = self.own(s);
        *self.txn(s) = Txn { aborted: true, ..Txn::default() };
        self.finish(s, xid, false);
        says
    }

    fn finish(&mut self, s: SessionId, xid: Option<Xid>, committed: bool) {
        self.locks.release(s);
        let Some(xid) = xid else { return };
        self.completes(Some(xid));
        let now = self.snapshot(None);
        let kept = self.sessions.values().any(|txn| txn.kept.is_some());
        self.tables.end(xid, committed, (!kept).then_some(&now));
    }

    /// A savepoint's own id: younger than the transaction's, and in no snapshot's list.
    pub(crate) fn savepoint(&mut self, s: SessionId, undone: bool) {
        self.xid(s);
        let sub = Some(Xid(self.next_xid));
        self.next_xid += 1;
        if undone { self.completes(sub) } else { self.txn(s).released = sub }
    }

    fn completes(&mut self, id: Option<Xid>) {
        self.latest_completed = self.latest_completed.max(id.map_or(0, |id| id.0));
    }

    pub(crate) fn txn(&mut self, s: SessionId) -> &mut Txn {
        self.sessions.get_mut(&s).unwrap_or_else(|| panic!("{s} has no transaction"))
    }

    pub(crate) fn own(&self, s: SessionId) -> Option<Xid> {
        self.sessions.get(&s).and_then(|txn| txn.xid)
    }

    pub(crate) fn own_xid(&self, s: SessionId) -> Option<Xid> {
        match self.mutation {
            Mutation::XmaxAsWitness => Some(self.snapshot(self.own(s)).xmax),
            _ => self.own(s),
        }
    }

    /// As `pg_current_snapshot`: `xmax` follows the largest *finished* id, so that ids in flight may
    /// lie beyond it, and the own id holds `xmin` but is not listed.
    fn snapshot(&self, own: Option<Xid>) -> Snapshot {
        let xmax = Xid(self.latest_completed + 1);
        let given = self.sessions.values().filter_map(|txn| txn.xid);
        let mut open: Vec<Xid> = given.filter(|xid| *xid < xmax).collect();
        open.sort();
        let xmin = open.first().copied().unwrap_or(xmax);
        open.retain(|xid| Some(*xid) != own);
        Snapshot { xmin, xmax, open }
    }

    /// What the next statement of the session sees.
    pub(crate) fn view(&self, s: SessionId) -> View {
        let own = self.own(s);
        let txn = self.sessions.get(&s).filter(|txn| txn.repeatable);
        let kept = txn.and_then(|txn| txn.kept.clone());
        View { snapshot: kept.unwrap_or_else(|| self.snapshot(own)), own }
    }

    /// What everyone sees.
    pub(crate) fn committed(&self) -> View {
        View { snapshot: self.snapshot(None), own: None }
    }

    /// Fixes the snapshot of a REPEATABLE READ transaction at its first statement.
    pub(crate) fn keep_snapshot(&mut self, s: SessionId) {
        if self.txn(s).repeatable && self.txn(s).kept.is_none() {
            let own = self.own(s);
            self.txn(s).kept = Some(self.snapshot(own));
        }
    }

    /// B6: the statement that will claim begins when it asks for the lock.
    pub(crate) fn keep_for_claim(&mut self, s: SessionId) {
        if self.mutation == Mutation::LockInSameStatement && self.txn(s).kept.is_none() {
            let own = self.own(s);
            self.txn(s).kept = Some(self.snapshot(own));
        }
    }

    /// What a claim sees.
    pub(crate) fn view_of_claim(&mut self, s: SessionId) -> View {
        let view = self.view(s);
        let kept = if self.txn(s).repeatable { None } else { self.txn(s).kept.take() };
        View { snapshot: kept.unwrap_or(view.snapshot), own: view.own }
    }

    /// The first session, but `s`, that keeps dead rows from being cleaned up.
    pub(crate) fn pinned_by(&self, s: SessionId) -> Option<i64> {
        let pins = |txn: &Txn| txn.xid.is_some() || txn.kept.is_some();
        let mut others = self.sessions.iter().filter(|(other, txn)| **other != s && pins(txn));
        others.next().map(|(other, _)| i64::from(other.0))
    }

    pub(crate) fn lock(&mut self, s: SessionId, key: Key) -> Done<()> {
        self.locks.take(s, key, Mode::Exclusive).map_err(Stop::Waits)
    }

    /// Locks children as the statement that touches them does.
    pub(crate) fn hold(&mut self, s: SessionId, rels: &[Rel], slot: Slot, mode: Mode) -> Done<()> {
        for rel in rels {
            self.locks.take(s, Key::Child(*rel, slot), mode).map_err(Stop::Waits)?;
        }
        Ok(())
    }

    pub(crate) fn write(&mut self, s: SessionId, rels: &[Rel], slot: Slot) -> Done<()> {
        self.hold(s, rels, slot, Mode::RowExclusive)
    }

    /// Reads every child of these parents: also the pruned ones (B11).
    pub(crate) fn read(&mut self, s: SessionId, rels: &[Rel]) -> Done<()> {
        for rel in rels {
            for slot in self.slots_of(rel.ring()) {
                self.hold(s, &[*rel], slot, Mode::AccessShare)?;
            }
        }
        Ok(())
    }

    /// What a lock request with a timeout comes to.
    pub(crate) fn bounded(&mut self, s: SessionId, got: Done<()>) -> Done<Reply> {
        match got {
            Ok(()) => Ok(Reply::Locked),
            Err(Stop::Waits(_)) if self.patience == Patience::None => {
                Err(Stop::Refused(Refusal::LockTimeout))
            }
            Err(stop) => {
                self.txn(s).bounded = matches!(stop, Stop::Waits(_));
                Err(stop)
            }
        }
    }

    pub(crate) fn slots_of(&self, ring: Ring) -> impl Iterator<Item = Slot> + use<> {
        let view = self.committed();
        let cursor = self.tables.cursors.seen(&view).find(|c| c.ring == ring);
        (0..cursor.map_or(0, |c| c.slots)).map(Slot)
    }

    pub(crate) fn open(&self, view: &View, ring: Ring) -> Segment {
        let cursor = self.tables.cursors.seen(view).find(|c| c.ring == ring);
        cursor.map(|c| c.current).unwrap_or_else(|| panic!("the {ring} ring has no cursor"))
    }
}
