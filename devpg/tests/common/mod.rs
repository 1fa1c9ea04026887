//! What the tests share: a scratch directory, the program in a process of its own, and questions
//! to a server and to the operating system.

// Each test binary uses a part of it.
#![allow(dead_code)]

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_awa-devpg");
const PATIENCE: Duration = Duration::from_secs(30);

/// A directory that any user may write to, like the temporary one; removed in the end.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new() -> Self {
        let name = format!("awa-t-{:016x}", RandomState::new().hash_one(std::process::id()));
        let dir = std::env::temp_dir().join(name);
        fs::create_dir(&dir).unwrap();
        let scratch = Self(dir);
        chmod(&scratch.0, 0o1777);
        scratch
    }

    /// A directory below it that only its owner may write to.
    pub(crate) fn closed(&self, name: &str) -> PathBuf {
        let dir = self.0.join(name);
        fs::create_dir_all(&dir).unwrap();
        chmod(&dir, 0o755);
        dir
    }

    /// An executable shell script in the directory `dir` below it.
    pub(crate) fn script(&self, dir: &str, name: &str, text: &str) -> PathBuf {
        let dir = self.closed(dir);
        let plain = self.0.join(".script");
        fs::write(&plain, format!("#!/bin/sh\n{text}\n")).unwrap();
        copy_executable(&plain, &dir.join(name));
        fs::remove_file(&plain).unwrap();
        dir
    }

    /// Names of what lies in it.
    pub(crate) fn names(&self) -> Vec<String> {
        names_in(&self.0)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A test that failed may have left a server that is still at work in it.
        if let Err(e) = fs::remove_dir_all(&self.0) {
            eprintln!("{}: {e}", self.0.display());
        }
    }
}

pub(crate) fn names_in(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

pub(crate) fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// The program, with `TMPDIR` set to the scratch directory and no server named by the environment.
pub(crate) fn program(scratch: &Scratch) -> Command {
    let mut command = Command::new(PROGRAM);
    command.env("TMPDIR", &scratch.0).env_remove("DATABASE_URL").stdin(Stdio::null());
    command
}

/// A copy of the program where every user can reach it.
pub(crate) fn copy_of_program(scratch: &Scratch) -> PathBuf {
    let copy = scratch.0.join("awa-devpg");
    copy_executable(Path::new(PROGRAM), &copy);
    copy
}

/// Copies a file that is to be run, in a process of its own: what this one has open for writing, a process
/// that another test starts at that moment has open, too, and what somebody may write to can't be run.
fn copy_executable(from: &Path, to: &Path) {
    assert!(Command::new("cp").args([from, to]).status().unwrap().success());
    chmod(to, 0o755);
}

/// Runs a command that is to end by itself.
pub(crate) fn output(command: &mut Command) -> (Output, String) {
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    (output, stderr)
}

/// The program, running a server.
pub(crate) struct Holder {
    pub(crate) child: Child,
    pub(crate) url: String,
}

impl Holder {
    /// Starts it in a process group of its own, as a shell does, and waits for its first line.
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut url = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut url).unwrap();
        if url.is_empty() {
            let mut said = String::new();
            child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
            panic!("no server: {}: {said}", child.wait().unwrap());
        }
        Self { child, url: url.trim_end().to_owned() }
    }

    pub(crate) fn directory(&self) -> PathBuf {
        directory_of(&self.url)
    }

    /// Closes standard input and waits for the program to end.
    pub(crate) fn finish(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }
}

/// The private directory, from a connection string without quotes.
pub(crate) fn directory_of(url: &str) -> PathBuf {
    PathBuf::from(url.strip_prefix("host=").unwrap().split(' ').next().unwrap())
}

/// Waits until there is something, and fails after half a minute.
pub(crate) fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Waits until neither the directory nor a process that names it is left.
pub(crate) fn assert_gone(directory: &Path) {
    eventually(&format!("{} is gone", directory.display()), || {
        (!directory.exists() && processes_naming(directory).is_empty()).then_some(())
    });
}

/// Command lines of all processes that name the path: the server, its supervisor, `initdb`.
pub(crate) fn processes_naming(path: &Path) -> Vec<String> {
    let path = path.to_str().unwrap();
    let lines: Vec<String> = if Path::new("/proc/self/cmdline").exists() {
        let processes = fs::read_dir("/proc").unwrap().flatten();
        // A process may end while it is looked at.
        processes
            .filter_map(|process| fs::read(process.path().join("cmdline")).ok())
            .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
            .collect()
    } else {
        let ps = Command::new("ps").args(["-A", "-o", "args="]).output().unwrap();
        String::from_utf8_lossy(&ps.stdout).lines().map(str::to_owned).collect()
    };
    lines.into_iter().filter(|line| line.contains(path)).collect()
}

/// Sends a signal to a process, or to a group if `target` is negative.
pub(crate) fn signal(signal: &str, target: i64) {
    let script = "kill -s \"$1\" -- \"$2\"";
    let status = Command::new("/bin/sh")
        .args(["-c", script, "sh", signal, &target.to_string()])
        .status()
        .unwrap();
    assert!(status.success(), "kill -s {signal} {target}: {status}");
}

/// Whether the tests run as root.
pub(crate) fn is_root() -> bool {
    let scratch = Scratch::new();
    fs::metadata(&scratch.0).unwrap().uid() == 0
}

/// User and group id of `nobody` on this machine.
pub(crate) fn nobody() -> (u32, u32) {
    let id = |flag| {
        let output = Command::new("id").args([flag, "nobody"]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).trim().parse().unwrap()
    };
    (id("-u"), id("-g"))
}

/// Asks the server one question; the answer as text.
pub(crate) fn ask(url: &str, sql: &str) -> String {
    try_to_ask(url, sql).unwrap()
}

/// The same of a server that may not answer.
pub(crate) fn try_to_ask(url: &str, sql: &str) -> Result<String, tokio_postgres::Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
        let connection = tokio::spawn(connection);
        let messages = client.simple_query(sql).await?;
        drop(client);
        connection.await.unwrap()?;
        let rows = messages.iter().filter_map(|message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        });
        Ok(rows.collect::<Vec<_>>().join("\n"))
    })
}

/// Where the programs of a running private server are: the server notes how it was started.
pub(crate) fn bin_of(directory: &Path) -> PathBuf {
    let command_line = fs::read_to_string(directory.join("data/postmaster.opts")).unwrap();
    Path::new(command_line.split(' ').next().unwrap()).parent().unwrap().to_owned()
}
