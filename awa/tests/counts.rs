//! Exact counts: after every operation, in every reading while prunes go on, from whatever isolation the
//! database defaults to, and by the equation that they are said to be.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use awa::core::machine::close::Finished;
use awa::core::machine::rebuild::Distrust;
use awa::core::machine::retry::RetryFailed;
use awa::core::{ClaimedJob, Span, Window};
use awa::{
    CancelOutcome, DeleteOutcome, JobId, JobState, PruneOutcome, QueueCounts, Ring, Slot,
    TerminalFilter,
};
use common::stepwise::Stepwise;
use common::{Bench, job};

const HOUR: Duration = Duration::from_secs(3600);

/// What the test itself believes of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Is {
    In(JobState),
    PrunedOther,
    PrunedFailed,
    Gone,
}

/// The jobs of a random history, and the attempts that are open.
struct Books {
    bench: Bench,
    jobs: BTreeMap<JobId, Is>,
    open: Vec<ClaimedJob>,
    carried: i64,
    dice: u64,
}

impl Books {
    /// A number below `n`, the same in each run.
    fn roll(&mut self, n: usize) -> usize {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        (self.dice % n as u64) as usize
    }

    fn set(&mut self, job: JobId, state: JobState) {
        self.jobs.insert(job, Is::In(state));
    }

    /// Some job in one of these states.
    fn some(&mut self, states: &[JobState]) -> Option<JobId> {
        let fits = |is: &Is| matches!(is, Is::In(state) if states.contains(state));
        let found: Vec<_> =
            self.jobs.iter().filter(|(_, is)| fits(is)).map(|(job, _)| *job).collect();
        if found.is_empty() { None } else { Some(found[self.roll(found.len())]) }
    }

    fn expected(&self) -> QueueCounts {
        let mut counts = QueueCounts::default();
        for is in self.jobs.values() {
            let field = match is {
                Is::In(JobState::Available) => &mut counts.available,
                Is::In(JobState::Scheduled) => &mut counts.scheduled,
                Is::In(JobState::Retryable) => &mut counts.retryable,
                Is::In(JobState::Running) => &mut counts.running,
                Is::In(JobState::WaitingExternal) => &mut counts.waiting_external,
                Is::In(JobState::Completed) => &mut counts.completed,
                Is::In(JobState::Failed) => &mut counts.failed,
                Is::In(JobState::Cancelled) => &mut counts.cancelled,
                Is::PrunedOther => &mut counts.pruned_other,
                Is::PrunedFailed => &mut counts.pruned_failed,
                Is::Gone => continue,
            };
            *field += 1;
        }
        counts
    }

    async fn enqueue(&mut self) {
        let (n, delayed) = (1 + self.roll(3), self.roll(4) == 0);
        let mut jobs: Vec<_> = (0..n).map(|n| job(n as i64)).collect();
        if self.roll(3) == 0 {
            // Off the compact path, so that its success has a row of history.
            jobs = jobs.into_iter().map(|job| job.tag("general").unwrap()).collect();
        }
        if delayed {
            jobs = jobs.into_iter().map(|job| job.run_in(HOUR)).collect();
        }
        let state = if delayed { JobState::Scheduled } else { JobState::Available };
        for id in self.bench.client.enqueue_many(jobs).await.unwrap() {
            self.set(id, state);
        }
    }

    async fn claim(&mut self) {
        let limit = 1 + self.roll(8) as i64;
        for claimed in self.bench.claim(limit).await {
            assert_eq!(self.jobs[&claimed.receipt.job], Is::In(JobState::Available));
            self.set(claimed.receipt.job, JobState::Running);
            self.open.push(claimed);
        }
    }

    async fn finish(&mut self) {
        let all = self.open.len();
        let n = if self.roll(3) > 0 { all } else { self.roll(all + 1) };
        let ending: Vec<_> = self.open.drain(..n).collect();
        let mut batch = Vec::new();
        for claimed in &ending {
            let (finished, state) = match self.roll(3) {
                0 => (Finished::failed_for_good(claimed, b"broken"), JobState::Failed),
                1 => {
                    let later = Some(Span::from_secs(3600));
                    (Finished::failed(claimed, b"again", later), JobState::Retryable)
                }
                _ => (Finished::completed(claimed), JobState::Completed),
            };
            batch.push(finished);
            self.set(claimed.receipt.job, state);
        }
        assert_eq!(self.bench.finish(batch).await.closed.len(), n);
    }

    async fn promote(&mut self) {
        let Some(job) = self.some(&[JobState::Scheduled, JobState::Retryable]) else { return };
        let due = format!("update S.deferred_jobs set run_at = now() where job_id = {}", job.0);
        self.bench.execute(&due).await;
        assert_eq!(self.bench.client.promote_due(10).await.unwrap(), 1);
        self.set(job, JobState::Available);
    }

    async fn cancel(&mut self) {
        let states = [JobState::Available, JobState::Scheduled, JobState::Retryable];
        let Some(job) = self.some(&states) else { return };
        assert_eq!(self.bench.client.cancel(job).await.unwrap(), CancelOutcome::Cancelled);
        self.set(job, JobState::Cancelled);
    }

    async fn retry(&mut self) {
        let Some(job) = self.some(&[JobState::Failed, JobState::Cancelled]) else { return };
        assert_eq!(self.bench.client.retry(job).await.unwrap().retried, [job]);
        self.set(job, JobState::Available);
    }

    async fn discard(&mut self) {
        let Some(job) = self.some(&[JobState::Failed]) else { return };
        let which = TerminalFilter::Job(job);
        assert_eq!(self.bench.client.discard_failed(which).await.unwrap().discarded, [job]);
        self.jobs.insert(job, Is::Gone);
    }

    async fn delete(&mut self) {
        let Some(job) = self.some(&[JobState::Completed]) else { return };
        let deleted = self.bench.client.delete_completed(job).await.unwrap();
        assert_eq!(deleted, DeleteOutcome::Deleted);
        self.jobs.insert(job, Is::Gone);
    }

    async fn rotate(&mut self) {
        let ring = Ring::ALL[self.roll(3)];
        self.bench.client.rotate(ring).await.unwrap();
    }

    /// Prunes a random sealed slot of a random ring; what left history then has left the ring.
    async fn prune(&mut self) {
        let ring = if self.roll(3) > 0 { Ring::Queue } else { Ring::Claim };
        let sealed = self.bench.client.ring(ring).await.unwrap().sealed_oldest_first();
        if sealed.is_empty() {
            return;
        }
        let which = if self.roll(2) == 0 { 0 } else { self.roll(sealed.len()) };
        let slot = sealed[which].slot;
        let floor = if self.roll(3) == 0 { Duration::ZERO } else { HOUR };
        let outcome = self.bench.client.prune(ring, Some(slot), floor).await.unwrap();
        let retained = self.bench.texts("select job_id::text from S.terminal_jobs").await;
        let (mut other, mut failed) = (0, 0);
        for (job, is) in &mut self.jobs {
            let Is::In(state) = *is else { continue };
            if !state.is_terminal() || retained.contains(&job.0.to_string()) {
                continue;
            }
            let (now, count) = match state {
                JobState::Failed => (Is::PrunedFailed, &mut failed),
                _ => (Is::PrunedOther, &mut other),
            };
            *is = now;
            *count += 1;
        }
        assert!(floor.is_zero() || failed == 0, "a failure inside the floor is gone");
        match outcome {
            PruneOutcome::Pruned { carried_failed_rows, folded_failed, folded_other, .. } => {
                self.carried += carried_failed_rows;
                assert_eq!((folded_failed, folded_other), (failed, other));
            }
            PruneOutcome::SkippedActive { .. } => assert_eq!((failed, other), (0, 0)),
            outcome => panic!("{outcome}"),
        }
    }

    async fn operate(&mut self) -> &'static str {
        match self.roll(20) {
            0..=2 => (self.enqueue().await, "enqueue").1,
            3..=5 => (self.claim().await, "claim").1,
            6 | 7 | 18 => (self.finish().await, "finish").1,
            8 => (self.promote().await, "promote").1,
            9 => (self.cancel().await, "cancel").1,
            10 => (self.retry().await, "retry").1,
            11 => (self.discard().await, "discard").1,
            12 => (self.delete().await, "delete").1,
            13 => (self.rotate().await, "rotate").1,
            14 | 15 | 19 => (self.prune().await, "prune").1,
            16 => {
                self.bench.client.rollup().await.unwrap();
                "rollup"
            }
            _ if self.roll(2) == 0 => {
                self.bench.client.run(Distrust {}).await.unwrap().unwrap();
                "distrust"
            }
            _ => {
                self.bench.client.rebuild_counts().await.unwrap();
                "rebuild"
            }
        }
    }
}

/// H36, H28, R026-23, R032-16: after each operation of a random history, every one of the ten counts is what
/// the test's own books say, and with what was discarded and deleted they add up to what was enqueued.
/// At the end every job is found in the state that the books have.
#[tokio::test]
async fn every_count_is_exact_after_every_operation() {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for dice in [0x9E37_79B9_7F4A_7C15, 0xD1B5_4A32_D192_ED03] {
        let bench = Bench::alone().await;
        let mut books = Books { bench, jobs: BTreeMap::new(), open: Vec::new(), carried: 0, dice };
        for n in 0..250 {
            let did = books.operate().await;
            *seen.entry(did).or_default() += 1;
            let counts = books.bench.client.counts("q").await.unwrap();
            assert_eq!(counts, books.expected(), "operation {n}: {did}");
            let gone = books.jobs.values().filter(|is| **is == Is::Gone).count() as i64;
            assert_eq!(counts.total() + gone, books.jobs.len() as i64);
        }
        for (job, is) in &books.jobs {
            let state = books.bench.client.load(*job).await.unwrap().map(|row| row.state);
            let expected = if let Is::In(state) = is { Some(*state) } else { None };
            assert_eq!(state, expected, "{job}");
        }
        let counts = books.expected();
        assert!(books.carried > 0 && counts.pruned_other > 0 && counts.pruned_failed > 0);
    }
    assert_eq!(seen.len(), 13, "{seen:?}");
}

/// H37, R026-23, R032-12: counts polled without a pause while slots with failures are pruned, rotated, rolled
/// up and rebuilt: in every reading each failure is there once, nothing is lost in between, and the total
/// lies between what had been enqueued before the reading and after it.
#[tokio::test(flavor = "multi_thread")]
async fn every_reading_during_prunes_is_exact() {
    const FAILED: i64 = 7;
    let bench = Bench::alone().await;
    bench.fail(FAILED as usize).await;
    let (begun, done) = (Arc::new(AtomicI64::new(FAILED)), Arc::new(AtomicI64::new(FAILED)));
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let mut pollers = Vec::new();
    let read: [_; 2] = std::array::from_fn(|_| Arc::new(AtomicI64::new(0)));
    for readings in &read {
        let readings = Arc::clone(readings);
        let client = bench.another_client().await;
        let (begun, done, stop) = (Arc::clone(&begun), Arc::clone(&done), Arc::clone(&stop));
        pollers.push(tokio::spawn(async move {
            while !stop.load(Ordering::SeqCst) {
                let low = done.load(Ordering::SeqCst);
                let counts = client.counts("q").await.unwrap();
                let high = begun.load(Ordering::SeqCst);
                assert_eq!((counts.failed, counts.pruned_failed), (FAILED, 0), "{counts:?}");
                assert!((low..=high).contains(&counts.total()), "{low} {high} {counts:?}");
                readings.fetch_add(1, Ordering::SeqCst);
            }
        }));
    }
    let mut carried = 0;
    for n in 0..40 {
        // Somebody reads in each round.
        while read.iter().any(|readings| readings.load(Ordering::SeqCst) < n) {
            assert!(pollers.iter().all(|poller| !poller.is_finished()), "a reading was wrong");
            tokio::task::yield_now().await;
        }
        begun.fetch_add(2, Ordering::SeqCst);
        bench.enqueue(2).await;
        done.fetch_add(2, Ordering::SeqCst);
        bench.complete(2).await;
        let open = bench.client.ring(Ring::Queue).await.unwrap().current.slot;
        bench.client.rotate(Ring::Queue).await.unwrap();
        match n % 4 {
            1 => drop(bench.client.rollup().await.unwrap()),
            3 => while bench.client.rebuild_counts().await.is_err() {},
            _ => {}
        }
        loop {
            match bench.client.prune(Ring::Queue, Some(open), HOUR).await.unwrap() {
                PruneOutcome::Blocked { .. } => {}
                PruneOutcome::Pruned { carried_failed_rows, folded_other: 2, .. } => {
                    carried += carried_failed_rows;
                    break;
                }
                other => panic!("{other}"),
            }
        }
    }
    stop.store(true, Ordering::SeqCst);
    assert_eq!(carried, 40 * FAILED);
    for poller in pollers {
        poller.await.unwrap();
    }
    assert_eq!(bench.client.counts("q").await.unwrap().total(), FAILED + 80);
}

/// H37: a reading in an older snapshot cannot be asked for: [`awa::Client::counts`] takes no transaction of
/// the caller's, and its own is READ COMMITTED whatever the database defaults to. A reading that had to wait
/// for a prune sees what the prune left, not the emptied children alone: the first of a session, and one
/// whose statement was planned long before.
#[tokio::test]
async fn counts_never_use_an_older_snapshot() {
    for default in ["repeatable read", "serializable"] {
        let bench = Bench::alone().await;
        let set = format!(
            "alter database \"{}\" set default_transaction_isolation = '{default}'",
            bench.schema
        );
        bench.execute(&set).await;
        let (fresh, used) = (bench.another_client().await, bench.another_client().await);
        bench.fail(3).await;
        bench.enqueue(2).await;
        bench.complete(2).await;
        bench.client.rotate(Ring::Queue).await.unwrap();
        for _ in 0..8 {
            used.counts("q").await.unwrap();
        }
        let floor = awa::core::rules::Floor::DEFAULT;
        let prune = awa::core::machine::prune::Prune::oldest(Ring::Queue, floor);
        let mut pruning = Stepwise::begin(&bench, prune).await;
        pruning.until("Truncate").await;
        let (first, later, outcome) = tokio::join!(fresh.counts("q"), used.counts("q"), async {
            bench.blocked(2).await;
            pruning.finish().await.unwrap().unwrap()
        });
        assert!(matches!(outcome, PruneOutcome::Pruned { .. }), "{outcome}");
        for counts in [first.unwrap(), later.unwrap()] {
            assert_eq!(
                (counts.failed, counts.pruned_other, counts.total()),
                (3, 2, 5),
                "{default}"
            );
        }
    }
}

/// The parts of the equation, summed over the installation: folded, pending, compact, hidden, rolled up.
async fn parts(bench: &Bench) -> [i64; 5] {
    let parts = [
        "coalesce((select sum(count) from S.queue_terminal_live_counts), 0)",
        "coalesce((select sum(delta) from S.queue_terminal_count_deltas), 0)",
        "coalesce((select sum(completed_count) from S.receipt_completion_batches), 0)",
        "(select count(*) from S.receipt_completion_tombstones)",
        "coalesce((select sum(pruned_completed_count + pruned_failed_count) from S.queue_terminal_rollups), 0)",
    ];
    let mut values = [0; 5];
    for (value, part) in values.iter_mut().zip(parts) {
        *value = bench.number(part).await;
    }
    values
}

/// R026-21, R026-23: folded counters + pending deltas + compact rows − hidden ones + rollups, each of them
/// where it should be at each station of a job's life, and the count that is read is their sum.
#[tokio::test]
async fn a_count_is_the_sum_of_its_stores() {
    let bench = Bench::alone().await;
    let read = async |expected: [i64; 5], counted: i64| {
        assert_eq!(parts(&bench).await, expected);
        let [folded, pending, compact, hidden, rolled] = expected;
        let counts = bench.client.counts("q").await.unwrap();
        let terminal = counts.terminal_retained() + counts.pruned_other + counts.pruned_failed;
        assert_eq!(terminal, folded + pending + compact - hidden + rolled);
        assert_eq!(terminal, counted);
    };
    let failed = bench.fail(4).await;
    read([0, 4, 0, 0, 0], 4).await;
    let succeeded = bench.enqueue(3).await;
    bench.complete(3).await;
    read([0, 4, 3, 0, 0], 7).await;
    bench.client.delete_completed(succeeded[1]).await.unwrap();
    read([0, 4, 3, 1, 0], 6).await;
    bench.client.rotate(Ring::Queue).await.unwrap();
    bench.client.rollup().await.unwrap();
    read([4, 0, 3, 1, 0], 6).await;
    // The negative delta lies beside the folded counter until it is folded too.
    bench.client.discard_failed(TerminalFilter::Job(failed[0])).await.unwrap();
    read([4, -1, 3, 1, 0], 5).await;
    bench.client.rollup().await.unwrap();
    read([3, 0, 3, 1, 0], 5).await;
    bench.client.prune_oldest(HOUR).await.unwrap();
    read([0, 3, 0, 0, 2], 5).await;
    bench.client.rotate(Ring::Queue).await.unwrap();
    bench.client.prune_oldest(Duration::ZERO).await.unwrap();
    read([0, 0, 0, 0, 5], 5).await;
    let key = "select string_agg(a.attname, ' ' order by array_position(i.indkey, a.attnum))
         from pg_index i join pg_attribute a on a.attrelid = i.indrelid and a.attnum = any (i.indkey)
        where i.indisprimary and i.indrelid = 'S.queue_terminal_live_counts'::regclass";
    assert_eq!(bench.texts(key).await, ["ready_slot lane_id counter_bucket state"]);
}

/// What was appended to the ledger since it held `rows` rows: slot, generation, bucket, state, delta.
async fn appended(bench: &Bench) -> Vec<String> {
    let rows = "select format('%s g%s b%s %s %s', ready_slot, ready_generation, counter_bucket, state, delta)
         from S.queue_terminal_count_deltas order by 1";
    let appended = bench.texts(rows).await;
    bench.execute("delete from S.queue_terminal_count_deltas").await;
    appended
}

/// R026-22: each way in and out of retryable history appends its delta in the same transaction: +1 where the
/// row is inserted, −1 where it lay, under its generation and the bucket of its job. A transaction that
/// is undone appends nothing.
#[tokio::test]
async fn the_ledger_follows_the_rows() {
    let bench = Bench::new().await;
    let ids = bench.fail(3).await;
    let bucket = |n: usize| ids[n].0 % 8;
    let plus = |n: usize| format!("0 g1 b{} failed 1", bucket(n));
    let minus = |n: usize| format!("0 g1 b{} failed -1", bucket(n));
    assert_eq!(appended(&bench).await, [plus(0), plus(1), plus(2)]);
    bench.client.rotate(Ring::Queue).await.unwrap();

    let which = TerminalFilter::Job(ids[0]);
    let piece = RetryFailed::new(which, 10).unwrap().next().unwrap();
    let mut undone = Stepwise::begin(&bench, piece).await;
    while undone.next().is_some() {
        undone.step().await.unwrap();
    }
    let inside =
        bench.spelled("select count(*) from S.queue_terminal_count_deltas where delta = -1");
    assert_eq!(undone.sql.query_one(&inside, &[]).await.unwrap().get::<_, i64>(0), 1);
    undone.sql.batch_execute("rollback").await.unwrap();
    assert_eq!(appended(&bench).await, [""; 0]);
    assert_eq!(bench.rows("done_entries").await, 3);

    bench.client.retry(ids[0]).await.unwrap();
    assert_eq!(appended(&bench).await, [minus(0)]);
    bench.client.discard_failed(TerminalFilter::Job(ids[1])).await.unwrap();
    assert_eq!(appended(&bench).await, [minus(1)]);

    // In the open segment: a retried job fails anew, in the bucket of its id; a general success, deleted.
    let (again, _) = bench.claim_from(Window::default(), 1).await;
    bench.finish(vec![Finished::failed_for_good(&again[0], b"again")]).await;
    assert_eq!(appended(&bench).await, [format!("1 g2 b{} failed 1", bucket(0))]);
    let general = bench.client.enqueue(job(1).tag("general").unwrap()).await.unwrap();
    bench.complete(1).await;
    assert_eq!(appended(&bench).await, [format!("1 g2 b{} completed 1", general.0 % 8)]);
    bench.client.delete_completed(general).await.unwrap();
    assert_eq!(appended(&bench).await, [format!("1 g2 b{} completed -1", general.0 % 8)]);
    let cancelled = bench.enqueue(1).await[0];
    bench.client.cancel(cancelled).await.unwrap();
    assert_eq!(appended(&bench).await, [format!("1 g2 b{} cancelled 1", cancelled.0 % 8)]);

    // A carry appends under the open segment, and the compact path appends nothing.
    bench.enqueue(1).await;
    bench.complete(1).await;
    bench.client.prune(Ring::Queue, Some(Slot(0)), HOUR).await.unwrap();
    assert_eq!(appended(&bench).await, [format!("1 g2 b{} failed 1", bucket(2))]);
}
