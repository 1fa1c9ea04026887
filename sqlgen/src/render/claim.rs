//! Statements of the claim steps.

use awa_core::{LaneId, Sample, Span, Window};

use super::{Cached, Named, sql};
use crate::Statement;
use crate::param::Params;

/// Texts that no argument changes.
pub(super) const FIXED: &[Named] =
    &[LOCK_LANE, READ_POSITION, CLAIM_READY, READ_OWN_XID, POLL_LANES];

const LOCK_LANE: Named = sql!("LockLane");
const READ_POSITION: Named = sql!("ReadPosition");
const CLAIM_READY: Named = sql!("ClaimReady");
const READ_OWN_XID: Named = sql!("ReadOwnXid");
const POLL_LANES: Named = sql!("PollLanes");

pub(super) fn lock_lane(sql: &Cached, lane: LaneId) -> Statement {
    sql.bind(LOCK_LANE, vec![Box::new(lane.0)])
}

pub(super) fn read_position(sql: &Cached) -> Statement {
    sql.bind(READ_POSITION, Params::new())
}

pub(super) fn claim_ready(
    sql: &Cached,
    lane: LaneId,
    window: &Window,
    limit: u16,
    bytes_max: i64,
    deadline: Option<Span>,
) -> Statement {
    let (positions, xids) = unzipped(&window.samples);
    let params: Params = vec![
        Box::new(lane.0),
        Box::new(window.seen.as_ref().map(ToString::to_string)),
        Box::new(window.frontier.map(|f| f.0)),
        Box::new(positions),
        Box::new(xids),
        Box::new(i64::from(limit)),
        Box::new(bytes_max),
        Box::new(deadline.map(Span::us)),
    ];
    sql.bind(CLAIM_READY, params)
}

pub(super) fn read_own_xid(sql: &Cached) -> Statement {
    sql.bind(READ_OWN_XID, Params::new())
}

pub(super) fn poll_lanes(sql: &Cached, lanes: &[(LaneId, Window)]) -> Statement {
    let (mut first, mut last) = (Vec::new(), Vec::new());
    let (mut positions, mut xids) = (Vec::new(), Vec::new());
    for (_, window) in lanes {
        let (of_lane, ids_of_lane) = unzipped(&window.samples);
        first.push(array_index(positions.len()) + 1);
        positions.extend(of_lane);
        xids.extend(ids_of_lane);
        last.push(array_index(positions.len()));
    }
    let seen = |w: &Window| w.seen.as_ref().map(ToString::to_string);
    let params: Params = vec![
        Box::new(lanes.iter().map(|(lane, _)| lane.0).collect::<Vec<_>>()),
        Box::new(lanes.iter().map(|(_, w)| seen(w)).collect::<Vec<_>>()),
        Box::new(lanes.iter().map(|(_, w)| w.frontier.map(|f| f.0)).collect::<Vec<_>>()),
        Box::new(first),
        Box::new(last),
        Box::new(positions),
        Box::new(xids),
    ];
    sql.bind(POLL_LANES, params)
}

/// An index into an array that goes over the wire: lanes and samples are few.
fn array_index(len: usize) -> i32 {
    len as i32
}

fn unzipped(samples: &[Sample]) -> (Vec<i64>, Vec<i64>) {
    // Ids fit: PostgreSQL counts 63 bits of them.
    samples.iter().map(|s| (s.position.0, s.xid.0.cast_signed())).unzip()
}
