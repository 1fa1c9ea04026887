//! A plain table with `SKIP LOCKED`, in batches.

mod worker;

use std::sync::Arc;

use anyhow::Result;
use awa::tokio_postgres::{Client, Row, Statement};
use futures_util::SinkExt;

use crate::contender::{
    Claimer, Completer, Contender, ERROR, Ender, KIND, Producer, apart, queue_name,
};
use crate::lab::Place;

pub(crate) use worker::PlainWorker;

const INSTALL: &str = include_str!("../../sql/plain/install.sql");
const ENQUEUE: &str = include_str!("../../sql/plain/enqueue.sql");
const COPY: &str = include_str!("../../sql/plain/copy.sql");
const CLAIM: &str = include_str!("../../sql/plain/claim.sql");
const COMPLETE: &str = include_str!("../../sql/plain/complete.sql");
const FAIL: &str = include_str!("../../sql/plain/fail.sql");

#[derive(Clone)]
pub(crate) struct Plain {
    url: String,
}

pub(crate) struct PlainProducer {
    sql: Client,
    enqueue: Statement,
}

pub(crate) struct PlainClaimer {
    sql: Arc<Client>,
    claim: Statement,
    queue: String,
}

pub(crate) struct PlainCompleter {
    sql: Client,
    complete: Statement,
    fail: Statement,
}

impl Contender for Plain {
    const NAME: &'static str = "plain table";
    type Taken = Vec<i64>;
    type Producer = PlainProducer;
    type Claimer = PlainClaimer;
    type Completer = PlainCompleter;

    async fn install(place: &Place, _queues: usize) -> Result<Self> {
        place.sql.batch_execute(INSTALL).await?;
        Ok(Self { url: place.url.clone() })
    }

    async fn settle(place: &Place) -> Result<()> {
        Ok(place.sql.batch_execute("analyze plain_jobs").await?)
    }

    async fn producer(&self) -> Result<PlainProducer> {
        let sql = crate::lab::connect(&self.url).await?;
        let enqueue = sql.prepare(ENQUEUE).await?;
        Ok(PlainProducer { sql, enqueue })
    }

    async fn producers(&self, count: usize, _one_process: bool) -> Result<Vec<PlainProducer>> {
        apart(self, count).await
    }

    async fn claimers(&self, queues: usize) -> Result<Vec<PlainClaimer>> {
        let sql = Arc::new(crate::lab::connect(&self.url).await?);
        let claim = sql.prepare(CLAIM).await?;
        let claimer = |queue| PlainClaimer {
            sql: Arc::clone(&sql),
            claim: claim.clone(),
            queue: queue_name(queue),
        };
        Ok((0..queues).map(claimer).collect())
    }

    async fn completer(&self) -> Result<PlainCompleter> {
        let sql = crate::lab::connect(&self.url).await?;
        let complete = sql.prepare(COMPLETE).await?;
        let fail = sql.prepare(FAIL).await?;
        Ok(PlainCompleter { sql, complete, fail })
    }
}

impl Producer for PlainProducer {
    async fn enqueue(&mut self, queue: usize, args: Vec<String>) -> Result<()> {
        let (queues, kinds) = (vec![queue_name(queue); args.len()], vec![KIND; args.len()]);
        self.sql.execute(&self.enqueue, &[&queues, &kinds, &args]).await?;
        Ok(())
    }

    async fn copy(&mut self, queue: usize, args: Vec<String>) -> Result<()> {
        let queue = queue_name(queue);
        let mut sink = Box::pin(self.sql.copy_in::<str, std::io::Cursor<Vec<u8>>>(COPY).await?);
        let rows: String = args.iter().map(|args| format!("{queue}\t{KIND}\t{args}\n")).collect();
        sink.send(std::io::Cursor::new(rows.into_bytes())).await?;
        sink.as_mut().finish().await?;
        Ok(())
    }
}

impl PlainClaimer {
    /// Rows of id, kind, args and attempt.
    async fn claim_rows(&self, limit: usize) -> Result<Vec<Row>> {
        Ok(self.sql.query(&self.claim, &[&self.queue, &(limit as i64)]).await?)
    }
}

impl Claimer<Vec<i64>> for PlainClaimer {
    async fn claim(&mut self, limit: usize) -> Result<Option<(Vec<i64>, usize)>> {
        let rows = self.claim_rows(limit).await?;
        let ids: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
        let count = ids.len();
        Ok((count > 0).then_some((ids, count)))
    }
}

impl Completer<Vec<i64>> for PlainCompleter {
    async fn complete(&mut self, taken: Vec<i64>) -> Result<()> {
        let done = self.sql.execute(&self.complete, &[&taken]).await?;
        ended(done, taken.len())
    }
}

impl Ender<Vec<i64>> for PlainCompleter {
    async fn end(&mut self, taken: Vec<i64>, fails: impl Fn(usize) -> bool + Send) -> Result<()> {
        let count = taken.len();
        let (mut failed, mut completed) = (Vec::new(), Vec::new());
        for (nth, id) in taken.into_iter().enumerate() {
            if fails(nth) { failed.push(id) } else { completed.push(id) }
        }
        if failed.is_empty() {
            return self.complete(completed).await;
        }
        let both = self.sql.transaction().await?;
        let mut done = both.execute(&self.fail, &[&failed, &ERROR]).await?;
        if !completed.is_empty() {
            done += both.execute(&self.complete, &[&completed]).await?;
        }
        both.commit().await?;
        ended(done, count)
    }
}

fn ended(done: u64, of: usize) -> Result<()> {
    anyhow::ensure!(done == of as u64, "{done} of {of} jobs ended");
    Ok(())
}
