//! Plans that stay: how the hot statements come to their rows, on freshly truncated ring children that
//! were never analysed and with a million jobs waiting and a million in history; by generic plans that
//! were forced, by those that the server settles on, and planned anew each time; by plans that were made
//! on empty children and kept while they filled.
//!
//! The server itself tells what it did, for the very statements that the driver sends
//! (`plans/watched.rs`). `cargo test -p awa-driver --test plans -- --nocapture` prints the figures.
#![allow(clippy::unwrap_used)]

#[path = "plans/approved.rs"]
mod approved;
#[path = "plans/flows.rs"]
mod flows;
#[path = "plans/ground.rs"]
mod ground;
#[path = "plans/plan.rs"]
mod plan;
#[path = "plans/record.rs"]
mod record;
#[path = "plans/watched.rs"]
mod watched;

use std::collections::{BTreeMap, BTreeSet};

use ground::BATCH;
use plan::rows;
use record::{Conditions, Mode, Planned, Record, Rows};

/// Tables of a few rows, whatever is queued: a row a ring or a slot.
const TINY: &[&str] = &[
    "position_seq",
    "queue_ring_state",
    "claim_ring_state",
    "lease_ring_slots",
    "terminal_count_trust",
];

/// What a step reads whole, and why it may.
const READ_WHOLE: &[(&str, &str, &str)] = &[
    ("ReadCounts", "ready_entries_*", "stops at the first row: is there any?"),
    ("ReadCounts", "receipt_completion_batches_*", "a row a flush"),
    (
        "ReadCounts",
        "queue_terminal_count_deltas_*",
        "a row a flush and bucket, until they are folded",
    ),
    ("ReadCounts", "lease_claim_batches_*", "a row a claim, until its slot is pruned"),
    ("ReadCounts", "lease_claim_closure_batches_*", "a row a flush, until its slot is pruned"),
    ("ReadCounts", "lease_claim_closures_*", "a row a failure, until its slot is pruned"),
    ("ReadCounts", "deferred_jobs", "counted, as the backlog is"),
];

/// Steps that are planned each time: `Mode::PlanAndBind` in awa-sqlgen says why.
const PLANNED_ANEW: &[&str] = &["PromoteDue", "ReadNextDue", "FindOverdue"];

/// Steps that read the more the more there is, and what.
const READS_MORE: &[(&str, &str)] = &[
    ("ReadCounts", "the backlog, and a row for each claim and each flush that is retained"),
    ("FindOverdue", "claims that are past their deadline, until their slot is pruned"),
];

/// Rows that the filters of one statement may throw away.
const THROWN_AWAY: i64 = 32;

/// Blocks that one run may read, at most: flow, step, blocks.
const BLOCKS: &[(&str, &str, i64)] = &[
    ("enqueue 1", "EnqueueReadyOne", 12),
    ("enqueue 512", "EnqueueReady", 2400),
    ("claim 1", "ClaimReady", 100),
    ("claim 512", "ClaimReady", 120),
    ("claim 512, first of a process", "ClaimReady", 240),
    ("claim from an empty lane", "ClaimReady", 90),
    ("complete 1", "CompleteCompact", 30),
    ("complete 512", "CompleteCompact", 32),
    ("fail 1", "CloseAttempts", 16),
    ("fail 512", "CloseAttempts", 2400),
    ("retry 512", "CloseAttempts", 2400),
    ("poll", "PollLanes", 100),
];

/// H46.
#[test]
fn each_statement_comes_to_its_rows_as_approved() {
    for (step, text) in approved::accesses(Record::get().runs()) {
        insta::assert_snapshot!(step, text);
    }
}

#[test]
fn nothing_that_may_grow_is_read_whole() {
    let mut excused: BTreeSet<(&str, &str, &str)> = BTreeSet::new();
    for run in Record::get().runs() {
        let step = run.statement.step.as_str();
        for (access, did) in run.statement.accesses() {
            let table = access.table.as_str();
            // An empty child has no block.
            if access.how != "whole" || did.blocks == 0 || TINY.contains(&table) {
                continue;
            }
            let excuse = READ_WHOLE.iter().find(|(s, t, _)| (*s, *t) == (step, table));
            assert!(excuse.is_some(), "{run} reads {table} whole: {access:?} {did:?}");
            excused.extend(excuse);
        }
    }
    for known in READ_WHOLE.iter() {
        assert!(excused.contains(known), "not so any more: {known:?}");
    }
}

#[test]
fn filters_throw_next_to_nothing_away() {
    for run in Record::get().runs() {
        let accesses = run.statement.accesses();
        let thrown: i64 = accesses.values().map(|did| did.removed).sum();
        assert!(thrown <= THROWN_AWAY, "{run} throws {thrown} rows away: {accesses:#?}");
    }
}

#[test]
fn sorts_are_of_a_batch_and_nothing_is_compiled_or_done_in_parallel() {
    for run in Record::get().runs() {
        assert!(!run.statement.compiled, "{run} is compiled");
        for node in run.statement.nodes() {
            let kind = node["Node Type"].as_str().unwrap();
            assert!(!kind.starts_with("Gather"), "{run}: {kind}");
            if kind.ends_with("Sort") {
                let sorted = rows(node, "Actual Rows");
                assert!(sorted <= BATCH, "{run} sorts {sorted} rows");
                assert_ne!(node["Sort Space Type"], "Disk", "{run}");
            }
        }
    }
}

/// Index levels and evidence grow a little; nothing else does.
#[test]
fn what_a_statement_reads_does_not_grow_with_what_is_there() {
    let mut most: BTreeMap<(&str, &str), BTreeMap<Rows, i64>> = BTreeMap::new();
    for run in Record::get().runs() {
        let blocks = run.statement.blocks();
        let of_flow = most.entry((run.flow, &run.statement.step)).or_default();
        let known = of_flow.entry(run.under.rows).or_default();
        *known = blocks.max(*known);
    }
    print_figures();
    println!(
        "claims that were planned after the tables had grown: {}",
        Record::get().claims_planned
    );
    for ((flow, step), blocks) in &most {
        let (few, millions) = (blocks[&Rows::Few], blocks[&Rows::Millions]);
        if !READS_MORE.iter().any(|(s, _)| s == step) {
            assert!(millions <= few * 3 / 2 + 110, "{flow}, {step}: {few} blocks, then {millions}");
        }
        if let Some((.., bound)) = BLOCKS.iter().find(|(f, s, _)| (f, s) == (flow, step)) {
            assert!(millions.max(few) <= *bound, "{flow}, {step}: {few} blocks, then {millions}");
        }
    }
    for (flow, step, _) in BLOCKS {
        assert!(most.contains_key(&(*flow, *step)), "{flow}, {step}");
    }
}

/// Milliseconds and blocks of each statement of a flow.
fn print_figures() {
    println!("{:44} {:16} {:>8}  few rows: ms, blocks  millions: ms, blocks", "", "", "planning");
    let at = |rows, planned, mode| Conditions { rows, planned, mode };
    let record = Record::get();
    for run in record.runs().filter(|r| r.under == at(Rows::Few, Planned::Empty, Mode::Forced)) {
        let (flow, step) = (run.flow, &run.statement.step);
        let same = |under| {
            let mut runs = record.runs();
            let found =
                runs.find(|r| r.under == under && r.flow == flow && r.statement.step == *step);
            found.unwrap().statement
        };
        let anew = same(at(Rows::Millions, Planned::Full, Mode::Unnamed));
        let full = same(at(Rows::Millions, Planned::Empty, Mode::Forced));
        let planning: f64 = anew.planning_ms.iter().sum();
        let (ms, blocks) = (run.statement.ms, run.statement.blocks());
        println!(
            "{flow:44} {step:16} {planning:8.3}  {ms:8.3} {blocks:8}     {:10.3} {:8}",
            full.ms,
            full.blocks()
        );
    }
}

/// H46. Planning a claim takes as long as running it.
#[test]
fn the_server_stops_planning() {
    let record = Record::get();
    let mut planned = BTreeSet::new();
    for run in record.runs() {
        let Conditions { mode, planned: made, .. } = run.under;
        let embedded = run.flow.ends_with("caller's transaction");
        let step = run.statement.step.as_str();
        let keeps = mode != Mode::Unnamed && made != Planned::Again && !embedded;
        if keeps && !run.statement.planning_ms.is_empty() {
            assert!(PLANNED_ANEW.contains(&step), "{run} was planned");
            planned.insert(step);
        }
        if mode == Mode::Unnamed {
            assert_eq!(run.statement.planning_ms.len(), 1, "{run}");
        }
    }
    assert_eq!(planned, PLANNED_ANEW.iter().copied().collect(), "planned each time");
    // After the tables have grown the kept plan looks dear beside what was planned on empty ones; that
    // must wear off.
    assert!(record.claims_planned <= 40, "{} claims were planned", record.claims_planned);
}

#[test]
fn locks_are_those_that_were_approved() {
    let at = |rows| Conditions { rows, planned: Planned::Empty, mode: Mode::Forced };
    let of = |under| -> BTreeMap<_, _> {
        let flows =
            Record::get().flows().filter(|(p, _, seen)| *p == under && !seen.locks.is_empty());
        flows.map(|(_, flow, seen)| (flow, seen)).collect()
    };
    let (few, millions) = (of(at(Rows::Few)), of(at(Rows::Millions)));
    let mut holders: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (flow, seen) in &few {
        for (relation, mode) in &seen.locks {
            let is_weak = ["AccessShareLock", "RowShareLock", "RowExclusiveLock"];
            assert!(is_weak.contains(&mode.as_str()), "{flow} holds {mode} on {relation}");
        }
        let locks = approved::locks(seen);
        assert_eq!(locks, approved::locks(millions[flow]), "{flow}: few rows, then millions");
        holders.entry(locks).or_default().push(flow);
    }
    let lines = holders.iter().map(|(locks, flows)| format!("{}\n{locks}", flows.join("; ")));
    let text = lines.collect::<Vec<_>>().join("\n\n");
    insta::assert_snapshot!("locks", text);
}
