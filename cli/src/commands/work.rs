//! `awa work --exec`: any program can be a handler.

mod exec;
mod shift;

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use awa::{Client, Maintenance, Worker, WorkerStats, Working};
use indicatif::ProgressBar;
use tokio::sync::watch;

use super::{Done, Place};
use crate::options::Work;
use crate::output::Failed;
use crate::progress::Unit;
use shift::{Shift, Tally};

/// Commands that run when the worker is told to stop may take this long.
const GRACE: Duration = Duration::from_secs(30);
/// How often `--drain` looks whether anything is left.
const LOOK_EVERY: Duration = Duration::from_millis(200);

pub(super) async fn work(place: &Place, options: Work) -> Done {
    let mut signals = Signals::listen()?;
    let client = place.client().await?;
    let queues: BTreeSet<String> = options.queues.iter().cloned().collect();
    let backlog = if options.drain { Some(left(&client, &queues).await?) } else { None };
    let shift = Arc::new(Shift {
        exec: options.exec.clone(),
        client: client.clone(),
        tally: Tally::default(),
        hurry: watch::channel(false).0,
        bar: place.progress.bar("Working", backlog, Unit::Jobs),
        said: AtomicBool::new(false),
        said_short: AtomicBool::new(false),
    });
    let working = worker(&client, &options, &queues, &shift)?.start().await?;
    let watching = tokio::spawn(show_progress(working.watch(), Arc::clone(&shift)));
    let ended = tokio::select! {
        drained = drained(&client, &queues), if options.drain => drained,
        () = signals.next() => {
            if place.progress.is_told() {
                shift.say(&format!(
                    "stopping: commands that run have {} s; a second signal hands their jobs back",
                    GRACE.as_secs()
                ));
            }
            Ok(())
        }
    };
    let stats = shut_down(working, &shift, &mut signals).await;
    watching.abort();
    shift.bar.finish_and_clear();
    // What the worker claimed is back in its lanes, whatever ended it.
    let (stats, ()) = (stats?, ended?);
    if *shift.hurry.borrow() {
        wake(&client, &queues).await;
    }
    let summary = shift.tally.summary(stats);
    place.say(&summary.sentences(), &summary.to_json())?;
    Ok(ExitCode::SUCCESS)
}

fn worker(
    client: &Client,
    options: &Work,
    queues: &BTreeSet<String>,
    shift: &Arc<Shift>,
) -> Result<Worker, Failed> {
    let maintenance =
        Maintenance { failed_retention: options.retention.span(), ..Maintenance::default() };
    let shift = Arc::clone(shift);
    let mut worker = Worker::new(client.clone())
        .deadline(Some(Duration::from_secs(options.deadline_s)))
        .maintenance(Some(maintenance))
        .fallback(move |attempt| {
            let shift = Arc::clone(&shift);
            async move { shift.attempt(attempt).await }
        });
    for queue in queues {
        worker = worker.queue(queue, options.concurrency)?;
    }
    Ok(worker)
}

/// Jobs that a drain waits for.
async fn left(client: &Client, queues: &BTreeSet<String>) -> Result<u64, awa::Error> {
    let mut left = 0;
    for queue in queues {
        let counts = client.counts(queue).await?;
        left += (counts.available + counts.running).unsigned_abs();
    }
    Ok(left)
}

/// Waits until nothing is left. A connection that breaks is made anew, as the worker's are.
async fn drained(client: &Client, queues: &BTreeSet<String>) -> Result<(), Failed> {
    loop {
        match left(client, queues).await {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(error) if error.is_connection() => {}
            Err(error) => return Err(error.into()),
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Lets commands finish; at a signal no longer, and at another nothing is waited for any more.
async fn shut_down(
    working: Working,
    shift: &Shift,
    signals: &mut Signals,
) -> Result<WorkerStats, Failed> {
    let shutdown = working.shutdown(GRACE);
    tokio::pin!(shutdown);
    let mut hurried = false;
    loop {
        tokio::select! {
            stats = &mut shutdown => return stats.map_err(|e| Failed::other("shut down", e)),
            () = signals.next() => {
                if hurried {
                    let left = "jobs that were running are tried again when their deadline is over";
                    return Err(Failed::other("ended at once", left));
                }
                hurried = true;
                shift.hurry.send_replace(true);
            }
        }
    }
}

/// Tells others of the jobs that were handed back. One who does not hear of it polls.
async fn wake(client: &Client, queues: &BTreeSet<String>) {
    for queue in queues {
        if let Err(error) = client.wake_queue(queue).await {
            eprintln!("awa: other workers were not told of what was handed back: {error}");
        }
    }
}

/// A bar or a line that moves, for a person at a terminal.
async fn show_progress(mut stats: watch::Receiver<WorkerStats>, shift: Arc<Shift>) {
    let bar: &ProgressBar = &shift.bar;
    while stats.changed().await.is_ok() {
        let claimed = stats.borrow_and_update().claimed;
        let ended = shift.tally.ended();
        if let Some(length) = bar.length() {
            // More may come than there was at the beginning.
            bar.set_length(length.max(claimed));
        }
        bar.set_position(ended);
        bar.set_message(shift.tally.brief());
    }
}

/// What tells the worker to stop: SIGINT, SIGTERM and SIGHUP.
struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    hang_up: tokio::signal::unix::Signal,
}

impl Signals {
    fn listen() -> Result<Self, Failed> {
        use tokio::signal::unix::{SignalKind, signal};
        let listen = |kind| signal(kind).map_err(|e| Failed::other("listen for signals", e));
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hang_up: listen(SignalKind::hangup())?,
        })
    }

    /// The next one. Several that come together are one.
    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hang_up.recv() => {}
        }
    }
}
