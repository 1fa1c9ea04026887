//! Replies of the cold steps, by the column contract at the head of each `.sql` file.

use awa_core::ids::{Attempt, BatchId, Generation, Place, Priority, RunLease, Shard};
use awa_core::{
    JobId, JobRow, JobState, LaneId, LaneSeq, Location, OverdueAttempt, QueueCounts, ReadyRef,
    Receipt, Reply, Ring, RingView, Segment, Slot, SlotLoad, SlotState, SlotView, TerminalRef,
    TerminalSurvey,
};
use awa_sqlgen::{Json, Timestamptz};
use tokio_postgres::Row;

use super::Misshapen;

pub(super) fn ring_observed(ring: Ring, rows: &[Row]) -> Result<Reply, Misshapen> {
    let first = rows.first().ok_or_else(|| misshapen("a ring without slots"))?;
    let current = Segment {
        slot: Slot(first.try_get("current_slot")?),
        generation: Generation(first.try_get("current_generation")?),
    };
    let now = first.try_get::<_, Timestamptz>("now")?.0;
    let slots = rows.iter().map(slot_view).collect::<Result<_, _>>()?;
    Ok(Reply::RingObserved(RingView { ring, now, current, slots }))
}

fn slot_view(row: &Row) -> Result<SlotView, Misshapen> {
    let word: &str = row.try_get("state")?;
    let state = SlotState::from_word(word);
    Ok(SlotView {
        slot: Slot(row.try_get("slot")?),
        generation: Generation(row.try_get("generation")?),
        state: state.ok_or_else(|| misshapen(format!("a slot in state {word:?}")))?,
        opened_at: row.try_get::<_, Timestamptz>("opened_at")?.0,
        sealed_at: row.try_get::<_, Option<Timestamptz>>("sealed_at")?.map(|at| at.0),
    })
}

pub(super) fn probed(rows: &[Row]) -> Result<Reply, Misshapen> {
    Ok(Reply::Probed { held_by: only(rows)?.try_get("held_by")? })
}

pub(super) fn claims_counted(rows: &[Row]) -> Result<Reply, Misshapen> {
    Ok(Reply::ClaimsCounted { claims: only(rows)?.try_get("claims")? })
}

pub(super) fn surveyed(rows: &[Row]) -> Result<Reply, Misshapen> {
    let row = only(rows)?;
    Ok(Reply::Surveyed(TerminalSurvey {
        carried: row.try_get("carried")?,
        bodies_missing: row.try_get("bodies_missing")?,
        failed: row.try_get("failed")?,
        other: row.try_get("other")?,
        compact: row.try_get("compact")?,
    }))
}

pub(super) fn carried(rows: &[Row]) -> Result<Reply, Misshapen> {
    let row = only(rows)?;
    Ok(Reply::Carried { rows: row.try_get("rows")?, deltas: row.try_get("deltas")? })
}

pub(super) fn folded(rows: &[Row]) -> Result<Reply, Misshapen> {
    let row = only(rows)?;
    Ok(Reply::Folded { other: row.try_get("other")?, failed: row.try_get("failed")? })
}

pub(super) fn marked(rows: &[Row]) -> Result<Reply, Misshapen> {
    if only(rows)?.try_get("exact")? {
        Ok(Reply::Marked)
    } else {
        Err(misshapen("other rows than expected were there to be marked"))
    }
}

pub(super) fn loads_observed(rows: &[Row]) -> Result<Reply, Misshapen> {
    let load = |row: &Row| -> Result<SlotLoad, Misshapen> {
        Ok(SlotLoad {
            slot: Slot(row.try_get("slot")?),
            bytes: row.try_get("bytes")?,
            has_droppable: row.try_get("has_droppable")?,
            droppable_hint: row.try_get("droppable_hint")?,
            carried_hint: row.try_get("carried_hint")?,
            newest_fact_at: row.try_get::<_, Option<Timestamptz>>("newest_fact_at")?.map(|at| at.0),
        })
    };
    rows.iter().map(load).collect::<Result<_, _>>().map(Reply::LoadsObserved)
}

pub(super) fn overdue(rows: &[Row]) -> Result<Reply, Misshapen> {
    let attempt = |row: &Row| -> Result<OverdueAttempt, Misshapen> {
        let place: i64 = row.try_get("place")?;
        Ok(OverdueAttempt {
            receipt: Receipt {
                claim_slot: Slot(row.try_get("claim_slot")?),
                batch: BatchId(row.try_get("batch_id")?),
                index: Place::new(place).map_err(|e| misshapen(e.to_string()))?,
                job: JobId(row.try_get("job_id")?),
                run_lease: RunLease(row.try_get("run_lease")?),
            },
            attempt: Attempt(row.try_get("attempt")?),
            max_attempts: row.try_get("max_attempts")?,
        })
    };
    rows.iter().map(attempt).collect::<Result<_, _>>().map(Reply::Overdue)
}

pub(super) fn slots_found(rows: &[Row]) -> Result<Reply, Misshapen> {
    let slot = |row: &Row| -> Result<Slot, Misshapen> { Ok(Slot(row.try_get("slot")?)) };
    rows.iter().map(slot).collect::<Result<_, _>>().map(Reply::SlotsFound)
}

pub(super) fn deltas_folded(rows: &[Row]) -> Result<Reply, Misshapen> {
    let row = only(rows)?;
    Ok(Reply::DeltasFolded { rows: row.try_get("rows")?, sum: row.try_get("sum")? })
}

pub(super) fn rebuilt(rows: &[Row]) -> Result<Reply, Misshapen> {
    let row = only(rows)?;
    Ok(Reply::Rebuilt { rows: row.try_get("rows")?, sum: row.try_get("sum")? })
}

pub(super) fn counted(rows: &[Row]) -> Result<Reply, Misshapen> {
    let Some(row) = at_most_one(rows)? else { return Ok(Reply::Counted(None)) };
    Ok(Reply::Counted(Some(QueueCounts {
        available: row.try_get("available")?,
        scheduled: row.try_get("scheduled")?,
        retryable: row.try_get("retryable")?,
        running: row.try_get("running")?,
        waiting_external: row.try_get("waiting_external")?,
        completed: row.try_get("completed")?,
        failed: row.try_get("failed")?,
        cancelled: row.try_get("cancelled")?,
        pruned_other: row.try_get("pruned_other")?,
        pruned_failed: row.try_get("pruned_failed")?,
    })))
}

pub(super) fn pruned_failed(rows: &[Row]) -> Result<Reply, Misshapen> {
    let row = at_most_one(rows)?;
    let count = row.map(|row| row.try_get("pruned_failed")).transpose()?;
    Ok(Reply::PrunedFailed(count))
}

pub(super) fn located(rows: &[Row]) -> Result<Reply, Misshapen> {
    let Some(row) = at_most_one(rows)? else { return Ok(Reply::Located(None)) };
    let state = job_state(row)?;
    let ready = || -> Result<ReadyRef, Misshapen> {
        Ok(ReadyRef {
            slot: Slot(row.try_get("ready_slot")?),
            lane: LaneId(row.try_get("lane_id")?),
            lane_seq: LaneSeq(row.try_get("lane_seq")?),
        })
    };
    let location = match row.try_get("place")? {
        "ready" => Location::Ready(ready()?),
        "deferred" => Location::Deferred { state },
        "running" => Location::Running(ready()?),
        "compact" => Location::Compact(ready()?),
        "terminal" => Location::Terminal { state, row: terminal_ref(row)? },
        other => return Err(misshapen(format!("a job in place {other:?}"))),
    };
    Ok(Reply::Located(Some(location)))
}

pub(super) fn matched(rows: &[Row]) -> Result<Reply, Misshapen> {
    rows.iter().map(terminal_ref).collect::<Result<_, _>>().map(Reply::Matched)
}

fn terminal_ref(row: &Row) -> Result<TerminalRef, Misshapen> {
    Ok(TerminalRef {
        job: JobId(row.try_get("job_id")?),
        lane: LaneId(row.try_get("lane_id")?),
        lane_seq: LaneSeq(row.try_get("lane_seq")?),
    })
}

pub(super) fn moved(rows: &[Row]) -> Result<Reply, Misshapen> {
    let job = |row: &Row| -> Result<(JobId, LaneId), Misshapen> {
        Ok((JobId(row.try_get("job_id")?), LaneId(row.try_get("lane_id")?)))
    };
    rows.iter().map(job).collect::<Result<_, _>>().map(Reply::Moved)
}

pub(super) fn job_loaded(rows: &[Row]) -> Result<Reply, Misshapen> {
    let Some(row) = at_most_one(rows)? else { return Ok(Reply::JobLoaded(None)) };
    let (job, found) = job_row(row)?;
    Ok(found.map_or(Reply::BodyMissing { job }, |row| Reply::JobLoaded(Some(row))))
}

pub(super) fn jobs_listed(rows: &[Row]) -> Result<Reply, Misshapen> {
    let mut page = Vec::with_capacity(rows.len());
    for row in rows {
        match job_row(row)? {
            (_, Some(row)) => page.push(row),
            (job, None) => return Ok(Reply::BodyMissing { job }),
        }
    }
    Ok(Reply::JobsListed(page))
}

/// The job, and all of it unless its body is nowhere: then a narrow terminal row has lost its ready row.
fn job_row(row: &Row) -> Result<(JobId, Option<JobRow>), Misshapen> {
    let job = JobId(row.try_get("job_id")?);
    let instant = |name| row.try_get::<_, Option<Timestamptz>>(name).map(|at| at.map(|at| at.0));
    let json = |name| row.try_get::<_, Option<Json>>(name).map(|json| json.map(|json| json.0));
    let body = (
        row.try_get::<_, Option<String>>("kind")?,
        row.try_get::<_, Option<i16>>("max_attempts")?,
        instant("run_at")?,
        instant("created_at")?,
    );
    let (Some(kind), Some(max_attempts), Some(run_at), Some(created_at)) = body else {
        return Ok((job, None));
    };
    let row = JobRow {
        job,
        state: job_state(row)?,
        queue: row.try_get("queue")?,
        priority: Priority(row.try_get("priority")?),
        shard: Shard(row.try_get("enqueue_shard")?),
        kind,
        attempt: Attempt(row.try_get("attempt")?),
        run_lease: RunLease(row.try_get("run_lease")?),
        max_attempts,
        run_at,
        created_at,
        attempted_at: instant("attempted_at")?,
        finalized_at: instant("finalized_at")?,
        args: json("args")?,
        payload: json("payload")?,
    };
    Ok((job, Some(row)))
}

fn job_state(row: &Row) -> Result<JobState, Misshapen> {
    let word: &str = row.try_get("state")?;
    JobState::from_word(word).ok_or_else(|| misshapen(format!("a job in state {word:?}")))
}

fn only(rows: &[Row]) -> Result<&Row, Misshapen> {
    at_most_one(rows)?.ok_or_else(|| misshapen("no row where one was promised"))
}

fn at_most_one(rows: &[Row]) -> Result<Option<&Row>, Misshapen> {
    match rows {
        [] => Ok(None),
        [row] => Ok(Some(row)),
        [..] => Err(misshapen(format!("{} rows where one was promised", rows.len()))),
    }
}

fn misshapen(what: impl Into<String>) -> Misshapen {
    Misshapen { what: what.into() }
}
