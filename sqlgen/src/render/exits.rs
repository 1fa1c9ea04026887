//! Statements of the ways out of an attempt.

use awa_core::limits::{CLAIM_ROWS_MAX, ERRORS_KEPT_MAX};
use awa_core::{BatchId, Ending, Exit, Receipt, Span};

use super::{Cached, Named, sql};
use crate::Statement;
use crate::param::Params;

/// Texts that no argument changes.
pub(super) const FIXED: &[Named] = &[FENCE, COMPLETE_COMPACT, CLOSE_ATTEMPTS];

const FENCE: Named = sql!("Fence");
const COMPLETE_COMPACT: Named = sql!("CompleteCompact");
const CLOSE_ATTEMPTS: Named = sql!("CloseAttempts");

pub(super) fn fence(sql: &Cached, batches: &[BatchId]) -> Statement {
    // Ids lie CLAIM_ROWS_MAX apart: without that factor, keys are shared only by claims that lie
    // four thousand million apart.
    let apart = i64::from(CLAIM_ROWS_MAX);
    let mut keys: Vec<i32> = batches.iter().map(|b| (b.0 / apart) as i32).collect();
    keys.sort_unstable();
    keys.dedup();
    sql.bind(FENCE, vec![Box::new(keys)])
}

pub(super) fn complete_compact(sql: &Cached, receipts: &[Receipt]) -> Statement {
    sql.bind(COMPLETE_COMPACT, named_claims(receipts.iter()))
}

pub(super) fn close_attempts(sql: &Cached, exits: &[Exit]) -> Statement {
    let mut sorted: Vec<&Exit> = exits.iter().collect();
    sorted.sort_by_key(|e| order(&e.receipt));
    let word = |e: &&Exit| match &e.ending {
        Ending::Completed => "completed",
        Ending::Failed { .. } => "failed",
        Ending::Retry { .. } => "retry",
    };
    let error = |e: &&Exit| match &e.ending {
        Ending::Completed => None,
        Ending::Failed { error } | Ending::Retry { error, .. } => Some(error.clone()),
    };
    let delay = |e: &&Exit| match &e.ending {
        Ending::Completed | Ending::Failed { .. } => None,
        Ending::Retry { delay, .. } => Some(Span::us(*delay)),
    };
    let mut params = named_claims(sorted.iter().map(|e| &e.receipt));
    params.push(Box::new(sorted.iter().map(word).collect::<Vec<_>>()));
    params.push(Box::new(sorted.iter().map(error).collect::<Vec<_>>()));
    params.push(Box::new(sorted.iter().map(delay).collect::<Vec<_>>()));
    params.push(Box::new(ERRORS_KEPT_MAX as i64));
    sql.bind(CLOSE_ATTEMPTS, params)
}

fn order(receipt: &Receipt) -> (awa_core::Slot, BatchId, u16) {
    (receipt.claim_slot, receipt.batch, receipt.index)
}

/// Receipts by claim: `sql/leaf/named_claims.sql` says what the seven arrays are.
fn named_claims<'a>(receipts: impl Iterator<Item = &'a Receipt>) -> Params {
    let mut sorted: Vec<&Receipt> = receipts.collect();
    sorted.sort_by_key(|r| order(r));
    let (mut slots, mut batches) = (Vec::new(), Vec::new());
    let (mut first, mut last): (Vec<i32>, Vec<i32>) = (Vec::new(), Vec::new());
    for (place, receipt) in (1_i32..).zip(&sorted) {
        let same = slots.last() == Some(&receipt.claim_slot.0)
            && batches.last() == Some(&receipt.batch.0);
        match last.last_mut() {
            Some(end) if same => *end = place,
            Some(_) | None => {
                slots.push(receipt.claim_slot.0);
                batches.push(receipt.batch.0);
                first.push(place);
                last.push(place);
            }
        }
    }
    vec![
        Box::new(slots),
        Box::new(batches),
        Box::new(first),
        Box::new(last),
        Box::new(sorted.iter().map(|r| i32::from(r.index)).collect::<Vec<_>>()),
        Box::new(sorted.iter().map(|r| r.job.0).collect::<Vec<_>>()),
        Box::new(sorted.iter().map(|r| r.run_lease.0).collect::<Vec<_>>()),
    ]
}
