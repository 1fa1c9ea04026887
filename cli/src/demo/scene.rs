//! The stage of the demo: a server, an installation of its own, a clock for the timeline, and what
//! was expected against what came.

use std::time::{Duration, Instant};

use awa::core::SchemaName;
use awa::{Client, QueueCounts, Ring};
use awa_devpg::{Options, Server};

use crate::draw::{self, Style};
use crate::output::Failed;

/// The queues that the shipped jobs name.
pub(super) const QUEUES: [&str; 3] = ["mail", "reports", "ingest"];

pub(super) struct Scene {
    pub(super) server: Server,
    pub(super) client: Client,
    pub(super) schema: String,
    quiet: bool,
    style: Style,
    started: Instant,
    failed_expectations: Vec<String>,
    pub(super) held: usize,
}

impl Scene {
    /// Gets a server and migrates a schema that nobody else uses.
    pub(super) async fn set(quiet: bool) -> Result<Self, Failed> {
        let started = Instant::now();
        let options = Options::default();
        let got = tokio::task::spawn_blocking(move || Server::acquire(&options)).await;
        let server = got.map_err(|e| Failed::other("get a server", e))??;
        let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let unique = since_1970.unwrap_or_default().as_millis();
        let schema = format!("awa_demo_{unique}_{}", std::process::id());
        awa::migrate(server.url(), &schema).await?;
        let client = Client::connect(server.url(), &schema).await?;
        let style = Style::of_stdout();
        let scene = Self {
            server,
            client,
            schema,
            quiet,
            style,
            started,
            failed_expectations: Vec::new(),
            held: 0,
        };
        let version = scene.server.version().map_or_else(String::new, |v| format!(" {v}"));
        let whose = if scene.server.is_private() { "A private" } else { "Your" };
        scene.tell(&format!("{whose} PostgreSQL{version} is up; schema {} is made.", scene.schema));
        Ok(scene)
    }

    /// One line of the timeline.
    pub(super) fn tell(&self, sentence: &str) {
        if !self.quiet {
            println!("{}", draw::moment(self.started.elapsed(), sentence, self.style));
        }
    }

    /// A drawing below the line before it.
    pub(super) fn show(&self, drawing: &str) {
        if !self.quiet {
            println!("\n{drawing}\n");
        }
    }

    /// The queue ring as it is now.
    pub(super) async fn show_ring(&self, floor: Duration) -> Result<(), Failed> {
        let (view, loads) = self.client.measure(Ring::Queue, floor).await?;
        self.show(&draw::ring(&view, &loads, self.style));
        Ok(())
    }

    /// Counts of all queues, before and after.
    pub(super) fn show_counts(&self, before: &[QueueCounts], after: &[QueueCounts]) {
        let rows = QUEUES.iter().zip(before.iter().zip(after));
        let rows: Vec<_> = rows.map(|(q, (b, a))| (*q, *b, *a)).collect();
        self.show(&draw::counts(&rows, self.style));
    }

    pub(super) async fn counts(&self) -> Result<Vec<QueueCounts>, Failed> {
        let mut all = Vec::with_capacity(QUEUES.len());
        for queue in QUEUES {
            all.push(self.client.counts(queue).await?);
        }
        Ok(all)
    }

    /// Holds `found` against what must be. The demo goes on, and fails in the end.
    pub(super) fn expect<T: PartialEq + std::fmt::Debug>(&mut self, what: &str, due: T, found: T) {
        if due == found {
            self.held += 1;
        } else {
            let failed = format!("{what}: expected {due:?}, found {found:?}");
            self.tell(&format!("NOT AS EXPECTED: {failed}"));
            self.failed_expectations.push(failed);
        }
    }

    pub(super) fn failed_expectations(&self) -> &[String] {
        &self.failed_expectations
    }

    /// Takes the stage down: drops the schema and stops a private server, or leaves both.
    pub(super) async fn strike(self, keep: bool) -> Result<(), Failed> {
        let url = self.server.url().to_owned();
        if keep {
            let pid = self.server.pid();
            self.tell(&format!(
                "The server stays up. Connect with:\n  psql '{url}'\n  awa --database-url '{url}' \
                 --schema {} counts mail",
                self.schema
            ));
            if let Some(pid) = pid {
                self.tell(&format!("Stop it with: kill -INT {pid}"));
            }
            self.server.leave_running()?;
            return Ok(());
        }
        if !self.server.is_private() {
            awa::drop_installation(&url, &SchemaName::new(&self.schema)?).await?;
        }
        drop(self.client);
        let server = self.server;
        let stopped = tokio::task::spawn_blocking(move || server.stop()).await;
        stopped.map_err(|e| Failed::other("stop the server", e))??;
        Ok(())
    }
}
