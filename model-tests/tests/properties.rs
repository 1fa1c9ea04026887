//! Random histories of all operations on the World: what the machines say is what the Ledger owes,
//! the World's own invariants hold after every operation, and counts are exact.
#![allow(clippy::unwrap_used)]

use awa_model_tests::history::random::{Clock, as_text, history};
use awa_model_tests::history::{OnWorld, Op, Player, Rings, Storage, Wrong};
use awa_model_tests::world::World;
use proptest::prelude::*;

fn world(rings: Rings) -> OnWorld {
    OnWorld::new(World::new(rings.queue, rings.lease, rings.claim))
}

fn play(ops: &[Op]) -> Result<Player<OnWorld>, Wrong> {
    let mut player = Player::new(world(Rings::SMALL))?;
    for (n, op) in ops.iter().enumerate() {
        let at = |wrong: Wrong| Wrong(format!("line {}, {op}: {wrong}", n + 1));
        player.play(op).map_err(at)?;
        player.check_counts().map_err(at)?;
        player.check_jobs().map_err(at)?;
    }
    player.quiesce()?;
    player.check_counts()?;
    player.check_jobs()?;
    Ok(player)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// H36, R026-23, R032-02, R032-06, R032-08, R032-09: the World refines the Ledger.
    #[test]
    fn the_world_owes_nothing_to_the_ledger(ops in history(Clock::Stands, 10..=60)) {
        let played = play(&ops).map(drop);
        prop_assert!(played.is_ok(), "{}\n{}", as_text(&ops), played.unwrap_err());
    }
}
