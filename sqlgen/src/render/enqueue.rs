//! Statements of the enqueue steps.

use awa_core::{Instant, LaneId, NewJob, QueueName, Segment, limits};
use bytes::{BufMut, BytesMut};

use super::{Cached, Named, sql};
use crate::param::{Json, Params, Timestamptz};
use crate::{Mode, Statement};

/// Texts that no argument changes.
pub(super) const FIXED: &[Named] = &[
    DECLARE_QUEUE,
    FIND_LANES,
    ENQUEUE_READY,
    ENQUEUE_READY_ONE,
    READ_CURSOR,
    COPY_READY,
    ENQUEUE_DEFERRED,
    PROMOTE_DUE,
    READ_NEXT_DUE,
    WAKE,
];

const DECLARE_QUEUE: Named = sql!("DeclareQueue");
const FIND_LANES: Named = sql!("FindLanes");
const ENQUEUE_READY: Named = sql!("EnqueueReady");
const ENQUEUE_READY_ONE: Named = sql!("EnqueueReadyOne");
const READ_CURSOR: Named = sql!("ReadCursor");
const COPY_READY: Named = sql!("CopyReady");
const ENQUEUE_DEFERRED: Named = sql!("EnqueueDeferred");
const PROMOTE_DUE: Named = sql!("PromoteDue");
const READ_NEXT_DUE: Named = sql!("ReadNextDue");
const WAKE: Named = sql!("Wake");

pub(super) fn declare_queue(sql: &Cached, queue: &QueueName, shards: i16) -> Statement {
    let name = queue.as_str().to_owned();
    let params: Params = vec![Box::new(name), Box::new(shards), Box::new(limits::PRIORITY_MAX)];
    sql.bind(DECLARE_QUEUE, params)
}

pub(super) fn find_lanes(sql: &Cached, queue: &QueueName) -> Statement {
    sql.bind(FIND_LANES, vec![Box::new(queue.as_str().to_owned())])
}

pub(super) fn enqueue_ready(sql: &Cached, jobs: &[NewJob]) -> Statement {
    match jobs {
        // Scalars spare the server the arrays: most jobs come one by one.
        [job] => {
            let params: Params = vec![
                Box::new(job.lane.0),
                Box::new(job.kind.as_str().to_owned()),
                Box::new(Json(job.args.clone())),
                Box::new(job.max_attempts),
                Box::new(job.payload.clone().map(Json)),
            ];
            sql.bind(ENQUEUE_READY_ONE, params)
        }
        jobs => sql.bind(ENQUEUE_READY, columns(jobs.iter())),
    }
}

pub(super) fn enqueue_deferred(sql: &Cached, jobs: &[(NewJob, Instant)]) -> Statement {
    let mut params = columns(jobs.iter().map(|(job, _)| job));
    params.push(Box::new(jobs.iter().map(|(_, at)| Timestamptz(*at)).collect::<Vec<_>>()));
    sql.bind(ENQUEUE_DEFERRED, params)
}

/// Jobs by column: lanes, kinds, args, attempts given, payloads.
fn columns<'a>(jobs: impl Iterator<Item = &'a NewJob> + Clone) -> Params {
    vec![
        Box::new(jobs.clone().map(|j| j.lane.0).collect::<Vec<_>>()),
        Box::new(jobs.clone().map(|j| j.kind.as_str().to_owned()).collect::<Vec<_>>()),
        Box::new(jobs.clone().map(|j| Json(j.args.clone())).collect::<Vec<_>>()),
        Box::new(jobs.clone().map(|j| j.max_attempts).collect::<Vec<_>>()),
        Box::new(jobs.map(|j| j.payload.clone().map(Json)).collect::<Vec<_>>()),
    ]
}

pub(super) fn read_cursor(sql: &Cached) -> Statement {
    sql.bind(READ_CURSOR, Params::new())
}

/// What a binary COPY begins with: signature, flags, no extension.
const COPY_HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
/// What it ends with.
const COPY_TRAILER: i16 = -1;
/// Fields of a row, in the order that `CopyReady.sql` names them.
const COPY_FIELDS: i16 = 7;
/// The version byte of binary `jsonb`.
const JSONB_VERSION: u8 = 1;

pub(super) fn copy_ready(sql: &Cached, to: Segment, jobs: &[NewJob]) -> Statement {
    let mut rows = BytesMut::with_capacity(COPY_HEADER.len() + 128 * jobs.len());
    rows.put_slice(COPY_HEADER);
    for job in jobs {
        rows.put_i16(COPY_FIELDS);
        field(&mut rows, &to.slot.0.to_be_bytes());
        field(&mut rows, &job.max_attempts.to_be_bytes());
        field(&mut rows, &to.generation.0.to_be_bytes());
        field(&mut rows, &job.lane.0.to_be_bytes());
        field(&mut rows, job.kind.as_str().as_bytes());
        json_field(&mut rows, Some(&job.args));
        json_field(&mut rows, job.payload.as_deref());
    }
    rows.put_i16(COPY_TRAILER);
    let mut statement = sql.bind(COPY_READY, Params::new());
    statement.mode = Mode::CopyIn(rows.freeze());
    statement
}

/// A field is its length and its bytes. Lengths fit: core bounds args and names far below 2 GiB.
fn field(rows: &mut BytesMut, bytes: &[u8]) {
    rows.put_i32(bytes.len() as i32);
    rows.put_slice(bytes);
}

fn json_field(rows: &mut BytesMut, text: Option<&str>) {
    match text {
        Some(text) => {
            rows.put_i32(text.len() as i32 + 1);
            rows.put_u8(JSONB_VERSION);
            rows.put_slice(text.as_bytes());
        }
        None => rows.put_i32(-1),
    }
}

pub(super) fn promote_due(sql: &Cached, limit: i64) -> Statement {
    sql.plan_and_bind(PROMOTE_DUE, vec![Box::new(limit)])
}

pub(super) fn read_next_due(sql: &Cached) -> Statement {
    sql.plan_and_bind(READ_NEXT_DUE, Params::new())
}

/// A payload names lanes up to about this many bytes; PostgreSQL allows 8,000.
const PAYLOAD_BYTES: usize = 7_000;

pub(super) fn wake(sql: &Cached, lanes: &[LaneId]) -> Statement {
    let mut payloads = vec![String::new()];
    for lane in lanes {
        let word = lane.0.to_string();
        match payloads.last_mut() {
            Some(last) if last.is_empty() => last.push_str(&word),
            Some(last) if last.len() + word.len() < PAYLOAD_BYTES => {
                last.push(' ');
                last.push_str(&word);
            }
            Some(_) | None => payloads.push(word),
        }
    }
    let channel = crate::session::channel(sql.schema());
    sql.bind(WAKE, vec![Box::new(channel), Box::new(payloads)])
}
