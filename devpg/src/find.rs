//! Looks for an installed server.

use std::env;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::OLDEST_MAJOR;
use crate::account::Account;

/// Where packages put the server's programs; one `*` stands for the rest of a directory's name.
const USUAL_DIRECTORIES: [&str; 14] = [
    "/usr/lib/postgresql/*/bin",                          // Debian, Ubuntu
    "/usr/pgsql-*/bin",                                   // Fedora, Red Hat, from postgresql.org
    "/usr/lib/postgresql*/bin",                           // SUSE
    "/usr/libexec/postgresql*",                           // Alpine
    "/usr/bin",                                           // Fedora, Arch
    "/usr/local/bin",                                     // FreeBSD ports, own builds
    "/usr/local/pgsql*/bin",                              // own builds
    "/opt/homebrew/opt/postgresql*/bin",                  // Homebrew on Apple silicon
    "/usr/local/opt/postgresql*/bin",                     // Homebrew on Intel
    "/home/linuxbrew/.linuxbrew/opt/postgresql*/bin",     // Homebrew on Linux
    "/opt/local/lib/postgresql*/bin",                     // MacPorts
    "/Applications/Postgres.app/Contents/Versions/*/bin", // Postgres.app
    "/Library/PostgreSQL/*/bin",                          // EDB's installer on macOS
    "/opt/PostgreSQL/*/bin",                              // EDB's installer on Linux
];

/// A server's version. Orders by age.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// The major version: 15 of 15.18.
    pub major: u32,
    /// The minor version: 18 of 15.18; 0 for a beta version.
    pub minor: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The programs of one server version, known to run under the server's account.
#[derive(Debug)]
pub(crate) struct Installation {
    /// Absolute path of the directory that holds `postgres` and `initdb`.
    pub(crate) bin: PathBuf,
    pub(crate) version: Version,
}

/// The newest installed server of the wanted major version, or of any from 14 on.
/// Adds to `tried` what was searched and why it didn't do.
pub(crate) fn installed(
    wanted: Option<u32>,
    account: &Account,
    tried: &mut Vec<String>,
) -> Option<Installation> {
    let mut best: Option<Installation> = None;
    for bin in candidates(tried) {
        match probe(&bin, wanted, account) {
            Ok(found) if best.as_ref().is_none_or(|b| found.version > b.version) => {
                best = Some(found);
            }
            Ok(_) => {}
            Err(reason) => tried.push(reason),
        }
    }
    best
}

/// Runs `postgres --version` in `bin` as the server's user, which proves that this user can.
pub(crate) fn probe(
    bin: &Path,
    wanted: Option<u32>,
    account: &Account,
) -> Result<Installation, String> {
    let program = bin.join("postgres");
    let mut command = Command::new(&program);
    // The caller's directory may be closed to the server's user.
    command.arg("--version").current_dir("/").stdin(Stdio::null());
    account.apply(&mut command);
    let who = if account.is_dropped() { " as nobody" } else { "" };
    let output =
        command.output().map_err(|e| format!("{} can't be run{who}: {e}", program.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let version = parse_version(&text).filter(|_| output.status.success()).ok_or_else(|| {
        let said = String::from_utf8_lossy(&output.stderr);
        format!("`{} --version`{who}: {}: {}", program.display(), output.status, said.trim())
    })?;
    let fits = wanted.map_or(version.major >= OLDEST_MAJOR, |major| version.major == major);
    if fits {
        Ok(Installation { bin: bin.to_owned(), version })
    } else {
        Err(format!("{} is version {version}", program.display()))
    }
}

/// Finds an executable file by its name on `$PATH`.
pub(crate) fn on_path(program: &str) -> Option<PathBuf> {
    path_directories().map(|dir| dir.join(program)).find(|file| file.is_file())
}

fn path_directories() -> impl Iterator<Item = PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).filter(|dir| dir.is_absolute()).collect::<Vec<_>>().into_iter()
}

/// Every directory with a server in it, each once, in the order of search.
fn candidates(tried: &mut Vec<String>) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut add = |from: &str, directories: Vec<PathBuf>| {
        let before = found.len();
        for bin in directories.iter().filter_map(|dir| server_directory(dir)) {
            if !found.contains(&bin) {
                found.push(bin);
            }
        }
        if found.len() == before {
            tried.push(format!("{from}: no server programs"));
        }
    };
    add("$PATH", path_directories().collect());
    match on_path("pg_config").map(|program| configured_directory(&program)) {
        None => add("pg_config: not on $PATH", Vec::new()),
        Some(Err(reason)) => add(&reason, Vec::new()),
        Some(Ok(dir)) => add(&format!("pg_config --bindir: {}", dir.display()), vec![dir]),
    }
    let usual: Vec<_> = USUAL_DIRECTORIES.iter().flat_map(|pattern| expand(pattern)).collect();
    add(&format!("usual directories such as {}", USUAL_DIRECTORIES[0]), usual);
    found
}

fn configured_directory(pg_config: &Path) -> Result<PathBuf, String> {
    let output = Command::new(pg_config)
        .arg("--bindir")
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("{}: {e}", pg_config.display()))?;
    let dir = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    if dir.is_absolute() {
        Ok(dir)
    } else {
        Err(format!("{} --bindir: {}", pg_config.display(), output.status))
    }
}

/// `dir` with symbolic links to the server resolved, so that a link on `$PATH` leads to the
/// directory that also has `initdb`. None if there is no server.
fn server_directory(dir: &Path) -> Option<PathBuf> {
    // Absent is the normal answer, and a file that can't be resolved can't be run either.
    let program = fs::canonicalize(dir.join("postgres")).ok()?;
    let bin = program.parent()?;
    bin.join("initdb").is_file().then(|| bin.to_owned())
}

/// The directories that match a pattern with at most one `*`, which ends a path component.
fn expand(pattern: &str) -> Vec<PathBuf> {
    let Some((before, after)) = pattern.split_once('*') else {
        return vec![PathBuf::from(pattern)];
    };
    let (parent, prefix) = before.rsplit_once('/').unwrap_or(("", before));
    // An unreadable or absent parent holds no installation for us.
    let Ok(entries) = fs::read_dir(parent) else { return Vec::new() };
    let mut found: Vec<PathBuf> = entries
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix))
        .map(|entry| entry.path().join(after.trim_start_matches('/')))
        .collect();
    found.sort();
    found
}

/// Reads `postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)` and `... 19beta1`.
fn parse_version(text: &str) -> Option<Version> {
    let number = text.split_once("(PostgreSQL) ")?.1.split_whitespace().next()?;
    let digits = |s: &str| s.chars().take_while(char::is_ascii_digit).collect::<String>();
    let major = digits(number);
    let minor = match number[major.len()..].strip_prefix('.') {
        Some(rest) => digits(rest).parse().ok()?,
        None => 0,
    };
    Some(Version { major: major.parse().ok()?, minor })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_distributions_print_them() {
        let version = |text| parse_version(text).map(|v| v.to_string());
        let debian = "postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n";
        assert_eq!(version(debian).as_deref(), Some("15.18"));
        assert_eq!(version("postgres (PostgreSQL) 18.6\n").as_deref(), Some("18.6"));
        assert_eq!(version("postgres (PostgreSQL) 19beta1\n").as_deref(), Some("19.0"));
        assert_eq!(version("postgres (PostgreSQL) 17devel\n").as_deref(), Some("17.0"));
        assert_eq!(version("postgres (PostgreSQL) \n"), None);
        assert_eq!(version("something else 15.1\n"), None);
    }

    #[test]
    fn newer_orders_above_older_by_number_and_not_by_text() {
        let version = |major, minor| Version { major, minor };
        assert!(version(18, 6) > version(17, 11));
        assert!(version(17, 11) > version(17, 9));
    }

    #[test]
    fn a_pattern_matches_the_rest_of_one_name() {
        let root = env::temp_dir().join(format!("awa-find-{}", crate::random_name()));
        for dir in ["pgsql-16/bin", "pgsql-17/bin", "other/bin"] {
            fs::create_dir_all(root.join(dir)).unwrap();
        }
        let found = expand(&format!("{}/pgsql-*/bin", root.display()));
        assert_eq!(found, [root.join("pgsql-16/bin"), root.join("pgsql-17/bin")]);
        assert!(expand(&format!("{}/absent/*/bin", root.display())).is_empty());
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn a_link_leads_to_the_directory_with_initdb() {
        let root = env::temp_dir().join(format!("awa-find-{}", crate::random_name()));
        let (real, links) = (root.join("real"), root.join("links"));
        fs::create_dir_all(&real).unwrap();
        fs::create_dir_all(&links).unwrap();
        fs::write(real.join("postgres"), "").unwrap();
        std::os::unix::fs::symlink(real.join("postgres"), links.join("postgres")).unwrap();
        assert_eq!(server_directory(&links), None, "a server without initdb is of no use");
        fs::write(real.join("initdb"), "").unwrap();
        assert_eq!(server_directory(&links), Some(fs::canonicalize(&real).unwrap()));
        fs::remove_dir_all(&root).unwrap();
    }
}
