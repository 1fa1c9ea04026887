//! Claims jobs as the scheduler says and starts their handlers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use awa_driver::core::machine::claim::{Claim, ClaimOutcome};
use awa_driver::core::machine::poll::{PollLanes, Polled};
use awa_driver::core::runtime::lookout::{Look, Lookout};
use awa_driver::core::runtime::scheduler::{
    Claimed, Destiny, LaneSpec, QueueNo, QueueSpec, Scheduler, SchedulerAction, SchedulerConfig,
    Wake,
};
use awa_driver::core::{ClaimedJob, Lane, LaneId, QueueName, Refusal, Window, limits};
use awa_driver::{Era, Error};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};

use crate::client::Client;
use crate::clock::HostClock;
use crate::worker::WorkerStats;
use crate::worker::run::Runner;

/// What the claimer hears.
#[derive(Debug)]
pub(crate) enum Event {
    /// An attempt's end is with the batcher.
    Finished { queue: QueueNo },
    /// Lanes have new jobs.
    Wake(Vec<LaneId>),
    /// Any lane may have.
    WakeAll,
}

pub(crate) struct Plan {
    pub(crate) client: Client,
    pub(crate) scheduler: SchedulerConfig,
    pub(crate) queues: BTreeMap<QueueName, u32>,
    pub(crate) runner: Runner,
    pub(crate) deadline: Option<Duration>,
    pub(crate) stats: Arc<watch::Sender<WorkerStats>>,
}

/// What a task that talks to the server brings back.
enum Done {
    Claim {
        queue: QueueNo,
        lane: LaneId,
        begun: tokio::time::Instant,
        result: Result<(Era, ClaimOutcome), Error>,
    },
    Poll {
        result: Result<PollDone, Error>,
    },
    Look {
        look: Look,
        result: Result<LanesFound, Error>,
    },
}

/// The lanes that queues have now.
type LanesFound = Vec<(QueueNo, Arc<[Lane]>)>;

/// A poll that got an answer.
struct PollDone {
    era: Era,
    asked: Vec<(LaneId, Window)>,
    outcome: Result<Polled, Refusal>,
}

/// What is known of a lane holds in the era in which it was learned.
#[derive(Clone, Default)]
struct Known {
    era: Era,
    window: Window,
}

impl Known {
    /// The window for a session of `era`. Behind a pooler nobody can tell one server connection from
    /// another, so nothing is remembered there.
    fn in_era(self, era: Era, behind_pooler: bool) -> Window {
        if self.era == era && !behind_pooler { self.window } else { Window::default() }
    }
}

pub(crate) async fn start(
    plan: Plan,
    inbox: mpsc::UnboundedReceiver<Event>,
    draining: watch::Receiver<Option<tokio::time::Instant>>,
) -> Result<JoinHandle<()>, Error> {
    let mut specs = Vec::new();
    let mut lanes_of = Vec::new();
    for (name, limit) in &plan.queues {
        let lanes = plan.client.find_lanes(name).await?;
        lanes_of.push(lanes.iter().map(|l| l.lane).collect());
        specs.push(QueueSpec { limit: *limit, lanes: lanes.iter().map(spec).collect() });
    }
    let clock = HostClock::start();
    let claimer = Claimer {
        lookout: Lookout::new(specs.len(), clock.now()),
        scheduler: Scheduler::new(plan.scheduler, specs),
        plan,
        lanes_of,
        windows: BTreeMap::new(),
        busy: BTreeSet::new(),
        talking: JoinSet::new(),
        running: JoinSet::new(),
        clock,
        stop: watch::channel(false).0,
    };
    Ok(tokio::spawn(claimer.run(inbox, draining)))
}

fn spec(lane: &Lane) -> LaneSpec {
    LaneSpec { lane: lane.lane, priority: lane.priority, shard: lane.shard }
}

struct Claimer {
    plan: Plan,
    scheduler: Scheduler,
    lanes_of: Vec<Vec<LaneId>>,
    lookout: Lookout,
    /// What is known of each lane; none after a broken connection.
    windows: BTreeMap<LaneId, Known>,
    /// Lanes with a claim in flight: their windows are out.
    busy: BTreeSet<LaneId>,
    talking: JoinSet<Done>,
    running: JoinSet<()>,
    clock: HostClock,
    /// Turns true when handlers must stop.
    stop: watch::Sender<bool>,
}

impl Claimer {
    async fn run(
        mut self,
        mut inbox: mpsc::UnboundedReceiver<Event>,
        mut draining: watch::Receiver<Option<tokio::time::Instant>>,
    ) {
        let mut drains = false;
        loop {
            if self.act() {
                break;
            }
            let mut wakes = [self.scheduler.next_wake(), None];
            if !drains {
                self.look();
                wakes[1] = self.lookout.next_wake();
            }
            let wake = self.clock.at(wakes.into_iter().flatten().min());
            tokio::select! {
                Some(event) = inbox.recv() => {
                    self.hear(event);
                    // Ends come by the thousand: take what is there before deciding anew.
                    while let Ok(event) = inbox.try_recv() {
                        self.hear(event);
                    }
                }
                Some(done) = self.talking.join_next() => {
                    // What lands after the worker was told to stop is not begun, whichever it hears first.
                    if !drains && draining.has_changed().unwrap_or(true) {
                        drains = true;
                        self.drain(&draining);
                    }
                    match done {
                        Ok(Done::Claim { queue, lane, begun, result }) => {
                            self.claimed(queue, lane, begun, result);
                        }
                        Ok(Done::Poll { result }) => self.polled(result),
                        Ok(Done::Look { look, result }) => self.looked(look, result),
                        Err(error) => {
                            // The scheduler would wait for ever for what that task was to bring.
                            tracing::error!(%error, "a claim panicked; the worker stops");
                            break;
                        }
                    }
                }
                Some(ended) = self.running.join_next() => {
                    if let Err(error) = ended && error.is_panic() {
                        tracing::error!(%error, "an attempt panicked outside its handler");
                    }
                }
                _ = draining.changed(), if !drains => {
                    drains = true;
                    self.drain(&draining);
                }
                () = tokio::time::sleep_until(wake) => {}
            }
        }
        // Ends that were reported are with the batcher; its channel closes with the last runner.
        while self.running.join_next().await.is_some() {}
    }

    /// Claims nothing more from now on.
    fn drain(&mut self, draining: &watch::Receiver<Option<tokio::time::Instant>>) {
        // A sender that is gone means that the worker was dropped: stop at once.
        let deadline = (*draining.borrow()).unwrap_or_else(tokio::time::Instant::now);
        self.scheduler.drain(self.clock.tick(deadline));
    }

    fn hear(&mut self, event: Event) {
        match event {
            Event::Finished { queue } => {
                if let Err(fault) = self.scheduler.handle_finished(queue, 1) {
                    tracing::error!(%fault, "the scheduler's books");
                }
            }
            Event::Wake(lanes) => {
                for lane in lanes {
                    self.wake(lane);
                }
            }
            Event::WakeAll => self.scheduler.handle_wake(Wake::All),
        }
    }

    /// Other queues' lanes are told on the same channel, and so are new ones of ours.
    fn wake(&mut self, lane: LaneId) {
        if self.lanes_of.iter().flatten().any(|known| *known == lane) {
            self.scheduler.handle_wake(Wake::Lane(lane));
        } else {
            self.lookout.handle_wake(lane);
        }
    }

    /// Looks for lanes that were declared since, if it is time to.
    fn look(&mut self) {
        let Some(look) = self.lookout.poll(self.clock.now()) else { return };
        let names = self.plan.queues.keys().enumerate().map(|(no, name)| (QueueNo(no), name));
        let wanted = names.filter(|(no, _)| look.queues.contains(no));
        let wanted: Vec<_> = wanted.map(|(no, name)| (no, name.clone())).collect();
        let client = self.plan.client.clone();
        self.talking.spawn(async move {
            let mut found = Vec::with_capacity(wanted.len());
            for (queue, name) in wanted {
                match client.find_lanes(&name).await {
                    Ok(lanes) => found.push((queue, lanes)),
                    Err(error) => return Done::Look { look, result: Err(error) },
                }
            }
            Done::Look { look, result: Ok(found) }
        });
    }

    fn looked(&mut self, look: Look, result: Result<LanesFound, Error>) {
        let found = match result {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!(%error, "can't look for new lanes");
                return self.lookout.handle_failed(self.clock.now());
            }
        };
        for (queue, lanes) in found {
            let known = &mut self.lanes_of[queue.0];
            for lane in lanes.iter().filter(|lane| !known.contains(&lane.lane)) {
                tracing::info!(lane = %lane.lane, "works a lane that was declared since");
                self.scheduler.add_lane(queue, spec(lane));
            }
            *known = lanes.iter().map(|lane| lane.lane).collect();
        }
        self.lookout.handle_looked(look, self.clock.now());
    }

    /// Does what the scheduler says. True when it is drained.
    fn act(&mut self) -> bool {
        while let Some(action) = self.scheduler.poll(self.clock.now()) {
            match action {
                SchedulerAction::Claim { queue, lane, rows } => self.claim(queue, lane, rows),
                SchedulerAction::Poll { queues } => self.poll(&queues),
                SchedulerAction::HandBack { running } => {
                    tracing::info!(running, "the grace is over: handing jobs back");
                    self.stop.send_replace(true);
                }
                SchedulerAction::Drained => return true,
            }
        }
        false
    }

    fn claim(&mut self, queue: QueueNo, lane: LaneId, rows: u16) {
        let known = self.windows.remove(&lane).unwrap_or_default();
        self.busy.insert(lane);
        let deadline = self.plan.deadline.map(Into::into);
        let client = self.plan.client.clone();
        self.talking.spawn(async move {
            let begun = tokio::time::Instant::now();
            let claim = async {
                let mut session = client.sessions().take().await?;
                let era = session.era();
                let window = known.in_era(era, client.behind_pooler());
                let bytes_max = limits::CLAIM_BYTES_MAX;
                let claim = Claim::new(lane, window, rows.into(), bytes_max, deadline)?;
                Ok((era, session.run(claim).await?))
            };
            Done::Claim { queue, lane, begun, result: claim.await }
        });
    }

    fn claimed(
        &mut self,
        queue: QueueNo,
        lane: LaneId,
        begun: tokio::time::Instant,
        result: Result<(Era, ClaimOutcome), Error>,
    ) {
        self.busy.remove(&lane);
        let now = self.clock.now();
        let noted = match result {
            Ok((era, ClaimOutcome::Claimed { jobs, window, bounded, .. })) => {
                self.windows.insert(lane, Known { era, window });
                let rows = jobs.len() as u16;
                self.plan.stats.send_modify(|s| s.claimed += u64::from(rows));
                let claimed = Claimed { rows, more: bounded };
                self.scheduler.handle_claimed(lane, claimed, now).map(|destiny| {
                    self.run_jobs(queue, jobs, begun, destiny);
                })
            }
            Ok((era, ClaimOutcome::Refused { refusal, window })) => {
                tracing::debug!(%refusal, %lane, "a claim was refused");
                self.windows.insert(lane, Known { era, window });
                self.scheduler.handle_claim_failed(lane, now)
            }
            // The window went with the connection: the next claim looks at every position.
            Err(error) => {
                tracing::warn!(%error, %lane, "a claim failed");
                self.scheduler.handle_claim_failed(lane, now)
            }
        };
        if let Err(fault) = noted {
            tracing::error!(%fault, "the scheduler's books");
        }
    }

    fn run_jobs(
        &mut self,
        queue: QueueNo,
        jobs: Vec<ClaimedJob>,
        begun: tokio::time::Instant,
        destiny: Destiny,
    ) {
        let stop = match destiny {
            Destiny::Run => self.stop.subscribe(),
            // A stop that has happened already: the runner hands the job back without a try.
            Destiny::HandBack => watch::channel(true).1,
        };
        for job in jobs {
            let runner = self.plan.runner.clone();
            self.running.spawn(runner.run(queue, Arc::new(job), begun, stop.clone()));
        }
        // Ends of earlier attempts are taken away now and then, not one wake-up each.
        while self.running.try_join_next().is_some() {}
    }

    fn poll(&mut self, queues: &[QueueNo]) {
        let lanes = queues.iter().filter_map(|q| self.lanes_of.get(q.0)).flatten();
        let idle = lanes.filter(|lane| !self.busy.contains(lane));
        let known: Vec<_> =
            idle.map(|lane| (*lane, self.windows.get(lane).cloned().unwrap_or_default())).collect();
        let client = self.plan.client.clone();
        self.talking.spawn(async move {
            let poll = async {
                let mut session = client.sessions().take().await?;
                let era = session.era();
                let window = |k: Known| k.in_era(era, client.behind_pooler());
                let asked: Vec<_> = known.into_iter().map(|(l, k)| (l, window(k))).collect();
                let outcome = session.run(PollLanes { lanes: asked.clone() }).await?;
                Ok(PollDone { era, asked, outcome })
            };
            Done::Poll { result: poll.await }
        });
    }

    fn polled(&mut self, result: Result<PollDone, Error>) {
        let now = self.clock.now();
        let noted = match result {
            Ok(PollDone { era, asked, outcome: Ok(Polled { seen, holding }) }) => {
                for (lane, window) in asked {
                    // A lane that holds nothing need not be looked through from there again. One
                    // whose claim began meanwhile brings a newer window.
                    let same = |k: &Known| k.era != era || k.window == window;
                    let unchanged = self.windows.get(&lane).is_none_or(same);
                    if unchanged && !self.busy.contains(&lane) && !holding.contains(&lane) {
                        let window = window.after_poll(seen.clone());
                        self.windows.insert(lane, Known { era, window });
                    }
                }
                self.scheduler.handle_polled(&holding, now)
            }
            Ok(PollDone { outcome: Err(refusal), .. }) => {
                tracing::debug!(%refusal, "a poll was refused");
                self.scheduler.handle_poll_failed(now)
            }
            Err(error) => {
                tracing::warn!(%error, "a poll failed");
                if error.is_connection() {
                    self.windows.clear();
                }
                self.scheduler.handle_poll_failed(now)
            }
        };
        if let Err(fault) = noted {
            tracing::error!(%fault, "the scheduler's books");
        }
    }
}
