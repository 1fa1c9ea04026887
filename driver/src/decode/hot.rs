//! Replies of the hot steps, by the column contract at the head of each `.sql` file.

use awa_core::ids::{Attempt, Generation, Place, Priority, RunLease, Shard};
use awa_core::reply::Claimed;
use awa_core::rules::BodyTraits;
use awa_core::{
    BatchId, ClaimedJob, JobId, Lane, LaneId, LaneSeq, Receipt, ReceiptId, Reply, Segment, Slot,
    Snapshot, Xid,
};
use awa_sqlgen::Timestamptz;
use tokio_postgres::Row;

use super::{Answer, Misshapen};

pub(super) fn lanes_found(rows: &[Row]) -> Result<Reply, Misshapen> {
    let lane = |row: &Row| {
        Ok::<_, Misshapen>(Lane {
            lane: LaneId(row.try_get("lane_id")?),
            priority: Priority(row.try_get("priority")?),
            shard: Shard(row.try_get("enqueue_shard")?),
        })
    };
    Ok(Reply::LanesFound(rows.iter().map(lane).collect::<Result<_, _>>()?))
}

/// Positions ascend in the order of the jobs, so the ids do.
pub(super) fn enqueued(rows: &[Row]) -> Result<Reply, Misshapen> {
    let mut ids = rows.iter().map(|row| row.try_get(0)).collect::<Result<Vec<i64>, _>>()?;
    ids.sort_unstable();
    Ok(Reply::Enqueued(ids.into_iter().map(JobId).collect()))
}

pub(super) fn cursor_read(rows: &[Row]) -> Result<Reply, Misshapen> {
    let row = only(rows)?;
    let slot = Slot(row.try_get("slot")?);
    let generation = Generation(row.try_get("generation")?);
    Ok(Reply::CursorRead(Segment { slot, generation }))
}

pub(super) fn copied(answer: &Answer) -> Result<Reply, Misshapen> {
    match answer {
        Answer::Copied(rows) => Ok(Reply::Copied(*rows)),
        Answer::Rows(_) | Answer::Done => Err(misshapen("a copy that counted no rows")),
    }
}

pub(super) fn promoted(rows: &[Row]) -> Result<Reply, Misshapen> {
    let job = |row: &Row| {
        Ok::<_, Misshapen>((JobId(row.try_get("job_id")?), LaneId(row.try_get("lane_id")?)))
    };
    Ok(Reply::Promoted(rows.iter().map(job).collect::<Result<_, _>>()?))
}

pub(super) fn next_due(rows: &[Row]) -> Result<Reply, Misshapen> {
    let row = only(rows)?;
    let now = row.try_get::<_, Timestamptz>("now")?.0;
    let due = row.try_get::<_, Option<Timestamptz>>("due")?.map(|at| at.0);
    Ok(Reply::NextDue { now, due })
}

pub(super) fn position_read(rows: &[Row]) -> Result<Reply, Misshapen> {
    Ok(Reply::PositionRead(LaneSeq(only(rows)?.try_get("position")?)))
}

pub(super) fn own_xid(rows: &[Row]) -> Result<Reply, Misshapen> {
    let id: Option<i64> = only(rows)?.try_get("xid")?;
    Ok(Reply::OwnXid(id.map(|id| Xid(id.cast_unsigned()))))
}

pub(super) fn polled(rows: &[Row]) -> Result<Reply, Misshapen> {
    let row = only(rows)?;
    let seen = snapshot(row.try_get("seen")?)?;
    let holding: Vec<i64> = row.try_get("holding")?;
    Ok(Reply::Polled { seen, holding: holding.into_iter().map(LaneId).collect() })
}

pub(super) fn closed(rows: &[Row]) -> Result<Reply, Misshapen> {
    let closed: Option<Vec<i64>> = only(rows)?.try_get("closed")?;
    let mut receipts: Vec<_> = closed.unwrap_or_default().into_iter().map(ReceiptId).collect();
    receipts.sort_unstable();
    Ok(Reply::Closed(receipts))
}

/// The columns of `ClaimReady.sql` by number: a claim has hundreds of rows, and a name is looked up
/// by comparing it with each.
mod claim_column {
    pub(super) const SEEN: usize = 0;
    pub(super) const ATTEMPTED_AT: usize = 1;
    pub(super) const DEADLINE_AT: usize = 2;
    pub(super) const BOUNDED: usize = 3;
    pub(super) const CLAIM_SLOT: usize = 4;
    pub(super) const BATCH_IDS: usize = 5;
    pub(super) const PART: usize = 6;
    pub(super) const LANE_SEQ: usize = 7;
    pub(super) const JOB_ID: usize = 8;
    pub(super) const RUN_LEASE: usize = 9;
    pub(super) const ATTEMPT: usize = 10;
    pub(super) const MAX_ATTEMPTS: usize = 11;
    pub(super) const RUN_AT: usize = 12;
    pub(super) const CREATED_AT: usize = 13;
    pub(super) const TRAITS: usize = 14;
    pub(super) const KIND: usize = 15;
    pub(super) const ARGS: usize = 16;
    pub(super) const PAYLOAD: usize = 17;
}
use claim_column as column;

pub(super) fn claimed(rows: &[Row]) -> Result<Reply, Misshapen> {
    let mut head = None;
    let mut taken: Vec<(i64, &Row)> = Vec::with_capacity(rows.len());
    for row in rows {
        if let Some(seen) = row.try_get::<_, Option<&str>>(column::SEEN)? {
            head = Some((row, snapshot(seen)?));
        } else {
            taken.push((row.try_get(column::LANE_SEQ)?, row));
        }
    }
    let (head, seen) = head.ok_or_else(|| misshapen("a claim without its first row"))?;
    taken.sort_unstable_by_key(|(lane_seq, _)| *lane_seq);
    let mut batches = Batches::of(head)?;
    let mut jobs = Vec::with_capacity(taken.len());
    for (lane_seq, row) in &taken {
        jobs.push(claimed_job(*lane_seq, row, &mut batches)?);
    }
    Ok(Reply::Claimed(Claimed {
        seen,
        bounded: head.try_get(column::BOUNDED)?,
        last: taken.last().map(|(lane_seq, _)| LaneSeq(*lane_seq)),
        attempted_at: head.try_get::<_, Timestamptz>(column::ATTEMPTED_AT)?.0,
        deadline_at: head.try_get::<_, Option<Timestamptz>>(column::DEADLINE_AT)?.map(|at| at.0),
        jobs,
    }))
}

/// The batches of one claim, and how many of their jobs have been met in lane order.
struct Batches {
    claim_slot: Slot,
    met: Vec<(BatchId, u16)>,
}

impl Batches {
    fn of(head: &Row) -> Result<Self, Misshapen> {
        let ids = head.try_get::<_, Option<Vec<i64>>>(column::BATCH_IDS)?.unwrap_or_default();
        // NULL in an empty claim, whose batches nobody asks for.
        let claim_slot = head.try_get::<_, Option<i32>>(column::CLAIM_SLOT)?.unwrap_or_default();
        let met = ids.into_iter().map(|id| (BatchId(id), 0)).collect();
        Ok(Self { claim_slot: Slot(claim_slot), met })
    }

    fn next(&mut self, part: i32, job: JobId, run_lease: RunLease) -> Result<Receipt, Misshapen> {
        let batch = usize::try_from(part).ok().and_then(|part| self.met.get_mut(part));
        let (batch, met) =
            batch.ok_or_else(|| misshapen(format!("a job of unknown part {part}")))?;
        *met += 1;
        let claim_slot = self.claim_slot;
        let index = Place::new(i64::from(*met)).map_err(|e| misshapen(e.to_string()))?;
        Ok(Receipt { claim_slot, batch: *batch, index, job, run_lease })
    }
}

fn claimed_job(lane_seq: i64, row: &Row, batches: &mut Batches) -> Result<ClaimedJob, Misshapen> {
    let job = JobId(row.try_get::<_, Option<_>>(column::JOB_ID)?.unwrap_or(lane_seq));
    let run_lease = RunLease(row.try_get::<_, Option<_>>(column::RUN_LEASE)?.unwrap_or(1));
    let part = row.try_get::<_, Option<_>>(column::PART)?.unwrap_or(0);
    let run_at = row.try_get::<_, Timestamptz>(column::RUN_AT)?.0;
    let created_at = row.try_get::<_, Option<Timestamptz>>(column::CREATED_AT)?;
    let traits: i32 = row.try_get::<_, Option<_>>(column::TRAITS)?.unwrap_or(0);
    Ok(ClaimedJob {
        receipt: batches.next(part, job, run_lease)?,
        kind: row.try_get(column::KIND)?,
        args: row.try_get(column::ARGS)?,
        attempt: Attempt(row.try_get::<_, Option<_>>(column::ATTEMPT)?.unwrap_or(1)),
        max_attempts: row.try_get(column::MAX_ATTEMPTS)?,
        run_at,
        created_at: created_at.map_or(run_at, |at| at.0),
        traits: BodyTraits {
            unique_key: traits & 1 != 0,
            tags: traits & 2 != 0,
            errors: traits & 4 != 0,
            custom_metadata: traits & 8 != 0,
        },
        payload: row.try_get(column::PAYLOAD)?,
    })
}

fn snapshot(text: &str) -> Result<Snapshot, Misshapen> {
    Snapshot::parse(text).ok_or_else(|| misshapen(format!("{text:?} is no snapshot")))
}

fn only(rows: &[Row]) -> Result<&Row, Misshapen> {
    match rows {
        [row] => Ok(row),
        rows => Err(misshapen(format!("{} rows where one was due", rows.len()))),
    }
}

fn misshapen(what: impl Into<String>) -> Misshapen {
    Misshapen { what: what.into() }
}
