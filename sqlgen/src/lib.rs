//! Renders each step of awa-core as one hand-written SQL statement.
