//! A plain table's worker: claims, completes, and waits to be notified.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use awa::tokio_postgres::{self, AsyncMessage, Client, NoTls, Statement};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::{Plain, PlainClaimer, PlainCompleter};
use crate::contender::{Completer, Contender, KIND, queue_name};

const LISTEN: &str = include_str!("../../../sql/plain/listen.sql");
const ENQUEUE: &str = include_str!("../../../sql/plain/enqueue_notify.sql");
/// The most of a claim.
const BATCH: usize = 512;
/// A notification that was lost costs so much.
const POLL: Duration = Duration::from_secs(1);

/// Works the first queue on a connection that claims, one that completes and one that listens.
pub(crate) struct PlainWorker {
    claimer: PlainClaimer,
    completer: PlainCompleter,
    /// Listens for as long as it is kept.
    _listener: Client,
    arrived: Arc<Notify>,
}

/// A connection whose transactions tell the worker of their jobs.
pub(crate) struct Notifying {
    sql: Client,
    enqueue: Statement,
}

impl Plain {
    /// So many connections.
    pub(crate) async fn notifying(&self, count: usize) -> Result<Vec<Arc<Notifying>>> {
        let mut producers = Vec::new();
        for _ in 0..count {
            let sql = crate::lab::connect(&self.url).await?;
            let enqueue = sql.prepare(ENQUEUE).await?;
            producers.push(Arc::new(Notifying { sql, enqueue }));
        }
        Ok(producers)
    }
}

impl Notifying {
    /// Appends jobs with these args to the first queue, and tells of them, in a transaction.
    pub(crate) async fn enqueue(&self, args: Vec<String>) -> Result<()> {
        let (queues, kinds) = (vec![queue_name(0); args.len()], vec![KIND; args.len()]);
        self.sql.execute(&self.enqueue, &[&queues, &kinds, &args]).await?;
        Ok(())
    }
}

impl PlainWorker {
    pub(crate) async fn of(plain: &Plain) -> Result<Self> {
        let claimer = plain.claimers(1).await?.pop().context("a claimer was asked for")?;
        let completer = plain.completer().await?;
        let (listener, mut connection) = tokio_postgres::connect(&plain.url, NoTls).await?;
        let arrived = Arc::new(Notify::new());
        let told = Arc::clone(&arrived);
        tokio::spawn(async move {
            while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
                if matches!(message, AsyncMessage::Notification(_)) {
                    told.notify_one();
                }
            }
        });
        listener.batch_execute(LISTEN).await?;
        Ok(Self { claimer, completer, _listener: listener, arrived })
    }

    /// Hands the args of so many jobs to `handle`, and completes each claim's jobs when all were handled.
    pub(crate) async fn work(
        mut self,
        jobs: u64,
        handle: impl Fn(&str) -> Result<()>,
    ) -> Result<()> {
        let mut done = 0;
        while done < jobs {
            let rows = self.claimer.claim_rows(BATCH).await?;
            if rows.is_empty() {
                // Whether told or not, it looks again.
                let _ = timeout(POLL, self.arrived.notified()).await;
                continue;
            }
            for row in &rows {
                handle(row.get(2))?;
            }
            self.completer.complete(rows.iter().map(|row| row.get(0)).collect()).await?;
            done += rows.len() as u64;
        }
        Ok(())
    }
}
