//! Statements of the steps that end attempts.

use awa_core::limits::{CLAIM_ROWS_MAX, ERRORS_KEPT_MAX};
use awa_core::{BatchId, Ending, Exit, Receipt};

use super::{Cached, Named, sql};
use crate::Statement;
use crate::param::Params;

/// Texts that no argument changes.
pub(super) const FIXED: &[Named] = &[FENCE, COMPLETE_COMPACT, CLOSE_ATTEMPTS, HAND_BACK];

const FENCE: Named = sql!("Fence");
const COMPLETE_COMPACT: Named = sql!("CompleteCompact");
const CLOSE_ATTEMPTS: Named = sql!("CloseAttempts");
const HAND_BACK: Named = sql!("HandBack");

pub(super) fn fence(sql: &Cached, batches: &[BatchId]) -> Statement {
    // Claims' ids lie CLAIM_ROWS_MAX apart; what doesn't fit into the key's 32 bits is left out.
    let key = |batch: &BatchId| (batch.0 / i64::from(CLAIM_ROWS_MAX)) as i32;
    let mut keys: Vec<i32> = batches.iter().map(key).collect();
    keys.sort_unstable();
    keys.dedup();
    sql.bind(FENCE, vec![Box::new(keys)])
}

pub(super) fn complete_compact(sql: &Cached, receipts: &[Receipt]) -> Statement {
    sql.bind(COMPLETE_COMPACT, named_claims(&each_once(receipts)))
}

pub(super) fn hand_back(sql: &Cached, receipts: &[Receipt]) -> Statement {
    sql.bind(HAND_BACK, named_claims(&each_once(receipts)))
}

fn each_once(receipts: &[Receipt]) -> Vec<Receipt> {
    let mut sorted = receipts.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    sorted
}

/// Where an attempt is named twice, its first ending counts.
pub(super) fn close_attempts(sql: &Cached, exits: &[Exit]) -> Statement {
    let mut sorted: Vec<&Exit> = exits.iter().collect();
    sorted.sort_by_key(|exit| exit.receipt);
    sorted.dedup_by_key(|exit| exit.receipt);
    let receipts: Vec<Receipt> = sorted.iter().map(|exit| exit.receipt).collect();
    let (mut endings, mut errors, mut delays) = (Vec::new(), Vec::new(), Vec::new());
    for exit in sorted {
        let (ending, error, delay) = match &exit.ending {
            Ending::Completed => ("completed", None, None),
            Ending::Failed { error } => ("failed", Some(error.clone()), None),
            Ending::Retry { error, delay } => ("retry", Some(error.clone()), Some(delay.us())),
        };
        endings.push(ending);
        errors.push(error);
        delays.push(delay);
    }
    let mut params = named_claims(&receipts);
    params.push(Box::new(endings));
    params.push(Box::new(errors));
    params.push(Box::new(delays));
    params.push(Box::new(ERRORS_KEPT_MAX as i64));
    sql.bind(CLOSE_ATTEMPTS, params)
}

/// The parameters of `leaf/named_claims.sql` for receipts in ascending order.
fn named_claims(receipts: &[Receipt]) -> Params {
    let (mut slots, mut batches) = (Vec::new(), Vec::new());
    let (mut first, mut last) = (Vec::new(), Vec::new());
    let mut before = 0;
    for claim in receipts.chunk_by(|a, b| (a.claim_slot, a.batch) == (b.claim_slot, b.batch)) {
        slots.push(claim[0].claim_slot.0);
        batches.push(claim[0].batch.0);
        first.push(before + 1);
        before += claim.len() as i32;
        last.push(before);
    }
    vec![
        Box::new(slots),
        Box::new(batches),
        Box::new(first),
        Box::new(last),
        Box::new(receipts.iter().map(|r| i32::from(r.index.get())).collect::<Vec<_>>()),
        Box::new(receipts.iter().map(|r| r.job.0).collect::<Vec<_>>()),
        Box::new(receipts.iter().map(|r| r.run_lease.0).collect::<Vec<_>>()),
    ]
}
