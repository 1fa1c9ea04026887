//! Talks to the shell process that runs the server and cleans up after it (`supervisor.sh`).

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::account::Account;
use crate::{DevPgError, last_lines};

const SCRIPT: &str = include_str!("supervisor.sh");
const SHELL: &str = "/bin/sh";

/// Exit codes of the script: the directory was never made, the server is still there, the
/// directory is still there.
const NO_DIRECTORY: i32 = 11;
const NOT_STOPPED: i32 = 12;
const NOT_REMOVED: i32 = 13;

/// How long `initdb` and the server's start may take together: patience for a machine that has much else to
/// do, since one that ends early is noticed at once.
const START_DEADLINE: Duration = Duration::from_secs(180);
/// How long a stop may take: more than the script's own bounds, which count signals and so grow longer on a
/// machine that is slow to send them.
const STOP_DEADLINE: Duration = Duration::from_secs(120);
/// How often to look whether something has happened, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);
/// How much of a log an error shows.
const LOG_LINES: usize = 30;

/// What to start, and where.
pub(crate) struct Plan<'a> {
    /// The private directory; it must not exist yet.
    pub(crate) directory: &'a Path,
    /// Where `initdb` and `postgres` are.
    pub(crate) bin: &'a Path,
    /// Arguments for `postgres`, after the data directory.
    pub(crate) arguments: &'a [OsString],
    /// Leave the directory there in the end.
    pub(crate) keep: bool,
}

/// Why a server did not start.
pub(crate) enum StartError {
    /// The directory could not be made: another one may do.
    Directory(String),
    /// Anything that another directory would not change.
    Other(DevPgError),
}

impl From<DevPgError> for StartError {
    fn from(error: DevPgError) -> Self {
        Self::Other(error)
    }
}

/// The supervisor of one server. Dropping it stops the server.
#[derive(Debug)]
pub(crate) struct Supervisor {
    shell: Child,
    /// Open as long as the server is to run. The operating system closes it when this process
    /// ends, however it ends; no other process inherits it.
    lifeline: Option<ChildStdin>,
    directory: PathBuf,
    keep: bool,
    server_pid: Option<u32>,
}

impl Supervisor {
    /// Creates the directory and a database cluster in it, starts the server, and returns when it
    /// accepts connections.
    pub(crate) fn start(plan: &Plan<'_>, account: &Account) -> Result<Self, StartError> {
        let deadline = Instant::now() + START_DEADLINE;
        let (mut supervisor, mut reports) = Self::spawn(plan, account)?;
        let pid = supervisor.await_pid(plan, &mut reports, deadline)?;
        supervisor.server_pid = Some(pid);
        supervisor.await_ready(plan, pid, &mut reports, deadline)?;
        Ok(supervisor)
    }

    /// Process id of the server (the postmaster).
    pub(crate) fn server_pid(&self) -> Option<u32> {
        self.server_pid
    }

    fn spawn(plan: &Plan<'_>, account: &Account) -> Result<(Self, UnixStream), DevPgError> {
        let failed = |source| DevPgError::Spawn { program: PathBuf::from(SHELL), source };
        // Not a pipe, because reading from a socket can time out.
        let (reports, theirs) = UnixStream::pair().map_err(failed)?;
        let mut command = Command::new(SHELL);
        command
            .args(["-c", SCRIPT, "awa-devpg"])
            .args([plan.directory, plan.bin])
            .arg(if plan.keep { "keep" } else { "remove" })
            .args(plan.arguments)
            .env_clear()
            .envs(environment())
            .env("HOME", plan.directory)
            // The caller's directory may be closed to the server's user.
            .current_dir("/")
            // Ctrl-C in a terminal goes to the whole foreground group: not to this one.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(OwnedFd::from(theirs))
            .stderr(Stdio::null());
        account.apply(&mut command);
        let mut shell = command.spawn().map_err(failed)?;
        // The command holds a copy of the other end, which would hide the end of file.
        drop(command);
        let lifeline = shell.stdin.take();
        let directory = plan.directory.to_owned();
        let keep = plan.keep;
        Ok((Self { shell, lifeline, directory, keep, server_pid: None }, reports))
    }

    /// Waits until the cluster is made and the server's process is started.
    fn await_pid(
        &self,
        plan: &Plan<'_>,
        reports: &mut UnixStream,
        deadline: Instant,
    ) -> Result<u32, StartError> {
        let mut text = String::new();
        loop {
            let end = match read_some(reports, remaining(deadline)) {
                Ok(Some(more)) => {
                    text.push_str(&more);
                    more.is_empty()
                }
                Ok(None) if Instant::now() < deadline => false,
                Ok(None) => return Err(self.timed_out().into()),
                Err(source) => return Err(spawn_error(source).into()),
            };
            let complete = text.rsplit_once('\n').map_or("", |(lines, _)| lines);
            match complete.lines().last().map(|line| line.split_once(' ').unwrap_or((line, ""))) {
                Some(("pid", number)) => {
                    return number.parse().map_err(|_| self.start_failed(plan).into());
                }
                Some(("initdb-failed", _)) => {
                    let bin = plan.bin.to_owned();
                    return Err(DevPgError::Init { bin, log: self.log_tail() }.into());
                }
                Some(("directory-failed", _)) => {
                    let reason = complete.trim_end_matches("directory-failed").trim();
                    return Err(StartError::Directory(reason.to_owned()));
                }
                Some(_) | None if end => return Err(self.start_failed(plan).into()),
                Some(_) | None => {}
            }
        }
    }

    /// Waits until the server says in its lock file that it accepts connections.
    fn await_ready(
        &self,
        plan: &Plan<'_>,
        pid: u32,
        reports: &mut UnixStream,
        deadline: Instant,
    ) -> Result<(), DevPgError> {
        let lock_file = self.directory.join("data/postmaster.pid");
        let mut pause = FIRST_PAUSE;
        loop {
            // It isn't there at first, and is written in several steps.
            if fs::read_to_string(&lock_file).is_ok_and(|text| says_ready(&text, pid)) {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(self.timed_out());
            }
            // Only the server holds the other end now: the end of file is the server's end.
            match read_some(reports, pause) {
                Ok(Some(text)) if text.is_empty() => return Err(self.start_failed(plan)),
                Ok(_) => pause = (pause * 2).min(LONGEST_PAUSE),
                Err(source) => return Err(spawn_error(source)),
            }
        }
    }

    /// Stops the server and removes the directory, unless it is to be kept.
    pub(crate) fn stop(mut self) -> Result<(), DevPgError> {
        self.end()
    }

    /// Ends the supervisor and lets the server run.
    pub(crate) fn leave(mut self) -> Result<(), DevPgError> {
        let stop_error = |detail: String| DevPgError::Stop {
            detail,
            pid: self.server_pid,
            directory: self.directory.clone(),
        };
        let Some(mut lifeline) = self.lifeline.take() else { return Ok(()) };
        let told = lifeline.write_all(b"leave\n");
        told.map_err(|e| stop_error(format!("telling its supervisor to leave it: {e}")))?;
        // The supervisor reads the line before it sees the end of file.
        drop(lifeline);
        let ended = self.shell.wait();
        ended.map_err(|e| stop_error(format!("waiting for its supervisor: {e}"))).map(|_| ())
    }

    /// Idempotent: once the lifeline is closed and the shell has ended, nothing is left to do.
    fn end(&mut self) -> Result<(), DevPgError> {
        if self.lifeline.take().is_none() {
            return Ok(());
        }
        let stop_error = |detail| DevPgError::Stop {
            detail,
            pid: self.server_pid,
            directory: self.directory.clone(),
        };
        match wait_with_deadline(&mut self.shell, Instant::now() + STOP_DEADLINE) {
            Ok(Some(status)) => match status.code() {
                Some(0) => {
                    if self.keep {
                        eprintln!("awa-devpg: kept {}", self.directory.display());
                    }
                    Ok(())
                }
                Some(NO_DIRECTORY) => Ok(()),
                Some(NOT_STOPPED) => Err(stop_error("it survived SIGKILL".to_owned())),
                Some(NOT_REMOVED) => {
                    Err(stop_error("its directory could not be removed".to_owned()))
                }
                Some(_) | None => Err(stop_error(format!("its supervisor ended with {status}"))),
            },
            Ok(None) => Err(stop_error(format!("not gone after {STOP_DEADLINE:?}"))),
            Err(e) => Err(stop_error(format!("waiting for its supervisor: {e}"))),
        }
    }

    fn timed_out(&self) -> DevPgError {
        DevPgError::StartTimedOut { waited: START_DEADLINE, log: self.log_tail() }
    }

    fn start_failed(&self, plan: &Plan<'_>) -> DevPgError {
        DevPgError::Start { bin: plan.bin.to_owned(), log: self.log_tail() }
    }

    fn log_tail(&self) -> String {
        let path = self.directory.join("log");
        match fs::read(&path) {
            Ok(bytes) => last_lines(&String::from_utf8_lossy(&bytes), LOG_LINES),
            Err(e) => format!("(no log: {}: {e})", path.display()),
        }
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            eprintln!("awa-devpg: {error}");
        }
    }
}

/// A fresh environment: the caller's `PG*` variables and locale would change what the server
/// does, and its secrets are none of the server's business.
fn environment() -> Vec<(OsString, OsString)> {
    let mut path = env::var_os("PATH").unwrap_or_default();
    if !path.is_empty() {
        path.push(":");
    }
    path.push("/usr/bin:/bin");
    let pair = |name: &str, value: OsString| (OsString::from(name), value);
    let mut pairs = vec![pair("PATH", path), pair("LC_ALL", "C".into()), pair("TZ", "UTC".into())];
    // Some installations find their own libraries only so.
    for name in ["LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"] {
        pairs.extend(env::var_os(name).map(|value| pair(name, value)));
    }
    pairs
}

fn spawn_error(source: io::Error) -> DevPgError {
    DevPgError::Spawn { program: PathBuf::from(SHELL), source }
}

/// Reads what there is, waiting at most `wait`: None if nothing came, "" at the end of file.
fn read_some(stream: &mut UnixStream, wait: Duration) -> io::Result<Option<String>> {
    stream.set_read_timeout(Some(wait))?;
    let mut buffer = [0; 1024];
    match stream.read(&mut buffer) {
        Ok(count) => Ok(Some(String::from_utf8_lossy(&buffer[..count]).into_owned())),
        Err(e) => match e.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => Ok(None),
            _ => Err(e),
        },
    }
}

/// The time left, but never zero, which a socket would take for "without end".
fn remaining(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now()).max(FIRST_PAUSE)
}

/// Waits until the process ends; None if it is still there at the deadline.
fn wait_with_deadline(child: &mut Child, deadline: Instant) -> io::Result<Option<ExitStatus>> {
    let mut pause = FIRST_PAUSE;
    loop {
        match child.try_wait()? {
            Some(status) => return Ok(Some(status)),
            None if Instant::now() >= deadline => return Ok(None),
            None => thread::sleep(pause),
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// The first line of the lock file is the process id, the eighth the status.
fn says_ready(lock_file: &str, pid: u32) -> bool {
    let mut lines = lock_file.lines();
    lines.next().is_some_and(|line| line.trim() == pid.to_string())
        && lines.nth(6).is_some_and(|line| line.trim() == "ready")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readiness_is_the_status_of_this_server() {
        let ready = "123\n/d\n1700000000\n5432\n/s\n\n  1 2\nready   \n";
        assert!(says_ready(ready, 123));
        assert!(!says_ready(ready, 124), "another server's file");
        assert!(!says_ready(&ready.replace("ready   ", "starting"), 123));
        assert!(!says_ready("123\n/d\n1700000000\n", 123), "half written");
        assert!(!says_ready("", 123));
    }

    #[test]
    fn waiting_for_a_process_ends_at_the_deadline() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let soon = Instant::now() + Duration::from_millis(30);
        assert!(wait_with_deadline(&mut child, soon).unwrap().is_none());
        child.kill().unwrap();
        let later = Instant::now() + Duration::from_secs(20);
        assert!(wait_with_deadline(&mut child, later).unwrap().is_some());
    }
}
