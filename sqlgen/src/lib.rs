//! Spells each [`Step`] as one hand-written SQL statement: `sql/<StepName>.sql`.
//!
//! No decision is made here. A `.sql` file begins with a comment that says what the step's
//! parameters and result columns are; rules that several statements share are written once, in
//! `sql/leaf/`, and named in braces: `{is_carried}`.

mod param;
mod registry;
mod render;
mod session;

mod template;

use std::sync::Arc;

use awa_core::{SchemaName, Step};
pub use param::{Json, Params, Timestamptz};
pub use registry::{Child, TABLES, Table};
pub use session::BEGIN;
pub use template::Template;

/// What to send for one step.
#[derive(Debug)]
pub struct Statement {
    /// The text, with the schema and, where a step names a slot, its children spelled in.
    pub sql: Arc<str>,
    /// How to send it.
    pub mode: Mode,
}

/// How a statement goes over the wire.
#[derive(Debug)]
pub enum Mode {
    /// Prepared once a connection, then bound to these parameters.
    Bind(Params),
    /// Planned each time: a plan that was made while a table was empty would read a full one whole.
    PlanAndBind(Params),
    /// Several statements without parameters and without an answer, by the simple protocol.
    Script,
    /// COPY FROM STDIN in binary format with this data.
    CopyIn(bytes::Bytes),
}

/// The statements of one installation.
#[derive(Debug, Clone)]
pub struct Sql {
    schema: SchemaName,
    cached: Arc<render::Cached>,
}

impl Sql {
    /// Statements for the installation in `schema`.
    #[must_use]
    pub fn new(schema: SchemaName) -> Self {
        let cached = Arc::new(render::Cached::new(&schema));
        Self { schema, cached }
    }

    /// The schema.
    #[must_use]
    pub fn schema(&self) -> &SchemaName {
        &self.schema
    }

    /// The statement for `step`. Total: every step has one.
    #[must_use]
    pub fn render(&self, step: &Step) -> Statement {
        render::render(&self.cached, step)
    }
}
