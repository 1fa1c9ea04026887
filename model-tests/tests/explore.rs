//! The shipped machines in the World, over every interleaving of their statements at small scope.
//! Each test exhausts its space; `--nocapture` prints states, transitions and witnesses. Larger
//! scopes are ignored by default: `cargo test --release -p awa-model-tests --test explore -- --ignored`.
#![allow(clippy::unwrap_used)]

use awa_core::rules::Floor;
use awa_core::{JobId, Ring, Slot, Span};
use awa_model_tests::explore::explore;
use awa_model_tests::explore::scene::witness as sometimes;
use awa_model_tests::explore::scene::{Enqueue, How, Look, Opening, Savepoint, Scene, Task};
use awa_model_tests::world::Patience;

const HOUR: Span = Span::from_secs(3600);

const ENQUEUE: Task = Task::enqueue(&[1]);
/// It may abort.
const TRY: Task = Task::Enqueue(Enqueue::of(&[1]).or_abort());
const CLAIM: Task = Task::claim(1, 10);
const CLAIM_ONE: Task = Task::claim(1, 1);
const POLL: Task = Task::Poll { lane: 1 };
const COMPLETE: Task = Task::Close(How::Completed);
const FAIL: Task = Task::Close(How::Failed);
const ROTATE: Task = Task::Rotate(Ring::Queue);
const PRUNE: Task = Task::Prune(Ring::Queue);

/// The whole space must be visited, nothing broken, and every witness seen.
fn exhausts(name: &str, scene: &Scene) {
    match explore(scene, 20_000_000) {
        Ok(coverage) => println!("{name}\n  {coverage}"),
        Err(stopped) => panic!("{name}: {stopped}"),
    }
}

/// H01, H02: positions become visible out of order, some never, and a claim stops at its limit.
#[test]
fn three_producers_and_a_claimer() {
    let claims = [("one at a time", [CLAIM_ONE, CLAIM_ONE]), ("all after one", [CLAIM_ONE, CLAIM])];
    for (name, claims) in claims {
        let scene = Scene {
            actors: vec![vec![TRY], vec![TRY], vec![TRY], claims.to_vec()],
            witnesses: vec![
                sometimes::LATE,
                sometimes::LIMITED,
                sometimes::ABORTED,
                sometimes::KNOWS,
            ],
            ..Scene::default()
        };
        exhausts(name, &scene);
    }
}

/// The lane's lock and two windows that know different things.
#[test]
fn two_claimers_of_one_lane() {
    let scene = Scene {
        actors: vec![vec![TRY], vec![TRY], vec![CLAIM_ONE; 2], vec![CLAIM_ONE; 2]],
        witnesses: vec![sometimes::LATE, sometimes::LIMITED, sometimes::LANE_BUSY],
        ..Scene::default()
    };
    exhausts("two claimers", &scene);
}

/// A window over three claims.
#[test]
fn a_producer_that_comes_back() {
    let scene = Scene {
        actors: vec![vec![TRY, TRY], vec![TRY], vec![CLAIM; 3]],
        witnesses: vec![sometimes::LATE, sometimes::ABORTED, sometimes::KNOWS],
        ..Scene::default()
    };
    exhausts("a producer comes back", &scene);
}

/// Positions of one lane are another's gaps, and evidence may cover them.
#[test]
fn two_lanes_in_one_transaction() {
    let scene = Scene {
        actors: vec![
            vec![Task::enqueue(&[1, 2])],
            vec![Task::enqueue(&[2, 1])],
            vec![CLAIM, CLAIM],
            vec![Task::claim(2, 1)],
        ],
        witnesses: vec![sometimes::LATE, sometimes::LIMITED, sometimes::KNOWS],
        ..Scene::default()
    };
    exhausts("two lanes", &scene);
}

/// A limit falls between two jobs of one transaction.
#[test]
fn several_jobs_in_one_transaction() {
    let jobs = Task::Enqueue(Enqueue::of(&[1, 1]).or_abort());
    let scene = Scene {
        actors: vec![vec![jobs], vec![jobs], vec![CLAIM_ONE; 3]],
        witnesses: vec![sometimes::LATE, sometimes::LIMITED, sometimes::ABORTED],
        ..Scene::default()
    };
    exhausts("several jobs", &scene);
}

/// A savepoint's id is younger than its transaction's, in no snapshot's list, and may be finished
/// while its transaction is open.
#[test]
fn savepoints() {
    for savepoint in [Savepoint::Undone, Savepoint::Released] {
        let scene = Scene {
            actors: vec![
                vec![Task::Enqueue(Enqueue::of(&[1]).or_abort().after(savepoint))],
                vec![Task::Enqueue(Enqueue::of(&[1]).after(savepoint))],
                vec![CLAIM_ONE; 3],
            ],
            witnesses: vec![sometimes::LATE, sometimes::ABORTED, sometimes::KNOWS],
            ..Scene::default()
        };
        exhausts(&format!("{savepoint:?}"), &scene);
    }
}

/// An idle worker's polls move its window too.
#[test]
fn polls_between_claims() {
    let scene = Scene {
        actors: vec![vec![TRY], vec![TRY], vec![POLL, CLAIM_ONE, POLL, CLAIM], vec![CLAIM_ONE]],
        witnesses: vec![sometimes::LATE, sometimes::POLL_MOVES],
        ..Scene::default()
    };
    exhausts("polls", &scene);
}

/// H05, H22: a claim dies anywhere, or commits unheard.
#[test]
fn a_claimer_crashes() {
    let scene = Scene {
        actors: vec![vec![TRY], vec![TRY], vec![CLAIM; 2], vec![CLAIM_ONE]],
        crashes: 1,
        witnesses: vec![sometimes::LATE, sometimes::CLAIM_CRASHES, sometimes::UNHEARD],
        ..Scene::default()
    };
    exhausts("a crash", &scene);
}

/// B12b: an asynchronous standby takes over; windows die with their connections.
#[test]
fn a_failover_forgets_the_last_commits() {
    let scene = Scene {
        actors: vec![vec![TRY], vec![TRY], vec![CLAIM; 2], vec![Task::Replicate, Task::FailOver]],
        witnesses: vec![sometimes::FORGOTTEN, sometimes::LATE],
        ..Scene::default()
    };
    exhausts("failover", &scene);
}

/// H03, H04: a producer whose snapshot is older than two rotations and a prune.
#[test]
fn a_stale_producer_and_the_ring() {
    let scene = Scene {
        actors: vec![
            vec![Task::Enqueue(Enqueue::of(&[1]).looking(Look::OldSnapshot))],
            vec![ENQUEUE],
            vec![ROTATE, PRUNE, ROTATE],
            vec![CLAIM],
        ],
        witnesses: vec![sometimes::STALE_ROW, sometimes::PRUNED, sometimes::PRUNE_REFUSED],
        ..Scene::default()
    };
    exhausts("a stale producer", &scene);
}

/// H23, H24: bounded locks that wait for claims and completions, and are waited for; a crash.
#[test]
fn prune_waits_and_the_hot_path_is_unharmed() {
    let scene = Scene {
        actors: vec![
            vec![ENQUEUE],
            vec![ENQUEUE],
            vec![CLAIM],
            vec![ROTATE, PRUNE],
            vec![COMPLETE],
        ],
        crashes: 1,
        patience: Patience::Patient,
        prologue: vec![Opening::Tasks(0, 1)],
        witnesses: vec![
            sometimes::PRUNED,
            sometimes::PRUNE_REFUSED,
            sometimes::PRUNE_CRASHES,
            sometimes::COMPLETED,
        ],
        ..Scene::default()
    };
    exhausts("a patient prune", &scene);
}

/// H25, H26, H28: a failure is carried, retried and claimed again while the ring turns and backends
/// die.
#[test]
fn a_failure_is_carried_and_retried() {
    let scene = Scene {
        actors: vec![
            vec![ENQUEUE],
            vec![CLAIM, CLAIM],
            vec![FAIL],
            vec![ROTATE, PRUNE],
            vec![Task::Retry],
        ],
        crashes: 1,
        floor: Floor::new(HOUR),
        books: true,
        prologue: vec![Opening::Tasks(0, 1), Opening::Tasks(1, 1), Opening::Tasks(2, 1)],
        witnesses: vec![
            sometimes::CARRIED,
            sometimes::RETRIED,
            sometimes::CLAIMED_AGAIN,
            sometimes::PRUNE_CRASHES,
        ],
        ..Scene::default()
    };
    exhausts("a carried failure", &scene);
}

/// H11, H12, H14, H15: two ends, a rescue and a cancel of the same attempts; a crash.
#[test]
fn ways_out_of_an_attempt_exclude_one_another() {
    let due = Task::Claim { lane: 1, limit: 9, deadline: Some(Span::from_secs(1)) };
    let scene = Scene {
        actors: vec![
            vec![ENQUEUE, ENQUEUE, Task::Wait(HOUR)],
            vec![due],
            vec![COMPLETE],
            vec![FAIL],
            vec![Task::Rescue],
            vec![Task::Cancel(JobId(1))],
        ],
        crashes: 1,
        floor: Floor::new(HOUR),
        books: true,
        prologue: vec![Opening::Tasks(0, 2), Opening::Tasks(1, 1), Opening::Tasks(0, 1)],
        witnesses: vec![
            sometimes::COMPLETED,
            sometimes::FAILED,
            sometimes::RETRYABLE,
            sometimes::CANCELLED,
        ],
        ..Scene::default()
    };
    exhausts("ways out", &scene);
}

/// H13: a cancel and a claim of one job, while the slot is pruned.
#[test]
fn a_cancel_races_a_claim() {
    let scene = Scene {
        actors: vec![
            vec![ENQUEUE, ENQUEUE],
            vec![CLAIM],
            vec![Task::Cancel(JobId(1))],
            vec![ROTATE, PRUNE],
        ],
        floor: Floor::new(HOUR),
        books: true,
        prologue: vec![Opening::Tasks(0, 1)],
        witnesses: vec![
            sometimes::CANCELLED,
            sometimes::CANCEL_REFUSED,
            sometimes::LANE_BUSY,
            sometimes::PRUNED,
        ],
        ..Scene::default()
    };
    exhausts("a cancel", &scene);
}

/// A job is tried again: its promotion, a producer and claims.
#[test]
fn a_retried_attempt_is_promoted() {
    let scene = Scene {
        actors: vec![
            vec![ENQUEUE, ENQUEUE],
            vec![CLAIM, CLAIM],
            vec![Task::Close(How::Retried)],
            vec![Task::Promote, Task::Promote],
        ],
        crashes: 1,
        floor: Floor::new(HOUR),
        books: true,
        prologue: vec![Opening::Tasks(0, 1), Opening::Tasks(1, 1)],
        witnesses: vec![sometimes::RETRYABLE, sometimes::PROMOTED, sometimes::CLAIMED_AGAIN],
        ..Scene::default()
    };
    exhausts("a retried attempt", &scene);
}

/// H60: a job goes back to its lane beside claims and a prune of the slot that it came from; and beside a
/// producer and a worker that says of the same attempt that it succeeded. The hand-back may crash, or be
/// heard by nobody.
#[test]
fn an_attempt_is_handed_back() {
    const HAND_BACK: Task = Task::Close(How::HandedBack);
    let pruned = vec![vec![ENQUEUE], vec![CLAIM, CLAIM], vec![HAND_BACK], vec![ROTATE, PRUNE]];
    let raced = vec![vec![ENQUEUE, ENQUEUE], vec![CLAIM, CLAIM], vec![HAND_BACK], vec![COMPLETE]];
    for (name, actors, seen) in [
        ("a hand-back and a prune", pruned, vec![sometimes::CLAIMED_AGAIN, sometimes::PRUNED]),
        ("a hand-back and a completion", raced, vec![sometimes::CLAIMED_AGAIN]),
    ] {
        let scene = Scene {
            actors,
            crashes: 1,
            books: true,
            prologue: vec![Opening::Tasks(0, 1), Opening::Tasks(1, 1)],
            witnesses: seen,
            ..Scene::default()
        };
        exhausts(name, &scene);
    }
}

/// R026-24, R026-25: deltas are folded while failures come in, and not beside what pins the horizon;
/// the slot is pruned.
#[test]
fn a_rollup_beside_failures_and_prune() {
    let scene = Scene {
        actors: vec![
            vec![ENQUEUE, ENQUEUE],
            vec![CLAIM, CLAIM],
            vec![FAIL, FAIL],
            vec![ROTATE, PRUNE],
            vec![Task::Rollup(Slot(0)), Task::Rollup(Slot(0))],
        ],
        crashes: 1,
        floor: Floor::new(HOUR),
        books: true,
        prologue: vec![
            Opening::Tasks(0, 2),
            Opening::Tasks(1, 1),
            Opening::Tasks(2, 1),
            Opening::Tasks(3, 1),
        ],
        witnesses: vec![sometimes::ROLLED_UP, sometimes::CARRIED],
        ..Scene::default()
    };
    exhausts("a rollup", &scene);
}

/// Claims move to another slot of their ring while attempts end.
#[test]
fn the_claim_ring_turns() {
    let scene = Scene {
        actors: vec![
            vec![ENQUEUE, ENQUEUE],
            vec![CLAIM, CLAIM],
            vec![COMPLETE, FAIL],
            vec![Task::Rotate(Ring::Claim), Task::Prune(Ring::Claim), Task::Rotate(Ring::Claim)],
        ],
        crashes: 1,
        slots: (2, 2),
        floor: Floor::new(HOUR),
        books: true,
        prologue: vec![Opening::Tasks(0, 2), Opening::Tasks(1, 1)],
        witnesses: vec![sometimes::CLAIMS_PRUNED, sometimes::PRUNE_REFUSED, sometimes::COMPLETED],
        ..Scene::default()
    };
    exhausts("the claim ring", &scene);
}

/// H23: a claim that looked for the open slot before it was sealed commits at any moment of its prune.
#[test]
fn a_claim_is_late_for_its_slot() {
    let scene = Scene {
        actors: vec![
            vec![CLAIM],
            vec![COMPLETE],
            vec![Task::Rotate(Ring::Claim), Task::Prune(Ring::Claim)],
            vec![ENQUEUE],
        ],
        crashes: 1,
        slots: (2, 2),
        floor: Floor::new(HOUR),
        books: true,
        prologue: vec![Opening::Tasks(3, 1)],
        witnesses: vec![sometimes::CLAIMS_PRUNED, sometimes::PRUNE_REFUSED, sometimes::COMPLETED],
        ..Scene::default()
    };
    exhausts("a late claim", &scene);
}

const LARGE: &str = "large";

/// As large as the largest scopes of the study of positions.
#[test]
#[ignore = "ten million transitions: minutes, and gigabytes of memory"]
fn large_three_producers_and_two_claimers() {
    let actors = vec![vec![TRY], vec![TRY], vec![TRY], vec![CLAIM; 2], vec![CLAIM_ONE; 2]];
    exhausts(LARGE, &Scene { actors, ..Scene::default() });
}

#[test]
#[ignore = "millions of transitions: minutes, and gigabytes of memory"]
fn large_two_lanes() {
    let both = Task::Enqueue(Enqueue::of(&[1, 2]).or_abort());
    let actors = vec![vec![both], vec![both], vec![CLAIM, CLAIM], vec![Task::claim(2, 1); 2]];
    exhausts(LARGE, &Scene { actors, ..Scene::default() });
}

#[test]
#[ignore = "millions of transitions: minutes, and gigabytes of memory"]
fn large_ring() {
    let stale = Task::Enqueue(Enqueue::of(&[1]).looking(Look::Before).or_abort());
    let actors = vec![vec![stale], vec![ENQUEUE], vec![ROTATE, PRUNE, ROTATE, PRUNE], vec![CLAIM]];
    exhausts(LARGE, &Scene { actors, ..Scene::default() });
}
