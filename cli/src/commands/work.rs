//! `awa work --exec`: any program can be a handler.

use std::process::{ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

use awa::{Attempt, Failure, Maintenance, Worker, WorkerStats};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;
use tokio::sync::watch;

use super::{Done, Place};
use crate::options::Work;
use crate::output::Failed;

/// Tells Awa to try again later (as EX_TEMPFAIL).
const TRY_AGAIN: i32 = 75;
/// Kept of what a command writes to standard error: its end says why it failed.
const STDERR_BYTES_MAX: usize = 64 << 10;
/// Handlers that run when the worker is told to stop may take this long.
const GRACE: Duration = Duration::from_secs(30);
/// How often `--drain` looks whether anything is left.
const LOOK_EVERY: Duration = Duration::from_millis(200);

pub(super) async fn work(place: &Place, options: Work) -> Done {
    let client = place.client().await?;
    let exec: Arc<str> = options.exec.into();
    let maintenance =
        Maintenance { failed_retention: options.retention.span(), ..Maintenance::default() };
    let mut worker = Worker::new(client.clone())
        .deadline(Some(Duration::from_secs(options.deadline_s)))
        .maintenance(Some(maintenance))
        .fallback(move |attempt| {
            let exec = Arc::clone(&exec);
            async move { run(&exec, &attempt).await }
        });
    for queue in &options.queues {
        worker = worker.queue(queue, options.concurrency)?;
    }
    let working = worker.start().await?;
    let drained = async {
        if !options.drain {
            return std::future::pending().await;
        }
        loop {
            let mut left = 0;
            for queue in &options.queues {
                let counts = client.counts(queue).await?;
                left += counts.available + counts.running;
            }
            if left == 0 {
                return Ok::<(), Failed>(());
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    let watching = tokio::spawn(show_progress(working.watch()));
    tokio::select! {
        drained = drained => drained?,
        stop = stop_signal() => stop?,
    }
    watching.abort();
    let stats = working.shutdown(GRACE).await.map_err(|e| Failed::other("shut down", e))?;
    place.say(
        &format!(
            "Claimed {} jobs: {} attempts completed, {} failed, {} came too late.",
            stats.claimed, stats.completed, stats.failed, stats.stale
        ),
        &json!({
            "claimed": stats.claimed,
            "completed": stats.completed,
            "failed": stats.failed,
            "stale": stats.stale,
        }),
    );
    Ok(ExitCode::SUCCESS)
}

/// A line that moves, for a person at a terminal.
async fn show_progress(mut stats: watch::Receiver<WorkerStats>) {
    let line = indicatif::ProgressBar::new_spinner();
    while stats.changed().await.is_ok() {
        let now = *stats.borrow_and_update();
        line.set_position(now.completed + now.failed);
        line.set_message(format!(
            "{} claimed, {} completed, {} failed or to be tried again",
            now.claimed, now.completed, now.failed
        ));
    }
}

/// SIGINT or, where there is one, SIGTERM.
async fn stop_signal() -> Result<(), Failed> {
    let failed = |e| Failed::other("listen for signals", e);
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
        let mut hang_up = signal(SignalKind::hangup()).map_err(failed)?;
        tokio::select! {
            interrupted = tokio::signal::ctrl_c() => interrupted.map_err(failed),
            _ = terminate.recv() => Ok(()),
            _ = hang_up.recv() => Ok(()),
        }
    }
    #[cfg(not(unix))]
    tokio::signal::ctrl_c().await.map_err(failed)
}

/// The command's process group, ended with the attempt: a child that the command left behind must not
/// work on a job that is tried again elsewhere.
struct Group(Option<u32>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(pid) = self.0 {
            // Nothing is left of most groups, and then there is nothing to end.
            let kill = std::process::Command::new("kill")
                .args(["-KILL", "--", &format!("-{pid}")])
                .stderr(Stdio::null())
                .status();
            if let Err(error) = kill {
                eprintln!("awa: could not end process group {pid}: {error}");
            }
        }
    }
}

/// Hands one job to the command. Ended with the worker, or past the deadline, it is killed.
async fn run(exec: &str, attempt: &Attempt) -> Result<(), Failure> {
    let mut child = Command::new("sh")
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
        .spawn()?;
    let group = Group(child.id());
    let (stdin, stderr) = (child.stdin.take(), child.stderr.take());
    let feed = async {
        if let Some(mut stdin) = stdin {
            // A command that doesn't read its args closes the pipe: its exit code says what it made of it.
            let _ = stdin.write_all(attempt.args().as_bytes()).await;
        }
    };
    let listen = async {
        let mut kept = Vec::new();
        if let Some(mut stderr) = stderr {
            let mut piece = [0; 8 << 10];
            while let Ok(n @ 1..) = stderr.read(&mut piece).await {
                kept.extend_from_slice(&piece[..n]);
                if kept.len() > 2 * STDERR_BYTES_MAX {
                    kept.drain(..kept.len() - STDERR_BYTES_MAX);
                }
            }
        }
        kept
    };
    let ((), said, status) = tokio::join!(feed, listen, child.wait());
    let status = status?;
    drop(group);
    if status.success() {
        return Ok(());
    }
    let said =
        String::from_utf8_lossy(&said[said.len().saturating_sub(STDERR_BYTES_MAX)..]).into_owned();
    let error = format!("the command ended with {status}: {}", said.trim_end());
    if status.code() == Some(TRY_AGAIN) {
        Err(Failure::retry(error))
    } else {
        Err(Failure::permanent(error))
    }
}
