//! Oracles for Awa: the Ledger, the World, the explorer and the conformance suite.
pub mod ledger;
