//! One connection and the machines that run on it, one after another.

use std::collections::BTreeMap;
use std::sync::Arc;

use awa_core::{Fault, Machine, Reply, Step, Turn};
use awa_sqlgen::Sql;
use tokio_postgres::{Client, GenericClient, SimpleQueryMessage};

use crate::error::Error;
use crate::flush::{Broken, Flushed, ParamTypes, Prepared, flush};

/// How a session keeps its statements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Statements {
    /// Prepared and named once a connection: the fastest.
    Named,
    /// Unnamed: works through a pooler that gives each transaction another server connection (H57).
    Unnamed,
}

/// A connection to one installation.
pub struct Session {
    client: Client,
    sql: Sql,
    statements: Statements,
    named: BTreeMap<Arc<str>, tokio_postgres::Statement>,
    types: ParamTypes,
    /// A machine is under way. Still set after one was dropped half-way: its transaction may be open.
    under_way: bool,
}

impl Session {
    /// A session on a connection that the caller made and drives.
    #[must_use]
    pub fn new(client: Client, sql: Sql, statements: Statements) -> Self {
        let (named, types) = (BTreeMap::new(), ParamTypes::default());
        Self { client, sql, statements, named, types, under_way: false }
    }

    /// The connection. Statements sent on it run between machines.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The statements of the installation.
    #[must_use]
    pub fn sql(&self) -> &Sql {
        &self.sql
    }

    /// Whether the connection is known to be gone.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Whether the connection is there and no machine was dropped half-way on it.
    #[must_use]
    pub fn is_reusable(&self) -> bool {
        !self.under_way && !self.is_closed()
    }

    /// Runs a machine to its end in a transaction of its own.
    ///
    /// # Errors
    /// PostgreSQL's error; [`Error::is_unknown`] where the connection was lost in COMMIT;
    /// [`Error::as_fault`] where the books don't balance. In all but the unknown case nothing changed.
    pub async fn run<M: Machine>(&mut self, machine: M) -> Result<M::Outcome, Error> {
        if self.under_way {
            // A future was dropped before its end. Its answers are gone, its transaction may not be.
            self.rollback(Progress::Open).await?;
        }
        self.under_way = true;
        let ran = self.drive(machine).await;
        self.under_way = false;
        ran
    }

    async fn drive<M: Machine>(&mut self, mut machine: M) -> Result<M::Outcome, Error> {
        let mut state = Progress::Fresh;
        let mut turn = machine.start();
        let mut last_step = String::from("begin");
        loop {
            let (steps, commit) = match turn {
                Turn::Ask(steps) => (steps, false),
                Turn::Last(steps) => (steps, true),
                Turn::Commit(outcome) => {
                    self.commit(state).await?;
                    return Ok(outcome);
                }
                Turn::Rollback(outcome) => {
                    self.rollback(state).await?;
                    return Ok(outcome);
                }
                Turn::Bug(fault) => {
                    self.rollback(state).await?;
                    tracing::error!(%fault, after = last_step, "the books don't balance");
                    return Err(Error::fault(last_step, fault));
                }
            };
            if let Some(step) = steps.last() {
                last_step = step.to_string();
            }
            let begin = state == Progress::Fresh;
            tracing::trace!(begin, commit, steps = steps.len(), last = last_step, "flush");
            let flushed = self.flush(&steps, begin, commit).await;
            let Flushed { replies, aborted } = match flushed {
                Ok(flushed) => flushed,
                Err(broken) => return Err(self.give_up(broken).await),
            };
            state = match (commit, aborted) {
                (true, _) => Progress::Ended,
                (false, true) => Progress::Aborted,
                (false, false) => Progress::Open,
            };
            turn = machine.resume(replies);
        }
    }

    async fn flush(
        &mut self,
        steps: &[Step],
        begin: bool,
        commit: bool,
    ) -> Result<Flushed, Broken> {
        let prepared = match self.statements {
            Statements::Named => Prepared::Named(&mut self.named, &self.types),
            Statements::Unnamed => Prepared::Unnamed(&self.types),
        };
        flush(&self.client, &self.sql, prepared, steps, begin, commit).await
    }

    async fn commit(&self, state: Progress) -> Result<(), Error> {
        match state {
            Progress::Fresh | Progress::Ended => Ok(()),
            Progress::Open | Progress::Aborted => {
                let done = self.client.batch_execute("commit").await;
                done.map_err(|e| {
                    if e.as_db_error().is_none() {
                        Error::unknown("commit", e)
                    } else {
                        Error::postgres("commit", e)
                    }
                })
            }
        }
    }

    async fn rollback(&self, state: Progress) -> Result<(), Error> {
        match state {
            Progress::Fresh | Progress::Ended => Ok(()),
            Progress::Open | Progress::Aborted => {
                let done = self.client.batch_execute("rollback").await;
                done.map_err(|e| Error::postgres("rollback", e))
            }
        }
    }

    /// After a flush that broke: leaves no transaction open behind, and says why.
    async fn give_up(&self, broken: Broken) -> Error {
        // Outside a transaction this only draws a warning; on a dead connection it fails, and the
        // server has rolled back by itself.
        if let Err(error) = self.client.batch_execute("rollback").await {
            tracing::debug!(%error, "no rollback after a broken flush");
        }
        broken.into_error()
    }
}

/// Where a machine's transaction stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    Fresh,
    Open,
    Aborted,
    Ended,
}

impl Broken {
    fn into_error(self) -> Error {
        match self {
            Self::Postgres { at, source } => Error::postgres(at, source),
            Self::Unknown { at, source } => Error::unknown(at, source),
            Self::Misshapen { step, what } => {
                Error::fault(step.clone(), Fault::UnexpectedReply { step, reply: what })
            }
        }
    }
}

/// Runs steps inside transactions that the caller owns: an enqueue is part of the caller's business
/// transaction and commits or vanishes with it. Remembers what it learned about statements, so keep
/// one for a process.
#[derive(Debug)]
pub struct Embedded {
    sql: Sql,
    types: ParamTypes,
}

impl Embedded {
    /// For the installation of `sql`.
    #[must_use]
    pub fn new(sql: Sql) -> Self {
        Self { sql, types: ParamTypes::default() }
    }

    /// Runs the first and only flush of a machine on the caller's transaction, without BEGIN or
    /// COMMIT: for machines whose first turn is [`Turn::Last`].
    ///
    /// # Errors
    /// As for [`Embedded::run`]; [`Error::as_fault`] where the machine wants another turn.
    pub async fn drive<M: Machine, C: GenericClient + Sync>(
        &self,
        transaction: &C,
        mut machine: M,
    ) -> Result<M::Outcome, Error> {
        let mut turn = machine.start();
        if let Turn::Last(steps) = turn {
            let replies = self.run(transaction, &steps).await?;
            turn = machine.resume(replies);
        }
        match turn {
            Turn::Commit(outcome) | Turn::Rollback(outcome) => Ok(outcome),
            Turn::Bug(fault) => Err(Error::fault("embed", fault)),
            Turn::Ask(steps) | Turn::Last(steps) => {
                let step = steps.first().map_or_else(String::new, Step::to_string);
                let reply = "a caller's transaction takes one flush".to_owned();
                Err(Error::fault("embed", Fault::UnexpectedReply { step, reply }))
            }
        }
    }

    /// Runs `steps` in one flush on the caller's transaction, without BEGIN or COMMIT.
    ///
    /// Enqueuing is sound at every isolation level. Anything else is only at READ COMMITTED, where each
    /// statement has a snapshot of its own; the level is asked for before such a step is sent (law 16).
    ///
    /// # Errors
    /// [`Error::as_isolation`] for a step that the transaction's snapshot may be too old for. PostgreSQL's
    /// error, or a refusal: the caller's transaction can then only be rolled back.
    pub async fn run<C: GenericClient + Sync>(
        &self,
        transaction: &C,
        steps: &[Step],
    ) -> Result<Vec<Reply>, Error> {
        if let Some(step) = steps.iter().find(|step| !step.fits_any_snapshot()) {
            fresh_snapshots(transaction, step).await?;
        }
        let prepared = Prepared::Unnamed(&self.types);
        let flushed = flush(transaction, &self.sql, prepared, steps, false, false).await;
        let replies = flushed.map_err(Broken::into_error)?.replies;
        if let Some(Reply::Refused(refusal)) = replies.last() {
            let at = steps.get(replies.len() - 1).map_or_else(String::new, Step::to_string);
            return Err(Error::refused(at, *refusal));
        }
        Ok(replies)
    }
}

/// Refuses `step` unless each statement of the transaction sees what had committed when it began.
async fn fresh_snapshots<C: GenericClient + Sync>(client: &C, step: &Step) -> Result<(), Error> {
    let asked = client.simple_query(Sql::isolation()).await;
    let messages = asked.map_err(|e| Error::postgres("ask for the isolation level", e))?;
    let level = messages.iter().find_map(|message| {
        if let SimpleQueryMessage::Row(row) = message { row.get(0) } else { None }
    });
    // PostgreSQL takes READ UNCOMMITTED for READ COMMITTED.
    match level {
        Some("read committed" | "read uncommitted") => Ok(()),
        Some(_) | None => {
            Err(Error::isolation(step.to_string(), level.unwrap_or_default().to_owned()))
        }
    }
}
