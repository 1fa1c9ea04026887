//! Oracles for Awa: the Ledger, the World, the explorer and the conformance suite.
pub mod explore;
pub mod ledger;
pub mod drive;
pub mod world;
pub mod samples;
