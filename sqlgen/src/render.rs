//! From a step to its statement: one arm a variant, so that a new step breaks the build here.

mod claim;
mod counters;
mod enqueue;
mod exits;
mod operators;
mod rescue;
mod rings;

use std::sync::Arc;

use awa_core::{SchemaName, Step};

use crate::param::Params;
use crate::template::Template;
use crate::{Mode, Statement};

/// Texts that don't depend on a step's arguments, spelled once.
#[derive(Debug)]
pub(crate) struct Cached {
    schema: SchemaName,
    texts: std::collections::BTreeMap<&'static str, Arc<str>>,
}

/// The `.sql` file of a step, by the step's name.
macro_rules! sql {
    ($name:literal) => {
        ($name, $crate::template::Template(include_str!(concat!("../../sql/", $name, ".sql"))))
    };
}
pub(crate) use sql;

/// A step's name and its text.
pub(crate) type Named = (&'static str, Template);

impl Cached {
    pub(crate) fn new(schema: &SchemaName) -> Self {
        let groups = [
            rings::FIXED,
            counters::FIXED,
            enqueue::FIXED,
            claim::FIXED,
            exits::FIXED,
            operators::FIXED,
            rescue::FIXED,
        ];
        let all = groups.iter().flat_map(|g| g.iter());
        let texts = all.map(|(name, text)| (*name, Arc::from(text.spell(schema, None)))).collect();
        Self { schema: schema.clone(), texts }
    }

    /// A statement whose text is the same for every call.
    pub(crate) fn bind(&self, named: Named, params: Params) -> Statement {
        let sql = self.text(named);
        Statement { sql, mode: Mode::Bind(params) }
    }

    fn text(&self, named: Named) -> Arc<str> {
        let known = self.texts.get(named.0).cloned();
        known.unwrap_or_else(|| Arc::from(named.1.spell(&self.schema, None)))
    }

    /// The same, planned for what the tables hold when it is sent.
    pub(crate) fn plan_and_bind(&self, named: Named, params: Params) -> Statement {
        let sql = self.text(named);
        Statement { sql, mode: Mode::PlanAndBind(params) }
    }

    /// A statement that names the children of one slot.
    pub(crate) fn bind_slot(
        &self,
        named: Named,
        slot: awa_core::Slot,
        params: Params,
    ) -> Statement {
        Statement {
            sql: Arc::from(named.1.spell(&self.schema, Some(slot.0))),
            mode: Mode::Bind(params),
        }
    }

    pub(crate) fn schema(&self) -> &SchemaName {
        &self.schema
    }
}

pub(crate) fn render(sql: &Cached, step: &Step) -> Statement {
    match step {
        Step::LockRing { ring } => rings::lock_ring(sql, *ring),
        Step::ObserveRing { ring } => rings::observe_ring(sql, *ring),
        Step::LockSlot { ring, slot } => rings::lock_slot(sql, *ring, *slot),
        Step::ExcludeWriters { slot, timeout_ms } => {
            rings::exclude_writers(sql, *slot, *timeout_ms)
        }
        Step::Exclude { ring, slot, timeout_ms } => rings::exclude(sql, *ring, *slot, *timeout_ms),
        Step::Probe { gate } => rings::probe(sql, *gate),
        Step::CountClaims { slot } => rings::count_claims(sql, *slot),
        Step::SurveyTerminal { slot, cutoff } => rings::survey_terminal(sql, *slot, *cutoff),
        Step::CarryForward { from, to, cutoff } => rings::carry_forward(sql, *from, *to, *cutoff),
        Step::FoldRollup { slot, cutoff } => rings::fold_rollup(sql, *slot, *cutoff),
        Step::Truncate { ring, slot } => rings::truncate(sql, *ring, *slot),
        Step::MarkPruned { ring, slot } => rings::mark_pruned(sql, *ring, *slot),
        Step::Rotate { ring, seal, open } => rings::rotate(sql, *ring, *seal, *open),
        Step::ObserveLoads { ring, cutoff } => rings::observe_loads(sql, *ring, *cutoff),
        Step::FindDeltas => counters::find_deltas(sql),
        Step::ExcludeDeltas { slot, timeout_ms } => {
            counters::exclude_deltas(sql, *slot, *timeout_ms)
        }
        Step::FoldDeltas { slot } => counters::fold_deltas(sql, *slot),
        Step::TruncateDeltas { slot } => counters::truncate_deltas(sql, *slot),
        Step::ExcludeCounters { timeout_ms } => counters::exclude_counters(sql, *timeout_ms),
        Step::RebuildCounters => counters::rebuild_counters(sql),
        Step::SetTrust { trusted } => counters::set_trust(sql, *trusted),
        Step::ReadCounts { queue } => counters::read_counts(sql, queue),
        Step::ReadPrunedFailed { queue } => counters::read_pruned_failed(sql, queue),
        Step::DeclareQueue { queue, shards } => enqueue::declare_queue(sql, queue, *shards),
        Step::FindLanes { queue } => enqueue::find_lanes(sql, queue),
        Step::EnqueueReady { jobs } => enqueue::enqueue_ready(sql, jobs),
        Step::ReadCursor => enqueue::read_cursor(sql),
        Step::CopyReady { to, jobs } => enqueue::copy_ready(sql, *to, jobs),
        Step::EnqueueDeferred { jobs } => enqueue::enqueue_deferred(sql, jobs),
        Step::PromoteDue { limit } => enqueue::promote_due(sql, *limit),
        Step::ReadNextDue => enqueue::read_next_due(sql),
        Step::Wake { lanes } => enqueue::wake(sql, lanes),
        Step::LockLane { lane } => claim::lock_lane(sql, *lane),
        Step::ReadPosition => claim::read_position(sql),
        Step::ClaimReady { lane, window, limit, bytes_max, deadline } => {
            claim::claim_ready(sql, *lane, window, *limit, *bytes_max, *deadline)
        }
        Step::ReadOwnXid => claim::read_own_xid(sql),
        Step::PollLanes { lanes } => claim::poll_lanes(sql, lanes),
        Step::Fence { batches } => exits::fence(sql, batches),
        Step::CompleteCompact { receipts } => exits::complete_compact(sql, receipts),
        Step::CloseAttempts { exits } => exits::close_attempts(sql, exits),
        Step::HandBack { receipts } => exits::hand_back(sql, receipts),
        Step::FindOverdue { limit } => rescue::find_overdue(sql, *limit),
        Step::LocateJob { job } => operators::locate_job(sql, *job),
        Step::TombstoneReady { slot, lane, lane_seq } => {
            operators::tombstone_ready(sql, *slot, *lane, *lane_seq)
        }
        Step::CancelDeferred { job } => operators::cancel_deferred(sql, *job),
        Step::MatchTerminal { filter, after, limit } => {
            operators::match_terminal(sql, filter, *after, *limit)
        }
        Step::RetryTerminal { rows } => operators::retry_terminal(sql, rows),
        Step::DiscardTerminal { rows } => operators::discard_terminal(sql, rows),
        Step::HideCompleted { slot, lane, lane_seq } => {
            operators::hide_completed(sql, *slot, *lane, *lane_seq)
        }
        Step::LoadJob { job } => operators::load_job(sql, *job),
        Step::ListJobs { filter } => operators::list_jobs(sql, filter),
    }
}
