//! One step of each kind, for tests that must look at all of them.

use awa_core::rules::Cutoff;
use awa_core::{
    BatchId, Ending, Exit, Gate, Instant, JobId, JobState, Kind, LaneId, LaneSeq, ListFilter,
    NewJob, Place, QueueName, Receipt, Ring, RunLease, Sample, Segment, Slot, Snapshot, Span, Step,
    TerminalFilter, TerminalRef, UserError, Window, Xid,
};

/// Every step at least once, with arguments that reach each of its spellings.
///
/// # Errors
/// Never, unless what core takes for a legal name or job has changed.
pub fn one_of_each() -> Result<Vec<Step>, UserError> {
    let mut steps = rings();
    steps.extend(counters()?);
    steps.extend(ways_in()?);
    steps.extend(claims_and_exits()?);
    steps.extend(operators()?);
    Ok(steps)
}

const SLOT: Slot = Slot(3);
const LANE: LaneId = LaneId(5);
const SEQ: LaneSeq = LaneSeq(77);

fn at() -> Instant {
    Instant::from_unix_us(1_700_000_000_000_000)
}

const fn segment(slot: i32, generation: i64) -> Segment {
    Segment { slot: Slot(slot), generation: awa_core::Generation(generation) }
}

fn rings() -> Vec<Step> {
    let cutoff = Some(Cutoff(at()));
    let mut steps = vec![
        Step::CountClaims { slot: SLOT },
        Step::ExcludeWriters { slot: SLOT, timeout_ms: 50 },
        Step::SurveyTerminal { slot: SLOT, cutoff },
        Step::CarryForward { from: SLOT, to: segment(4, 9), cutoff: Cutoff(at()) },
        Step::FoldRollup { slot: SLOT, cutoff: None },
    ];
    for ring in Ring::ALL {
        steps.extend([
            Step::LockRing { ring },
            Step::ObserveRing { ring },
            Step::LockSlot { ring, slot: SLOT },
            Step::Exclude { ring, slot: SLOT, timeout_ms: 50 },
            Step::Truncate { ring, slot: SLOT },
            Step::MarkPruned { ring, slot: SLOT },
            Step::Rotate { ring, seal: segment(0, 1), open: segment(1, 2) },
            Step::ObserveLoads { ring, cutoff },
        ]);
    }
    let gates = [
        Gate::PendingReady(SLOT),
        Gate::OpenReceipts(SLOT),
        Gate::ActiveLeases(SLOT),
        Gate::OpenClaims(SLOT),
        Gate::HeldLeases(SLOT),
        Gate::PinnedHorizon,
    ];
    steps.extend(gates.map(|gate| Step::Probe { gate }));
    steps
}

fn counters() -> Result<Vec<Step>, UserError> {
    let queue = QueueName::new("mail")?;
    Ok(vec![
        Step::FindDeltas,
        Step::ExcludeDeltas { slot: SLOT, timeout_ms: 50 },
        Step::FoldDeltas { slot: SLOT },
        Step::TruncateDeltas { slot: SLOT },
        Step::ExcludeCounters { timeout_ms: 50 },
        Step::RebuildCounters,
        Step::SetTrust { trusted: true },
        Step::ReadCounts { queue: queue.clone() },
        Step::ReadPrunedFailed { queue },
    ])
}

fn ways_in() -> Result<Vec<Step>, UserError> {
    let queue = QueueName::new("mail")?;
    let job = NewJob::new(LANE, Kind::new("send")?, "{}".to_owned(), 25, None)?;
    Ok(vec![
        Step::DeclareQueue { queue: queue.clone(), shards: 1 },
        Step::FindLanes { queue },
        Step::EnqueueReady { jobs: vec![job.clone()] },
        Step::EnqueueReady { jobs: vec![job.clone(), job.clone()] },
        Step::ReadCursor,
        Step::CopyReady { to: segment(0, 1), jobs: vec![job.clone()] },
        Step::EnqueueDeferred { jobs: vec![(job, at())] },
        Step::PromoteDue { limit: 100 },
        Step::ReadNextDue,
        Step::Wake { lanes: vec![LANE] },
    ])
}

fn claims_and_exits() -> Result<Vec<Step>, UserError> {
    let window = Window {
        seen: Some(Snapshot { xmin: Xid(10), xmax: Xid(12), open: vec![Xid(10)] }),
        frontier: None,
        samples: vec![Sample { position: LaneSeq(7), xid: Xid(9) }],
    };
    let receipt = Receipt {
        claim_slot: Slot(1),
        batch: BatchId(4096),
        index: Place::new(1)?,
        job: JobId(7),
        run_lease: RunLease(1),
    };
    let failed = Ending::Failed { error: "broken".to_owned() };
    Ok(vec![
        Step::LockLane { lane: LANE },
        Step::ReadPosition,
        Step::ClaimReady {
            lane: LANE,
            window: window.clone(),
            limit: 512,
            bytes_max: 1 << 20,
            deadline: Some(Span::from_secs(60)),
        },
        Step::ReadOwnXid,
        Step::PollLanes { lanes: vec![(LANE, window)] },
        Step::Fence { batches: vec![receipt.batch] },
        Step::CompleteCompact { receipts: vec![receipt] },
        Step::CloseAttempts { exits: vec![Exit { receipt, ending: failed }] },
        Step::HandBack { receipts: vec![receipt] },
        Step::FindOverdue { limit: 100 },
    ])
}

fn operators() -> Result<Vec<Step>, UserError> {
    let queue = QueueName::new("mail")?;
    let row = TerminalRef { job: JobId(7), lane: LANE, lane_seq: SEQ };
    let filters = [
        TerminalFilter::Job(JobId(7)),
        TerminalFilter::Kind(Kind::new("send")?),
        TerminalFilter::Queue(queue.clone()),
    ];
    let mut steps = vec![
        Step::LocateJob { job: JobId(7) },
        Step::TombstoneReady { slot: SLOT, lane: LANE, lane_seq: SEQ },
        Step::CancelDeferred { job: JobId(7) },
        Step::RetryTerminal { rows: vec![row] },
        Step::DiscardTerminal { rows: vec![row] },
        Step::HideCompleted { slot: SLOT, lane: LANE, lane_seq: SEQ },
        Step::LoadJob { job: JobId(7) },
    ];
    steps.extend(filters.map(|filter| Step::MatchTerminal {
        filter,
        after: Some(JobId(3)),
        limit: 100,
    }));
    steps.extend(JobState::ALL.map(|state| Step::ListJobs {
        filter: ListFilter {
            queue: Some(queue.clone()),
            kind: None,
            state,
            before: Some(JobId(9)),
            limit: 50,
        },
    }));
    Ok(steps)
}
