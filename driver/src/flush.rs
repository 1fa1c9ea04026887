//! One flush: BEGIN, statements and COMMIT on their way before the first answer is read.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use awa_core::{Refusal, Reply, Step};
use awa_sqlgen::{BEGIN, Mode, Params, Sql, Statement};
use bytes::Bytes;
use futures_util::SinkExt as _;
use tokio_postgres::GenericClient;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};

use crate::decode::{Answer, Misshapen, decode};

const COMMIT: &str = "commit";

/// How statements are kept between flushes.
pub(crate) enum Prepared<'a> {
    /// Named, on this one connection: planned once, but for those that are to be planned each time.
    Named(&'a mut BTreeMap<Arc<str>, tokio_postgres::Statement>, &'a ParamTypes),
    /// Unnamed, with the parameter types learned once a process: through a transaction pooler, or
    /// inside a transaction of the caller's.
    Unnamed(&'a ParamTypes),
}

/// The parameter types of statements, by their text: the same on every connection.
#[derive(Debug, Default)]
pub(crate) struct ParamTypes(Mutex<BTreeMap<Arc<str>, Arc<[Type]>>>);

impl ParamTypes {
    async fn of<C: GenericClient>(
        &self,
        client: &C,
        sql: &Arc<str>,
    ) -> Result<Arc<[Type]>, tokio_postgres::Error> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(sql).cloned();
        if let Some(types) = known {
            return Ok(types);
        }
        let statement = client.prepare(sql).await?;
        let types: Arc<[Type]> = statement.params().into();
        let mut cache = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(cache.entry(Arc::clone(sql)).or_insert(types).clone())
    }
}

/// A statement ready to be sent.
enum Ready {
    Named(tokio_postgres::Statement, Params),
    Unnamed(Arc<str>, Arc<[Type]>, Params),
    Script(Arc<str>),
    CopyIn(Arc<str>, Bytes),
}

/// What a flush came to.
pub(crate) struct Flushed {
    /// A reply a step, up to the first that was refused.
    pub(crate) replies: Vec<Reply>,
    /// Whether the server has ended the transaction's usefulness: only a rollback is left.
    pub(crate) aborted: bool,
}

/// Why a flush gave no replies.
pub(crate) enum Broken {
    /// PostgreSQL's error, and the step that it was about.
    Postgres { at: String, source: tokio_postgres::Error },
    /// The same after a COMMIT had been sent and no answer to it came.
    Unknown { at: String, source: tokio_postgres::Error },
    /// An answer that doesn't fit its statement.
    Misshapen { step: String, what: String },
}

/// Sends `steps`, with BEGIN before them and COMMIT after them where asked, and reads all answers.
pub(crate) async fn flush<C: GenericClient + Sync>(
    client: &C,
    sql: &Sql,
    mut prepared: Prepared<'_>,
    steps: &[Step],
    begin: bool,
    commit: bool,
) -> Result<Flushed, Broken> {
    let mut ready = Vec::with_capacity(steps.len());
    for step in steps {
        let made = make_ready(client, sql.render(step), &mut prepared).await;
        ready.push(made.map_err(|source| Broken::Postgres { at: step.to_string(), source })?);
    }
    // A statement by itself is a transaction, at whatever isolation is the default: where that is all the
    // same, two thirds of what a single enqueue would send say nothing.
    let alone = begin
        && commit
        && matches!((steps, &ready[..]), ([step], [Ready::Named(..) | Ready::Unnamed(..)])
            if step.fits_any_snapshot());
    let begin = begin && !alone;
    let mut sent: Vec<Sent<'_>> = Vec::with_capacity(steps.len() + 2);
    if begin {
        sent.push(Box::pin(execute(client, BEGIN)));
    }
    for statement in ready {
        sent.push(Box::pin(send(client, statement)));
    }
    if commit && !alone {
        sent.push(Box::pin(execute(client, COMMIT)));
    }
    read_answers(steps, in_order(sent).await, begin, commit)
}

type Answered = Result<Answer, tokio_postgres::Error>;
type Sent<'a> = Pin<Box<dyn Future<Output = Answered> + Send + 'a>>;

fn read_answers(
    steps: &[Step],
    answers: Vec<Answered>,
    begin: bool,
    commit: bool,
) -> Result<Flushed, Broken> {
    let broken = |at: String, source: tokio_postgres::Error| {
        // An answer from the server to an earlier statement says that COMMIT undid everything.
        if commit && source.as_db_error().is_none() {
            Broken::Unknown { at, source }
        } else {
            Broken::Postgres { at, source }
        }
    };
    let mut answers = answers.into_iter();
    if begin && let Some(Err(source)) = answers.next() {
        return Err(broken("begin".to_owned(), source));
    }
    let mut replies = Vec::with_capacity(steps.len());
    for (step, answer) in steps.iter().zip(&mut answers) {
        match answer {
            Ok(answer) => replies.push(decode(step, answer).map_err(|Misshapen { what }| {
                Broken::Misshapen { step: step.to_string(), what }
            })?),
            Err(source) => match refusal(&source) {
                Some(refusal) => {
                    replies.push(Reply::Refused(refusal));
                    return Ok(Flushed { replies, aborted: true });
                }
                None => return Err(broken(step.to_string(), source)),
            },
        }
    }
    if commit && let Some(Err(source)) = answers.next() {
        return match refusal(&source) {
            Some(refusal) => {
                // Nothing was committed: the last reply gives way to the refusal.
                replies.pop();
                replies.push(Reply::Refused(refusal));
                Ok(Flushed { replies, aborted: true })
            }
            None => Err(broken(COMMIT.to_owned(), source)),
        };
    }
    Ok(Flushed { replies, aborted: false })
}

/// Contention that the engine expects, by what PostgreSQL calls it.
fn refusal(error: &tokio_postgres::Error) -> Option<Refusal> {
    let code = error.code()?;
    if *code == SqlState::LOCK_NOT_AVAILABLE {
        Some(Refusal::LockTimeout)
    } else if *code == SqlState::T_R_DEADLOCK_DETECTED
        || *code == SqlState::T_R_SERIALIZATION_FAILURE
    {
        Some(Refusal::Conflict)
    } else {
        None
    }
}

async fn make_ready<C: GenericClient>(
    client: &C,
    statement: Statement,
    prepared: &mut Prepared<'_>,
) -> Result<Ready, tokio_postgres::Error> {
    let Statement { sql, mode } = statement;
    let (params, kept) = match mode {
        Mode::Bind(params) => (params, true),
        Mode::PlanAndBind(params) => (params, false),
        Mode::Script => return Ok(Ready::Script(sql)),
        Mode::CopyIn(data) => return Ok(Ready::CopyIn(sql, data)),
    };
    let types = match prepared {
        Prepared::Named(known, _) if kept => {
            let found = known.get(&sql).cloned();
            let statement = match found {
                Some(statement) => statement,
                None => {
                    let new = client.prepare(&sql).await?;
                    known.insert(sql, new.clone());
                    new
                }
            };
            return Ok(Ready::Named(statement, params));
        }
        Prepared::Named(_, types) | Prepared::Unnamed(types) => types,
    };
    let types = types.of(client, &sql).await?;
    Ok(Ready::Unnamed(sql, types, params))
}

async fn send<C: GenericClient + Sync>(client: &C, statement: Ready) -> Answered {
    match statement {
        Ready::Named(statement, params) => {
            let params: Vec<_> = params.iter().map(|p| -> &(dyn ToSql + Sync) { &**p }).collect();
            client.query(&statement, &params).await.map(Answer::Rows)
        }
        Ready::Unnamed(sql, types, params) => {
            let params: Vec<(&(dyn ToSql + Sync), Type)> = params
                .iter()
                .zip(types.iter())
                .map(|(p, t)| -> (&(dyn ToSql + Sync), Type) { (&**p, t.clone()) })
                .collect();
            client.query_typed(&sql, &params).await.map(Answer::Rows)
        }
        Ready::Script(sql) => execute(client, &sql).await,
        Ready::CopyIn(sql, data) => {
            let mut sink = Box::pin(client.client().copy_in::<str, Bytes>(&sql).await?);
            sink.send(data).await?;
            sink.as_mut().finish().await.map(Answer::Copied)
        }
    }
}

async fn execute<C: GenericClient>(client: &C, sql: &str) -> Answered {
    client.batch_execute(sql).await.map(|()| Answer::Done)
}

/// Polls all futures in their order until all are done. tokio-postgres sends a statement when its
/// future is first polled, so this is what keeps a flush in order.
async fn in_order<T>(mut futures: Vec<Pin<Box<dyn Future<Output = T> + Send + '_>>>) -> Vec<T> {
    let mut done: Vec<Option<T>> = futures.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        let mut waiting = false;
        for (future, slot) in futures.iter_mut().zip(&mut done) {
            if slot.is_none() {
                match future.as_mut().poll(context) {
                    Poll::Ready(value) => *slot = Some(value),
                    Poll::Pending => waiting = true,
                }
            }
        }
        if waiting { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    done.into_iter().flatten().collect()
}
