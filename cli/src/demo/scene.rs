//! The stage of the demo: a server, an installation of its own, a clock for the timeline, and what
//! was expected against what came.

use std::time::{Duration, Instant};

use awa::{Client, QueueCounts, Ring};
use awa_devpg::{Options, Server};

use super::run::{Run, drop_leftovers};
use crate::draw::{self, Style};
use crate::output::{self, Failed};

/// The queues that the shipped jobs name.
pub(super) const QUEUES: [&str; 3] = ["mail", "reports", "ingest"];

pub(super) struct Scene {
    server: Option<Server>,
    url: String,
    pub(super) client: Client,
    run: Run,
    quiet: bool,
    style: Style,
    started: Instant,
    failed_expectations: Vec<String>,
    pub(super) held: usize,
}

impl Scene {
    /// Gets a server and migrates a schema that nobody else uses. With `keep` it outlives this run.
    pub(super) async fn set(quiet: bool, url: Option<String>, keep: bool) -> Result<Self, Failed> {
        let started = Instant::now();
        let (server, url) = match url {
            Some(url) => (None, url),
            None => {
                let acquire = || Server::acquire(&Options::default());
                let got = tokio::task::spawn_blocking(acquire).await;
                let server = got.map_err(|e| Failed::other("get a server", e))??;
                let url = server.url().to_owned();
                (Some(server), url)
            }
        };
        let run = Run::begin(&url, keep).await?;
        awa::migrate(&url, run.schema.as_str()).await?;
        let client = Client::connect(&url, run.schema.as_str()).await?;
        let style = Style::of_stdout();
        let scene = Self {
            server,
            url,
            client,
            run,
            quiet,
            style,
            started,
            failed_expectations: Vec::new(),
            held: 0,
        };
        let version = scene.server.as_ref().and_then(Server::version);
        let version = version.map_or_else(String::new, |v| format!(" {v}"));
        let whose = if scene.is_private() { "A private" } else { "Your" };
        let schema = &scene.run.schema;
        scene.tell(&format!("{whose} PostgreSQL{version} is up; schema {schema} is made."));
        if !scene.is_private() {
            scene.clear().await?;
        }
        Ok(scene)
    }

    /// Takes away what demos left behind that were killed.
    async fn clear(&self) -> Result<(), Failed> {
        for leftover in drop_leftovers(&self.url).await? {
            let schema = leftover.schema;
            match leftover.dropped {
                Ok(()) => self.tell(&format!(
                    "Dropped schema {schema}: the demo that made it was killed before it could."
                )),
                Err(error) => {
                    self.tell(&format!("Schema {schema} of a demo that was killed stays: {error}"))
                }
            }
        }
        Ok(())
    }

    fn is_private(&self) -> bool {
        self.server.as_ref().is_some_and(Server::is_private)
    }

    /// One line of the timeline.
    pub(super) fn tell(&self, sentence: &str) {
        if !self.quiet {
            self.write(&draw::moment(self.started.elapsed(), sentence, self.style));
        }
    }

    /// The demo goes on to its end whether or not anyone can read it: its exit code says what it found.
    fn write(&self, text: &str) {
        if let Err(error) = output::write_line(text) {
            eprintln!("awa: {error}");
        }
    }

    /// A drawing below the line before it.
    pub(super) fn show(&self, drawing: &str) {
        if !self.quiet {
            self.write(&format!("\n{drawing}\n"));
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
        let (url, private) = (self.url.clone(), self.is_private());
        if keep {
            // Commands are to be copied: they are not broken into lines.
            self.tell("The server stays up. Connect with:");
            self.show(&format!(
                "psql '{url}'\nawa --database-url '{url}' --schema {} counts mail",
                self.run.schema
            ));
            if !private {
                let schema = &self.run.schema;
                self.tell(&format!(
                    "No later demo drops schema {schema}: do it when you are done."
                ));
            }
            let Some(server) = self.server else { return Ok(()) };
            if let (Some(pid), Some(data)) = (server.pid(), server.data_dir())
                && let Some(directory) = data.parent()
                && !self.quiet
            {
                println!(
                    "Stop it with:\nkill -INT {pid} && sleep 1 && rm -r {}",
                    directory.display()
                );
            }
            return Ok(server.leave_running()?);
        }
        if !private {
            awa::drop_installation(&url, &self.run.schema).await?;
        }
        drop(self.client);
        if let Some(server) = self.server {
            let stopped = tokio::task::spawn_blocking(move || server.stop()).await;
            stopped.map_err(|e| Failed::other("stop the server", e))??;
        }
        Ok(())
    }
}
