//! Scenario files: a history and what must be said, on every storage.
//!
//! ```text
//! # H05 R026-09: the sentence that this shows.
//! enqueue 2 a/2
//! claim a/2 10
//! ----
//! jobs 1 2
//! jobs 1 2
//! ```
//!
//! Lines that begin with `#` are remarks; those at the top cite what the scenario is for. Below
//! `----` stands one line for each operation. Counts are held against the Ledger after each.
