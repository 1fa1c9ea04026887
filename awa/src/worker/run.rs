//! One attempt: the handler's future, watched for panics, the deadline and the drain.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use awa_driver::core::ClaimedJob;
use awa_driver::core::machine::close::Finished;
use awa_driver::core::runtime::scheduler::QueueNo;
use tokio::sync::{mpsc, watch};

use crate::handler::{Again, Attempt, Failure, Handlers};
use crate::worker::claims::Event;

/// What every attempt of a worker needs.
#[derive(Clone)]
pub(crate) struct Runner {
    pub(crate) handlers: Arc<Handlers>,
    pub(crate) finished: mpsc::Sender<Finished>,
    pub(crate) events: mpsc::UnboundedSender<Event>,
    pub(crate) deadline: Option<Duration>,
}

impl Runner {
    /// Runs one claimed job to its end and reports it. `stop` turns true when the drain is over.
    pub(crate) async fn run(
        self,
        queue: QueueNo,
        job: Arc<ClaimedJob>,
        claimed_at: tokio::time::Instant,
        mut stop: watch::Receiver<bool>,
    ) {
        let deadline = self.deadline.and_then(|span| claimed_at.checked_add(span));
        let attempt = Attempt { claimed: Arc::clone(&job), deadline };
        let hand_back =
            || Finished::handed_back(&job, "the worker shut down before the handler finished");
        let finished = if *stop.borrow() {
            hand_back()
        } else {
            // In this order: what has finished is not handed back to be done again.
            tokio::select! {
                biased;
                handled = self.handle(attempt) => finished(&job, handled),
                _ = stop.wait_for(|stop| *stop) => hand_back(),
                () = until(deadline) => {
                    finished(&job, Err(Failure::retry("the handler did not finish by its deadline")))
                }
            }
        };
        // Waits while the batcher is full. Fails only when the worker was dropped.
        if self.finished.send(finished).await.is_ok() {
            let _ = self.events.send(Event::Finished { queue });
        }
    }

    /// The handler's future, polled so that a panic is a failed attempt and not a lost one.
    async fn handle(&self, attempt: Attempt) -> Result<(), Failure> {
        let made = std::panic::catch_unwind(AssertUnwindSafe(|| self.handlers.handle(attempt)));
        let mut future = match made {
            Ok(future) => future,
            Err(panic) => return Err(panicked(&*panic)),
        };
        std::future::poll_fn(move |context| {
            let polled =
                std::panic::catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context)));
            polled.unwrap_or_else(|panic| Poll::Ready(Err(panicked(&*panic))))
        })
        .await
    }
}

fn finished(job: &ClaimedJob, handled: Result<(), Failure>) -> Finished {
    match handled {
        Ok(()) => Finished::completed(job),
        Err(Failure { error, how: Again::Never }) => {
            Finished::failed_for_good(job, error.as_bytes())
        }
        Err(Failure { error, how: Again::Backoff }) => {
            Finished::failed(job, error.as_bytes(), None)
        }
        Err(Failure { error, how: Again::After(delay) }) => {
            Finished::failed(job, error.as_bytes(), Some(delay.into()))
        }
    }
}

async fn until(deadline: Option<tokio::time::Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> Failure {
    let said = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned());
    Failure::retry(format!("the handler panicked: {}", said.as_deref().unwrap_or("(no text)")))
}
