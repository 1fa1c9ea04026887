//! Queues, lanes, the ways in, and claims.

use std::collections::BTreeMap;
use std::sync::Arc;

use awa_core::limits::PRIORITY_MAX;
use awa_core::reply::Claimed;
use awa_core::{
    Attempt, BatchId, ClaimedJob, Instant, JobId, JobState, LaneId, LaneSeq, NewJob, Priority,
    QueueName, Receipt, Reply, Ring, RunLease, Segment, Shard, Slot, SlotState, Span, Window, Xid,
};

use super::json::{Json, traits};
use super::lock::{Key, Rel, SessionId};
use super::rows::{Body, Claim, Deferred, Evidence, LaneRow, QueueRow, Ready, Taken};
use super::table::{Ranges, View};
use super::{Applied, Done, Mutation, Raised, Stop, World};

/// One act of a producer (law 3 of visibility: id, position, row).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Look which segment is open. It may be stale when the row is inserted. `CursorRead`.
    ReadCursor,
    /// Be given a transaction id. `OwnXid`.
    AssignXid,
    /// Draw a position. `PositionRead`.
    DrawPosition,
    /// Draw a position under a savepoint, whose id is younger than the transaction's and in no
    /// snapshot's list, and then undo it or release it. `PositionRead`.
    Savepoint {
        /// Undone: its id is finished at once; released: with the transaction.
        undone: bool,
    },
    /// Insert a job at a position that was drawn, under a segment that was read. `Enqueued`.
    Insert(NewJob, Segment, LaneSeq),
}

fn stored(text: &str) -> Done<String> {
    let json = Json::parse(text).ok_or_else(|| Stop::Raised(Raised::BadJson(text.to_owned())))?;
    Ok(json.to_string())
}

impl World {
    pub(crate) fn declare_queue(
        &mut self,
        s: SessionId,
        queue: &QueueName,
        shards: i16,
    ) -> Done<Reply> {
        self.lock(s, Key::Queue(queue.clone()))?;
        let view = self.view(s);
        let known = self.lanes_of(&view, queue);
        let row = self.tables.queues.seen(&view).find(|q| q.queue == *queue).cloned();
        if row.as_ref().is_none_or(|q| q.shards < shards) {
            let by = self.xid(s);
            let view = self.view(s);
            self.tables.queues.take(&view, by, |q| q.queue == *queue);
            self.tables.queues.insert(by, QueueRow { queue: queue.clone(), shards });
        }
        for (priority, shard) in (1..=PRIORITY_MAX)
            .flat_map(|p| (0..shards).map(move |shard| (Priority(p), Shard(shard))))
        {
            if !known.iter().any(|l| (l.priority, l.shard) == (priority, shard)) {
                let by = self.xid(s);
                self.last_lane += 1;
                let (lane, queue) = (LaneId(self.last_lane), queue.clone());
                self.tables.lanes.insert(by, LaneRow { lane, queue, priority, shard });
            }
        }
        Ok(Reply::LanesFound(self.lanes_of(&self.view(s), queue)))
    }

    fn body(&self, job: &NewJob, run_at: Instant) -> Done<Arc<Body>> {
        Ok(Arc::new(Body {
            kind: job.kind.as_str().to_owned(),
            args: stored(&job.args)?,
            max_attempts: job.max_attempts,
            run_at,
            created_at: self.now,
            payload: job.payload.as_deref().map(stored).transpose()?,
        }))
    }

    /// Into the open segment, or one that was read before.
    pub(crate) fn enqueue(
        &mut self,
        s: SessionId,
        to: Option<Segment>,
        jobs: &[NewJob],
    ) -> Done<Vec<JobId>> {
        let at = to.unwrap_or_else(|| self.open(&self.view(s), Ring::Queue));
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        self.write(s, &[Rel::Ready], at.slot)?;
        let bodies = jobs.iter().map(|job| self.body(job, self.now)).collect::<Done<Vec<_>>>()?;
        let by = self.xid(s);
        let insert = |(job, body): (&NewJob, Arc<Body>)| {
            let seq = self.draw_position();
            self.append(by, at, (job.lane, seq), (Attempt(0), RunLease(0)), JobId(seq.0), body);
            JobId(seq.0)
        };
        let ids: Vec<JobId> = jobs.iter().zip(bodies).map(insert).collect();
        self.txn(s).enqueued += ids.len() as i64;
        Ok(ids)
    }

    pub(crate) fn append(
        &mut self,
        by: Xid,
        at: Segment,
        (lane, seq): (LaneId, LaneSeq),
        (attempt, run_lease): (Attempt, RunLease),
        job: JobId,
        body: Arc<Body>,
    ) {
        self.tables.ready.insert(by, Ready { lane, seq, at, job, attempt, run_lease, body });
    }

    /// One act of a producer, so that others can be interleaved. Mutation B2 gives the id with the
    /// insert, as a plain `DEFAULT nextval(..)` would.
    ///
    /// # Panics
    /// As [`World::apply`] does.
    pub fn micro_enqueue(&mut self, s: SessionId, stage: &Stage) -> Applied {
        let ran = self.producer_acts(s, stage);
        self.answer(s, ran)
    }

    fn producer_acts(&mut self, s: SessionId, stage: &Stage) -> Done<Reply> {
        self.usable(s);
        self.keep_snapshot(s);
        match stage {
            Stage::ReadCursor => Ok(Reply::CursorRead(self.open(&self.view(s), Ring::Queue))),
            Stage::AssignXid if self.mutation == Mutation::XidAfterPosition => {
                Ok(Reply::OwnXid(None))
            }
            Stage::AssignXid => Ok(Reply::OwnXid(Some(self.xid(s)))),
            Stage::DrawPosition => Ok(Reply::PositionRead(self.draw_position())),
            Stage::Savepoint { undone } => {
                self.savepoint(s, *undone);
                Ok(Reply::PositionRead(self.draw_position()))
            }
            Stage::Insert(job, at, seq) => {
                self.write(s, &[Rel::Ready], at.slot)?;
                let body = self.body(job, self.now)?;
                let (by, id) = (self.xid(s), JobId(seq.0));
                self.append(by, *at, (job.lane, *seq), (Attempt(0), RunLease(0)), id, body);
                self.txn(s).enqueued += 1;
                Ok(Reply::Enqueued(vec![id]))
            }
        }
    }

    pub(crate) fn enqueue_deferred(
        &mut self,
        s: SessionId,
        jobs: &[(NewJob, Instant)],
    ) -> Done<Reply> {
        let mut ids = Vec::new();
        for (new, run_at) in jobs {
            let body = self.body(new, *run_at)?;
            let (by, job, run_at, lane) =
                (self.xid(s), JobId(self.draw_position().0), *run_at, new.lane);
            let (state, attempt, run_lease) = (JobState::Scheduled, Attempt(0), RunLease(0));
            let attempted_at = None;
            self.tables.deferred.insert(
                by,
                Deferred { run_at, job, lane, state, attempt, run_lease, attempted_at, body },
            );
            ids.push(job);
        }
        self.txn(s).enqueued += ids.len() as i64;
        Ok(Reply::Enqueued(ids))
    }

    /// Steps over rows that another session holds.
    pub(crate) fn promote(&mut self, s: SessionId, limit: i64) -> Done<Reply> {
        let view = self.view(s);
        let at = self.open(&view, Ring::Queue);
        let due = self.tables.deferred.seen(&view).filter(|d| d.run_at <= self.now);
        let free = due.filter(|d| !self.locks.held_by_other(s, &Key::Deferred(d.job)));
        let rows: Vec<Deferred> = free.take(limit.max(0) as usize).cloned().collect();
        let mut promoted = Vec::new();
        if !rows.is_empty() {
            self.write(s, &[Rel::Ready], at.slot)?;
        }
        for d in rows {
            self.lock(s, Key::Deferred(d.job))?;
            let by = self.xid(s);
            self.tables.deferred.take(&view, by, |row| row.job == d.job);
            let seq = self.draw_position();
            let body = Arc::new(Body { run_at: d.run_at, ..(*d.body).clone() });
            self.append(by, at, (d.lane, seq), (d.attempt, d.run_lease), d.job, body);
            promoted.push((d.job, d.lane));
        }
        Ok(Reply::Promoted(promoted))
    }

    pub(crate) fn next_due(&self, s: SessionId) -> Reply {
        let due = self.tables.deferred.seen(&self.view(s)).map(|d| d.run_at).min();
        Reply::NextDue { now: self.clock(), due }
    }

    pub(crate) fn lock_lane(&mut self, s: SessionId, lane: LaneId) -> Done<Reply> {
        self.keep_for_claim(s);
        self.lock(s, Key::Lane(lane))?;
        Ok(Reply::Locked)
    }

    /// Claims look into every slot; mutation B11 leaves the pruned ones out.
    fn looks_into(&self, view: &View, slot: Slot) -> bool {
        let key = (Ring::Queue, slot, SlotState::Pruned);
        self.mutation != Mutation::ClaimSkipsPruned
            || !self.tables.slots.seen(view).any(|s| (s.ring, s.slot, s.state) == key)
    }

    /// What a claim with that window would find, in lane order.
    pub(crate) fn unclaimed<'a>(
        &'a self,
        view: &'a View,
        lane: LaneId,
        window: &Window,
    ) -> Vec<&'a Ready> {
        let (low, spent) = (window.low(&view.snapshot), self.spent(view, lane));
        let rows = self.tables.ready.seen(view).filter(|r| r.lane == lane && r.seq > low);
        rows.filter(|r| !spent.has(r.seq.0) && self.looks_into(view, r.at.slot)).collect()
    }

    pub(crate) fn poll(&mut self, s: SessionId, lanes: &[(LaneId, Window)]) -> Done<Reply> {
        self.read(s, &[Rel::Ready, Rel::Evidence])?;
        let view = self.view(s);
        let holds =
            |(lane, window): &&(LaneId, Window)| !self.unclaimed(&view, *lane, window).is_empty();
        let mut holding: Vec<LaneId> = lanes.iter().filter(holds).map(|(lane, _)| *lane).collect();
        holding.sort();
        holding.dedup();
        Ok(Reply::Polled { seen: view.snapshot, holding })
    }

    pub(crate) fn claim(
        &mut self,
        s: SessionId,
        (lane, window): (LaneId, &Window),
        bounds: (u16, i64),
        deadline: Option<Span>,
    ) -> Done<Reply> {
        self.read(s, &[Rel::Ready, Rel::Evidence])?;
        let view = self.view_of_claim(s);
        let (rows, bounded) = within(self.unclaimed(&view, lane, window), bounds);
        let mut groups: BTreeMap<Segment, Vec<Ready>> = BTreeMap::new();
        for row in &rows {
            groups.entry(row.at).or_default().push(row.clone());
        }
        let slot = self.open(&view, Ring::Claim).slot;
        for at in groups.keys() {
            self.write(s, &[Rel::Evidence], at.slot)?;
            self.write(s, &[Rel::Claims], slot)?;
        }
        let (low, settled) = (window.low(&view.snapshot), window.settled(&view.snapshot));
        let last = rows.last().map(|r| r.seq);
        let spent_to = match (last.filter(|_| bounded), self.mutation) {
            (_, Mutation::SpentPastSettled) => last.unwrap_or(settled),
            (Some(last), _) => last.min(settled),
            (None, _) => settled,
        };
        let (claimed_at, deadline_at) = (self.now, deadline.map(|span| self.now.after(span)));
        let mut receipts = BTreeMap::new();
        for (at, group) in groups {
            let by = self.xid(s);
            self.last_batch += 4096;
            let batch = BatchId(self.last_batch);
            let jobs: Vec<Taken> = group.iter().map(taken).collect();
            let (n, ranges) = (jobs.len() as i32, covered(&group, low, settled));
            let evidence = Evidence { at, lane, n, batch: Some(batch), ranges, spent_to };
            self.tables.evidence.insert(by, evidence);
            let claim = Claim { slot, batch, ready: at, lane, claimed_at, deadline_at, jobs };
            for (place, job) in claim.jobs.iter().enumerate() {
                receipts.insert(job.seq, claim.receipt(place));
            }
            self.tables.claims.insert(by, claim);
        }
        let jobs: Vec<ClaimedJob> = rows.iter().map(|r| claimed_job(r, receipts[&r.seq])).collect();
        Ok(Reply::Claimed(Claimed {
            seen: view.snapshot,
            bounded: bounded && self.mutation != Mutation::FrontierForgotten,
            last: rows.last().map(|r| r.seq),
            attempted_at: claimed_at,
            deadline_at,
            jobs,
        }))
    }
}

/// The rows that a claim takes, and whether a bound may have left others.
fn within(rows: Vec<&Ready>, (limit, bytes_max): (u16, i64)) -> (Vec<Ready>, bool) {
    let (mut taken, mut bytes) = (Vec::new(), 0);
    for row in rows {
        bytes += row.body.args.len() as i64;
        let fits = taken.is_empty() || bytes <= bytes_max;
        if !fits || taken.len() == usize::from(limit) {
            return (taken, true);
        }
        taken.push(row.clone());
    }
    let full = taken.len() == usize::from(limit);
    (taken, full)
}

/// Evidence for one group of a claim: up to its last settled position in one range, from where the
/// claim looked; others exactly, for who drew what lies between may still come.
fn covered(group: &[Ready], low: LaneSeq, settled: LaneSeq) -> Ranges {
    let last = group.iter().map(|r| r.seq.0).filter(|p| *p <= settled.0).max();
    let whole = last.map(|last| (low.0 + 1, last + 1));
    Ranges::of(whole.into_iter().chain(group.iter().map(|r| (r.seq.0, r.seq.0 + 1))))
}

fn taken(r: &Ready) -> Taken {
    let (run_lease, attempt) = (RunLease(r.run_lease.0 + 1), Attempt(r.attempt.0 + 1));
    Taken { seq: r.seq, job: r.job, run_lease, attempt }
}

fn claimed_job(r: &Ready, receipt: Receipt) -> ClaimedJob {
    ClaimedJob {
        receipt,
        kind: r.body.kind.clone(),
        args: r.body.args.clone(),
        attempt: taken(r).attempt,
        max_attempts: r.body.max_attempts,
        run_at: r.body.run_at,
        created_at: r.body.created_at,
        traits: traits(r.body.payload.as_deref()),
        payload: r.body.payload.clone(),
    }
}
