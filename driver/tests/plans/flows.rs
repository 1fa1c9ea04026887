//! What producers and workers do all day, in batches of one and of 512.

use awa_core::machine::claim::{Claim, ClaimOutcome};
use awa_core::machine::close::{Close, Finished};
use awa_core::machine::declare::FindLanes;
use awa_core::machine::enqueue::{Enqueue, EnqueueCopy, EnqueueDeferred, Wake};
use awa_core::machine::poll::PollLanes;
use awa_core::machine::promote::Promote;
use awa_core::machine::read::CountQueue;
use awa_core::machine::rescue::Rescue;
use awa_core::{
    BatchId, ClaimedJob, Ending, Exit, Instant, JobId, Kind, LaneId, Machine, NewJob, Place,
    Receipt, RunLease, Slot, Span, Window,
};

use crate::ground::{BATCH, Ground};
use crate::watched::{Seen, Watched};

/// Flows by name, in the order in which they were run.
pub(crate) type Flows = Vec<(&'static str, Seen)>;

/// An hour, in which no claim here goes overdue.
const HOUR: Span = Span::from_us(3_600_000_000);
/// In the year 2096.
const SOME_DAY: Instant = Instant::from_unix_us(4_000_000_000_000_000);

fn jobs(lane: LaneId, count: i64) -> Vec<NewJob> {
    let args = r#"{"to": "ada@example.org"}"#.to_owned();
    let job = NewJob::new(lane, Kind::new("send").unwrap(), args, 25, None).unwrap();
    (0..count).map(|_| job.clone()).collect()
}

fn deferred(lane: LaneId, count: i64) -> EnqueueDeferred {
    let jobs = jobs(lane, count).into_iter().map(|job| (job, SOME_DAY));
    EnqueueDeferred::new(jobs.collect()).unwrap()
}

fn complete(jobs: &[ClaimedJob]) -> Close {
    Close::compact(jobs.iter().map(|job| job.receipt).collect())
}

fn general(jobs: &[ClaimedJob], end: impl Fn(&ClaimedJob) -> Finished) -> Close {
    let ended = jobs.iter().map(end);
    Close::general(ended.map(|e| Exit { receipt: e.receipt, ending: e.ending }).collect())
}

fn fail(jobs: &[ClaimedJob]) -> Close {
    general(jobs, |job| Finished::failed_for_good(job, b"no route to host"))
}

fn retry(jobs: &[ClaimedJob]) -> Close {
    general(jobs, |job| Finished::failed(job, b"no route to host", Some(Span::ZERO)))
}

fn claim(lane: LaneId, window: &Window, limit: i64, deadline: Span) -> Claim {
    Claim::new(lane, window.clone(), limit, 1 << 20, Some(deadline)).unwrap()
}

/// Runs every statement once and with next to nothing to do, so that it is planned; jobs are enqueued
/// last, so that all plans are made before there are rows.
pub(crate) async fn plan(on: &Ground, with: &mut Watched) {
    let (batch, job, run_lease) = (BatchId(1), JobId(1), RunLease(1));
    let receipt =
        Receipt { claim_slot: Slot(0), batch, index: Place::new(1).unwrap(), job, run_lease };
    let exit = Exit { receipt, ending: Ending::Failed { error: "no".to_owned() } };
    let (lane, nothing) = (on.idle[0], Window::default());
    with.run(FindLanes { queue: on.quiet.clone() }).await.0.unwrap();
    with.run(claim(lane, &nothing, BATCH, HOUR)).await;
    with.run(Close::compact(vec![receipt])).await.0.unwrap();
    with.run(Close::general(vec![exit])).await.0.unwrap();
    with.run(PollLanes { lanes: vec![(lane, nothing)] }).await.0.unwrap();
    with.run(CountQueue { queue: on.quiet.clone() }).await.0.unwrap();
    with.run(Promote::new(1).unwrap()).await.0.unwrap();
    with.run(Rescue::new(1).unwrap()).await.0.unwrap();
    with.run(Wake::lanes(vec![on.busy]).unwrap()).await.0.unwrap();
    with.run(deferred(on.busy, 1)).await.0.unwrap();
    with.run(Enqueue::new(jobs(on.busy, 1)).unwrap()).await.0.unwrap();
    with.run(Enqueue::new(jobs(on.busy, 2)).unwrap()).await.0.unwrap();
    with.run(EnqueueCopy::new(jobs(on.busy, 1)).unwrap()).await.0.unwrap();
}

/// Runs every flow in earnest.
pub(crate) async fn work(on: &Ground, with: &mut Watched) -> Flows {
    let mut day = Day { on, with, flows: Vec::new(), window: Window::default() };
    day.produce().await;
    day.consume().await;
    day.look().await;
    day.flows
}

/// Claims a job at a time until the server no longer plans the claim, and says how many it planned.
pub(crate) async fn plan_claims(on: &Ground, with: &mut Watched, at_most: usize) -> usize {
    let mut window = Window::default();
    for planned in 0..=at_most {
        let (outcome, seen) = with.run(claim(on.busy, &window, 1, HOUR)).await;
        let ClaimOutcome::Claimed { window: next, .. } = outcome else { panic!("refused") };
        window = next;
        if seen.executed.iter().all(|statement| statement.planning_ms.is_empty()) {
            return planned;
        }
    }
    panic!("more than {at_most} claims were planned")
}

/// One lane's flows, one after another.
struct Day<'a> {
    on: &'a Ground,
    with: &'a mut Watched,
    flows: Flows,
    /// What the last claim of the busy lane left.
    window: Window,
}

impl Day<'_> {
    async fn run<M: Machine>(&mut self, name: &'static str, machine: M) -> M::Outcome {
        let (outcome, seen) = self.with.run(machine).await;
        self.flows.push((name, seen));
        outcome
    }

    async fn produce(&mut self) {
        let lane = self.on.busy;
        let batch = || Enqueue::new(jobs(lane, BATCH)).unwrap();
        self.run("enqueue 1", Enqueue::new(jobs(lane, 1)).unwrap()).await.unwrap();
        // For the claims to come.
        for _ in 0..4 {
            self.with.run(batch()).await.0.unwrap();
        }
        self.run("enqueue 512", batch()).await.unwrap();
        let (enqueued, seen) = self.with.run_embedded(batch()).await;
        enqueued.unwrap();
        self.flows.push(("enqueue 512 in a caller's transaction", seen));
        self.run("copy 512", EnqueueCopy::new(jobs(lane, BATCH)).unwrap()).await.unwrap();
        self.run("defer 512", deferred(lane, BATCH)).await.unwrap();
        self.run("wake", Wake::lanes(vec![lane]).unwrap()).await.unwrap();
    }

    async fn consume(&mut self) {
        let all = self.claim("claim 512, first of a process", BATCH).await;
        self.run("complete 512", complete(&all)).await.unwrap();
        let all = self.claim("claim 512", BATCH).await;
        self.run("fail 512", fail(&all)).await.unwrap();
        let all = self.take(BATCH, HOUR).await.0;
        self.run("retry 512", retry(&all)).await.unwrap();
        self.run("promote 512", Promote::new(BATCH).unwrap()).await.unwrap();
        let one = self.claim("claim 1", 1).await;
        self.run("complete 1", complete(&one)).await.unwrap();
        let one = self.take(1, HOUR).await.0;
        self.run("fail 1", fail(&one)).await.unwrap();
        let one = self.take(1, HOUR).await.0;
        self.run("retry 1", retry(&one)).await.unwrap();
        self.run("rescue none", Rescue::new(BATCH).unwrap()).await.unwrap();
        // Late at once.
        self.take(BATCH, Span::from_us(1)).await;
        let rescued = self.run("rescue 512", Rescue::new(BATCH).unwrap()).await.unwrap();
        assert_eq!(rescued.found, BATCH);
    }

    async fn look(&mut self) {
        let (busy, nothing) = (self.on.busy, Window::default());
        let lanes = |idle: &Window, own: &Window| -> Vec<(LaneId, Window)> {
            let idle = self.on.idle.iter().map(|lane| (*lane, idle.clone()));
            idle.chain([(busy, own.clone())]).collect()
        };
        let (first, window) = (lanes(&nothing, &nothing), self.window.clone());
        let known = |seen| Window { seen: Some(seen), ..Window::default() };
        let (polled, seen) = self.with.run(PollLanes { lanes: first }).await;
        let polled = polled.unwrap();
        assert_eq!(polled.holding, [busy]);
        let known = known(polled.seen);
        let second = PollLanes { lanes: lanes(&known, &window) };
        self.flows.push(("poll, first of a process", seen));
        self.run("poll", second).await.unwrap();
        let idle = claim(self.on.idle[0], &known, BATCH, HOUR);
        self.run("claim from an empty lane", idle).await;
        self.run("counts", CountQueue { queue: self.on.queue.clone() }).await.unwrap().unwrap();
        self.run("find lanes", FindLanes { queue: self.on.queue.clone() }).await.unwrap();
    }

    async fn claim(&mut self, name: &'static str, limit: i64) -> Vec<ClaimedJob> {
        let (jobs, seen) = self.take(limit, HOUR).await;
        self.flows.push((name, seen));
        jobs
    }

    /// Claims this many jobs of the busy lane, which must have as many.
    async fn take(&mut self, limit: i64, deadline: Span) -> (Vec<ClaimedJob>, Seen) {
        let claim = claim(self.on.busy, &self.window, limit, deadline);
        let (ClaimOutcome::Claimed { jobs, window, .. }, seen) = self.with.run(claim).await else {
            panic!("the claim was refused");
        };
        assert_eq!(jobs.len(), limit as usize);
        self.window = window;
        (jobs, seen)
    }
}
