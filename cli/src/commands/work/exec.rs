//! One job handed to a command.

use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use awa::Attempt;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStderr, ChildStdin, Command};

/// Tells Awa to try again later (as EX_TEMPFAIL).
const TRY_AGAIN: i32 = 75;
/// What a shell ends with when it could not run a command: it may not, or there is none.
const NOT_RUN: [i32; 2] = [126, 127];
/// Kept of what a command writes to standard error: its end says why it failed. Less than is kept of an
/// attempt's error, whose end is what is cut.
const STDERR_BYTES_MAX: usize = awa::limits::ERROR_BYTES_MAX * 3 / 4;
/// Hang-up, interrupt and terminate: somebody ended the command, so that it says nothing of the job. A
/// command that has only begun may still be in the worker's group when that is interrupted.
const ENDED_BY_SOMEBODY: [i32; 3] = [1, 2, 15];
/// A shell that waits for a command which signal n ends ends with 128 + n itself.
const BY_SIGNAL: i32 = 128;

/// What the command wrote before it ended is read by then.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What a command said of its job.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is done.
    Completed,
    /// It must be tried again, for this reason.
    TryAgain(String),
    /// The command was not run, for this reason.
    NotRun(String),
    /// It failed for good, for this reason.
    Failed(String),
}

/// Starts `sh -c` for one job. A child that is dropped is killed.
pub(super) fn start(exec: &str, attempt: &Attempt) -> io::Result<Child> {
    Command::new("sh")
        .args(["-c", exec])
        .env("AWA_JOB_ID", attempt.job().0.to_string())
        .env("AWA_KIND", attempt.kind())
        .env("AWA_ATTEMPT", attempt.number().to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        // A group of its own: what ends the worker's group (Ctrl-C, a service manager) is not for it.
        .process_group(0)
        .spawn()
}

/// Whether this host has too many files open, processes or pages in use for another command: that says
/// nothing of the job and passes when others have ended.
pub(super) fn is_shortage(error: &io::Error) -> bool {
    let short = [Errno::MFILE, Errno::NFILE, Errno::AGAIN, Errno::NOMEM];
    Errno::from_io_error(error).is_some_and(|errno| short.contains(&errno))
}

/// Hands one job to what was started for it. A future that is dropped kills the command.
pub(super) async fn hand(mut child: Child, attempt: &Attempt) -> Verdict {
    let group = Group(child.id().and_then(|id| Pid::from_raw(id.cast_signed())));
    let (stdin, stderr) = (child.stdin.take(), child.stderr.take());
    let mut said = Vec::new();
    let status = {
        let talk = async { tokio::join!(feed(stdin, attempt.args()), listen(stderr, &mut said)) };
        tokio::pin!(talk);
        tokio::select! {
            status = child.wait() => {
                drop(group);
                // What it left behind is gone and holds the pipe open no more; what has left its group
                // as well need not be waited for.
                let _ = tokio::time::timeout(LAST_WORDS, talk).await;
                status
            }
            _ = &mut talk => child.wait().await,
        }
    };
    match status {
        Ok(status) => verdict(status, &said),
        Err(error) => Verdict::TryAgain(format!("the command was lost sight of: {error}")),
    }
}

fn verdict(status: ExitStatus, said: &[u8]) -> Verdict {
    let said = String::from_utf8_lossy(said);
    let said = said.trim_end();
    let end = said.len().saturating_sub(STDERR_BYTES_MAX)..=said.len();
    let said = &said[end.clone().find(|at| said.is_char_boundary(*at)).unwrap_or(*end.start())..];
    let ended = || format!("the command ended with {status}: {said}");
    match status.code() {
        Some(0) => Verdict::Completed,
        Some(TRY_AGAIN) => Verdict::TryAgain(ended()),
        Some(code) if NOT_RUN.contains(&code) => {
            Verdict::NotRun(format!("the command could not be run ({status}): {said}"))
        }
        code => match code.map(|code| code - BY_SIGNAL).or(status.signal()) {
            Some(signal) if ENDED_BY_SOMEBODY.contains(&signal) => Verdict::TryAgain(ended()),
            Some(_) | None => Verdict::Failed(ended()),
        },
    }
}

async fn feed(stdin: Option<ChildStdin>, args: &str) {
    if let Some(mut stdin) = stdin {
        // A command that doesn't read its args closes the pipe: its exit code says what it made of it.
        let _ = stdin.write_all(args.as_bytes()).await;
    }
}

async fn listen(stderr: Option<ChildStderr>, kept: &mut Vec<u8>) {
    if let Some(mut stderr) = stderr {
        let mut piece = [0; 8 << 10];
        while let Ok(n @ 1..) = stderr.read(&mut piece).await {
            kept.extend_from_slice(&piece[..n]);
            if kept.len() > 2 * STDERR_BYTES_MAX {
                kept.drain(..kept.len() - STDERR_BYTES_MAX);
            }
        }
    }
}

/// The command's process group, ended with the attempt: a child that the command left behind must not
/// work on a job that is tried again elsewhere.
struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        // Nothing is left of most groups, and then there is nothing to end.
        if let Some(Err(error)) = self.0.map(|pid| kill_process_group(pid, Signal::KILL))
            && error != Errno::SRCH
        {
            eprintln!("awa: what a command left behind could not be ended: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(code: i32, said: &str) -> Verdict {
        verdict(ExitStatus::from_raw(code << 8), said.as_bytes())
    }

    #[test]
    fn a_shortage_is_no_missing_program() {
        for (errno, is_short) in [
            (Errno::MFILE, true),
            (Errno::AGAIN, true),
            (Errno::NOENT, false),
            (Errno::ACCESS, false),
        ] {
            assert_eq!(is_shortage(&errno.into()), is_short, "{errno}");
        }
    }

    #[test]
    fn the_exit_code_decides() {
        assert_eq!(of(0, "warning"), Verdict::Completed);
        let busy = "the command ended with exit status: 75: busy";
        assert_eq!(of(75, "busy\n"), Verdict::TryAgain(busy.to_owned()));
        for code in [126, 127] {
            let expected =
                format!("the command could not be run (exit status: {code}): sh: 1: x: not found");
            assert_eq!(of(code, "sh: 1: x: not found\n"), Verdict::NotRun(expected));
        }
        for code in [1, 74, 76, 125, 128, 131, 137, 255] {
            let expected = format!("the command ended with exit status: {code}: ");
            assert_eq!(of(code, ""), Verdict::Failed(expected));
        }
        let killed = verdict(ExitStatus::from_raw(9), b"");
        assert!(matches!(&killed, Verdict::Failed(why) if why.contains("signal: 9")), "{killed:?}");
        for signal in [1, 2, 15] {
            let ended = verdict(ExitStatus::from_raw(signal), b"");
            assert!(matches!(ended, Verdict::TryAgain(_)), "{ended:?}");
            let told_by_the_shell = of(128 + signal, "Terminated\n");
            assert!(matches!(told_by_the_shell, Verdict::TryAgain(_)), "{told_by_the_shell:?}");
        }
    }

    #[test]
    fn the_end_of_what_it_said_is_what_is_kept() {
        let Verdict::Failed(why) = of(1, &format!("{}\u{e9}REASON\n", "\u{e9}".repeat(20_000)))
        else {
            panic!("it failed");
        };
        assert!(why.ends_with("REASON"), "{why}");
        assert!(why.len() < awa::limits::ERROR_BYTES_MAX, "{}", why.len());
    }
}
