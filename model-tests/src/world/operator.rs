//! What operators ask: where a job is, cancel, retry, discard, hide, load, list.

use std::sync::Arc;

use awa_core::{
    Attempt, JobId, JobState, LaneId, LaneSeq, ListFilter, Reply, Ring, Slot, TerminalFilter,
    TerminalRef,
};

use super::job::{Found, PLACES, hydrate};
use super::lock::{Key, Mode, Rel, SessionId};
use super::rows::{Done as DoneRow, Evidence, Tombstone};
use super::table::{Ranges, View};
use super::{Done, World};

impl World {
    fn found(&mut self, s: SessionId, fits: impl Fn(&Found) -> bool) -> Done<Vec<Found>> {
        self.read(s, PLACES)?;
        Ok(self.places(&self.view(s)).into_iter().filter(fits).collect())
    }

    pub(crate) fn locate(&mut self, s: SessionId, job: JobId) -> Done<Reply> {
        let found = self.found(s, |f| f.job == job)?;
        Ok(Reply::Located(found.first().map(|f| f.at)))
    }

    pub(crate) fn load(&mut self, s: SessionId, job: JobId) -> Done<Reply> {
        let found = self.found(s, |f| f.job == job)?;
        let Some(first) = found.into_iter().next() else { return Ok(Reply::JobLoaded(None)) };
        Ok(match first.row {
            Some(row) => Reply::JobLoaded(Some(row)),
            None => Reply::BodyMissing { job },
        })
    }

    pub(crate) fn list(&mut self, s: SessionId, filter: &ListFilter) -> Done<Reply> {
        let before = |f: &Found| filter.before.is_none_or(|before| f.job < before);
        let mut found = self.found(s, |f| f.state == filter.state && before(f))?;
        found.sort_by_key(|f| std::cmp::Reverse(f.job));
        let mut page = Vec::new();
        for f in found {
            let Some(mut row) = f.row else { return Ok(Reply::BodyMissing { job: f.job }) };
            let queue = filter.queue.as_ref().is_none_or(|q| q.as_str() == row.queue);
            let kind = filter.kind.as_ref().is_none_or(|k| k.as_str() == row.kind);
            if queue && kind && page.len() < usize::from(filter.limit) {
                (row.args, row.payload) = (None, None);
                page.push(row);
            }
        }
        Ok(Reply::JobsListed(page))
    }

    pub(crate) fn tombstone(
        &mut self,
        s: SessionId,
        slot: Slot,
        lane: LaneId,
        seq: LaneSeq,
    ) -> Done<Reply> {
        self.hold(s, &[Rel::Ready, Rel::Evidence], slot, Mode::AccessShare)?;
        let view = self.view(s);
        let spent = self.spent(&view, lane);
        let row = self.tables.ready.one(&view, |r| (r.at.slot, r.lane, r.seq) == (slot, lane, seq));
        let Some(row) = row.filter(|r| !spent.has(r.seq.0)) else {
            return Ok(Reply::Moved(Vec::new()));
        };
        self.write(s, &[Rel::Tombstones, Rel::Evidence, Rel::Done, Rel::Deltas], slot)?;
        self.lock(s, Key::Terminal(lane, seq))?;
        let (by, at, job) = (self.xid(s), row.at, row.job);
        self.tables.tombstones.insert(by, Tombstone { at, lane, seq, job });
        let ranges = Ranges::of([(seq.0, seq.0 + 1)]);
        let spent_to = LaneSeq(0);
        self.tables.evidence.insert(by, Evidence { at, lane, n: 0, batch: None, ranges, spent_to });
        self.put_done(
            s,
            DoneRow {
                attempt: row.attempt,
                run_lease: row.run_lease,
                kind: row.body.kind.clone(),
                body: Some(row.body),
                ..DoneRow::new((at, lane, seq), (JobState::Cancelled, self.now), job)
            },
        )?;
        Ok(Reply::Moved(vec![(job, lane)]))
    }

    pub(crate) fn cancel_deferred(&mut self, s: SessionId, job: JobId) -> Done<Reply> {
        self.lock(s, Key::Deferred(job))?;
        let view = self.view(s);
        let at = self.open(&view, Ring::Queue);
        if !self.tables.deferred.seen(&view).any(|d| d.job == job) {
            return Ok(Reply::Moved(Vec::new()));
        }
        self.write(s, &[Rel::Done, Rel::Deltas], at.slot)?;
        let by = self.xid(s);
        let mut moved = Vec::new();
        for d in self.tables.deferred.take(&view, by, |d| d.job == job) {
            let seq = self.draw_position();
            let body = super::rows::Body { run_at: d.run_at, ..(*d.body).clone() };
            self.put_done(
                s,
                DoneRow {
                    attempt: d.attempt,
                    run_lease: d.run_lease,
                    attempted_at: d.attempted_at,
                    kind: body.kind.clone(),
                    body: Some(Arc::new(body)),
                    ..DoneRow::new((at, d.lane, seq), (JobState::Cancelled, self.now), job)
                },
            )?;
            moved.push((job, d.lane));
        }
        Ok(Reply::Moved(moved))
    }

    pub(crate) fn match_terminal(
        &mut self,
        s: SessionId,
        filter: &TerminalFilter,
        after: Option<JobId>,
        limit: i64,
    ) -> Done<Reply> {
        self.read(s, &[Rel::Done])?;
        let view = self.view(s);
        let failed = |d: &DoneRow| d.state == JobState::Failed;
        let fits = |d: &DoneRow| match filter {
            TerminalFilter::Job(job) => {
                d.job == *job && (failed(d) || d.state == JobState::Cancelled)
            }
            TerminalFilter::Kind(kind) => d.kind == kind.as_str() && failed(d),
            TerminalFilter::Queue(queue) => {
                failed(d) && self.lanes_of(&view, queue).iter().any(|l| l.lane == d.lane)
            }
        };
        let rows =
            self.tables.done.seen(&view).filter(|d| fits(d) && after.is_none_or(|a| d.job > a));
        let named = |d: &DoneRow| TerminalRef { job: d.job, lane: d.lane, lane_seq: d.seq };
        let mut matched: Vec<TerminalRef> = rows.map(named).collect();
        matched.sort();
        matched.truncate(limit.max(0) as usize);
        Ok(Reply::Matched(matched))
    }

    /// Takes these rows out of retryable history, wherever they lie now, with their negative
    /// deltas; those that `fits` only. By job, ascending.
    fn take_terminal(
        &mut self,
        s: SessionId,
        rows: &[TerminalRef],
        fits: impl Fn(&World, &View, &DoneRow) -> bool,
    ) -> Done<Vec<DoneRow>> {
        self.read(s, &[Rel::Done, Rel::Ready])?;
        let mut named: Vec<TerminalRef> = rows.to_vec();
        named.sort();
        named.dedup();
        for row in &named {
            self.lock(s, Key::Terminal(row.lane, row.lane_seq))?;
        }
        let view = self.view(s);
        let key = |d: &DoneRow| TerminalRef { job: d.job, lane: d.lane, lane_seq: d.seq };
        let done = self.tables.done.seen(&view).filter(|d| named.binary_search(&key(d)).is_ok());
        let mut found: Vec<DoneRow> = done.filter(|d| fits(self, &view, d)).cloned().collect();
        found.sort_by_key(key);
        for d in &found {
            self.write(s, &[Rel::Done, Rel::Deltas], d.at.slot)?;
        }
        Ok(found)
    }

    fn forget(&mut self, s: SessionId, d: &DoneRow) {
        let (by, view) = (self.xid(s), self.view(s));
        self.tables.done.take(&view, by, |row| row == d);
        self.delta(by, d, -1);
    }

    /// Its errors stay with the job: they are part of its history, and bounded (H20).
    pub(crate) fn retry_terminal(&mut self, s: SessionId, rows: &[TerminalRef]) -> Done<Reply> {
        let at = self.open(&self.view(s), Ring::Queue);
        let whole = |w: &World, v: &View, d: &DoneRow| hydrate(&w.bodies(v), d).is_some();
        let found = self.take_terminal(s, rows, whole)?;
        if !found.is_empty() {
            self.write(s, &[Rel::Ready], at.slot)?;
        }
        let mut moved = Vec::new();
        for d in found {
            let Some(body) = hydrate(&self.bodies(&self.view(s)), &d) else { continue };
            self.forget(s, &d);
            let (by, seq) = (self.xid(s), self.draw_position());
            let body = Arc::new(super::rows::Body { run_at: self.now, ..(*body).clone() });
            self.append(by, at, (d.lane, seq), (Attempt(0), d.run_lease), d.job, body);
            moved.push((d.job, d.lane));
        }
        Ok(Reply::Moved(moved))
    }

    pub(crate) fn discard_terminal(&mut self, s: SessionId, rows: &[TerminalRef]) -> Done<Reply> {
        let found = self.take_terminal(s, rows, |_, _, _| true)?;
        found.iter().for_each(|d| self.forget(s, d));
        self.txn(s).deleted += found.len() as i64;
        Ok(Reply::Moved(found.iter().map(|d| (d.job, d.lane)).collect()))
    }

    pub(crate) fn hide(
        &mut self,
        s: SessionId,
        slot: Slot,
        lane: LaneId,
        seq: LaneSeq,
    ) -> Done<Reply> {
        self.hold(s, &[Rel::Compact], slot, Mode::AccessShare)?;
        self.write(s, &[Rel::Hidden], slot)?;
        self.lock(s, Key::Terminal(lane, seq))?;
        let view = self.view(s);
        let compact =
            self.tables.compact.seen(&view).filter(|c| c.at.slot == slot && c.lane == lane);
        let fact = compact
            .flat_map(|c| c.jobs.iter().map(|(taken, _)| (c.at, taken)))
            .find(|(_, t)| t.seq == seq);
        let Some((at, job)) = fact.map(|(at, taken)| (at, taken.job)) else {
            return Ok(Reply::Moved(Vec::new()));
        };
        let hidden = |t: &Tombstone| (t.at, t.lane, t.seq) == (at, lane, seq);
        if self.tables.hidden.seen(&view).any(hidden) {
            return Ok(Reply::Moved(Vec::new()));
        }
        let by = self.xid(s);
        self.tables.hidden.insert(by, Tombstone { at, lane, seq, job });
        self.txn(s).deleted += 1;
        Ok(Reply::Moved(vec![(job, lane)]))
    }
}
