//! What can go wrong, and what to do about it.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Why no server could be had or stopped. The text of each says what to do.
#[derive(Debug)]
#[non_exhaustive]
pub enum DevPgError {
    /// A major version was asked for that Awa does not run on, or that is not known here.
    UnsupportedVersion {
        /// The major version asked for.
        wanted: u32,
    },
    /// `$DATABASE_URL` is set, but not to text.
    DatabaseUrl,
    /// An entry of [`Options::settings`](crate::Options::settings) can't be passed to a server.
    Setting {
        /// The setting's name as given.
        name: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// No server is installed, none is cached, and none could be downloaded.
    NothingFound {
        /// The major version asked for, if any.
        wanted: Option<u32>,
        /// One line for each place that was searched and each download that was tried.
        tried: Vec<String>,
    },
    /// The operating-system account under which the server runs could not be determined.
    Account {
        /// What was missing.
        detail: String,
    },
    /// No temporary directory can hold the server.
    Directory {
        /// One line for each directory that was tried.
        tried: Vec<String>,
    },
    /// A program that is needed could not be started.
    Spawn {
        /// The program's path.
        program: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// `initdb` failed.
    Init {
        /// The directory of the binaries.
        bin: PathBuf,
        /// The last lines that it printed.
        log: String,
    },
    /// The server ended before it accepted connections.
    Start {
        /// The directory of the binaries.
        bin: PathBuf,
        /// The last lines of its log.
        log: String,
    },
    /// The server did not accept connections in time.
    StartTimedOut {
        /// How long was waited.
        waited: Duration,
        /// The last lines of its log.
        log: String,
    },
    /// The server or its directory may still be there.
    Stop {
        /// What happened.
        detail: String,
        /// Process id of the server, if it was started.
        pid: Option<u32>,
        /// The server's directory.
        directory: PathBuf,
    },
}

impl fmt::Display for DevPgError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnsupportedVersion { wanted } => write!(
                f,
                "PostgreSQL {wanted} was asked for: ask for a major version from {} to {}, or for none",
                crate::OLDEST_MAJOR,
                crate::NEWEST_MAJOR,
            ),
            Self::DatabaseUrl => {
                write!(f, "DATABASE_URL is not valid UTF-8: correct it, or unset it")
            }
            Self::Setting { name, reason } => {
                write!(f, "setting {name:?} can't be passed to the server: {reason}")
            }
            Self::NothingFound { wanted, tried } => write_nothing_found(f, *wanted, tried),
            Self::Account { detail } => write!(
                f,
                "PostgreSQL refuses to run as root, and there is no account to run it under: \
                 {detail}. Run as an ordinary user, or add the user `nobody`"
            ),
            Self::Directory { tried } => {
                write!(
                    f,
                    "no temporary directory can hold the server: set TMPDIR to a short absolute \
                     path that the server's user may write to. Tried:"
                )?;
                write_lines(f, tried)
            }
            Self::Spawn { program, source } => write!(
                f,
                "{} could not be started: {source}. Check that it is there and may be executed",
                program.display()
            ),
            Self::Init { bin, log } => write!(
                f,
                "initdb in {} failed; check the installation and the free disk space, or set \
                 DATABASE_URL to use a server of your own. It said:\n{log}",
                bin.display()
            ),
            Self::Start { bin, log } => write!(
                f,
                "the PostgreSQL server in {} ended before it accepted connections; check the \
                 settings passed to it. The end of its log:\n{log}",
                bin.display()
            ),
            Self::StartTimedOut { waited, log } => write!(
                f,
                "the PostgreSQL server did not accept connections within {} s; the machine may be \
                 overloaded: try again, or set DATABASE_URL to use a server of your own. The end \
                 of its log:\n{log}",
                waited.as_secs()
            ),
            Self::Stop { detail, pid, directory } => {
                write!(f, "the private PostgreSQL server may not have stopped: {detail}.")?;
                if let Some(pid) = pid {
                    write!(f, " If process {pid} is still a postgres: kill -QUIT {pid}.")?;
                }
                write!(f, " Then remove {}", directory.display())
            }
        }
    }
}

impl std::error::Error for DevPgError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Spawn { source, .. } => Some(source),
            Self::UnsupportedVersion { .. }
            | Self::DatabaseUrl
            | Self::Setting { .. }
            | Self::NothingFound { .. }
            | Self::Account { .. }
            | Self::Directory { .. }
            | Self::Init { .. }
            | Self::Start { .. }
            | Self::StartTimedOut { .. }
            | Self::Stop { .. } => None,
        }
    }
}

fn write_nothing_found(
    f: &mut fmt::Formatter<'_>,
    wanted: Option<u32>,
    tried: &[String],
) -> fmt::Result {
    match wanted {
        Some(major) => write!(f, "no PostgreSQL {major} server was found or fetched.")?,
        None => write!(f, "no PostgreSQL server (14 or newer) was found or fetched.")?,
    }
    let debian = wanted.map_or_else(|| "postgresql".to_owned(), |v| format!("postgresql-{v}"));
    let brew = wanted.unwrap_or(crate::NEWEST_MAJOR);
    write!(
        f,
        " Do one of these:\n  \
         - install it: `apt-get install {debian}` (Debian, Ubuntu), `dnf install \
         postgresql-server` (Fedora), `brew install postgresql@{brew}` (macOS)\n  \
         - install Python with pip, so that it can be downloaded: `apt-get install python3-pip`\n"
    )?;
    if wanted.is_none() {
        writeln!(f, "  - set DATABASE_URL to the connection string of a server of your own")?;
    }
    write!(f, "Tried:")?;
    write_lines(f, tried)
}

fn write_lines(f: &mut fmt::Formatter<'_>, lines: &[String]) -> fmt::Result {
    lines.iter().try_for_each(|line| write!(f, "\n  - {line}"))
}
