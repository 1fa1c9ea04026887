//! The private server that everything is measured on, and a fresh database for each measurement.

use anyhow::{Context, Result, ensure};
use awa::tokio_postgres::{self, Client, NoTls};
use awa_devpg::{Options, Server};
use serde::Serialize;

/// Flushing to disk, since a commit's cost is a part of what is compared; caches that hold the working
/// set; no checkpoint in the middle of a measurement that did not ask for one.
const SETTINGS: [(&str, &str); 9] = [
    ("shared_buffers", "1GB"),
    ("max_wal_size", "16GB"),
    ("wal_keep_size", "8GB"),
    ("checkpoint_timeout", "1h"),
    ("max_connections", "100"),
    ("track_wal_io_timing", "off"),
    ("track_io_timing", "off"),
    ("synchronous_commit", "on"),
    ("log_min_messages", "error"),
];

/// A server of the bench's own.
pub(crate) struct Lab {
    server: Server,
    has_walinspect: bool,
}

/// What a reader must know of the server to judge a figure.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Conditions {
    /// What `select version()` says.
    pub(crate) server: String,
    /// Settings that differ from PostgreSQL's own defaults.
    pub(crate) settings: Vec<(String, String)>,
    /// Cores that the operating system offers.
    pub(crate) cores: usize,
}

/// A database of its own, with a connection to watch it from.
pub(crate) struct Place {
    /// How contenders connect.
    pub(crate) url: String,
    name: String,
    /// The watching connection. Nothing that is measured runs on it.
    pub(crate) sql: Client,
}

impl Lab {
    pub(crate) async fn start(version: Option<u32>) -> Result<Self> {
        Self::with(version, &[]).await
    }

    /// A server on which nothing runs but what is asked for, and statements are counted.
    pub(crate) async fn quiet(version: Option<u32>) -> Result<Self> {
        let counted = ("shared_preload_libraries", "pg_stat_statements");
        let lab = Self::with(version, &[counted, ("autovacuum", "off")]).await?;
        ensure!(lab.has_walinspect, "the gate needs the extension pg_walinspect (PostgreSQL 15)");
        Ok(lab)
    }

    async fn with(version: Option<u32>, more: &[(&str, &str)]) -> Result<Self> {
        let all = SETTINGS.iter().chain(more);
        let settings = all.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let options = Options {
            version,
            settings,
            ignore_database_url: true,
            durable: true,
            ..Options::default()
        };
        let server = Server::acquire(&options)?;
        let sql = connect(server.url()).await?;
        let offered = "select count(*) from pg_available_extensions where name = 'pg_walinspect'";
        let has_walinspect = sql.query_one(offered, &[]).await?.get::<_, i64>(0) > 0;
        Ok(Self { server, has_walinspect })
    }

    /// The postmaster's process id.
    pub(crate) fn pid(&self) -> Result<u32> {
        self.server.pid().context("the bench's server is a private one")
    }

    pub(crate) fn has_walinspect(&self) -> bool {
        self.has_walinspect
    }

    pub(crate) async fn conditions(&self) -> Result<Conditions> {
        let sql = connect(self.server.url()).await?;
        let server = sql.query_one("select version()", &[]).await?.get(0);
        let changed = "select name, current_setting(name) from pg_settings
                        where source in ('configuration file', 'command line')
                          and name not like '%directories' and name not like '%directory'
                          and name not like 'log_%' and name not like 'lc_%'
                          and name not in ('config_file', 'hba_file', 'ident_file', 'external_pid_file')
                        order by name";
        let rows = sql.query(changed, &[]).await?;
        let settings = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Ok(Conditions { server, settings, cores })
    }

    /// An empty database.
    pub(crate) async fn place(&self) -> Result<Place> {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("bench_{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let admin = connect(self.server.url()).await?;
        admin.batch_execute(&format!("create database {name}")).await?;
        let url = self.server.url().replace("dbname=postgres", &format!("dbname={name}"));
        ensure!(url != self.server.url(), "the server's own database is not called postgres");
        let sql = connect(&url).await?;
        if self.has_walinspect {
            sql.batch_execute("create extension pg_walinspect").await?;
        }
        Ok(Place { url, name, sql })
    }

    /// Drops what [`Lab::place`] gave; no connection to it may be in use.
    pub(crate) async fn clear(&self, place: Place) -> Result<()> {
        drop(place.sql);
        let admin = connect(self.server.url()).await?;
        let script = format!("drop database {} with (force)", place.name);
        admin.batch_execute(&script).await.context("dropping a measured database")
    }
}

impl Place {
    /// Waits until no connection but the watching one is left: what a backend counted is then in the
    /// server's statistics.
    pub(crate) async fn alone(&self) -> Result<()> {
        let others = "select count(*) from pg_stat_activity
                       where datname = current_database() and pid <> pg_backend_pid()
                         and backend_type = 'client backend' and application_name <> 'pin'";
        let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(30);
        while self.sql.query_one(others, &[]).await?.get::<_, i64>(0) > 0 {
            ensure!(tokio::time::Instant::now() < deadline, "a contender's connection stays open");
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        Ok(())
    }

    /// A reader whose snapshot is held until what this gives is dropped.
    pub(crate) async fn pin(&self) -> Result<Client> {
        let reader = connect(&self.url).await?;
        let script = "set application_name = 'pin';
                      begin isolation level repeatable read; select count(*) from pg_class";
        reader.batch_execute(script).await?;
        Ok(reader)
    }
}

pub(crate) async fn connect(url: &str) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}
