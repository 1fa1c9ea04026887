//! A server to use, private or not.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::account::Account;
use crate::find::{Installation, Version, installed};
use crate::supervisor::{Plan, StartError, Supervisor};
use crate::{DevPgError, NEWEST_MAJOR, OLDEST_MAJOR, Options, fetch, random_name};

/// Part of the socket's file name. Nothing listens on a port.
const PORT: &str = "5432";
/// The longest path of a socket in bytes, without the final NUL: macOS's bound; Linux's is 107.
const LONGEST_SOCKET_PATH: usize = 103;

const DEFAULT_SETTINGS: [(&str, &str); 6] = [
    ("listen_addresses", ""),
    ("shared_buffers", "64MB"),
    ("max_connections", "200"),
    ("max_prepared_transactions", "10"),
    ("timezone", "UTC"),
    ("log_timezone", "UTC"),
];
/// With synchronous commits all the same, so that waits lie where a production server has them.
const NOT_DURABLE: [(&str, &str); 2] = [("fsync", "off"), ("full_page_writes", "off")];
/// Settings that decide where the server is found.
const FIXED_SETTINGS: [&str; 3] = ["port", "unix_socket_directories", "data_directory"];

/// A PostgreSQL server: a private one that ends with this value, or the one that
/// `$DATABASE_URL` names.
///
/// A private server has `shared_buffers = 64MB`, `max_connections = 200`,
/// `max_prepared_transactions = 10`, time zone UTC, encoding UTF8, locale C, autovacuum on, and
/// PostgreSQL's own defaults otherwise. Unless [`Options::durable`] is set, `fsync` and
/// `full_page_writes` are off. It trusts whoever reaches its socket, and the socket's directory
/// is closed to all but its owner: this user, or for root `nobody` (and root).
#[derive(Debug)]
pub struct Server {
    url: String,
    private: Option<Private>,
}

#[derive(Debug)]
struct Private {
    supervisor: Supervisor,
    data_dir: PathBuf,
    version: Version,
}

impl Server {
    /// Finds, fetches or starts a server, as the crate's documentation says. A private server
    /// accepts connections when this returns.
    ///
    /// # Errors
    ///
    /// Any but [`DevPgError::Stop`]. Nothing is left behind then, unless [`Options::keep`] is set.
    pub fn acquire(options: &Options) -> Result<Self, DevPgError> {
        check(options)?;
        if !options.ignore_database_url && options.version.is_none() {
            match env::var("DATABASE_URL") {
                Ok(url) if !url.trim().is_empty() => return Ok(Self { url, private: None }),
                Ok(_) | Err(env::VarError::NotPresent) => {}
                Err(env::VarError::NotUnicode(_)) => return Err(DevPgError::DatabaseUrl),
            }
        }
        let account = Account::of_this_process()?;
        let installation = installation(options, &account)?;
        start(options, &account, &installation)
    }

    /// One server for the whole process: for the tests of one binary, each of which makes a
    /// database of its own. Started by the first caller, with default [`Options`]; a private
    /// server is stopped and removed right after the process has ended.
    ///
    /// # Errors
    ///
    /// Those of [`Server::acquire`], the same for each caller.
    pub fn shared() -> Result<&'static Self, &'static DevPgError> {
        static SHARED: OnceLock<Result<Server, DevPgError>> = OnceLock::new();
        SHARED.get_or_init(|| Self::acquire(&Options::default())).as_ref()
    }

    /// How to connect, as `tokio-postgres` and `libpq` understand it. For a private server, as
    /// its superuser: `host=/tmp/awa-pg-... port=5432 user=postgres dbname=postgres`.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Whether this is a private server, which the caller may treat as it likes.
    #[must_use]
    pub fn is_private(&self) -> bool {
        self.private.is_some()
    }

    /// Process id of a private server's postmaster.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.private.as_ref().and_then(|private| private.supervisor.server_pid())
    }

    /// Data directory of a private server. Its log is the file `log` beside it.
    #[must_use]
    pub fn data_dir(&self) -> Option<&Path> {
        self.private.as_ref().map(|private| private.data_dir.as_path())
    }

    /// Version of a private server.
    #[must_use]
    pub fn version(&self) -> Option<Version> {
        self.private.as_ref().map(|private| private.version)
    }

    /// Stops a private server and removes its directory (with [`Options::keep`], says on standard
    /// error where it is). Sessions are ended: fast shutdown, after 5 s immediate shutdown. Does
    /// nothing to a server that isn't private. Dropping does the same, and prints the error.
    ///
    /// # Errors
    ///
    /// [`DevPgError::Stop`] when the server or its directory may still be there.
    pub fn stop(mut self) -> Result<(), DevPgError> {
        self.private.take().map_or(Ok(()), |private| private.supervisor.stop())
    }

    /// Lets a private server run after this process has ended. Whoever wants it gone sends SIGINT to
    /// [`Server::pid`] and removes the directory that holds [`Server::data_dir`].
    ///
    /// # Errors
    ///
    /// [`DevPgError::Stop`] when its supervisor could not be told: the server then ends with this process.
    pub fn leave_running(mut self) -> Result<(), DevPgError> {
        self.private.take().map_or(Ok(()), |private| private.supervisor.leave())
    }
}

fn check(options: &Options) -> Result<(), DevPgError> {
    if let Some(wanted) = options.version.filter(|v| !(OLDEST_MAJOR..=NEWEST_MAJOR).contains(v)) {
        return Err(DevPgError::UnsupportedVersion { wanted });
    }
    for (name, value) in &options.settings {
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
        let reason = if name.is_empty() || !name.chars().all(is_name) {
            "a name has only letters, digits, underscores and dots"
        } else if FIXED_SETTINGS.iter().any(|fixed| name.eq_ignore_ascii_case(fixed)) {
            "it decides where the private server is found"
        } else if value.contains('\0') {
            "its value contains a NUL character"
        } else {
            continue;
        };
        return Err(DevPgError::Setting { name: name.clone(), reason });
    }
    Ok(())
}

fn installation(options: &Options, account: &Account) -> Result<Installation, DevPgError> {
    let mut tried = Vec::new();
    if options.ignore_installed {
        tried.push("installed servers: not looked for, as asked".to_owned());
    } else if let Some(found) = installed(options.version, account, &mut tried) {
        return Ok(found);
    }
    if let Some(found) = fetch::cached(options, account, &mut tried) {
        return Ok(found);
    }
    if options.offline {
        tried.push("download: not tried, as asked".to_owned());
    } else if let Some(found) = fetch::fetched(options, account, &mut tried) {
        return Ok(found);
    }
    Err(DevPgError::NothingFound { wanted: options.version, tried })
}

/// Starts a private server in the first temporary directory that will do.
fn start(
    options: &Options,
    account: &Account,
    installation: &Installation,
) -> Result<Server, DevPgError> {
    let mut tried = Vec::new();
    let mut bases = vec![env::temp_dir(), PathBuf::from("/tmp"), PathBuf::from("/var/tmp")];
    bases.dedup();
    for base in bases {
        let directory = base.join(format!("awa-pg-{}", random_name()));
        let host = match socket_directory(&directory) {
            Ok(host) => host,
            Err(reason) => {
                tried.push(format!("{}: {reason}", base.display()));
                continue;
            }
        };
        let arguments = arguments(options, host);
        let plan = Plan {
            directory: &directory,
            bin: &installation.bin,
            arguments: &arguments,
            keep: options.keep,
        };
        match Supervisor::start(&plan, account) {
            Ok(supervisor) => {
                let url = format!("host={} port={PORT} user=postgres dbname=postgres", quote(host));
                let data_dir = directory.join("data");
                let version = installation.version;
                let private = Private { supervisor, data_dir, version };
                return Ok(Server { url, private: Some(private) });
            }
            Err(StartError::Directory(reason)) => tried.push(reason),
            Err(StartError::Other(error)) => return Err(error),
        }
    }
    Err(DevPgError::Directory { tried })
}

/// The directory as text, if a socket in it can be named in a connection string.
fn socket_directory(directory: &Path) -> Result<&str, &'static str> {
    let host = directory.to_str().ok_or("not UTF-8")?;
    let socket_length = host.len() + "/.s.PGSQL.".len() + PORT.len();
    if !host.starts_with('/') {
        Err("not an absolute path")
    } else if host.contains(',') {
        // A list of hosts, for clients; there is no way to quote it.
        Err("has a comma in its path")
    } else if socket_length > LONGEST_SOCKET_PATH {
        Err("its path is too long for a Unix socket")
    } else {
        Ok(host)
    }
}

/// What `postgres` is started with. The last of several values of one setting counts.
fn arguments(options: &Options, socket_directory: &str) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = Vec::new();
    let mut set = |name: &str, value: &str| {
        arguments.extend(["-c".into(), format!("{name}={value}").into()]);
    };
    for (name, value) in DEFAULT_SETTINGS {
        set(name, value);
    }
    if !options.durable {
        for (name, value) in NOT_DURABLE {
            set(name, value);
        }
    }
    for (name, value) in &options.settings {
        set(name, value);
    }
    set("port", PORT);
    // A list of identifiers: blanks and commas need quotes.
    let quoted = format!("\"{}\"", socket_directory.replace('"', "\"\""));
    set("unix_socket_directories", &quoted);
    arguments
}

/// A value in a connection string of keywords and values.
fn quote(value: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@%:".contains(c);
    if !value.is_empty() && value.chars().all(is_plain) {
        return value.to_owned();
    }
    format!("'{}'", value.replace('\\', "\\\\").replace('\'', "\\'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_need_it_are_quoted() {
        assert_eq!(quote("/tmp/awa-pg-0"), "/tmp/awa-pg-0");
        assert_eq!(quote("/tmp/my dir"), "'/tmp/my dir'");
        assert_eq!(quote(r"/tmp/it's\x"), r"'/tmp/it\'s\\x'");
        assert_eq!(quote(""), "''");
    }

    #[test]
    fn a_directory_that_a_client_could_not_reach_is_refused() {
        assert_eq!(socket_directory(Path::new("/tmp/x")), Ok("/tmp/x"));
        assert!(socket_directory(Path::new("tmp/x")).is_err());
        assert!(socket_directory(Path::new("/tmp/a,b")).is_err());
        let longest = format!("/{}", "a".repeat(LONGEST_SOCKET_PATH - "/.s.PGSQL.5432".len() - 1));
        assert!(socket_directory(Path::new(&longest)).is_ok());
        assert!(socket_directory(Path::new(&format!("{longest}a"))).is_err());
    }

    #[test]
    fn impossible_wishes_are_refused_before_anything_is_started() {
        let refusal = |options: Options| Server::acquire(&options).unwrap_err().to_string();
        let version = |v| Options { version: Some(v), ..Options::default() };
        assert!(refusal(version(13)).contains("from 14 to 18"));
        assert!(refusal(version(19)).contains("PostgreSQL 19"));
        let setting = |name: &str, value: &str| Options {
            settings: vec![(name.to_owned(), value.to_owned())],
            ..Options::default()
        };
        assert!(refusal(setting("Port", "5433")).contains("where the private server is found"));
        assert!(refusal(setting("work_mem=1", "x")).contains("\"work_mem=1\""));
        assert!(refusal(setting("", "x")).contains("letters"));
        assert!(refusal(setting("work_mem", "1\0")).contains("NUL"));
    }

    #[test]
    fn the_callers_settings_come_after_the_defaults_and_before_the_socket() {
        let options =
            Options { settings: vec![("fsync".to_owned(), "on".to_owned())], ..Options::default() };
        let text: Vec<_> =
            arguments(&options, "/a b").iter().map(|a| a.to_string_lossy().into_owned()).collect();
        let at = |s: &str| text.iter().position(|t| t == s).unwrap();
        assert!(at("fsync=off") < at("fsync=on"));
        assert!(at("fsync=on") < at("unix_socket_directories=\"/a b\""));
        let durable = arguments(&Options { durable: true, ..Options::default() }, "/a");
        assert!(!durable.iter().any(|a| a == "fsync=off" || a == "full_page_writes=off"));
    }
}
