//! Replies of the hot steps, by the column contract at the head of each `.sql` file.

use std::collections::BTreeMap;

use awa_core::ids::{Attempt, BatchId, Generation, Priority, ReceiptId, RunLease, Shard, Xid};
use awa_core::reply::Claimed;
use awa_core::rules::BodyTraits;
use awa_core::{
    ClaimedJob, Instant, JobId, Lane, LaneId, LaneSeq, Receipt, Reply, Segment, Slot, Snapshot,
};
use awa_sqlgen::Timestamptz;
use tokio_postgres::Row;

use super::{Answer, Misshapen};

fn misshapen(what: impl Into<String>) -> Misshapen {
    Misshapen { what: what.into() }
}

fn only(rows: &[Row]) -> Result<&Row, Misshapen> {
    match rows {
        [row] => Ok(row),
        _ => Err(misshapen(format!("{} rows instead of one", rows.len()))),
    }
}

fn instant(row: &Row, column: &str) -> Result<Option<Instant>, Misshapen> {
    Ok(row.try_get::<_, Option<Timestamptz>>(column)?.map(|at| at.0))
}

pub(super) fn lanes_found(rows: &[Row]) -> Result<Reply, Misshapen> {
    let lane = |row: &Row| -> Result<Lane, Misshapen> {
        Ok(Lane {
            lane: LaneId(row.try_get("lane_id")?),
            priority: Priority(row.try_get("priority")?),
            shard: Shard(row.try_get("enqueue_shard")?),
        })
    };
    rows.iter().map(lane).collect::<Result<_, _>>().map(Reply::LanesFound)
}

pub(super) fn enqueued(rows: &[Row]) -> Result<Reply, Misshapen> {
    let mut jobs = Vec::with_capacity(rows.len());
    for row in rows {
        jobs.push(JobId(row.try_get(0)?));
    }
    // Ids ascend in the order of the jobs, whatever order the rows came back in.
    jobs.sort_unstable();
    Ok(Reply::Enqueued(jobs))
}

pub(super) fn cursor_read(rows: &[Row]) -> Result<Reply, Misshapen> {
    let row = only(rows)?;
    let slot = Slot(row.try_get("slot")?);
    Ok(Reply::CursorRead(Segment { slot, generation: Generation(row.try_get("generation")?) }))
}

pub(super) fn copied(answer: &Answer) -> Result<Reply, Misshapen> {
    match answer {
        Answer::Copied(rows) => Ok(Reply::Copied(*rows)),
        Answer::Rows(_) | Answer::Done => Err(misshapen("no count of copied rows")),
    }
}

pub(super) fn promoted(rows: &[Row]) -> Result<Reply, Misshapen> {
    let job = |row: &Row| -> Result<(JobId, LaneId), Misshapen> {
        Ok((JobId(row.try_get("job_id")?), LaneId(row.try_get("lane_id")?)))
    };
    rows.iter().map(job).collect::<Result<_, _>>().map(Reply::Promoted)
}

pub(super) fn next_due(rows: &[Row]) -> Result<Reply, Misshapen> {
    let row = only(rows)?;
    let now = instant(row, "now")?.ok_or_else(|| misshapen("no clock"))?;
    Ok(Reply::NextDue { now, due: instant(row, "due")? })
}

pub(super) fn position_read(rows: &[Row]) -> Result<Reply, Misshapen> {
    Ok(Reply::PositionRead(LaneSeq(only(rows)?.try_get("position")?)))
}

pub(super) fn own_xid(rows: &[Row]) -> Result<Reply, Misshapen> {
    let xid: Option<i64> = only(rows)?.try_get("xid")?;
    Ok(Reply::OwnXid(xid.map(|xid| Xid(xid.cast_unsigned()))))
}

pub(super) fn polled(rows: &[Row]) -> Result<Reply, Misshapen> {
    let row = only(rows)?;
    let holding: Vec<i64> = row.try_get("holding")?;
    Ok(Reply::Polled {
        seen: snapshot(row.try_get("seen")?)?,
        holding: holding.into_iter().map(LaneId).collect(),
    })
}

fn snapshot(text: &str) -> Result<Snapshot, Misshapen> {
    Snapshot::parse(text).ok_or_else(|| misshapen(format!("snapshot {text:?}")))
}

pub(super) fn closed(rows: &[Row]) -> Result<Reply, Misshapen> {
    let closed: Option<Vec<i64>> = only(rows)?.try_get("closed")?;
    let mut closed: Vec<_> = closed.unwrap_or_default().into_iter().map(ReceiptId).collect();
    closed.sort_unstable();
    Ok(Reply::Closed(closed))
}

pub(super) fn claimed(rows: &[Row]) -> Result<Reply, Misshapen> {
    let mut head = None;
    let mut jobs = Vec::with_capacity(rows.len().saturating_sub(1));
    for row in rows {
        match row.try_get::<_, Option<&str>>("seen")? {
            Some(seen) => head = Some((row, snapshot(seen)?)),
            None => jobs.push((row.try_get::<_, i64>("lane_seq")?, row)),
        }
    }
    let (head, seen) = head.ok_or_else(|| misshapen("a claim without its snapshot"))?;
    jobs.sort_unstable_by_key(|(lane_seq, _)| *lane_seq);
    let claim_slot: Option<i32> = head.try_get("claim_slot")?;
    let batches: Option<Vec<i64>> = head.try_get("batch_ids")?;
    let batches = batches.unwrap_or_default();
    let mut numbered: BTreeMap<usize, u16> = BTreeMap::new();
    let mut claimed = Vec::with_capacity(jobs.len());
    for (lane_seq, row) in &jobs {
        let part: Option<i32> = row.try_get("part")?;
        let part = usize::try_from(part.unwrap_or(0)).map_err(|_| misshapen("a negative part"))?;
        let batch = *batches.get(part).ok_or_else(|| misshapen("a part without a batch"))?;
        let index = numbered.entry(part).or_default();
        *index += 1;
        let receipt = Receipt {
            claim_slot: Slot(claim_slot.ok_or_else(|| misshapen("a claim without a slot"))?),
            batch: BatchId(batch),
            index: *index,
            job: JobId(row.try_get::<_, Option<i64>>("job_id")?.unwrap_or(*lane_seq)),
            run_lease: RunLease(row.try_get::<_, Option<i64>>("run_lease")?.unwrap_or(1)),
        };
        claimed.push(claimed_job(receipt, row)?);
    }
    Ok(Reply::Claimed(Claimed {
        seen,
        bounded: head.try_get("bounded")?,
        last: jobs.last().map(|(lane_seq, _)| LaneSeq(*lane_seq)),
        attempted_at: instant(head, "attempted_at")?.ok_or_else(|| misshapen("no clock"))?,
        deadline_at: instant(head, "deadline_at")?,
        jobs: claimed,
    }))
}

fn claimed_job(receipt: Receipt, row: &Row) -> Result<ClaimedJob, Misshapen> {
    let run_at = instant(row, "run_at")?.ok_or_else(|| misshapen("a job without run_at"))?;
    let traits = row.try_get::<_, Option<i32>>("traits")?.unwrap_or(0);
    Ok(ClaimedJob {
        receipt,
        kind: row.try_get("kind")?,
        args: row.try_get("args")?,
        attempt: Attempt(row.try_get::<_, Option<i16>>("attempt")?.unwrap_or(1)),
        max_attempts: row.try_get("max_attempts")?,
        run_at,
        created_at: instant(row, "created_at")?.unwrap_or(run_at),
        traits: BodyTraits {
            unique_key: traits & 1 != 0,
            tags: traits & 2 != 0,
            errors: traits & 4 != 0,
            custom_metadata: traits & 8 != 0,
        },
        payload: row.try_get("payload")?,
    })
}
