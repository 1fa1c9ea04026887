//! Oracles for Awa: the Ledger, the World, the explorer and the conformance suite.
pub mod drive;
pub mod explore;
pub mod history;
pub mod ledger;
pub mod samples;
pub mod world;
