//! Prune against everybody else, one statement at a time: crashes, rotations, producers and claimers
//! that commit while it waits, readers that come and go, and a plan that is only told.
#![allow(clippy::unwrap_used)]

mod common;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use awa::core::machine::close::Finished;
use awa::core::machine::explain::ExplainPrune;
use awa::core::machine::prune::Prune;
use awa::core::machine::rotate::Rotate;
use awa::core::rules::Floor;
use awa::core::{Gate, Generation, Segment, Span, Step};
use awa::tokio_postgres::IsolationLevel;
use awa::{JobId, PruneOutcome, Ring, RotateOutcome, Slot};
use common::stepwise::Stepwise;
use common::{Bench, connect_to, job};

const HOUR: Duration = Duration::from_secs(3600);
/// Far longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(120);
/// Many times what a prune may wait for a lock.
const LONG: Duration = Duration::from_secs(20);
/// Longer than any test: for prunes that are to wait for what the test does.
const PATIENT_MS: NonZeroU32 = NonZeroU32::new(600_000).unwrap();

fn prune() -> Prune {
    Prune::oldest(Ring::Queue, Floor::new(Span::from_secs(3600)))
}

/// Slot 0 sealed with something of everything that a prune moves: three failures, two successes and
/// one that is hidden, a cancellation.
async fn history(bench: &Bench) -> Vec<JobId> {
    let failed = bench.fail(3).await;
    let succeeded = bench.enqueue(3).await;
    bench.complete(3).await;
    bench.client.delete_completed(succeeded[0]).await.unwrap();
    let cancelled = bench.enqueue(1).await;
    bench.client.cancel(cancelled[0]).await.unwrap();
    bench.client.rotate(Ring::Queue).await.unwrap();
    failed
}

/// What a prune of [`history`] comes to.
fn pruned() -> PruneOutcome {
    PruneOutcome::Pruned {
        slot: Slot(0),
        generation: Generation(1),
        carried_failed_rows: 3,
        folded_failed: 0,
        folded_other: 3,
    }
}

/// H26, R032-12: the backend is killed before the first, between every two and after the last statement
/// of a prune with carry: the whole old state, every row of every table, and exact counts. After a COMMIT
/// the whole new state stands, whatever becomes of the backend.
#[tokio::test]
async fn a_backend_killed_between_any_two_statements_leaves_the_old_state() {
    let bench = Bench::alone().await;
    history(&bench).await;
    let before = bench.picture().await;
    let counts = bench.client.counts("q").await.unwrap();
    let mut kills = 0;
    loop {
        let mut dying = Stepwise::begin(&bench, prune()).await;
        for _ in 0..kills {
            dying.step().await.unwrap();
        }
        let nothing_is_left = dying.next().is_none();
        bench.kill(dying.pid()).await;
        let error = dying.finish().await.unwrap_err();
        assert!(error.is_connection(), "{error}");
        assert_eq!(bench.picture().await, before, "killed after {kills} statements");
        assert_eq!(bench.client.counts("q").await.unwrap(), counts);
        kills += 1;
        if nothing_is_left {
            break;
        }
    }
    assert_eq!(kills, 20, "a prune with carry is 19 statements");

    let mut living = Stepwise::begin(&bench, prune()).await;
    assert_eq!(living.finish().await.unwrap().unwrap(), pruned());
    let after = bench.picture().await;
    bench.kill(living.pid()).await;
    assert_eq!(bench.picture().await, after);
    let now = bench.client.counts("q").await.unwrap();
    assert_eq!((now.failed, now.pruned_other, now.pruned_failed), (3, 3, 0));
    assert_eq!(now.total(), counts.total());
}

/// H25, R032-13: whatever statement a prune has come to, a rotation waits for it to end: the one failure
/// is carried eighteen times and always lands in the segment that was open, never in the slot that
/// is emptied.
#[tokio::test]
async fn a_rotation_waits_for_a_prune_at_every_statement() {
    let bench = Bench::alone().await;
    let failed = bench.fail(1).await[0];
    let whole = bench.client.load(failed).await.unwrap();
    bench.client.rotate(Ring::Queue).await.unwrap();
    for done in 1.. {
        let ring = bench.client.ring(Ring::Queue).await.unwrap();
        let (victim, to) = (ring.sealed_oldest_first()[0].segment(), ring.current);
        let mut pruning = Stepwise::begin(&bench, prune()).await;
        for _ in 0..done {
            pruning.step().await.unwrap();
        }
        let nothing_is_left = pruning.next().is_none();
        let client = bench.client.clone();
        let rotating = tokio::spawn(async move { client.rotate(Ring::Queue).await.unwrap() });
        bench.blocked_by(pruning.pid()).await;
        assert_eq!(bench.client.ring(Ring::Queue).await.unwrap().current, to);
        let outcome = pruning.finish().await.unwrap().unwrap();
        assert!(
            matches!(outcome, PruneOutcome::Pruned { slot, carried_failed_rows: 1, .. } if slot == victim.slot),
            "{outcome}"
        );
        let rotated = rotating.await.unwrap();
        assert!(matches!(rotated, RotateOutcome::Rotated { sealed, .. } if sealed == to));
        assert_eq!(place_of_the_failure(&bench).await, to, "after {done} statements");
        assert_ne!(to.slot, victim.slot);
        if nothing_is_left {
            assert_eq!(done, 19);
            break;
        }
    }
    assert_eq!(bench.client.load(failed).await.unwrap(), whole);
}

/// H25, R032-04, R032-13: a prune waits for a rotation at whatever statement that is, and carries to the
/// segment that the rotation has opened: the destination is read under the ring's lock.
#[tokio::test]
async fn a_prune_waits_for_a_rotation_and_carries_to_what_it_opened() {
    let bench = Bench::alone().await;
    bench.fail(1).await;
    bench.client.rotate(Ring::Queue).await.unwrap();
    for done in 1..=3 {
        let victim = Some(place_of_the_failure(&bench).await.slot);
        let mut rotating = Stepwise::begin(&bench, Rotate::ring(Ring::Queue)).await;
        for _ in 0..done {
            rotating.step().await.unwrap();
        }
        let client = bench.client.clone();
        let pruning =
            tokio::spawn(async move { client.prune(Ring::Queue, victim, HOUR).await.unwrap() });
        bench.blocked_by(rotating.pid()).await;
        let rotated = rotating.finish().await.unwrap().unwrap();
        let RotateOutcome::Rotated { opened, .. } = rotated else { panic!("{rotated:?}") };
        let outcome = pruning.await.unwrap();
        assert!(
            matches!(outcome, PruneOutcome::Pruned { carried_failed_rows: 1, .. }),
            "{outcome}"
        );
        assert_eq!(place_of_the_failure(&bench).await, opened, "{done}");
        bench.client.rotate(Ring::Queue).await.unwrap();
    }
}

async fn place_of_the_failure(bench: &Bench) -> Segment {
    assert_eq!(bench.rows("done_entries").await, 1);
    Segment {
        slot: Slot(bench.number("select ready_slot from S.done_entries").await as i32),
        generation: Generation(bench.number("select ready_generation from S.done_entries").await),
    }
}

/// H23, R032-14: while a prune waits to keep writers out, one producer commits into the slot and a claimer
/// takes the job; then the other producer lets go. The gates are seen again after the wait: pending,
/// open, or done and then part of what is folded.
#[tokio::test]
async fn what_commits_while_a_prune_waits_decides() {
    #[derive(Clone, Copy, PartialEq)]
    enum Goes {
        Nowhere,
        Claimed,
        Completed,
    }
    for goes in [Goes::Nowhere, Goes::Claimed, Goes::Completed] {
        let bench = Bench::alone().await;
        bench.fail(1).await;
        let (mut one, mut two) = (connect_to(&bench).await, connect_to(&bench).await);
        let (first, second) = (one.transaction().await.unwrap(), two.transaction().await.unwrap());
        let job_of_first = bench.client.enqueue_in(&first, vec![job(1)]).await.unwrap()[0];
        bench.client.enqueue_in(&second, vec![job(2)]).await.unwrap();
        bench.client.rotate(Ring::Queue).await.unwrap();

        let mut pruning = Stepwise::begin(&bench, prune().waiting(PATIENT_MS)).await;
        pruning.until("ExcludeWriters").await;
        let meanwhile = async {
            bench.blocked(1).await;
            first.commit().await.unwrap();
            let jobs = if goes == Goes::Nowhere { Vec::new() } else { bench.claim(10).await };
            if goes == Goes::Completed {
                bench.finish(jobs.iter().map(Finished::completed).collect()).await;
            }
            bench.blocked(1).await;
            second.rollback().await.unwrap();
            jobs
        };
        let (waited, jobs) = tokio::join!(pruning.step(), meanwhile);
        waited.unwrap();
        pruning.until("SurveyTerminal").await;
        pruning.step().await.unwrap();
        let goes_on = pruning.next().is_some();
        assert_eq!(goes_on, goes == Goes::Completed, "before anything is carried or folded");
        let outcome = pruning.finish().await.unwrap().unwrap();
        let slot = Slot(0);
        let expected = match goes {
            Goes::Nowhere => PruneOutcome::SkippedActive {
                slot,
                reason: Gate::PendingReady(slot),
                witness: job_of_first.0,
            },
            Goes::Claimed => PruneOutcome::SkippedActive {
                slot,
                reason: Gate::OpenReceipts(slot),
                witness: jobs[0].receipt.id().0,
            },
            Goes::Completed => PruneOutcome::Pruned {
                slot,
                generation: Generation(1),
                carried_failed_rows: 1,
                folded_failed: 0,
                folded_other: 1,
            },
        };
        assert_eq!(outcome, expected);
        assert_eq!(bench.client.counts("q").await.unwrap().total(), 2);
    }
}

/// H23, H03: a producer that knows only the slot that is being pruned waits for the prune; its job lies in
/// the emptied slot then, is claimed, and keeps that slot from being opened as if it were empty.
#[tokio::test]
async fn a_producer_that_waited_for_a_prune_loses_nothing() {
    let bench = Bench::alone().await;
    let mut stale = connect_to(&bench).await;
    let snapshot = stale.build_transaction().isolation_level(IsolationLevel::RepeatableRead);
    let snapshot = snapshot.start().await.unwrap();
    snapshot.query_one("select 1", &[]).await.unwrap();
    history(&bench).await;
    let mut pruning = Stepwise::begin(&bench, prune()).await;
    pruning.until("CarryForward").await;
    let (enqueued, outcome) =
        tokio::join!(bench.client.enqueue_in(&snapshot, vec![job(7)]), async {
            bench.blocked_by(pruning.pid()).await;
            pruning.finish().await.unwrap().unwrap()
        });
    assert_eq!(outcome, pruned());
    snapshot.commit().await.unwrap();
    assert_eq!(bench.number("select ready_slot from S.ready_entries where lane_seq > 7").await, 0);
    let jobs = bench.claim(10).await;
    assert_eq!(jobs.iter().map(|j| j.receipt.job).collect::<Vec<_>>(), enqueued.unwrap());
    let counts = bench.client.counts("q").await.unwrap();
    assert_eq!((counts.running, counts.failed, counts.total()), (1, 3, 7));
}

/// H24, R032-14: readers of the oldest slot that come and go without a gap never starve a prune: it
/// asks for its lock and they queue behind it.
#[tokio::test(flavor = "multi_thread")]
async fn a_prune_wins_against_a_loop_of_readers() {
    let bench = Bench::alone().await;
    history(&bench).await;
    let (stop, reads) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let mut readers = Vec::new();
    for _ in 0..3 {
        let sql = connect_to(&bench).await;
        let (stop, reads) = (Arc::clone(&stop), Arc::clone(&reads));
        let read = bench.spelled("select count(*), pg_sleep(0.001) from S.ready_entries_0");
        readers.push(tokio::spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                sql.query(&read, &[]).await.unwrap();
                reads.fetch_add(1, Ordering::Relaxed);
            }
        }));
    }
    while reads.load(Ordering::Relaxed) < 30 {
        tokio::task::yield_now().await;
    }
    let begun = Instant::now();
    loop {
        match bench.client.prune_oldest(HOUR).await.unwrap() {
            // On a slow machine a reader may take longer than the prune waits; starved, it would wait for ever.
            PruneOutcome::Blocked { slot: Slot(0) } if begun.elapsed() < PATIENCE => {}
            outcome => {
                assert_eq!(outcome, pruned());
                break;
            }
        }
    }
    stop.store(true, Ordering::Relaxed);
    for reader in readers {
        reader.await.unwrap();
    }
}

/// H24, R032-14: a reader that stays makes each try end as `Blocked`, with nothing changed; claims, which
/// queue behind a prune that waits, go on within its bounded wait.
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_stays_blocks_prune_and_not_the_claims() {
    let bench = Bench::alone().await;
    history(&bench).await;
    let before = bench.picture().await;
    let mut reader = connect_to(&bench).await;
    let staying = reader.transaction().await.unwrap();
    staying.query(&bench.spelled("select from S.done_entries_0 limit 1"), &[]).await.unwrap();
    for _ in 0..3 {
        let outcome = tokio::time::timeout(LONG, bench.client.prune_oldest(HOUR)).await;
        assert_eq!(outcome.unwrap().unwrap(), PruneOutcome::Blocked { slot: Slot(0) });
    }
    assert_eq!(bench.picture().await, before);

    // A claim for each try, sent while the try waits for the reader.
    for n in 0..10 {
        bench.enqueue(1).await;
        let mut pruning = Stepwise::begin(&bench, prune()).await;
        pruning.until("Exclude").await;
        let (waited, claimed) =
            tokio::join!(pruning.step(), tokio::time::timeout(LONG, bench.claim(1)),);
        waited.unwrap();
        let outcome = pruning.finish().await.unwrap().unwrap();
        assert_eq!(outcome, PruneOutcome::Blocked { slot: Slot(0) }, "{n}");
        assert_eq!(claimed.unwrap().len(), 1);
    }
    staying.commit().await.unwrap();
    assert_eq!(bench.client.prune_oldest(HOUR).await.unwrap(), pruned());
}

/// The modes in which `pid` holds locks on the tables that carry the slot's number.
async fn modes(bench: &Bench, pid: i32, slot: i32) -> Vec<String> {
    bench
        .texts(&format!(
            "select c.relname || ' ' || l.mode from pg_locks l join pg_class c on c.oid = l.relation
              where l.pid = {pid} and l.granted and c.relkind = 'r' and c.relname ~ '_{slot}$'
                and l.mode in ('ShareLock', 'AccessExclusiveLock', 'RowExclusiveLock')
              order by 1"
        ))
        .await
}

/// R032-14: ring, slot, then writers out (SHARE on what they write), then everyone (ACCESS EXCLUSIVE on
/// all children, of this slot alone) with nothing but TRUNCATE and the mark to do; gates before, under
/// the first lock and under the second. The transaction's own `lock_timeout` is what it was at each step.
#[tokio::test]
async fn locks_are_taken_in_order_late_and_bounded() {
    let bench = Bench::alone().await;
    history(&bench).await;
    let mut pruning = Stepwise::begin(&bench, prune()).await;
    pruning.sql.batch_execute("set local lock_timeout = '4321ms'").await.unwrap();
    let share = ["done_entries_0", "ready_entries_0", "receipt_completion_tombstones_0"];
    let all = [
        "done_entries_0",
        "queue_terminal_count_deltas_0",
        "ready_claim_attempt_batches_0",
        "ready_entries_0",
        "ready_tombstones_0",
        "receipt_completion_batches_0",
        "receipt_completion_tombstones_0",
    ];
    let (mut names, mut shared, mut exclusive) = (Vec::new(), Vec::new(), Vec::new());
    while let Some(step) = pruning.next() {
        let name = step.name();
        names.push(name);
        pruning.step().await.unwrap();
        if name == "ExcludeWriters" {
            shared = share.map(|table| format!("{table} ShareLock")).to_vec();
        } else if name == "Exclude" {
            exclusive = all.map(|table| format!("{table} AccessExclusiveLock")).to_vec();
        }
        let held = modes(&bench, pruning.pid(), 0).await;
        let in_mode = |mode| held.iter().filter(move |lock| lock.ends_with(mode)).cloned();
        assert_eq!(in_mode(" AccessExclusiveLock").collect::<Vec<_>>(), exclusive, "after {name}");
        if exclusive.is_empty() {
            assert_eq!(in_mode(" ShareLock").collect::<Vec<_>>(), shared, "after {name}");
        }
        let shown = pruning.sql.query_one("show lock_timeout", &[]).await.unwrap();
        assert_eq!(shown.get::<_, &str>(0), "4321ms", "after {name}");
    }
    let gates = ["ProbePendingReady", "ProbeOpenReceipts", "ProbeActiveLeases"];
    let order = [
        &["LockRing", "ObserveRing", "LockSlot"][..],
        &gates,
        &["ExcludeWriters"],
        &gates,
        &["SurveyTerminal", "CarryForward", "FoldRollup", "Exclude"],
        &gates,
        &["Truncate", "MarkPruned"],
    ];
    assert_eq!(names, order.concat());
    // In the destination nothing but what an insert takes.
    let there = modes(&bench, pruning.pid(), 1).await;
    let inserted =
        ["done_entries_1 RowExclusiveLock", "queue_terminal_count_deltas_1 RowExclusiveLock"];
    assert_eq!(there, inserted);
    assert_eq!(pruning.finish().await.unwrap().unwrap(), pruned());
}

/// R032-14: a writer in the slot and a reader of it each make the prune that meets them say `Blocked`.
#[tokio::test]
async fn contention_is_an_outcome() {
    let bench = Bench::alone().await;
    history(&bench).await;
    let mut other = connect_to(&bench).await;
    for (statement, meets) in [
        ("delete from S.done_entries_0 where false", "ExcludeWriters"),
        ("update S.ready_entries_0 set kind = kind where false", "ExcludeWriters"),
        ("select from S.queue_terminal_count_deltas_0", "Exclude"),
    ] {
        let holding = other.transaction().await.unwrap();
        holding.query(&bench.spelled(statement), &[]).await.unwrap();
        let mut pruning = Stepwise::begin(&bench, prune()).await;
        pruning.until(meets).await;
        pruning.step().await.unwrap();
        assert_eq!(pruning.next(), None, "{statement}");
        let outcome = pruning.finish().await.unwrap().unwrap();
        assert_eq!(outcome, PruneOutcome::Blocked { slot: Slot(0) });
        holding.rollback().await.unwrap();
    }
    assert_eq!(bench.client.prune_oldest(HOUR).await.unwrap(), pruned());
}

/// A plan that is told executes nothing: no row changes, no transaction id is drawn, no lock is held that
/// a reader would not hold. What the prune then runs is what was told, statement for statement.
#[tokio::test]
async fn a_plan_is_told_and_not_executed() {
    let bench = Bench::alone().await;
    history(&bench).await;
    let before = bench.picture().await;
    let mut telling = Stepwise::begin(&bench, ExplainPrune::new(prune())).await;
    while telling.next().is_some() {
        telling.step().await.unwrap();
        let stronger = format!(
            "select count(*) from pg_locks where pid = {} and locktype <> 'virtualxid'
                and mode <> 'AccessShareLock'",
            telling.pid()
        );
        assert_eq!(bench.number(&stronger).await, 0);
    }
    let wrote = "select pg_current_xact_id_if_assigned() is not null,
        (select coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0)::bigint from pg_stat_xact_all_tables)";
    let row = telling.sql.query_one(wrote, &[]).await.unwrap();
    assert_eq!((row.get::<_, bool>(0), row.get::<_, i64>(1)), (false, 0));
    let told = telling.finish().await.unwrap().unwrap();
    let by_client = bench.client.explain_prune(Ring::Queue, None, HOUR).await.unwrap();
    assert_eq!(bench.picture().await, before);

    let steps = |text: &str| -> Vec<String> {
        let lines = text.lines().filter_map(|line| line.strip_prefix("  "));
        lines.map(|line| line.split(", cutoff").next().unwrap().to_owned()).collect()
    };
    let mut pruning = Stepwise::begin(&bench, prune()).await;
    let mut run = Vec::new();
    while let Some(step) = pruning.next().map(Step::to_string) {
        run.push(step.split(", cutoff").next().unwrap().to_owned());
        pruning.step().await.unwrap();
    }
    assert_eq!(steps(&told), run);
    assert_eq!(steps(&by_client), run);
    let outcome = pruning.finish().await.unwrap().unwrap();
    assert_eq!(told.lines().last().unwrap(), format!("commit: {outcome}"));
}
