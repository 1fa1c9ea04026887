//! The decisions of Awa, as values.
//!
//! Nothing here does I/O, reads a clock or knows how a table is called. A *machine* is fed replies
//! and answers with *steps*; whoever turns a [`Step`] into a [`Reply`] is a driver: PostgreSQL
//! behind `awa-driver`, or the in-memory World of `awa-model-tests`. Both run the same values.
#![no_std]

extern crate alloc;

pub mod fault;
pub mod ids;
pub mod job;
pub mod json;
pub mod limits;
pub mod machine;
pub mod names;
pub mod reply;
pub mod ring;
pub mod rules;
pub mod runtime;
pub mod state;
pub mod step;
pub mod time;
pub mod visibility;

pub use fault::{Fault, UserError};
pub use ids::*;
pub use job::*;
pub use machine::{Machine, Turn};
pub use names::{Kind, QueueName, SchemaName};
pub use reply::{Refusal, Reply};
pub use ring::{Ring, RingView, Segment, Slot, SlotState, SlotView};
pub use state::JobState;
pub use step::{Gate, Step};
pub use time::{Instant, Span};
pub use visibility::{Sample, Snapshot, Window};
