//! The explorer is tested by breaking what it explores: each way of being wrong must be caught, by
//! the promise that it breaks. Variants are called as in the study of positions and visibility; run
//! with `--nocapture` for the counterexamples and the table.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fmt::Write as _;

use awa_core::rules::Floor;
use awa_core::{JobId, Ring, Span};
use awa_model_tests::explore::scene::{Enqueue, How, Look, Opening, Scene, Task, Twist, promise};
use awa_model_tests::explore::{Counterexample, explore};
use awa_model_tests::world::{Mutation, Patience, invariant};

const HOUR: Span = Span::from_secs(3600);
const STATES_MAX: usize = 1_000_000;

const ENQUEUE: Task = Task::enqueue(&[1]);
const TRY: Task = Task::Enqueue(Enqueue::of(&[1]).or_abort());
const LOOK: Task = Task::Enqueue(Enqueue::of(&[1]).looking(Look::Before));
const CLAIM: Task = Task::claim(1, 10);
const CLAIM_ONE: Task = Task::claim(1, 1);
const COMPLETE: Task = Task::Close(How::Completed);
const FAIL: Task = Task::Close(How::Failed);
const ROTATE: Task = Task::Rotate(Ring::Queue);
const PRUNE: Task = Task::Prune(Ring::Queue);

/// One way of being wrong.
struct Case {
    id: &'static str,
    wrong: &'static str,
    scene: Scene,
    /// The promise that the shortest counterexample breaks.
    breaks: &'static str,
    /// The promise that the Ledger and the last claims find broken by themselves.
    by_ledger: &'static str,
    /// Steps of the study's counterexample, where it has one. Its steps are coarser: see README.md.
    study_steps: Option<usize>,
}

/// Two producers and what claims there are.
fn visibility(claimers: &[&[Task]]) -> Scene {
    let producers = [vec![TRY], vec![TRY]];
    let claimers = claimers.iter().map(|script| script.to_vec());
    Scene { actors: producers.into_iter().chain(claimers).collect(), ..Scene::default() }
}

fn mutated(mutation: Mutation, scene: Scene) -> Scene {
    Scene { mutation, ..scene }
}

/// Ways to pass a job over for good.
fn losing_claims() -> Vec<Case> {
    let lost = |id, wrong, scene, study_steps| Case {
        id,
        wrong,
        scene,
        breaks: invariant::NOTHING_PASSED_OVER,
        by_ledger: promise::NOTHING_LOST,
        study_steps: Some(study_steps),
    };
    let one = || visibility(&[&[CLAIM, CLAIM]]);
    vec![
        lost(
            "A1, WB3",
            "a snapshot's xmax is taken for a witness",
            mutated(Mutation::XmaxAsWitness, one()),
            9,
        ),
        lost(
            "B1, WB1",
            "the position is read after the own id",
            mutated(Mutation::PositionAfterXid, one()),
            9,
        ),
        lost(
            "B2, WB4",
            "a producer draws before it has an id",
            mutated(Mutation::XidAfterPosition, one()),
            9,
        ),
        lost(
            "B2, cache",
            "a producer keeps a position for its next transaction",
            Scene {
                actors: vec![vec![ENQUEUE, ENQUEUE], vec![TRY], vec![CLAIM, CLAIM]],
                twist: Twist::PositionKept,
                ..Scene::default()
            },
            9,
        ),
        lost("B3", "claims never look back", Scene { twist: Twist::CursorOnly, ..one() }, 16),
        lost(
            "B4, WB2",
            "a claim that hit its limit says that it took everything",
            mutated(Mutation::FrontierForgotten, visibility(&[&[CLAIM_ONE, CLAIM]])),
            13,
        ),
        lost(
            "B5",
            "a claim is remembered before its COMMIT",
            Scene { crashes: 1, ..mutated(Mutation::WindowBeforeCommit, one()) },
            9,
        ),
        lost(
            "B12",
            "a window outlives its connection, and a failover",
            Scene {
                actors: vec![
                    vec![ENQUEUE],
                    vec![ENQUEUE],
                    vec![CLAIM, CLAIM],
                    vec![Task::Replicate, Task::FailOver],
                ],
                twist: Twist::WindowOutlivesConnection,
                ..Scene::default()
            },
            11,
        ),
    ]
}

fn other_claims() -> Vec<Case> {
    vec![
        Case {
            id: "poll",
            wrong: "a poll moves the window of a lane that holds something",
            scene: Scene {
                twist: Twist::PollForgets,
                ..visibility(&[&[CLAIM, Task::Poll { lane: 1 }]])
            },
            breaks: invariant::NOTHING_PASSED_OVER,
            by_ledger: promise::NOTHING_LOST,
            study_steps: None,
        },
        Case {
            id: "B6",
            wrong: "the lane is locked by the statement that claims",
            scene: mutated(Mutation::LockInSameStatement, visibility(&[&[CLAIM], &[CLAIM]])),
            breaks: promise::CLAIMED_ONCE,
            by_ledger: promise::CLAIMED_ONCE,
            study_steps: Some(11),
        },
        Case {
            id: "no lane lock",
            wrong: "claims take no lane lock",
            scene: mutated(Mutation::LaneLockForgotten, visibility(&[&[CLAIM], &[CLAIM]])),
            breaks: promise::CLAIMED_ONCE,
            by_ledger: promise::CLAIMED_ONCE,
            study_steps: None,
        },
        Case {
            id: "B7",
            wrong: "a claim now and then doesn't look back",
            scene: Scene {
                actors: vec![
                    vec![ENQUEUE],
                    vec![ENQUEUE],
                    vec![ENQUEUE],
                    vec![CLAIM, Task::ClaimFromCursor { lane: 1 }],
                ],
                ..Scene::default()
            },
            // What it didn't see, its evidence says is spent.
            breaks: invariant::NOTHING_PASSED_OVER,
            by_ledger: promise::NOTHING_LOST,
            study_steps: Some(17),
        },
        Case {
            id: "spent to",
            wrong: "evidence says that all up to what is taken is spent",
            scene: mutated(Mutation::SpentPastSettled, visibility(&[&[CLAIM, CLAIM]])),
            breaks: invariant::NOTHING_PASSED_OVER,
            by_ledger: promise::NOTHING_LOST,
            study_steps: None,
        },
        Case {
            id: "unsettled",
            wrong: "evidence covers what is not settled",
            scene: Scene {
                actors: vec![vec![ENQUEUE], vec![ENQUEUE], vec![ENQUEUE], vec![CLAIM]],
                twist: Twist::CoversUnsettled,
                ..Scene::default()
            },
            breaks: invariant::NOTHING_PASSED_OVER,
            by_ledger: promise::NOTHING_LOST,
            study_steps: None,
        },
    ]
}

fn claims() -> Vec<Case> {
    losing_claims().into_iter().chain(other_claims()).collect()
}

fn ring() -> Vec<Case> {
    let case = |id, wrong, breaks, study_steps, scene| Case {
        id,
        wrong,
        scene,
        breaks,
        by_ledger: breaks,
        study_steps: Some(study_steps),
    };
    vec![
        case(
            "B8",
            "the gate looks at rows of the slot's own generation only",
            promise::PRUNE_TAKES_ONLY_DEAD,
            11,
            Scene {
                actors: vec![vec![LOOK], vec![ROTATE, PRUNE, ROTATE, PRUNE, ROTATE, PRUNE]],
                mutation: Mutation::GateByGeneration,
                ..Scene::default()
            },
        ),
        case(
            "B9",
            "gates are not seen again",
            promise::PRUNE_TAKES_ONLY_DEAD,
            8,
            Scene {
                actors: vec![vec![ENQUEUE], vec![ROTATE, PRUNE]],
                mutation: Mutation::NoSecondGate,
                ..Scene::default()
            },
        ),
        case(
            "B10",
            "prune shuts nobody out",
            promise::PRUNE_TAKES_ONLY_DEAD,
            6,
            Scene {
                actors: vec![vec![ENQUEUE], vec![ROTATE, PRUNE]],
                twist: Twist::NobodyShutOut,
                ..Scene::default()
            },
        ),
        // The gates under the exclusive lock hold; what came and ended between survey and fold
        // unbalances the books, and the machine says so.
        Case {
            study_steps: None,
            ..case(
                "B10, half",
                "prune doesn't shut writers out before it surveys",
                promise::NO_FAULT,
                0,
                Scene {
                    actors: vec![vec![ENQUEUE], vec![CLAIM], vec![COMPLETE], vec![ROTATE, PRUNE]],
                    mutation: Mutation::WritersNotExcluded,
                    ..Scene::default()
                },
            )
        },
        case(
            "B11",
            "claims skip pruned slots",
            promise::NOTHING_LOST,
            7,
            Scene {
                actors: vec![vec![LOOK], vec![ROTATE, PRUNE], vec![CLAIM]],
                mutation: Mutation::ClaimSkipsPruned,
                ..Scene::default()
            },
        ),
    ]
}

/// A failed job in a slot that is about to be pruned, `waits` after it failed.
fn failed_job(mutation: Mutation, waits: Span, others: &[Task]) -> Scene {
    let actors = [vec![ENQUEUE, Task::Wait(waits)], vec![CLAIM], vec![FAIL], vec![ROTATE, PRUNE]];
    Scene {
        actors: actors.into_iter().chain(others.iter().map(|task| vec![*task])).collect(),
        floor: Floor::new(HOUR),
        books: true,
        prologue: vec![
            Opening::Tasks(0, 1),
            Opening::Tasks(1, 1),
            Opening::Tasks(2, 1),
            Opening::Tasks(0, 1),
        ],
        mutation,
        ..Scene::default()
    }
}

fn history() -> Vec<Case> {
    let case = |id, wrong, breaks, by_ledger, scene| Case {
        id,
        wrong,
        scene,
        breaks,
        by_ledger,
        study_steps: None,
    };
    let cancelled = Scene {
        actors: vec![vec![ENQUEUE], vec![Task::Cancel(JobId(1))], vec![ROTATE, PRUNE]],
        prologue: vec![Opening::Tasks(0, 1), Opening::Tasks(1, 1)],
        ..failed_job(Mutation::CarriesCancelled, Span::ZERO, &[])
    };
    let ends = Scene {
        actors: vec![vec![ENQUEUE], vec![CLAIM], vec![COMPLETE], vec![FAIL]],
        prologue: vec![Opening::Tasks(0, 1), Opening::Tasks(1, 1)],
        ..failed_job(Mutation::ClosesTwice, Span::ZERO, &[])
    };
    vec![
        case(
            "delta",
            "carried rows leave their deltas behind",
            invariant::COUNTS_EXACT,
            promise::COUNTS_EXACT,
            failed_job(Mutation::CarryForgetsDelta, Span::ZERO, &[Task::Retry]),
        ),
        case(
            "narrow",
            "carried rows stay narrow",
            invariant::TERMINAL_HAS_RETAINED_READY_BODY,
            promise::CARRIED_EXACTLY_ONCE,
            failed_job(Mutation::CarriesNarrow, Span::ZERO, &[Task::Retry]),
        ),
        case(
            "cancelled",
            "cancellations are carried",
            promise::PRUNE_TAKES_ONLY_DEAD,
            promise::PRUNE_TAKES_ONLY_DEAD,
            cancelled,
        ),
        case(
            "cutoff",
            "a failure at the very cutoff is dropped",
            promise::PRUNE_TAKES_ONLY_DEAD,
            promise::PRUNE_TAKES_ONLY_DEAD,
            failed_job(Mutation::CutoffFlipped, HOUR, &[]),
        ),
        case(
            "clock",
            "prune asks a host's clock that is an hour fast",
            promise::PRUNE_TAKES_ONLY_DEAD,
            promise::PRUNE_TAKES_ONLY_DEAD,
            failed_job(Mutation::HostClock, Span::from_secs(1), &[]),
        ),
        case(
            "twice",
            "a closed receipt closes again",
            promise::ENDED_ONCE,
            promise::ENDED_ONCE,
            ends,
        ),
    ]
}

/// Variants of the study that this engine has no place for, and why.
const NOT_OURS: &[(&str, &str)] = &[
    ("A2", "the true next transaction id: no SQL reads it, so no step gives it"),
    ("A5", "claims without a sweep, order not promised: every claim looks back (see B7)"),
    ("B12b", "holds: the failover scope of the explorer"),
    ("B13", "a persisted bound: none is kept, a new process looks at every position"),
];

/// Locks that are taken against the order in which claims take theirs.
fn locks() -> Vec<Case> {
    let scene = Scene {
        actors: vec![vec![ROTATE, PRUNE], vec![ENQUEUE], vec![CLAIM]],
        patience: Patience::Patient,
        prologue: vec![Opening::Tasks(0, 1), Opening::Tasks(1, 1)],
        twist: Twist::ShutsClaimsFirst,
        ..Scene::default()
    };
    vec![Case {
        id: "lock order",
        wrong: "prune locks claims before ready rows",
        scene,
        breaks: promise::NO_DEADLOCK,
        by_ledger: promise::NO_DEADLOCK,
        study_steps: None,
    }]
}

/// The same scene with nothing wrong.
fn sound(scene: &Scene) -> Scene {
    let right = |task: &Task| match task {
        Task::ClaimFromCursor { lane } => Task::claim(*lane, 1),
        other => *other,
    };
    let actors = scene.actors.iter().map(|script| script.iter().map(right).collect()).collect();
    Scene { actors, mutation: Mutation::None, twist: Twist::None, ..scene.clone() }
}

fn caught(scene: &Scene) -> Counterexample {
    let stopped = explore(scene, STATES_MAX).expect_err("it passes");
    let text = stopped.to_string();
    stopped.counterexample().unwrap_or_else(|| panic!("{text}"))
}

/// Runs the cases, and prints what was caught how.
fn catches(cases: Vec<Case>) {
    let mut table = String::new();
    for case in cases {
        let found = caught(&case.scene);
        println!("{}: {}\n{found}", case.id, case.wrong);
        assert_eq!(found.broken.name, case.breaks, "{}: {found}", case.id);
        explore(&sound(&case.scene), STATES_MAX)
            .unwrap_or_else(|broken| panic!("{} breaks without being wrong: {broken}", case.id));
        let study = case.study_steps.map_or_else(|| "-".to_owned(), |steps| steps.to_string());
        let alone = caught(&Scene { ledger_only: true, ..case.scene });
        assert_eq!(alone.broken.name, case.by_ledger, "{}: {alone}", case.id);
        writeln!(
            table,
            "{:12} {:2} steps (study: {study:>2})  {} in {} states; the Ledger: {} after {}",
            case.id,
            found.trace.len(),
            found.broken.name,
            found.states,
            alone.broken.name,
            alone.trace.len()
        )
        .unwrap();
    }
    println!("{table}");
}

/// H02, H13, H58: the wrong ways of claiming.
#[test]
fn wrong_claims_are_caught() {
    catches(claims());
}

/// H03, H23: the wrong ways of pruning.
#[test]
fn wrong_prunes_are_caught() {
    catches(ring());
    catches(locks());
}

/// H14, H27, H28, H59: the wrong ways with history.
#[test]
fn wrong_histories_are_caught() {
    catches(history());
}

#[test]
fn every_mutation_of_the_world_is_explored() {
    let cases = [claims(), ring(), history()];
    let explored: BTreeSet<_> = cases.iter().flatten().map(|case| case.scene.mutation).collect();
    let missing: Vec<_> = Mutation::ALL.iter().filter(|m| !explored.contains(m)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    for (id, why) in NOT_OURS {
        println!("{id}: not ours: {why}");
        assert!(cases.iter().flatten().all(|case| case.id != *id), "{id} is explored after all");
    }
}
