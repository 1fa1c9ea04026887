//! What prune does to terminal rows, and the counters that follow them.

use std::collections::BTreeMap;

use awa_core::job::TerminalSurvey;
use awa_core::rules::{self, Cutoff, counter_bucket};
use awa_core::{Bucket, JobState, LaneId, QueueCounts, QueueName, Reply, Ring, Segment, Slot, Xid};

use super::job::hydrate;
use super::lock::{Key, Mode, Rel, SessionId};
use super::rows::{Delta, Done as DoneRow, Folded, Rollup, Trust};
use super::table::View;
use super::{Done, Mutation, Raised, Stop, World};

const TERMINAL: &[Rel] = &[Rel::Ready, Rel::Compact, Rel::Hidden, Rel::Done];

/// What a counter counts.
pub(crate) type Counter = (Slot, LaneId, Bucket, JobState);

fn counter(d: &DoneRow) -> Counter {
    (d.at.slot, d.lane, counter_bucket(d.job), d.state)
}

impl World {
    pub(crate) fn is_carried(&self, d: &DoneRow, cutoff: Option<Cutoff>) -> bool {
        let inside = rules::is_carried(JobState::Failed, d.finalized_at, cutoff);
        match self.mutation {
            Mutation::CutoffFlipped => {
                d.state == JobState::Failed && cutoff.is_some_and(|c| d.finalized_at > c.0)
            }
            Mutation::CarriesCancelled => d.state != JobState::Completed && inside,
            _ => rules::is_carried(d.state, d.finalized_at, cutoff),
        }
    }

    /// The delta follows the row.
    pub(crate) fn delta(&mut self, by: Xid, d: &DoneRow, delta: i64) {
        let bucket = counter_bucket(d.job);
        self.tables
            .deltas
            .insert(by, Delta { at: d.at, lane: d.lane, bucket, state: d.state, delta });
    }

    /// A row of retryable history, under a key that must be new (`R032-04`).
    fn insert_done(&mut self, s: SessionId, row: DoneRow) -> Done<Xid> {
        let by = self.xid(s);
        let key = |d: &DoneRow| (d.at.slot, d.lane, d.seq);
        let view = self.view(s);
        if self.tables.done.seen(&view).any(|d| key(d) == key(&row)) {
            let (slot, lane, seq) = key(&row);
            return Err(Stop::Raised(Raised::DuplicateKey(format!("{slot} {lane} {seq}"))));
        }
        self.tables.done.insert(by, row);
        Ok(by)
    }

    /// The same with its delta (`R026-22`).
    pub(crate) fn put_done(&mut self, s: SessionId, row: DoneRow) -> Done<()> {
        let by = self.insert_done(s, row.clone())?;
        self.delta(by, &row, 1);
        Ok(())
    }

    pub(crate) fn survey(
        &mut self,
        s: SessionId,
        slot: Slot,
        cutoff: Option<Cutoff>,
    ) -> Done<Reply> {
        self.hold(s, TERMINAL, slot, Mode::AccessShare)?;
        let view = self.view(s);
        let bodies = self.bodies(&view);
        let mut found = TerminalSurvey::default();
        for d in self.tables.done.seen(&view).filter(|d| d.at.slot == slot) {
            if self.is_carried(d, cutoff) {
                found.carried += 1;
                found.bodies_missing += i64::from(hydrate(&bodies, d).is_none());
            } else if d.state == JobState::Failed {
                found.failed += 1;
            } else {
                found.other += 1;
            }
        }
        let compact = self.tables.compact.seen(&view).filter(|c| c.at.slot == slot);
        let hidden = self.tables.hidden.seen(&view).filter(|t| t.at.slot == slot).count();
        found.compact = compact.map(|c| c.jobs.len() as i64).sum::<i64>() - hidden as i64;
        Ok(Reply::Surveyed(found))
    }

    /// A row whose body is missing stays behind, and the books tell.
    pub(crate) fn carry(
        &mut self,
        s: SessionId,
        from: Slot,
        to: Segment,
        cutoff: Cutoff,
    ) -> Done<Reply> {
        self.hold(s, &[Rel::Ready, Rel::Done], from, Mode::AccessShare)?;
        self.write(s, &[Rel::Done, Rel::Deltas], to.slot)?;
        let view = self.view(s);
        let bodies = self.bodies(&view);
        let mut carried = Vec::new();
        for d in self.tables.done.seen(&view).filter(|d| d.at.slot == from) {
            let Some(body) = hydrate(&bodies, d) else { continue };
            if self.is_carried(d, Some(cutoff)) {
                let narrow = self.mutation == Mutation::CarriesNarrow && d.body.is_none();
                let body = if narrow { None } else { Some(body) };
                let payload = d.payload.clone().filter(|_| narrow);
                carried.push(DoneRow { at: to, body, payload, ..d.clone() });
            }
        }
        let (rows, mut deltas) = (carried.len() as i64, 0);
        for row in carried {
            let by = self.insert_done(s, row.clone())?;
            if self.mutation != Mutation::CarryForgetsDelta {
                self.delta(by, &row, 1);
            }
            deltas += 1;
        }
        Ok(Reply::Carried { rows, deltas })
    }

    pub(crate) fn fold_rollup(
        &mut self,
        s: SessionId,
        slot: Slot,
        cutoff: Option<Cutoff>,
    ) -> Done<Reply> {
        self.hold(s, TERMINAL, slot, Mode::AccessShare)?;
        let view = self.view(s);
        let mut lanes: BTreeMap<LaneId, (i64, i64)> = BTreeMap::new();
        for d in self.tables.done.seen(&view).filter(|d| d.at.slot == slot) {
            if !self.is_carried(d, cutoff) {
                let sums = lanes.entry(d.lane).or_default();
                *(if d.state == JobState::Failed { &mut sums.1 } else { &mut sums.0 }) += 1;
            }
        }
        for c in self.tables.compact.seen(&view).filter(|c| c.at.slot == slot) {
            lanes.entry(c.lane).or_default().0 += c.jobs.len() as i64;
        }
        for t in self.tables.hidden.seen(&view).filter(|t| t.at.slot == slot) {
            lanes.entry(t.lane).or_default().0 -= 1;
        }
        lanes.retain(|_, sums| *sums != (0, 0));
        for lane in lanes.keys() {
            self.lock(s, Key::Rollup(*lane))?;
        }
        let (mut other, mut failed) = (0, 0);
        for (lane, sums) in lanes {
            let by = self.xid(s);
            let before = self.tables.rollups.take(&view, by, |r| r.lane == lane).pop();
            let before = before.unwrap_or(Rollup { lane, other: 0, failed: 0 });
            (other, failed) = (other + sums.0, failed + sums.1);
            let (more, worse) = (before.other + sums.0, before.failed + sums.1);
            self.tables.rollups.insert(by, Rollup { lane, other: more, failed: worse });
        }
        Ok(Reply::Folded { other, failed })
    }

    pub(crate) fn find_deltas(&mut self, s: SessionId) -> Done<Reply> {
        self.read(s, &[Rel::Deltas])?;
        let view = self.view(s);
        let mut slots: Vec<Slot> = self.tables.deltas.seen(&view).map(|d| d.at.slot).collect();
        slots.sort();
        slots.dedup();
        Ok(Reply::SlotsFound(slots))
    }

    pub(crate) fn exclude_deltas(&mut self, s: SessionId, slot: Slot) -> Done<Reply> {
        let got = self.hold(s, &[Rel::Deltas], slot, Mode::Exclusive);
        let reply = self.bounded(s, got)?;
        self.xid(s);
        Ok(reply)
    }

    pub(crate) fn write_counters(&mut self, s: SessionId, slot: Slot) -> Done<()> {
        self.locks.take(s, Key::LiveCounts, Mode::RowExclusive).map_err(Stop::Waits)?;
        self.lock(s, Key::Counters(slot))
    }

    pub(crate) fn fold_deltas(&mut self, s: SessionId, slot: Slot) -> Done<Reply> {
        self.hold(s, &[Rel::Deltas], slot, Mode::AccessShare)?;
        self.write_counters(s, slot)?;
        let view = self.view(s);
        let (mut rows, mut sums): (i64, BTreeMap<Counter, i64>) = (0, BTreeMap::new());
        for d in self.tables.deltas.seen(&view).filter(|d| d.at.slot == slot) {
            *sums.entry((slot, d.lane, d.bucket, d.state)).or_default() += d.delta;
            rows += 1;
        }
        let sum = sums.values().sum();
        self.add_counts(s, &view, sums);
        Ok(Reply::DeltasFolded { rows, sum })
    }

    fn add_counts(&mut self, s: SessionId, view: &View, sums: BTreeMap<Counter, i64>) {
        for (key, more) in sums {
            let by = self.xid(s);
            let same = |c: &Folded| (c.slot, c.lane, c.bucket, c.state) == key;
            let before: i64 = self.tables.folded.take(view, by, same).iter().map(|c| c.count).sum();
            let (slot, lane, bucket, state) = key;
            self.tables
                .folded
                .insert(by, Folded { slot, lane, bucket, state, count: before + more });
        }
    }

    pub(crate) fn truncate_deltas(&mut self, s: SessionId, slot: Slot) -> Done<Reply> {
        self.hold(s, &[Rel::Deltas], slot, Mode::Exclusive)?;
        let by = self.xid(s);
        self.clear(by, Rel::Deltas, slot);
        Ok(Reply::Truncated)
    }

    pub(crate) fn exclude_counters(&mut self, s: SessionId) -> Done<Reply> {
        let mut got = Ok(());
        for slot in self.slots_of(Ring::Queue) {
            got = got.and_then(|()| self.hold(s, &[Rel::Done], slot, Mode::Share));
            got = got.and_then(|()| self.hold(s, &[Rel::Deltas], slot, Mode::Exclusive));
        }
        got = got.and_then(|()| self.lock(s, Key::LiveCounts));
        let reply = self.bounded(s, got)?;
        self.xid(s);
        Ok(reply)
    }

    pub(crate) fn rebuild_counters(&mut self, s: SessionId) -> Done<Reply> {
        self.read(s, &[Rel::Done])?;
        self.lock(s, Key::LiveCounts)?;
        let (by, view) = (self.xid(s), self.view(s));
        let sums = self.scan_counters(&view);
        self.tables.folded.take(&view, by, |_| true);
        let sum = sums.values().sum();
        let rows = self.tables.done.seen(&view).count() as i64;
        self.add_counts(s, &view, sums);
        Ok(Reply::Rebuilt { rows, sum })
    }

    /// What the counters must say.
    pub(crate) fn scan_counters(&self, view: &View) -> BTreeMap<Counter, i64> {
        let mut sums = BTreeMap::new();
        for d in self.tables.done.seen(view) {
            *sums.entry(counter(d)).or_default() += 1;
        }
        sums
    }

    /// What they say: folded counters and pending deltas.
    pub(crate) fn told_counters(&self, view: &View) -> BTreeMap<Counter, i64> {
        let mut sums: BTreeMap<Counter, i64> = BTreeMap::new();
        for c in self.tables.folded.seen(view) {
            *sums.entry((c.slot, c.lane, c.bucket, c.state)).or_default() += c.count;
        }
        for d in self.tables.deltas.seen(view) {
            *sums.entry((d.at.slot, d.lane, d.bucket, d.state)).or_default() += d.delta;
        }
        sums
    }

    pub(crate) fn set_trust(&mut self, s: SessionId, trusted: bool) -> Done<Reply> {
        self.lock(s, Key::Trust)?;
        let (by, view) = (self.xid(s), self.view(s));
        self.tables.trust.take(&view, by, |_| true);
        self.tables.trust.insert(by, Trust { trusted });
        Ok(Reply::Marked)
    }

    pub(crate) fn read_counts(&mut self, s: SessionId, queue: &QueueName) -> Done<Reply> {
        self.read(s, super::job::PLACES)?;
        self.read(s, &[Rel::Deltas])?;
        self.locks.take(s, Key::LiveCounts, Mode::AccessShare).map_err(Stop::Waits)?;
        let view = self.view(s);
        Ok(Reply::Counted(self.counts(&view, queue, self.trusts(&view))))
    }

    pub(crate) fn trusts(&self, view: &View) -> bool {
        self.tables.trust.seen(view).all(|t| t.trusted)
    }

    /// The exact counts of a queue by `R026-23`: from the stores where they are trusted, else by
    /// scanning what is terminal.
    pub(crate) fn counts(
        &self,
        view: &View,
        queue: &QueueName,
        trusted: bool,
    ) -> Option<QueueCounts> {
        self.tables.queues.seen(view).find(|q| q.queue == *queue)?;
        let lanes: Vec<LaneId> = self.lanes_of(view, queue).iter().map(|l| l.lane).collect();
        let mut sums: BTreeMap<JobState, i64> = BTreeMap::new();
        let places = self.places(view).into_iter().filter(|p| lanes.contains(&p.lane));
        for place in places.filter(|p| !trusted || !p.state.is_terminal()) {
            *sums.entry(place.state).or_default() += 1;
        }
        if trusted {
            for ((_, _, _, state), n) in self
                .told_counters(view)
                .into_iter()
                .filter(|((_, lane, ..), _)| lanes.contains(lane))
            {
                *sums.entry(state).or_default() += n;
            }
            let compact = self.tables.compact.seen(view).filter(|c| lanes.contains(&c.lane));
            let hidden = self.tables.hidden.seen(view).filter(|t| lanes.contains(&t.lane)).count();
            *sums.entry(JobState::Completed).or_default() +=
                compact.map(|c| c.jobs.len() as i64).sum::<i64>() - hidden as i64;
        }
        let of = |state| sums.get(&state).copied().unwrap_or(0);
        let rollups = || self.tables.rollups.seen(view).filter(|r| lanes.contains(&r.lane));
        Some(QueueCounts {
            available: of(JobState::Available),
            scheduled: of(JobState::Scheduled),
            retryable: of(JobState::Retryable),
            running: of(JobState::Running),
            waiting_external: of(JobState::WaitingExternal),
            completed: of(JobState::Completed),
            failed: of(JobState::Failed),
            cancelled: of(JobState::Cancelled),
            pruned_other: rollups().map(|r| r.other).sum(),
            pruned_failed: rollups().map(|r| r.failed).sum(),
        })
    }

    pub(crate) fn read_pruned_failed(&self, s: SessionId, queue: &QueueName) -> Reply {
        let view = self.view(s);
        let lanes: Vec<LaneId> = self.lanes_of(&view, queue).iter().map(|l| l.lane).collect();
        let rollups = self.tables.rollups.seen(&view).filter(|r| lanes.contains(&r.lane));
        let known = self.tables.queues.seen(&view).any(|q| q.queue == *queue);
        let count = rollups.map(|r| r.failed).sum();
        Reply::PrunedFailed(known.then_some(count))
    }
}
