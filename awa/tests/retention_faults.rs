//! What must not happen to retained failures and happens all the same: bodies lost, keys that collide,
//! receipts closed twice, older binaries; and failures that go round many times among all that is legal.
#![allow(clippy::unwrap_used)]

mod common;

use std::time::Duration;

use awa::core::machine::close::Finished;
use awa::core::machine::rebuild::Distrust;
use awa::core::machine::rollup::RollupOutcome;
use awa::core::{Fault, Gate};
use awa::{Job, JobId, PruneOutcome, Ring, Slot, TerminalFilter};
use common::Bench;
use serde_json::json;

const HOUR: Duration = Duration::from_secs(3600);

fn carried(outcome: &PruneOutcome) -> i64 {
    match outcome {
        PruneOutcome::Pruned { carried_failed_rows, .. } => *carried_failed_rows,
        PruneOutcome::Noop
        | PruneOutcome::NotSealed { .. }
        | PruneOutcome::Blocked { .. }
        | PruneOutcome::SkippedActive { .. }
        | PruneOutcome::Faulty { .. } => panic!("{outcome}"),
    }
}

async fn prune(bench: &Bench, slot: i32) -> PruneOutcome {
    bench.client.prune(Ring::Queue, Some(Slot(slot)), HOUR).await.unwrap()
}

async fn discard(bench: &Bench, job: JobId) {
    let done = bench.client.discard_failed(TerminalFilter::Job(job)).await.unwrap();
    assert_eq!(done.discarded, [job]);
}

/// Every failed job as the public surface shows it, but where it is stored.
async fn failures(bench: &Bench) -> Vec<String> {
    bench
        .texts(
            "select (to_jsonb(t) - 'ready_slot' - 'ready_generation')::text from S.terminal_jobs t
              where state = 'failed' order by job_id",
        )
        .await
}

/// H28, R032-16, H36: failures go round six times while some are retried (and succeed, or fail anew), some
/// discarded, and successes deleted; rollups, a rebuild and a time without trust lie in between. After
/// each operation every failure is there exactly once, as it was, and all counts are exact.
#[tokio::test]
async fn failures_go_round_among_everything_else() {
    let bench = Bench::alone().await;
    let jobs = (0..9).map(|n| {
        let job = Job::new("k", &json!({"n": n, "text": "x".repeat(2000)})).unwrap();
        job.queue("q").unwrap().metadata("n", json!(n)).unwrap()
    });
    let mut held = bench.client.enqueue_many(jobs.collect()).await.unwrap();
    let claimed = bench.claim(9).await;
    let failed = claimed.iter().map(|job| Finished::failed_for_good(job, b"broken"));
    bench.finish(failed.collect()).await;
    let (mut enqueued, mut gone, mut succeeded) = (9, 0, 0);

    for wrap in 0..6 {
        // A success to be deleted, one to be dropped.
        let successes = bench.enqueue(2).await;
        bench.complete(2).await;
        bench.client.delete_completed(successes[0]).await.unwrap();
        (enqueued, gone, succeeded) = (enqueued + 2, gone + 1, succeeded + 1);
        let before = failures(&bench).await;

        bench.fill_ring().await;
        if wrap % 2 == 1 {
            bench.client.rollup().await.unwrap();
        }
        let mut moved = 0;
        for slot in bench.client.ring(Ring::Queue).await.unwrap().sealed_oldest_first() {
            moved += carried(&prune(&bench, slot.slot.0).await);
        }
        assert_eq!(moved, held.len() as i64, "wrap {wrap}");
        assert_eq!(failures(&bench).await, before, "wrap {wrap}");
        assert_counts(&bench, held.len(), succeeded, enqueued - gone).await;

        match wrap {
            0 | 3 => {
                let job = held.remove(0);
                assert_eq!(bench.client.retry(job).await.unwrap().retried, [job]);
                let again = bench.claim(10).await;
                assert_eq!(again.len(), 1, "nothing else comes alive");
                bench.finish(vec![Finished::completed(&again[0])]).await;
                succeeded += 1;
            }
            1 => {
                discard(&bench, held.remove(1)).await;
                gone += 1;
            }
            2 => {
                // Retried, failed anew: held again, and with another error.
                assert_eq!(bench.client.retry(held[0]).await.unwrap().retried, [held[0]]);
                let again = bench.claim(1).await;
                assert_eq!(again[0].receipt.job, held[0]);
                bench.finish(vec![Finished::failed_for_good(&again[0], b"again")]).await;
                let row = bench.client.load(held[0]).await.unwrap().unwrap();
                assert!(row.payload.unwrap().contains("again"));
                assert_eq!((row.attempt.0, row.run_lease.0), (1, 2));
            }
            4 => {
                bench.client.run(Distrust {}).await.unwrap().unwrap();
                assert_counts(&bench, held.len(), succeeded, enqueued - gone).await;
                let done = bench.client.rebuild_counts().await.unwrap();
                assert_eq!(done.rows, held.len() as i64);
            }
            _ => {}
        }
        assert_counts(&bench, held.len(), succeeded, enqueued - gone).await;
    }
    assert_eq!(bench.rows("done_entries").await, held.len() as i64);
    let all = bench.client.retry_failed_by_queue("q").await.unwrap();
    assert_eq!((&all.retried, all.pruned_failed_count), (&held, Some(0)));
    let bodies = bench.claim(100).await;
    for (job, id) in bodies.iter().zip(&held) {
        assert_eq!(job.receipt.job, *id);
        let body: serde_json::Value = serde_json::from_str(&job.args).unwrap();
        assert_eq!(body["text"].as_str().unwrap().len(), 2000);
    }
    assert_eq!(bodies.len(), held.len());
}

async fn assert_counts(bench: &Bench, failed: usize, succeeded: i64, total: i64) {
    let counts = bench.client.counts("q").await.unwrap();
    assert_eq!(counts.failed, failed as i64, "{counts:?}");
    assert_eq!(counts.completed + counts.pruned_other, succeeded, "{counts:?}");
    assert_eq!((counts.pruned_failed, counts.total()), (0, total), "{counts:?}");
}

/// H30, R026-03: a narrow failure inside the floor whose ready row is gone stops the prune of its slot, with
/// a fault that says how many; nothing changes, no body is made up, other slots go on. Retrying leaves it
/// alone and says so; discarding it is the way out. Past the floor it needs no body, and is folded.
#[tokio::test]
async fn a_body_that_is_lost_stops_one_slot_and_has_a_way_out() {
    let bench = Bench::new().await;
    let failed = bench.fail(4).await;
    bench.client.rotate(Ring::Queue).await.unwrap();
    bench.fail(2).await;
    bench.client.rotate(Ring::Queue).await.unwrap();
    let lose =
        format!("delete from S.ready_entries where job_id in ({}, {})", failed[0].0, failed[1].0);
    bench.execute(&lose).await;
    let before = bench.picture().await;
    let expected = PruneOutcome::Faulty { slot: Slot(0), fault: Fault::BodyMissing { rows: 2 } };
    for _ in 0..2 {
        assert_eq!(bench.client.prune_oldest(HOUR).await.unwrap(), expected);
    }
    assert_eq!(bench.picture().await, before);
    let told = bench.client.explain_prune(Ring::Queue, None, HOUR).await.unwrap();
    assert!(told.contains("2 narrow terminal rows have no retained ready row"), "{told}");
    assert_eq!(carried(&prune(&bench, 1).await), 2, "other slots go on");

    let fault = bench.client.load(failed[0]).await.unwrap_err();
    assert_eq!(fault.as_fault(), Some(&Fault::JobBodyMissing { job: failed[0] }));
    assert!(fault.to_string().contains("job 1 has no retained body"), "{fault}");
    let shown = "select count(*) from S.terminal_jobs where body_missing and args is null";
    assert_eq!(bench.number(shown).await, 2);
    let all = bench.client.retry_failed_by_queue("q").await.unwrap();
    assert_eq!((all.matched, all.retried.len()), (6, 4));
    assert_eq!(bench.client.counts("q").await.unwrap().failed, 2);

    bench.complete(4).await;
    discard(&bench, failed[0]).await;
    let one_left = PruneOutcome::Faulty { slot: Slot(0), fault: Fault::BodyMissing { rows: 1 } };
    assert_eq!(bench.client.prune_oldest(HOUR).await.unwrap(), one_left);
    let past = bench.client.prune_oldest(Duration::ZERO).await.unwrap();
    assert!(matches!(past, PruneOutcome::Pruned { folded_failed: 1, .. }), "{past}");
    let counts = bench.client.counts("q").await.unwrap();
    assert_eq!((counts.failed, counts.pruned_failed, counts.total()), (0, 1, 5));
}

/// H31, R032-04: a key that is taken at the destination undoes the whole prune with PostgreSQL's own error,
/// each time; no row of any table differs. Other slots go on. Retrying or discarding one of the two is
/// the way out.
#[tokio::test]
async fn a_taken_key_at_the_destination_is_loud_and_loses_nothing() {
    for way_out in ["retry the one", "discard the other"] {
        let bench = Bench::new().await;
        let failed = bench.fail(2).await;
        bench.client.rotate(Ring::Queue).await.unwrap();
        bench.fail(1).await;
        bench.client.rotate(Ring::Queue).await.unwrap();
        let collide = format!(
            "insert into S.done_entries (ready_slot, ready_generation, attempt, max_attempts, lane_id, lane_seq,
                    job_id, run_lease, finalized_at, run_at, created_at, state, kind, args)
             select 2, 3, 1, 1, lane_id, lane_seq, 4711, 1, now(), now(), now(), 'failed', 'other', '{{}}'
               from S.done_entries where job_id = {0};
             insert into S.queue_terminal_count_deltas
             select 2, 4711 % 8, 3, lane_id, 1, 'failed' from S.done_entries where job_id = {0}",
            failed[0].0
        );
        bench.execute(&collide).await;
        let before = bench.picture().await;
        for _ in 0..2 {
            let error = bench.client.prune_oldest(HOUR).await.unwrap_err();
            assert_eq!(error.sqlstate().map(|state| state.code()), Some("23505"), "{error}");
            assert!(error.is_content() && !error.is_connection());
            assert_eq!(bench.picture().await, before);
        }
        assert_eq!(carried(&prune(&bench, 1).await), 1, "other slots go on");
        assert_eq!(bench.client.counts("q").await.unwrap().failed, 4);
        if way_out == "retry the one" {
            assert_eq!(bench.client.retry(failed[0]).await.unwrap().retried, [failed[0]]);
            assert_eq!(bench.claim(9).await.len(), 1);
            // The attempt is open and lies in the open segment: the slot is free of it.
            assert_eq!(carried(&prune(&bench, 0).await), 1);
        } else {
            discard(&bench, JobId(4711)).await;
            assert_eq!(carried(&prune(&bench, 0).await), 2);
        }
        let counts = bench.client.counts("q").await.unwrap();
        assert_eq!((counts.failed, counts.pruned_failed), (3, 0));
    }
}

/// H29, R026-13: a receipt that was closed twice, in each of the ways in which a closure can be kept, closes
/// no other: prune of the queue and of the claim ring and the rollup refuse and name the open one. Once
/// that is closed, all go on.
#[tokio::test]
async fn a_receipt_closed_twice_closes_no_other_however_it_is_kept() {
    // The receipt of the first of two jobs, once more: as a batch, singly, as a claim of a job's own; singly
    // in two slots; singly, with one that the claim doesn't have.
    let twice = [
        "insert into S.lease_claim_closure_batches select * from S.lease_claim_closure_batches",
        "insert into S.lease_claim_closures (claim_slot, batch_id, receipt_id, ready_slot, ready_generation, closed_at)
         select 0, batch_id, batch_id, 0, 1, now() from S.lease_claim_batches where n = 2",
        "insert into S.lease_claim_closure_batches (claim_slot, n, batch_id, ready_slot, ready_generation, receipts)
         select 0, 2, batch_id, 0, 1, int8multirange(int8range(batch_id, batch_id + 1))
           from S.lease_claim_batches where n = 2",
        "insert into S.lease_claims (claim_slot, attempt, receipt_id, job_id, run_lease, ready_slot,
                ready_generation, lane_id, lane_seq, claimed_at)
         select 0, 1, batch_id, lane_seqs[1], 1, 0, 1, lane_id, lane_seqs[1], claimed_at
           from S.lease_claim_batches where n = 2",
        "with gone as (delete from S.lease_claim_closure_batches returning batch_id)
         insert into S.lease_claim_closures (claim_slot, batch_id, receipt_id, ready_slot, ready_generation, closed_at)
         select s.slot, batch_id, batch_id, 0, 1, now() from gone, (values (0), (1)) as s (slot)",
        "with gone as (delete from S.lease_claim_closure_batches returning batch_id)
         insert into S.lease_claim_closures (claim_slot, batch_id, receipt_id, ready_slot, ready_generation, closed_at)
         select 0, batch_id, batch_id + s.place, 0, 1, now() from gone, (values (0), (2)) as s (place)",
    ];
    for again in twice {
        let bench = Bench::alone().await;
        bench.enqueue(2).await;
        let jobs = bench.claim(2).await;
        bench.finish(vec![Finished::completed(&jobs[0])]).await;
        // Something for the rollup.
        bench.fail(1).await;
        bench.execute(again).await;
        bench.client.rotate(Ring::Queue).await.unwrap();
        bench.client.rotate(Ring::Claim).await.unwrap();
        let open = jobs[1].receipt.id().0;
        for (ring, reason) in
            [(Ring::Queue, Gate::OpenReceipts(Slot(0))), (Ring::Claim, Gate::OpenClaims(Slot(0)))]
        {
            let expected = PruneOutcome::SkippedActive { slot: Slot(0), reason, witness: open };
            assert_eq!(bench.client.prune(ring, None, HOUR).await.unwrap(), expected, "{again}");
        }
        let reason = Gate::OpenReceipts(Slot(0));
        let skipped = RollupOutcome::SkippedActive { slot: Slot(0), reason, witness: open };
        assert_eq!(bench.client.rollup().await.unwrap(), [skipped], "{again}");
        assert_eq!(bench.client.counts("q").await.unwrap().running, 1);

        bench.finish(vec![Finished::completed(&jobs[1])]).await;
        assert_eq!(bench.client.counts("q").await.unwrap().running, 0);
        assert!(matches!(bench.client.rollup().await.unwrap()[..], [RollupOutcome::Folded { .. }]));
        assert_eq!(carried(&bench.client.prune(Ring::Claim, None, HOUR).await.unwrap()), 0);
        assert_eq!(carried(&prune(&bench, 0).await), 1);
    }
}

/// Prunes slot `slot` as a binary from before v032 does: no floor, and everything folded into the one
/// column that it knows.
async fn prune_as_before_v032(bench: &Bench, slot: i32) {
    let script = "begin;
        select from S.queue_ring_state for update;
        select from S.queue_ring_slots where slot = SLOT for update;
        lock table S.ready_entries_SLOT, S.ready_tombstones_SLOT, S.ready_claim_attempt_batches_SLOT,
                   S.receipt_completion_batches_SLOT, S.receipt_completion_tombstones_SLOT,
                   S.done_entries_SLOT, S.queue_terminal_count_deltas_SLOT in access exclusive mode;
        insert into S.queue_terminal_rollups as r (lane_id, pruned_completed_count)
        select lane_id, count(*) from S.terminal_jobs where ready_slot = SLOT group by lane_id
        on conflict (lane_id) do update
           set pruned_completed_count = r.pruned_completed_count + excluded.pruned_completed_count;
        truncate S.ready_entries_SLOT, S.ready_tombstones_SLOT, S.ready_claim_attempt_batches_SLOT,
                 S.receipt_completion_batches_SLOT, S.receipt_completion_tombstones_SLOT,
                 S.done_entries_SLOT, S.queue_terminal_count_deltas_SLOT;
        delete from S.queue_terminal_live_counts where ready_slot = SLOT;
        update S.queue_ring_slots set state = 'pruned', sealed_at = null where slot = SLOT;
        commit";
    bench.execute(&script.replace("SLOT", &slot.to_string())).await;
}

/// H35, R032-07: binaries from before and after v032 prune by turns. The total is right after each; the
/// failures that the older one dropped are missing from the split and nowhere else; ours neither stumble
/// over what the older one left nor give back what it took.
#[tokio::test]
async fn an_older_binary_prunes_beside_ours() {
    let bench = Bench::new().await;
    let (mut jobs, mut unsplit) = (0, 0);
    for round in 0..8 {
        let open = bench.client.ring(Ring::Queue).await.unwrap().current.slot.0;
        bench.fail(3).await;
        bench.enqueue(2).await;
        bench.complete(2).await;
        jobs += 5;
        bench.client.rotate(Ring::Queue).await.unwrap();
        let before = bench.client.counts("q").await.unwrap();
        match round % 4 {
            0 | 3 => {
                prune_as_before_v032(&bench, open).await;
                unsplit += before.failed;
            }
            1 => assert_eq!(carried(&prune(&bench, open).await), before.failed),
            _ => {
                let slot = Some(Slot(open));
                let outcome = bench.client.prune(Ring::Queue, slot, Duration::ZERO).await.unwrap();
                assert!(
                    matches!(outcome, PruneOutcome::Pruned { folded_failed, .. } if folded_failed == before.failed),
                    "{outcome}"
                );
            }
        }
        let after = bench.client.counts("q").await.unwrap();
        assert_eq!(after.total(), jobs, "round {round}: {after:?}");
        assert_eq!(after.pruned_other, jobs / 5 * 2 + unsplit, "round {round}: {after:?}");
        assert_eq!(after.pruned_failed, jobs / 5 * 3 - unsplit - after.failed);
    }
    assert!(unsplit > 0);
    // The older binary inserts into the rollups without naming the new column.
    let split =
        "select sum(pruned_completed_count + pruned_failed_count) from S.queue_terminal_rollups";
    let counts = bench.client.counts("q").await.unwrap();
    assert_eq!(bench.number(split).await, counts.pruned_other + counts.pruned_failed);
    assert_eq!(bench.number(split).await + counts.terminal_retained(), jobs);
}
