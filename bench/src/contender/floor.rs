//! The floor: append, one index, one row of evidence a batch.

use std::sync::Arc;

use anyhow::Result;
use awa::tokio_postgres::{Client, Statement};
use futures_util::SinkExt;

use crate::contender::{Claimer, Completer, Contender, KIND, Producer, apart};
use crate::lab::Place;

const INSTALL: &str = include_str!("../../sql/floor/install.sql");
const ENQUEUE: &str = include_str!("../../sql/floor/enqueue.sql");
const COPY: &str = include_str!("../../sql/floor/copy.sql");
const CLAIM: &str = include_str!("../../sql/floor/claim.sql");
const COMPLETE: &str = include_str!("../../sql/floor/complete.sql");

#[derive(Clone)]
pub(crate) struct Floor {
    url: String,
}

pub(crate) struct FloorProducer {
    sql: Client,
    enqueue: Statement,
}

pub(crate) struct FloorClaimer {
    sql: Arc<Client>,
    claim: Statement,
    lane: i64,
    position: i64,
}

pub(crate) struct FloorCompleter {
    sql: Client,
    complete: Statement,
}

/// A lane's first and last position of a batch.
pub(crate) struct Range {
    lane: i64,
    first: i64,
    last: i64,
}

impl Contender for Floor {
    const NAME: &'static str = "floor";
    type Taken = Range;
    type Producer = FloorProducer;
    type Claimer = FloorClaimer;
    type Completer = FloorCompleter;

    async fn install(place: &Place, _queues: usize) -> Result<Self> {
        place.sql.batch_execute(INSTALL).await?;
        Ok(Self { url: place.url.clone() })
    }

    async fn settle(place: &Place) -> Result<()> {
        Ok(place.sql.batch_execute("analyze floor_jobs").await?)
    }

    async fn producer(&self) -> Result<FloorProducer> {
        let sql = crate::lab::connect(&self.url).await?;
        let enqueue = sql.prepare(ENQUEUE).await?;
        Ok(FloorProducer { sql, enqueue })
    }

    async fn producers(&self, count: usize, _one_process: bool) -> Result<Vec<FloorProducer>> {
        apart(self, count).await
    }

    async fn claimers(&self, queues: usize) -> Result<Vec<FloorClaimer>> {
        let sql = Arc::new(crate::lab::connect(&self.url).await?);
        let claim = sql.prepare(CLAIM).await?;
        let claimer = |queue| FloorClaimer {
            sql: Arc::clone(&sql),
            claim: claim.clone(),
            lane: queue as i64,
            position: 0,
        };
        Ok((0..queues).map(claimer).collect())
    }

    async fn completer(&self) -> Result<FloorCompleter> {
        let sql = crate::lab::connect(&self.url).await?;
        let complete = sql.prepare(COMPLETE).await?;
        Ok(FloorCompleter { sql, complete })
    }
}

impl Producer for FloorProducer {
    async fn enqueue(&mut self, queue: usize, args: Vec<String>) -> Result<()> {
        let (lanes, kinds) = (vec![queue as i64; args.len()], vec![KIND; args.len()]);
        self.sql.execute(&self.enqueue, &[&lanes, &kinds, &args]).await?;
        Ok(())
    }

    async fn copy(&mut self, queue: usize, args: Vec<String>) -> Result<()> {
        let mut sink = Box::pin(self.sql.copy_in::<str, std::io::Cursor<Vec<u8>>>(COPY).await?);
        let rows: String = args.iter().map(|args| format!("{queue}\t{KIND}\t{args}\n")).collect();
        sink.send(std::io::Cursor::new(rows.into_bytes())).await?;
        sink.as_mut().finish().await?;
        Ok(())
    }
}

impl Claimer<Range> for FloorClaimer {
    async fn claim(&mut self, limit: usize) -> Result<Option<(Range, usize)>> {
        let bounds: [&(dyn awa::tokio_postgres::types::ToSql + Sync); 3] =
            [&self.lane, &self.position, &(limit as i64)];
        let rows = self.sql.query(&self.claim, &bounds).await?;
        let seqs: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
        let (Some(first), Some(last)) = (seqs.first(), seqs.last()) else { return Ok(None) };
        self.position = *last;
        Ok(Some((Range { lane: self.lane, first: *first, last: *last }, seqs.len())))
    }
}

impl Completer<Range> for FloorCompleter {
    async fn complete(&mut self, taken: Range) -> Result<()> {
        let values: [&(dyn awa::tokio_postgres::types::ToSql + Sync); 3] =
            [&taken.lane, &taken.first, &taken.last];
        self.sql.execute(&self.complete, &values).await?;
        Ok(())
    }
}
