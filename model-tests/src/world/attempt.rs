//! Ways out of an attempt.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use awa_core::{
    Attempt, BatchId, Ending, Exit, LaneId, OverdueAttempt, Receipt, ReceiptId, Reply, Ring,
    Segment, Slot, Xid,
};

use super::job::ready_of;
use super::json::with_error;
use super::lock::{Key, Rel, SessionId};
use super::rows::{Body, Claim, Closure, ClosureBatch, Compact, Deferred, Done as DoneRow, Taken};
use super::table::View;
use super::{Done, Mutation, Raised, Stop, World};
use awa_core::{Instant, JobState};

const CLAIMS: &[Rel] = &[Rel::Claims, Rel::ClosureBatches, Rel::Closures, Rel::Leases];

impl World {
    pub(crate) fn fence(&mut self, s: SessionId, batches: &[BatchId]) -> Done<Reply> {
        for batch in batches.iter().collect::<BTreeSet<_>>() {
            self.lock(s, Key::Fence(*batch))?;
        }
        Ok(Reply::Locked)
    }

    /// The attempt that the receipt proves (`R026-07`), if it is open.
    fn proved(
        &self,
        view: &View,
        closed: &BTreeSet<ReceiptId>,
        r: &Receipt,
    ) -> Option<(Claim, Taken)> {
        let at = usize::from(r.index.get()) - 1;
        let mut claims = self.tables.claims.seen(view);
        let claim = claims.find(|c| c.slot == r.claim_slot && c.batch == r.batch)?;
        let taken = claim.jobs.get(at)?;
        let open = !closed.contains(&r.id()) || self.mutation == Mutation::ClosesTwice;
        let fits = taken.job == r.job && taken.run_lease == r.run_lease && open;
        fits.then(|| (claim.clone(), taken.clone()))
    }

    pub(crate) fn complete_compact(&mut self, s: SessionId, receipts: &[Receipt]) -> Done<Reply> {
        self.read(s, CLAIMS)?;
        let view = self.view(s);
        let closed = self.closed(&view);
        let leased: BTreeSet<ReceiptId> =
            self.tables.leases.seen(&view).map(|l| l.receipt).collect();
        let mut groups: BTreeMap<(Segment, LaneId, Slot), Vec<(Taken, Instant)>> = BTreeMap::new();
        let mut closures: BTreeMap<(Slot, BatchId, Segment), Vec<ReceiptId>> = BTreeMap::new();
        let mut ids = Vec::new();
        let named: BTreeMap<ReceiptId, &Receipt> = receipts.iter().map(|r| (r.id(), r)).collect();
        for (id, r) in named.into_iter().filter(|(id, _)| !leased.contains(id)) {
            let Some((claim, taken)) = self.proved(&view, &closed, r) else { continue };
            closures.entry((claim.slot, claim.batch, claim.ready)).or_default().push(id);
            let group = groups.entry((claim.ready, claim.lane, claim.slot)).or_default();
            group.push((taken, claim.claimed_at));
            ids.push(id);
        }
        for (at, _, slot) in groups.keys() {
            self.write(s, &[Rel::Compact], at.slot)?;
            self.write(s, &[Rel::ClosureBatches], *slot)?;
        }
        for ((at, lane, claim_slot), mut jobs) in groups {
            jobs.sort();
            let by = self.xid(s);
            for (taken, _) in &jobs {
                let own = |p: &super::rows::Progress| {
                    (p.job, p.run_lease) == (taken.job, taken.run_lease)
                };
                self.tables.progress.take(&view, by, own);
            }
            let finalized_at = self.now;
            self.tables.compact.insert(by, Compact { at, lane, claim_slot, finalized_at, jobs });
        }
        for ((slot, batch, ready), receipts) in closures {
            let by = self.xid(s);
            self.tables.closure_batches.insert(by, ClosureBatch { slot, batch, ready, receipts });
        }
        Ok(Reply::Closed(ids))
    }

    /// Of an attempt that is named twice, the first ending holds.
    pub(crate) fn close_attempts(&mut self, s: SessionId, exits: &[Exit]) -> Done<Reply> {
        self.read(s, CLAIMS)?;
        self.read(s, &[Rel::Ready])?;
        let view = self.view(s);
        let closed = self.closed(&view);
        let mut named: BTreeMap<ReceiptId, &Exit> = BTreeMap::new();
        for exit in exits {
            named.entry(exit.receipt.id()).or_insert(exit);
        }
        let (bodies, mut plan) = (self.bodies(&view), Vec::new());
        for (id, exit) in named {
            let Some((claim, taken)) = self.proved(&view, &closed, &exit.receipt) else { continue };
            let Some(ready) = ready_of(&bodies, claim.ready, claim.lane, taken.seq) else {
                continue;
            };
            plan.push((id, exit, claim, taken, Arc::clone(&ready.body)));
        }
        for (id, exit, claim, taken, _) in &plan {
            self.lock(s, Key::Closure(*id))?;
            self.write(s, &[Rel::Closures], claim.slot)?;
            match exit.ending {
                Ending::Retry { .. } => self.lock(s, Key::Deferred(taken.job))?,
                Ending::Completed | Ending::Failed { .. } => {
                    self.lock(s, Key::Terminal(claim.lane, taken.seq))?;
                    self.write(s, &[Rel::Done, Rel::Deltas], claim.ready.slot)?;
                }
            }
        }
        let ids = plan.iter().map(|(id, ..)| *id).collect();
        for (receipt, exit, claim, taken, body) in plan {
            self.close(s, &view, receipt, &claim, &taken);
            self.end_attempt(s, &exit.ending, &claim, &taken, &body)?;
        }
        Ok(Reply::Closed(ids))
    }

    /// What is handed back lies in its lane as if its attempt had never begun, but for its lease.
    pub(crate) fn hand_back(&mut self, s: SessionId, receipts: &[Receipt]) -> Done<Reply> {
        self.read(s, CLAIMS)?;
        self.read(s, &[Rel::Ready])?;
        let view = self.view(s);
        let (closed, bodies) = (self.closed(&view), self.bodies(&view));
        let named: BTreeMap<ReceiptId, &Receipt> = receipts.iter().map(|r| (r.id(), r)).collect();
        let mut plan = Vec::new();
        for (id, r) in named {
            let Some((claim, taken)) = self.proved(&view, &closed, r) else { continue };
            let Some(ready) = ready_of(&bodies, claim.ready, claim.lane, taken.seq) else {
                continue;
            };
            plan.push((id, claim, taken, Arc::clone(&ready.body)));
        }
        let to = self.open(&view, Ring::Queue);
        for (id, claim, ..) in &plan {
            self.lock(s, Key::Closure(*id))?;
            self.write(s, &[Rel::Closures], claim.slot)?;
            self.write(s, &[Rel::Ready], to.slot)?;
        }
        plan.sort_by_key(|(_, claim, taken, _)| (claim.lane, taken.seq));
        let mut ids = Vec::new();
        for (receipt, claim, taken, body) in plan {
            let by = self.close(s, &view, receipt, &claim, &taken);
            let seq = self.draw_position();
            let attempt = Attempt(taken.attempt.0 - 1);
            self.append(by, to, (claim.lane, seq), (attempt, taken.run_lease), taken.job, body);
            ids.push(receipt);
        }
        ids.sort_unstable();
        Ok(Reply::Closed(ids))
    }

    /// The receipt is closed by a row of its own, and what its attempt kept goes.
    fn close(
        &mut self,
        s: SessionId,
        view: &View,
        receipt: ReceiptId,
        claim: &Claim,
        taken: &Taken,
    ) -> Xid {
        let by = self.xid(s);
        let (slot, batch, ready) = (claim.slot, claim.batch, claim.ready);
        self.tables.closures.insert(by, Closure { slot, batch, receipt, ready });
        self.tables.leases.take(view, by, |l| l.receipt == receipt);
        let own = (taken.job, taken.run_lease);
        self.tables.progress.take(view, by, |p| (p.job, p.run_lease) == own);
        by
    }

    fn end_attempt(
        &mut self,
        s: SessionId,
        ending: &Ending,
        claim: &Claim,
        taken: &Taken,
        body: &Arc<Body>,
    ) -> Done<()> {
        let failed_with =
            |error: &str| Some(with_error(body.payload.as_deref(), taken.attempt, self.now, error));
        let (state, payload) = match ending {
            Ending::Completed => (JobState::Completed, None),
            Ending::Failed { error } => (JobState::Failed, failed_with(error)),
            Ending::Retry { error, delay } => {
                let body = Arc::new(Body { payload: failed_with(error), ..(**body).clone() });
                let row = Deferred {
                    run_at: self.now.after(*delay),
                    job: taken.job,
                    lane: claim.lane,
                    state: JobState::Retryable,
                    attempt: taken.attempt,
                    run_lease: taken.run_lease,
                    attempted_at: Some(claim.claimed_at),
                    body,
                };
                let by = self.xid(s);
                let view = self.view(s);
                if self.tables.deferred.seen(&view).any(|d| d.job == taken.job) {
                    return Err(Stop::Raised(Raised::DuplicateKey(format!(
                        "deferred {}",
                        taken.job
                    ))));
                }
                self.tables.deferred.insert(by, row);
                return Ok(());
            }
        };
        let place = (claim.ready, claim.lane, taken.seq);
        self.put_done(
            s,
            DoneRow {
                attempt: taken.attempt,
                run_lease: taken.run_lease,
                attempted_at: Some(claim.claimed_at),
                kind: body.kind.clone(),
                payload,
                ..DoneRow::new(place, (state, self.now), taken.job)
            },
        )
    }

    pub(crate) fn find_overdue(&mut self, s: SessionId, limit: i64) -> Done<Reply> {
        self.read(s, &[Rel::Ready])?;
        self.read(s, CLAIMS)?;
        let view = self.view(s);
        let bodies = self.bodies(&view);
        let open = self.open_claims(&view, |c| c.deadline_at.is_some_and(|due| due <= self.now));
        let mut overdue: Vec<_> =
            open.into_iter().map(|(id, (c, place))| (c.deadline_at, id, c, place)).collect();
        overdue.sort_by_key(|(due, id, ..)| (*due, *id));
        let attempts = overdue.into_iter().filter_map(|(_, _, c, place)| {
            let (taken, receipt) = (&c.jobs[place], c.receipt(place));
            let ready = ready_of(&bodies, c.ready, c.lane, taken.seq)?;
            let max_attempts = ready.body.max_attempts;
            Some(OverdueAttempt { receipt, attempt: taken.attempt, max_attempts })
        });
        Ok(Reply::Overdue(attempts.take(limit.max(0) as usize).collect()))
    }
}
