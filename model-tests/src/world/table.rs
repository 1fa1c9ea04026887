//! Rows under multi-version concurrency control, and sets of numbers as PostgreSQL's multiranges.

use std::fmt;
use std::sync::Arc;

use awa_core::{Snapshot, Xid};

/// The maker of rows that every snapshot sees.
pub(crate) const SETTLED: Xid = Xid(0);

/// What one statement sees: its snapshot, and its own transaction's writes.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) snapshot: Snapshot,
    pub(crate) own: Option<Xid>,
}

impl View {
    fn sees(&self, id: Xid) -> bool {
        id == SETTLED || Some(id) == self.own || self.snapshot.sees(id)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Gone {
    No,
    Deleted(Xid),
    /// From the commit on the row is gone for every snapshot, also for older ones (law 16). Until
    /// then only the truncating transaction can look.
    Truncated(Xid),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Version<R> {
    row: R,
    made: Xid,
    gone: Gone,
}

/// Versions in the order of their rows, so that equal contents are equal values. Clones share
/// until one of them is written to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Table<R>(Arc<Vec<Version<R>>>);

impl<R> Default for Table<R> {
    fn default() -> Self {
        Self(Arc::new(Vec::new()))
    }
}

impl<R: Clone + Ord> Table<R> {
    pub(crate) fn seen<'a>(&'a self, view: &'a View) -> impl Iterator<Item = &'a R> {
        let gone = |gone| match gone {
            Gone::No => false,
            Gone::Deleted(by) | Gone::Truncated(by) => view.sees(by),
        };
        self.0.iter().filter(move |v| view.sees(v.made) && !gone(v.gone)).map(|v| &v.row)
    }

    /// The first row in sight that `fits`.
    pub(crate) fn one(&self, view: &View, fits: impl Fn(&R) -> bool) -> Option<R> {
        self.seen(view).find(|r| fits(r)).cloned()
    }

    pub(crate) fn insert(&mut self, by: Xid, row: R) {
        let version = Version { row, made: by, gone: Gone::No };
        let at = self.0.partition_point(|v| *v < version);
        Arc::make_mut(&mut self.0).insert(at, version);
    }

    /// Deletes the rows in sight that `fits`, and gives them.
    pub(crate) fn take(&mut self, view: &View, by: Xid, fits: impl Fn(&R) -> bool) -> Vec<R> {
        let found: Vec<R> = self.seen(view).filter(|r| fits(r)).cloned().collect();
        if !found.is_empty() {
            let all = Arc::make_mut(&mut self.0);
            for v in all.iter_mut().filter(|v| v.gone == Gone::No && view.sees(v.made)) {
                if found.binary_search(&v.row).is_ok() {
                    v.gone = Gone::Deleted(by);
                }
            }
            all.sort();
        }
        found
    }

    /// Empties what `fits` for everyone; the caller holds it exclusively.
    pub(crate) fn truncate(&mut self, by: Xid, fits: impl Fn(&R) -> bool) {
        if self.0.iter().any(|v| fits(&v.row)) {
            let all = Arc::make_mut(&mut self.0);
            all.iter_mut().filter(|v| fits(&v.row)).for_each(|v| v.gone = Gone::Truncated(by));
        }
    }

    /// The end of the transaction `by`. Given a snapshot that sees every finished transaction,
    /// forgets what only older snapshots could tell apart.
    pub(crate) fn end(&mut self, by: Xid, committed: bool, tidy: Option<&Snapshot>) {
        if self.0.iter().all(|v| v.made == SETTLED && v.gone == Gone::No) {
            return;
        }
        let all = Arc::make_mut(&mut self.0);
        let ended = [Gone::Deleted(by), Gone::Truncated(by)];
        if committed {
            all.retain(|v| v.gone != Gone::Truncated(by));
        } else {
            all.retain(|v| v.made != by);
            all.iter_mut().filter(|v| ended.contains(&v.gone)).for_each(|v| v.gone = Gone::No);
        }
        if let Some(now) = tidy {
            all.retain(|v| !matches!(v.gone, Gone::Deleted(x) if now.sees(x)));
            all.iter_mut().filter(|v| now.sees(v.made)).for_each(|v| v.made = SETTLED);
        }
        all.sort();
    }
}

/// A set of numbers as half-open ranges, ascending and apart: PostgreSQL's `int8multirange`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Ranges(Vec<(i64, i64)>);

impl Ranges {
    /// The union of `ranges`, each from its first number to before its second.
    pub(crate) fn of(ranges: impl IntoIterator<Item = (i64, i64)>) -> Self {
        let mut all: Vec<_> = ranges.into_iter().collect();
        all.sort_unstable();
        let mut apart: Vec<(i64, i64)> = Vec::new();
        for (from, to) in all {
            match apart.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(to),
                Some(_) | None => apart.push((from, to)),
            }
        }
        Self(apart)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (i64, i64)> {
        self.0.iter().copied()
    }

    pub(crate) fn has(&self, number: i64) -> bool {
        let after = self.0.partition_point(|(from, _)| *from <= number);
        after > 0 && number < self.0[after - 1].1
    }
}

impl fmt::Display for Ranges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: Vec<_> = self.0.iter().map(|(from, to)| format!("[{from},{to})")).collect();
        write!(f, "{{{}}}", shown.join(","))
    }
}
