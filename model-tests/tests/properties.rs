//! Random histories of all operations on the World: what the machines say is what the Ledger owes,
//! the World's own invariants hold after every operation, and counts are exact.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use awa_model_tests::history::random::{Clock, as_text, history};
use awa_model_tests::history::{OnWorld, Op, Player, Rings, Wrong};
use awa_model_tests::world::{Mutation, World};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{FileFailurePersistence, TestRunner};

const REGRESSIONS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/properties.regressions");

/// How often something was said, by words that are in it.
type Census = BTreeMap<&'static str, usize>;

const WORDS: [&str; 20] = [
    "0 failures carried",
    "1 failures carried",
    "2 failures carried",
    "1 failures and",
    "is blocked",
    "pending ready rows",
    "open receipts",
    "full: ",
    " folded",
    "the horizon is pinned",
    "nobody heard",
    "crashed",
    "stale",
    "attempt 2",
    "lease 3",
    "is cancelled",
    "is deleted",
    "of 2 again",
    "pruned past the floor",
    "is retryable",
];

fn world(mutation: Mutation) -> OnWorld {
    let rings = Rings::SMALL;
    let mut world = World::new(rings.queue, rings.lease, rings.claim);
    world.mutation = mutation;
    OnWorld::new(world)
}

/// Plays it, and counts what was said.
fn play(mutation: Mutation, ops: &[Op], census: &mut Census) -> Result<(), Wrong> {
    let mut player = Player::new(world(mutation)).map_err(|(_, wrong)| wrong)?;
    for (n, op) in ops.iter().enumerate() {
        let at = |wrong: Wrong| Wrong(format!("line {}, {op}: {wrong}", n + 1));
        let said = player.play(op).map_err(at)?;
        for word in WORDS.iter().filter(|word| said.contains(**word)) {
            *census.entry(word).or_default() += 1;
        }
        player.check_counts().map_err(at)?;
        player.check_jobs().map_err(at)?;
    }
    player.quiesce()?;
    player.check_counts()?;
    player.check_jobs()
}

/// Histories that a test makes anew each time in the same way.
fn some(n: usize) -> Vec<Vec<Op>> {
    let mut runner = TestRunner::deterministic();
    let histories = history(Clock::Stands, 10..=60);
    (0..n).map(|_| histories.new_tree(&mut runner).unwrap().current()).collect()
}

/// What is printed of a failed history can be played again.
#[test]
fn operations_are_read_as_they_are_written() {
    for op in some(50).concat() {
        assert_eq!(op.to_string().parse(), Ok(op));
    }
}

/// Nothing passes because nothing happens: chance gets to every kind of answer, often.
#[test]
fn chance_gets_everywhere() {
    let mut census = Census::new();
    for ops in some(300) {
        play(Mutation::None, &ops, &mut census).unwrap();
    }
    for word in WORDS {
        assert!(census.get(word).is_some_and(|n| *n >= 10), "{word}: {census:#?}");
    }
}

/// The properties can fail: each of these breaks of the protocol is found by chance.
#[test]
fn wrong_protocols_are_found() {
    let histories = some(300);
    for mutation in [
        Mutation::XmaxAsWitness,
        Mutation::FrontierForgotten,
        Mutation::CutoffFlipped,
        Mutation::CarryForgetsDelta,
        Mutation::CarriesCancelled,
        Mutation::CarriesNarrow,
        Mutation::ClosesTwice,
        Mutation::HostClock,
        Mutation::ClaimSkipsPruned,
    ] {
        let mut none = Census::new();
        let found = histories.iter().position(|ops| play(mutation, ops, &mut none).is_err());
        assert!(found.is_some(), "{mutation:?} is not found");
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(REGRESSIONS))),
        ..ProptestConfig::with_cases(250)
    })]

    /// H36, H26, R026-23, R032-02, R032-06, R032-08, R032-09: the World refines the Ledger, also
    /// where a backend dies between any two statements.
    #[test]
    fn the_world_refines_the_ledger(ops in history(Clock::Stands, 10..=60)) {
        let played = play(Mutation::None, &ops, &mut Census::new());
        prop_assert!(played.is_ok(), "{}\n{}", played.unwrap_err(), as_text(&ops));
    }
}
