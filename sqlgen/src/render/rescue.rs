//! Statements of the rescue steps.

use super::{Cached, Named, sql};
use crate::Statement;

/// Texts that no argument changes.
pub(super) const FIXED: &[Named] = &[FIND_OVERDUE];

const FIND_OVERDUE: Named = sql!("FindOverdue");

pub(super) fn find_overdue(sql: &Cached, limit: i64) -> Statement {
    sql.plan_and_bind(FIND_OVERDUE, vec![Box::new(limit)])
}
