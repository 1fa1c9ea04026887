//! A machine that a test drives one statement at a time, so that anything can happen between any two.

use std::collections::VecDeque;

use awa::core::{Machine, Reply, SchemaName, Step, Turn};
use awa_driver::{Embedded, Error, Sql};

use super::{Bench, connect_to};

/// A machine under way in a transaction on a connection of its own.
pub struct Stepwise<M: Machine> {
    /// The connection: statements of the test's own run in the machine's transaction.
    pub sql: awa::tokio_postgres::Client,
    pid: i32,
    embedded: Embedded,
    machine: M,
    ahead: VecDeque<Step>,
    replies: Vec<Reply>,
    end: Option<End<M::Outcome>>,
}

enum End<O> {
    Commit(O),
    Rollback(O),
}

impl<M: Machine> Stepwise<M> {
    /// Begins the transaction. Nothing of the machine has run yet.
    pub async fn begin(bench: &Bench, machine: M) -> Self {
        let sql = connect_to(bench).await;
        let pid = sql.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
        sql.batch_execute("begin isolation level read committed").await.unwrap();
        let embedded = Embedded::new(Sql::new(SchemaName::new(&bench.schema).unwrap()));
        let (ahead, replies, end) = (VecDeque::new(), Vec::new(), None);
        let mut new = Self { sql, pid, embedded, machine, ahead, replies, end };
        let turn = new.machine.start();
        new.take(turn);
        new
    }

    /// The server's process that runs it.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// The statement that comes next; `None`: only COMMIT or ROLLBACK is left.
    pub fn next(&self) -> Option<&Step> {
        self.ahead.front()
    }

    /// The statements that come before the machine is asked again.
    pub fn ahead(&self) -> impl Iterator<Item = &Step> {
        self.ahead.iter()
    }

    /// Runs the next statement.
    pub async fn step(&mut self) -> Result<(), Error> {
        let step = self.ahead.pop_front().expect("a statement is left");
        match self.embedded.run(&self.sql, std::slice::from_ref(&step)).await {
            Ok(mut replies) => self.replies.append(&mut replies),
            Err(error) => {
                self.replies.push(Reply::Refused(error.as_refusal().ok_or(error)?));
                self.ahead.clear();
            }
        }
        if self.ahead.is_empty() {
            let replies = std::mem::take(&mut self.replies);
            let turn = self.machine.resume(replies);
            self.take(turn);
        }
        Ok(())
    }

    /// Runs up to the next statement of that name, which must come.
    pub async fn until(&mut self, name: &str) {
        while self.next().unwrap_or_else(|| panic!("no {name}")).name() != name {
            self.step().await.unwrap();
        }
    }

    /// Runs what is left, ends the transaction as the machine wants, and gives the outcome.
    pub async fn finish(&mut self) -> Result<M::Outcome, Error> {
        while self.next().is_some() {
            self.step().await?;
        }
        let (how, outcome) = match self.end.take().expect("not finished before") {
            End::Commit(outcome) => ("commit", outcome),
            End::Rollback(outcome) => ("rollback", outcome),
        };
        self.sql.batch_execute(how).await.map_err(|e| Error::postgres(how, e))?;
        Ok(outcome)
    }

    fn take(&mut self, turn: Turn<M::Outcome>) {
        match turn {
            Turn::Ask(steps) | Turn::Last(steps) => self.ahead = steps.into(),
            Turn::Commit(outcome) => self.end = Some(End::Commit(outcome)),
            Turn::Rollback(outcome) => self.end = Some(End::Rollback(outcome)),
            Turn::Bug(fault) => panic!("{fault}"),
        }
    }
}

/// Every row of every table of an installation.
pub type Picture = std::collections::BTreeMap<String, Vec<String>>;

impl Bench {
    /// Every row of every table, as text: two pictures that are equal show the same state.
    pub async fn picture(&self) -> Picture {
        let tables = "select relname::text from pg_class
             where relnamespace = to_regnamespace($1) and relkind in ('r', 'p') and not relispartition";
        let schema = format!("\"{}\"", self.schema);
        let mut picture = Picture::new();
        for table in self.sql.query(tables, &[&schema]).await.unwrap() {
            let table: String = table.get(0);
            let rows = format!("select to_jsonb(t)::text from S.{table} t order by 1");
            picture.insert(table, self.texts(&rows).await);
        }
        picture
    }

    /// The first column of a query, as texts.
    pub async fn texts(&self, query: &str) -> Vec<String> {
        let rows = self.sql.query(&self.spelled(query), &[]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// Waits until a session waits for `pid`.
    pub async fn blocked_by(&self, pid: i32) {
        let waits = format!(
            "select count(*) from pg_stat_activity where {pid} = any (pg_blocking_pids(pid))"
        );
        self.until(&waits, |n| n > 0).await;
    }

    /// Waits until a number has become what it should be.
    pub async fn until(&self, query: &str, is_so: impl Fn(i64) -> bool) {
        let waited = std::time::Instant::now();
        while !is_so(self.number(query).await) {
            assert!(waited.elapsed().as_secs() < 120, "waited in vain for: {query}");
            tokio::task::yield_now().await;
        }
    }

    /// Ends a session, and waits until it is gone.
    pub async fn kill(&self, pid: i32) {
        self.sql.execute("select pg_terminate_backend($1)", &[&pid]).await.unwrap();
        let left = format!("select count(*) from pg_stat_activity where pid = {pid}");
        self.until(&left, |n| n == 0).await;
    }
}
