//! What was seen, as text that a reader can approve.

use std::collections::{BTreeMap, BTreeSet};

use crate::plan::{Access, of_any_slot};
use crate::record::{Conditions, Run};
use crate::watched::Seen;

/// How often an access was seen, over all runs of its step.
#[derive(Default)]
struct Sighting {
    under: BTreeSet<Conditions>,
    touched: BTreeSet<i64>,
    planned: i64,
}

/// By step, how it comes to its rows: a line for each access. Where not all plans have it, the line says
/// in which it is; where not all runs went to as many children, it says to how few and to how many.
pub(crate) fn accesses(runs: impl Iterator<Item = Run<'static>>) -> BTreeMap<String, String> {
    let mut steps: BTreeMap<&str, (BTreeSet<Conditions>, BTreeMap<Access, Sighting>)> =
        BTreeMap::new();
    for run in runs {
        let (all, seen) = steps.entry(&run.statement.step).or_default();
        all.insert(run.under);
        for (access, did) in run.statement.accesses() {
            let sighting = seen.entry(access).or_default();
            sighting.under.insert(run.under);
            sighting.touched.insert(did.touched);
            sighting.planned = sighting.planned.max(did.planned);
        }
    }
    let text = |(all, seen): (BTreeSet<Conditions>, BTreeMap<Access, Sighting>)| -> String {
        let lines = seen.iter().map(|(access, sighting)| line(access, sighting, &all));
        let lines: Vec<_> = lines.collect();
        if lines.is_empty() { "no table".to_owned() } else { lines.join("\n") }
    };
    steps.into_iter().map(|(step, of_step)| (step.to_owned(), text(of_step))).collect()
}

fn line(access: &Access, sighting: &Sighting, all: &BTreeSet<Conditions>) -> String {
    let Access { within, how, table, index, condition, filter } = access;
    let mut line = if within.is_empty() { String::new() } else { format!("{within}: ") };
    line += &format!("{how} {table}");
    if !index.is_empty() {
        line += &format!("\n    by {index} ({condition})");
    }
    if !filter.is_empty() {
        line += &format!("\n    filter {filter}");
    }
    if table.contains('*') {
        let (least, most) = (sighting.touched.first().unwrap(), sighting.touched.last().unwrap());
        let touched = if least == most { most.to_string() } else { format!("{least} to {most}") };
        line += &format!("\n    touches {touched} of {} children", sighting.planned);
    }
    if sighting.under != *all {
        for under in &sighting.under {
            line += &format!("\n    only: {under}");
        }
    }
    line
}

/// The locks of a transaction on the installation's relations, most children of a ring in one line.
pub(crate) fn locks(seen: &Seen) -> String {
    let mut counted: BTreeMap<(&str, String), usize> = BTreeMap::new();
    for (relation, mode) in &seen.locks {
        *counted.entry((mode, of_any_slot(relation))).or_default() += 1;
    }
    let lines = counted.iter().map(|((mode, relation), n)| match n {
        1 => format!("  {mode} {relation}"),
        n => format!("  {mode} {relation}: {n}"),
    });
    lines.collect::<Vec<_>>().join("\n")
}
