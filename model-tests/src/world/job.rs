//! Where every job is, from the tables alone: what locating, loading, listing and scanning see.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use awa_core::{
    Attempt, Instant, JobId, JobRow, JobState, Lane, LaneId, LaneSeq, Location, QueueName,
    ReadyRef, ReceiptId, RunLease, Segment, TerminalRef,
};

use super::World;
use super::lock::Rel;
use super::rows::{Body, Claim, Done, LaneRow, Ready};
use super::table::{Ranges, View};

/// Everything that says where jobs are.
pub(crate) const PLACES: &[Rel] = &[
    Rel::Ready,
    Rel::Evidence,
    Rel::Compact,
    Rel::Hidden,
    Rel::Done,
    Rel::Leases,
    Rel::Claims,
    Rel::ClosureBatches,
    Rel::Closures,
];

/// A job in one place.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) job: JobId,
    pub(crate) lane: LaneId,
    pub(crate) state: JobState,
    pub(crate) at: Location,
    /// The whole job; `None` if its body is nowhere.
    pub(crate) row: Option<JobRow>,
}

#[derive(Clone, Copy)]
struct Life {
    attempt: Attempt,
    run_lease: RunLease,
    attempted_at: Option<Instant>,
    finalized_at: Option<Instant>,
}

fn found(lane: &LaneRow, job: JobId, at: Location, body: Option<&Body>, life: Life) -> Found {
    let state = at.state();
    let row = body.map(|body| JobRow {
        job,
        state,
        queue: lane.queue.as_str().to_owned(),
        priority: lane.priority,
        shard: lane.shard,
        kind: body.kind.clone(),
        attempt: life.attempt,
        run_lease: life.run_lease,
        max_attempts: body.max_attempts,
        run_at: body.run_at,
        created_at: body.created_at,
        attempted_at: life.attempted_at,
        finalized_at: life.finalized_at,
        args: Some(body.args.clone()),
        payload: body.payload.clone(),
    });
    Found { job, lane: lane.lane, state, at, row }
}

/// Ready rows by what names them once and for all.
pub(crate) type Bodies<'a> = BTreeMap<(LaneId, LaneSeq), &'a Ready>;

/// The ready row with that label and position.
pub(crate) fn ready_of<'a>(
    bodies: &Bodies<'a>,
    at: Segment,
    lane: LaneId,
    seq: LaneSeq,
) -> Option<&'a Ready> {
    bodies.get(&(lane, seq)).copied().filter(|r| r.at == at)
}

/// The body of a row of retryable history (`R026-03`).
pub(crate) fn hydrate(bodies: &Bodies<'_>, done: &Done) -> Option<Arc<Body>> {
    if done.body.is_some() {
        return done.body.clone();
    }
    let body = &ready_of(bodies, done.at, done.lane, done.seq)?.body;
    Some(match &done.payload {
        Some(payload) => Arc::new(Body { payload: Some(payload.clone()), ..(**body).clone() }),
        None => Arc::clone(body),
    })
}

impl World {
    pub(crate) fn bodies<'a>(&'a self, view: &'a View) -> Bodies<'a> {
        self.tables.ready.seen(view).map(|r| ((r.lane, r.seq), r)).collect()
    }

    /// The spent positions of a lane.
    pub(crate) fn spent(&self, view: &View, lane: LaneId) -> Ranges {
        let evidence = || self.tables.evidence.seen(view).filter(|e| e.lane == lane);
        let floor = evidence().map(|e| (1, e.spent_to.0.saturating_add(1)));
        Ranges::of(floor.chain(evidence().flat_map(|e| e.ranges.iter())))
    }

    /// The same without trust in what evidence says of other evidence.
    pub(crate) fn covered(&self, view: &View, lane: LaneId) -> Ranges {
        let evidence = self.tables.evidence.seen(view).filter(|e| e.lane == lane);
        Ranges::of(evidence.flat_map(|e| e.ranges.iter()))
    }

    /// Every receipt that something closes: a set, so that one that is closed twice closes no other.
    pub(crate) fn closed(&self, view: &View) -> BTreeSet<ReceiptId> {
        let batches = self.tables.closure_batches.seen(view).flat_map(|c| c.receipts.clone());
        batches.chain(self.tables.closures.seen(view).map(|c| c.receipt)).collect()
    }

    /// Receipts of `claims` that nothing closes, ascending, each with its claim and place.
    pub(crate) fn open_claims<'a>(
        &'a self,
        view: &'a View,
        claims: impl Fn(&Claim) -> bool,
    ) -> BTreeMap<ReceiptId, (&'a Claim, usize)> {
        let closed = self.closed(view);
        let claims = self.tables.claims.seen(view).filter(|c| claims(c));
        let receipts = claims.flat_map(|c| {
            (0..c.jobs.len()).map(move |place| (ReceiptId(c.batch.0 + place as i64), (c, place)))
        });
        receipts.filter(|(receipt, _)| !closed.contains(receipt)).collect()
    }

    pub(crate) fn lanes_of(&self, view: &View, queue: &QueueName) -> Vec<Lane> {
        let rows = self.tables.lanes.seen(view).filter(|l| l.queue == *queue);
        let lane = |l: &LaneRow| Lane { lane: l.lane, priority: l.priority, shard: l.shard };
        let mut lanes: Vec<Lane> = rows.map(lane).collect();
        lanes.sort_by_key(|l| (l.priority, l.shard));
        lanes
    }

    /// Every job in every place where it is. In declared lanes only: the joins want them.
    pub(crate) fn places(&self, view: &View) -> Vec<Found> {
        let bodies = self.bodies(view);
        let lanes: BTreeMap<LaneId, &LaneRow> =
            self.tables.lanes.seen(view).map(|l| (l.lane, l)).collect();
        let mut all = Vec::new();
        let mut spent: BTreeMap<LaneId, Ranges> = BTreeMap::new();
        for r in self.tables.ready.seen(view) {
            let gone = spent.entry(r.lane).or_insert_with(|| self.spent(view, r.lane));
            let Some(lane) = lanes.get(&r.lane).filter(|_| !gone.has(r.seq.0)) else { continue };
            let at = ReadyRef { slot: r.at.slot, lane: r.lane, lane_seq: r.seq };
            let (attempted_at, finalized_at) = (None, None);
            let life =
                Life { attempt: r.attempt, run_lease: r.run_lease, attempted_at, finalized_at };
            all.push(found(lane, r.job, Location::Ready(at), Some(&r.body), life));
        }
        let waiting: BTreeSet<ReceiptId> = self
            .tables
            .leases
            .seen(view)
            .filter(|l| l.state == JobState::WaitingExternal)
            .map(|l| l.receipt)
            .collect();
        for (receipt, (c, place)) in self.open_claims(view, |_| true) {
            let (taken, Some(lane)) = (&c.jobs[place], lanes.get(&c.lane)) else { continue };
            let (attempted_at, finalized_at) = (Some(c.claimed_at), None);
            let (attempt, run_lease) = (taken.attempt, taken.run_lease);
            let body = ready_of(&bodies, c.ready, c.lane, taken.seq).map(|r| &*r.body);
            let at = ReadyRef { slot: c.ready.slot, lane: c.lane, lane_seq: taken.seq };
            let life = Life { attempt, run_lease, attempted_at, finalized_at };
            let mut job = found(lane, taken.job, Location::Running(at), body, life);
            if waiting.contains(&receipt) {
                job.state = JobState::WaitingExternal;
                job.row.iter_mut().for_each(|row| row.state = JobState::WaitingExternal);
            }
            all.push(job);
        }
        for d in self.tables.deferred.seen(view) {
            let Some(lane) = lanes.get(&d.lane) else { continue };
            let (attempt, run_lease, finalized_at) = (d.attempt, d.run_lease, None);
            let life = Life { attempt, run_lease, attempted_at: d.attempted_at, finalized_at };
            let mut job =
                found(lane, d.job, Location::Deferred { state: d.state }, Some(&d.body), life);
            job.row.iter_mut().for_each(|row| row.run_at = d.run_at);
            all.push(job);
        }
        self.terminal_places(view, &lanes, &bodies, &mut all);
        all
    }

    fn terminal_places(
        &self,
        view: &View,
        lanes: &BTreeMap<LaneId, &LaneRow>,
        bodies: &Bodies<'_>,
        all: &mut Vec<Found>,
    ) {
        let hidden: BTreeSet<_> =
            self.tables.hidden.seen(view).map(|t| (t.at, t.lane, t.seq)).collect();
        for c in self.tables.compact.seen(view) {
            let Some(lane) = lanes.get(&c.lane) else { continue };
            for (taken, attempted_at) in &c.jobs {
                if hidden.contains(&(c.at, c.lane, taken.seq)) {
                    continue;
                }
                let (attempt, run_lease) = (taken.attempt, taken.run_lease);
                let (attempted_at, finalized_at) = (Some(*attempted_at), Some(c.finalized_at));
                let life = Life { attempt, run_lease, attempted_at, finalized_at };
                let at = ReadyRef { slot: c.at.slot, lane: c.lane, lane_seq: taken.seq };
                let body = ready_of(bodies, c.at, c.lane, taken.seq).map(|r| &*r.body);
                all.push(found(lane, taken.job, Location::Compact(at), body, life));
            }
        }
        for d in self.tables.done.seen(view) {
            let Some(lane) = lanes.get(&d.lane) else { continue };
            let (attempt, run_lease) = (d.attempt, d.run_lease);
            let (attempted_at, finalized_at) = (d.attempted_at, Some(d.finalized_at));
            let life = Life { attempt, run_lease, attempted_at, finalized_at };
            let row = TerminalRef { job: d.job, lane: d.lane, lane_seq: d.seq };
            let at = Location::Terminal { state: d.state, row };
            all.push(found(lane, d.job, at, hydrate(bodies, d).as_deref(), life));
        }
    }
}
