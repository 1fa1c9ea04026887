//! Oracles for Awa: the Ledger, the World, the explorer and the conformance suite.
pub mod explore;
pub mod ledger;
