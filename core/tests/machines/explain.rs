use awa_core::machine::explain::{ExplainPrune, Observed, explain};
use awa_core::machine::prune::Prune;
use awa_core::rules::Floor;
use awa_core::{Gate, Reply, Ring, Slot, Span, TerminalSurvey};

use crate::script::{CLEAR, held, observed, outcome, plan, ring, withstands};

const FOUND: TerminalSurvey =
    TerminalSurvey { carried: 1, bodies_missing: 0, failed: 0, other: 0, compact: 9 };

fn prune() -> Prune {
    Prune::oldest(Ring::Queue, Floor::new(Span::from_secs(3600)))
}

fn seen(held: Vec<(Gate, i64)>, survey: TerminalSurvey) -> Observed {
    Observed { view: ring(Ring::Queue, "o3 s2 p1"), held, survey }
}

#[test]
fn the_plan_is_the_machines_own() {
    let told = explain(prune(), &seen(Vec::new(), FOUND));
    let real = plan(
        prune(),
        vec![
            vec![Reply::Locked, observed(ring(Ring::Queue, "o3 s2 p1"))],
            vec![Reply::Locked, CLEAR, CLEAR, CLEAR],
            vec![Reply::Locked, CLEAR, CLEAR, CLEAR, Reply::Surveyed(FOUND)],
            vec![Reply::Carried { rows: 1, deltas: 1 }, Reply::Folded { other: 9, failed: 0 }],
            vec![Reply::Locked, CLEAR, CLEAR, CLEAR],
            vec![Reply::Truncated, Reply::Marked],
        ],
    );
    let steps = |text: &str| {
        text.lines().filter(|l| !l.starts_with("commit")).map(String::from).collect::<Vec<_>>()
    };
    assert_eq!(steps(&told), steps(&real));
    let last = told.lines().last().expect("an end");
    assert_eq!(
        last,
        "commit: slot 1 g2 is pruned: 1 failures carried, 0 failures and 9 other jobs folded"
    );
}

#[test]
fn it_says_what_stands_in_the_way() {
    let told = explain(prune(), &seen(vec![(Gate::PendingReady(Slot(1)), 42)], FOUND));
    assert_eq!(
        told,
        "\
turn 1, ask
  lock the queue ring
  observe the queue ring
turn 2, ask
  lock slot 1 of the queue ring
  probe for pending ready rows in slot 1 -- held by 42
  probe for open receipts of slot 1
  probe for active leases of slot 1
roll back: slot 1 is in use: pending ready rows in slot 1, the first is 42
"
    );
    let told = explain(prune(), &seen(Vec::new(), TerminalSurvey { bodies_missing: 1, ..FOUND }));
    assert!(told.ends_with("1 narrow terminal rows have no retained ready row\n"), "{told}");
}

/// The observation takes no lock, and gives the same text as `explain`.
#[test]
fn a_dry_run_observes_and_explains() {
    let script = vec![
        vec![observed(ring(Ring::Queue, "o3 s2 p1"))],
        vec![held(42), CLEAR, CLEAR, Reply::Surveyed(FOUND)],
    ];
    let machine = ExplainPrune::new(prune());
    let expected = explain(prune(), &seen(vec![(Gate::PendingReady(Slot(1)), 42)], FOUND));
    assert_eq!(outcome(machine.clone(), script.clone()), Ok(expected));
    let observing = plan(machine.clone(), script.clone());
    assert!(!observing.split("commit").next().expect("turns").contains("lock"), "{observing}");
    withstands(&machine, &script, Result::is_err);

    let idle = vec![vec![observed(ring(Ring::Queue, "o3 p2 p1"))]];
    let told = outcome(machine, idle).expect("a text");
    assert!(told.ends_with("roll back: nothing to prune: no slot is sealed\n"), "{told}");

    let claim = Prune::oldest(Ring::Claim, Floor::DEFAULT);
    let script = vec![vec![observed(ring(Ring::Claim, "o3 s2 p1"))], vec![CLEAR]];
    let told = outcome(ExplainPrune::new(claim), script).expect("a text");
    assert!(
        told.ends_with(
            "commit: slot 1 g2 is pruned: 0 failures carried, 0 failures and 0 other jobs folded\n"
        ),
        "{told}"
    );
}
