//! A session whose server tells how it ran each statement.
//!
//! `auto_explain` and `log_planner_stats` send notices: the plan of every statement with what it did,
//! and how long each planning took. So what is judged is the very statement that the driver sent,
//! prepared and bound as the driver does it.

use std::sync::{Arc, Mutex};

use awa_core::{Machine, Reply, Step, Turn};
use awa_driver::tokio_postgres::{AsyncMessage, Client, Config, NoTls};
use awa_driver::{Embedded, Session, Sql, Statements};
use serde_json::Value;
use tokio::runtime::Handle;

use crate::plan::Executed;

/// Where notices gather until somebody asks for them.
type Told = Arc<Mutex<Vec<String>>>;

/// A session, and what its server tells of it.
pub(crate) struct Watched {
    session: Session,
    embedded: Embedded,
    told: Told,
    pid: i32,
    /// Another connection, which looks at the session's locks.
    looker: Arc<Client>,
}

/// What a machine did.
#[derive(Debug)]
pub(crate) struct Seen {
    /// Its statements, in order; a COPY is none of them, as it has no plan.
    pub(crate) executed: Vec<Executed>,
    /// Its locks on the installation's relations when all was done but COMMIT: relation and mode.
    pub(crate) locks: Vec<(String, String)>,
}

/// Whether the server can be watched: the module is there, and this role may load it.
pub(crate) const LOAD: &str = "load 'auto_explain'";

/// A plan that went wrong may run for hours.
const WATCH: &str = "
  set statement_timeout = '60s';
  set client_min_messages = log; set log_planner_stats = on;
  set auto_explain.log_min_duration = 0; set auto_explain.log_analyze = on; set auto_explain.log_buffers = on;
  set auto_explain.log_timing = off; set auto_explain.log_format = json; set auto_explain.log_level = notice";

impl Watched {
    /// A session with `settings`, as a role or a database may have them.
    pub(crate) async fn open(
        url: &str,
        sql: &Sql,
        looker: &Arc<Client>,
        statements: Statements,
        settings: &str,
    ) -> Self {
        let config: Config = url.parse().unwrap();
        let (client, mut connection) = config.connect(NoTls).await.unwrap();
        let told = Told::default();
        let gathered = Arc::clone(&told);
        tokio::spawn(async move {
            let mut next = async || std::future::poll_fn(|c| connection.poll_message(c)).await;
            while let Some(Ok(message)) = next().await {
                if let AsyncMessage::Notice(notice) = message {
                    let detail = notice.detail().unwrap_or_default();
                    gathered.lock().unwrap().push(format!("{}\n{detail}", notice.message()));
                }
            }
        });
        client.batch_execute(&format!("{LOAD}; {WATCH}; {settings}")).await.unwrap();
        let pid = client.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
        let session = Session::new(client, sql.clone(), statements);
        let (embedded, looker) = (Embedded::new(sql.clone()), Arc::clone(looker));
        Self { session, embedded, told, pid, looker }
    }

    /// Runs a machine that must not fail.
    pub(crate) async fn run<M: Machine>(&mut self, machine: M) -> (M::Outcome, Seen) {
        self.told.lock().unwrap().clear();
        let (pid, looker) = (self.pid, Arc::clone(&self.looker));
        let sql = self.session.sql().clone();
        let (mut asked, mut locks) = (Vec::new(), Vec::new());
        let look = || locks = locks_of(&looker, pid, sql.schema().as_str());
        let paused = Paused { machine, sql: &sql, asked: &mut asked, look: Some(look) };
        let outcome = self.session.run(paused).await.unwrap_or_else(|e| panic!("{e}"));
        (outcome, Seen { executed: self.executed(&asked), locks })
    }

    /// Runs the one flush of a machine in a transaction that a caller began, which is not the engine's:
    /// its locks are not looked at.
    pub(crate) async fn run_embedded<M: Machine>(&mut self, machine: M) -> (M::Outcome, Seen) {
        self.told.lock().unwrap().clear();
        let sql = self.session.sql().clone();
        let (mut asked, client) = (Vec::new(), self.session.client());
        let noted = Paused { machine, sql: &sql, asked: &mut asked, look: None::<fn()> };
        client.batch_execute("begin").await.unwrap();
        let driven = self.embedded.drive(client, noted).await;
        client.batch_execute("commit").await.unwrap();
        let outcome = driven.unwrap_or_else(|e| panic!("{e}"));
        (outcome, Seen { executed: self.executed(&asked), locks: Vec::new() })
    }

    /// What was told of the statements. All was told before the answer to COMMIT.
    fn executed(&self, asked: &[(String, Arc<str>)]) -> Vec<Executed> {
        let told = std::mem::take(&mut *self.told.lock().unwrap());
        let mut told = told.iter();
        let mut executed = Vec::new();
        for (step, text) in asked.iter().filter(|(_, text)| !text.starts_with("copy")) {
            let mut planning_ms = Vec::new();
            let (ms, mut plan) = loop {
                let message = told.next().unwrap_or_else(|| panic!("no plan of {step} was told"));
                if message.starts_with("PLANNER STATISTICS") {
                    planning_ms.push(elapsed_ms(message));
                } else if let Some((ms, plan)) = plan_in(message)
                    && plan["Query Text"].as_str() == Some(text)
                {
                    break (ms, plan);
                }
            };
            let compiled = !plan["JIT"].is_null();
            let plan = plan["Plan"].take();
            executed.push(Executed { step: step.clone(), plan, compiled, planning_ms, ms });
        }
        executed
    }
}

fn plan_in(message: &str) -> Option<(f64, Value)> {
    let (head, plan) = message.split_once("plan:\n")?;
    let ms = head.trim_start_matches("duration: ").split(' ').next().unwrap().parse().unwrap();
    Some((ms, serde_json::from_str(plan.trim_end()).unwrap()))
}

fn elapsed_ms(message: &str) -> f64 {
    let seconds = message.split(" s elapsed").next().unwrap().rsplit(' ').next().unwrap();
    seconds.parse::<f64>().unwrap() * 1000.0
}

/// Asks from a thread of its own: it is called where the runtime is busy with the machine.
fn locks_of(looker: &Arc<Client>, pid: i32, schema: &str) -> Vec<(String, String)> {
    let handle = Handle::current();
    let ask = || {
        handle.block_on(looker.query(
            "select c.relname::text, l.mode from pg_locks l
               join pg_class c on c.oid = l.relation
               join pg_namespace n on n.oid = c.relnamespace
              where l.pid = $1 and n.nspname = $2 and l.granted
                -- Since PostgreSQL 16 the planner looks at the indexes of parents, which hold no rows.
                and c.relkind <> 'I'",
            &[&pid, &schema],
        ))
    };
    let rows = std::thread::scope(|scope| scope.spawn(ask).join().unwrap()).unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

/// Notes what a machine asks for; with `look`, has its COMMIT wait for somebody who looks first.
struct Paused<'a, M, L> {
    machine: M,
    sql: &'a Sql,
    asked: &'a mut Vec<(String, Arc<str>)>,
    look: Option<L>,
}

impl<M: Machine, L: FnMut()> Paused<'_, M, L> {
    fn note(&mut self, turn: Turn<M::Outcome>) -> Turn<M::Outcome> {
        if let Turn::Ask(steps) | Turn::Last(steps) = &turn {
            for step in steps {
                self.asked.push((spelling(step), self.sql.render(step).sql));
            }
        }
        match turn {
            Turn::Last(steps) if self.look.is_some() => Turn::Ask(steps),
            Turn::Ask(_) | Turn::Last(_) | Turn::Commit(_) | Turn::Rollback(_) | Turn::Bug(_) => {
                turn
            }
        }
    }
}

impl<M: Machine, L: FnMut()> Machine for Paused<'_, M, L> {
    type Outcome = M::Outcome;

    fn start(&mut self) -> Turn<M::Outcome> {
        let turn = self.machine.start();
        self.note(turn)
    }

    fn resume(&mut self, replies: Vec<Reply>) -> Turn<M::Outcome> {
        if let Some(look) = &mut self.look {
            look();
        }
        let turn = self.machine.resume(replies);
        self.note(turn)
    }
}

/// The name of the `.sql` file: a step may have a second one.
fn spelling(step: &Step) -> String {
    let one = matches!(step, Step::EnqueueReady { jobs } if jobs.len() == 1);
    format!("{}{}", step.name(), if one { "One" } else { "" })
}
