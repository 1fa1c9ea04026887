//! A job queue that lives inside the PostgreSQL a service already runs.
//!
//! [`Client`] enqueues, looks and operates; [`Worker`] runs handlers and takes part in maintenance.
//! Counts are exact; a failed job stays retryable for at least `failed_retention`; what is dropped is
//! counted. The README has a program of twenty lines.

mod client;
mod clock;
mod handler;
mod job;
mod maintenance;
mod worker;

pub use awa_driver::core;
pub use awa_driver::core::machine::cancel::CancelOutcome;
pub use awa_driver::core::machine::delete::DeleteOutcome;
pub use awa_driver::core::machine::prune::PruneOutcome;
pub use awa_driver::core::machine::rebuild::Rebuilt;
pub use awa_driver::core::machine::retry::{DiscardOutcome, RetryFailedOutcome};
pub use awa_driver::core::machine::rollup::RollupOutcome;
pub use awa_driver::core::machine::rotate::RotateOutcome;
pub use awa_driver::core::runtime::policy::RingReport;
pub use awa_driver::core::{
    Instant, JobId, JobRow, JobState, Kind, ListFilter, QueueCounts, QueueName, Ring, RingView,
    Slot, SlotLoad, SlotState, TerminalFilter, UserError, json, limits,
};
pub use awa_driver::tokio_postgres;
pub use awa_driver::{Error, Migrated, Mismatch, migration_script};
pub use client::{
    Client, ClientOptions, Hold, connect, drop_installation, hold, installations, migrate,
};
pub use handler::{Attempt, Failure};
pub use job::Job;
pub use maintenance::{Maintenance, MaintenanceService, MaintenanceStats};
pub use worker::{ShutdownError, Worker, WorkerStats, Working};
