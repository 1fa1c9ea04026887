//! The scenario files on PostgreSQL: the same expected text as on the World
//! (`model-tests/tests/scenarios.rs`).
#![allow(clippy::unwrap_used)]

mod on_postgres;

use awa_model_tests::history::scenario::{all, check_all};
use on_postgres::OnPostgres;

/// Each file cites what it shows.
#[test]
fn every_scenario_says_on_postgresql_what_its_file_says() {
    let mut scenarios = all().unwrap();
    scenarios.retain(|scenario| !scenario.only_world);
    assert!(scenarios.len() >= 14, "{} scenarios", scenarios.len());
    let fresh = |mut postgres: OnPostgres, rings| {
        postgres.reset(rings);
        postgres
    };
    let checked = check_all(&scenarios, OnPostgres::migrated("scenarios"), fresh);
    checked.unwrap_or_else(|wrong| panic!("{wrong}"));
}
