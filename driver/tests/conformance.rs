//! The same random histories with the same machines on the World and on PostgreSQL: the same
//! answers after every operation, and the same tables.
#![allow(clippy::unwrap_used)]

mod on_postgres;

use awa_model_tests::history::random::{Clock, as_text, history};
use awa_model_tests::history::{OnWorld, Op, Player, Rings, Storage, Wrong, comparable};
use awa_model_tests::world::World;
use on_postgres::OnPostgres;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

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

/// Plays it on both.
fn conform(postgres: OnPostgres, ops: &[Op]) -> (OnPostgres, Result<(), Wrong>) {
    let world = OnWorld::new(World::new(RINGS.queue, RINGS.lease, RINGS.claim));
    let (mut world, mut postgres) =
        (Player::new(world).unwrap(), Player::new(postgres).unwrap());
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
/// Ledger.
#[test]
fn postgres_does_what_the_world_does() {
    let mut postgres = Some(OnPostgres::migrated("conformance"));
    let config = ProptestConfig {
        source_file: Some(file!()),
        max_shrink_iters: 300,
        ..ProptestConfig::with_cases(40)
    };
    let mut last = String::new();
    let postgres = std::cell::RefCell::new(postgres.take());
    let ran = TestRunner::new(config).run(&history(Clock::Goes, 10..=40), |ops| {
        let mut fresh = postgres.borrow_mut().take().unwrap();
        fresh.reset(RINGS);
        let (used, played) = conform(fresh, &ops);
        postgres.borrow_mut().replace(used);
        played.map_err(|wrong| TestCaseError::fail(format!("{wrong}\n{}", as_text(&ops))))
    });
    if let Err(error) = ran {
        last += &error.to_string();
    }
    assert!(last.is_empty(), "{last}");
}
