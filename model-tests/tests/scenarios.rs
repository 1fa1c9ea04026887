//! The scenario files on the World. `driver/tests/scenarios.rs` plays the same on PostgreSQL.
#![allow(clippy::unwrap_used)]

use awa_model_tests::history::OnWorld;
use awa_model_tests::history::scenario::{all, check_all};
use awa_model_tests::world::World;

/// Each file cites what it shows.
#[test]
fn every_scenario_says_on_the_world_what_its_file_says() {
    let scenarios = all().unwrap();
    assert!(scenarios.len() >= 15, "{} scenarios", scenarios.len());
    let fresh = |_, rings| new(rings);
    let checked = check_all(&scenarios, new(awa_model_tests::history::Rings::SMALL), fresh);
    checked.unwrap_or_else(|wrong| panic!("{wrong}"));
}

fn new(rings: awa_model_tests::history::Rings) -> OnWorld {
    OnWorld::new(World::new(rings.queue, rings.lease, rings.claim))
}
