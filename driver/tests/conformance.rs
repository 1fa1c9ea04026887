//! The same random histories with the same machines on the World and on PostgreSQL: the same
//! answers after every operation, and the same tables.
#![allow(clippy::unwrap_used)]

mod on_postgres;

use std::cell::RefCell;

use awa_model_tests::history::random::{Clock, as_text, history};
use awa_model_tests::history::{OnWorld, Op, Player, Rings, Storage, Wrong, comparable};
use awa_model_tests::world::{Mutation, World};
use on_postgres::OnPostgres;
use proptest::prelude::*;
use proptest::test_runner::{FileFailurePersistence, TestRunner};

const RINGS: Rings = Rings::SMALL;

/// What stands in one text and not in the other.
fn difference(world: &str, postgres: &str) -> String {
    let only = |sign: &str, here: &str, there: &str| -> String {
        let there: Vec<&str> = there.lines().collect();
        here.lines().filter(|l| !there.contains(l)).map(|l| format!("{sign} {l}\n")).collect()
    };
    only("World:     ", world, postgres) + &only("PostgreSQL:", postgres, world)
}

fn agree(what: &str, world: &str, postgres: &str) -> Result<(), Wrong> {
    if world == postgres {
        return Ok(());
    }
    let differs = difference(world, postgres);
    Err(Wrong(format!("{what}: \n{}", if differs.is_empty() { "rows repeated" } else { &differs })))
}

fn played<S>(new: Result<Player<S>, (S, Wrong)>) -> Player<S> {
    new.unwrap_or_else(|(_, wrong)| panic!("{wrong}"))
}

/// Plays it on both. The World may be broken.
fn conform(
    mutation: Mutation,
    postgres: OnPostgres,
    ops: &[Op],
) -> (OnPostgres, Result<(), Wrong>) {
    let mut world = World::new(RINGS.queue, RINGS.lease, RINGS.claim);
    world.mutation = mutation;
    let (mut world, mut postgres) =
        (played(Player::new(OnWorld::ticking(world))), played(Player::new(postgres)));
    let mut play = || {
        for (n, op) in ops.iter().enumerate() {
            let at = |wrong: Wrong| Wrong(format!("line {}, {op}: {wrong}", n + 1));
            let said = world.play(op).map_err(|w| at(Wrong(format!("World: {w}"))))?;
            let too = postgres.play(op).map_err(|w| at(Wrong(format!("PostgreSQL: {w}"))))?;
            agree("answers", &said, &too).map_err(at)?;
            let (dump, too) = (world.storage.dump(), postgres.storage.dump());
            agree("tables", &comparable(&dump), &comparable(&too)).map_err(at)?;
            postgres.check_counts().map_err(at)?;
        }
        postgres.quiesce()?;
        postgres.check_counts()?;
        postgres.check_jobs()
    };
    let played = play();
    (postgres.storage, played)
}

/// H36, R026-01, R026-22, R026-23, R032-06: PostgreSQL does what the World does, and owes nothing to the
/// Ledger. Evidence ranges, batch numbers and positions are equal, too.
#[test]
fn postgres_does_what_the_world_does() {
    let regressions = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/conformance.regressions");
    let config = ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(regressions))),
        source_file: Some(file!()),
        max_shrink_iters: 300,
        ..ProptestConfig::with_cases(40)
    };
    let postgres = RefCell::new(Some(OnPostgres::migrated("conformance")));
    let ran = TestRunner::new(config).run(&history(Clock::Goes, 10..=40), |ops| {
        let mut fresh = postgres.borrow_mut().take().unwrap();
        fresh.reset(RINGS);
        let (used, played) = conform(Mutation::None, fresh, &ops);
        postgres.borrow_mut().replace(used);
        played.map_err(|wrong| TestCaseError::fail(format!("{wrong}\n{}", as_text(&ops))))
    });
    ran.unwrap_or_else(|error| panic!("{error}"));
}

/// The comparison can fail: in what is said, and in the tables alone.
#[test]
fn a_broken_world_is_told_from_postgres() {
    let lines = [
        "enqueue 2 a/2",
        "cancel job 2",
        "claim a/2 1",
        "claim a/2 9",
        "fail all",
        "rotate queue",
        "prune queue keep all",
    ];
    let ops = lines.map(|line| line.parse().unwrap());
    let mut postgres = OnPostgres::migrated("conformance_broken");
    for (mutation, due) in [
        (Mutation::None, None),
        (Mutation::FrontierForgotten, Some("line 3, claim a/2 1: answers: ")),
        (Mutation::CarryForgetsDelta, Some("line 7, prune queue keep all: tables: ")),
        (Mutation::CarriesCancelled, Some("line 7, prune queue keep all: World: Ledger: ")),
    ] {
        postgres.reset(RINGS);
        let (used, played) = conform(mutation, postgres, &ops);
        postgres = used;
        let told = played.err().map(|wrong| wrong.to_string());
        let as_due = match (&told, due) {
            (Some(told), Some(due)) => told.starts_with(due),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        assert!(as_due, "{mutation:?}: {told:?}");
    }
}
