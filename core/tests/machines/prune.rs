use awa_core::machine::prune::{Prune, PruneOutcome};
use awa_core::rules::Floor;
use awa_core::{Fault, Gate, Refusal, Reply, Ring, Slot, SlotState, Span, TerminalSurvey};

use crate::script::{CLEAR, Script, fault, held, observed, outcome, plan, ring, withstands};

const DAY: Floor = Floor::new(Span::from_secs(24 * 3600));

const FOUND: TerminalSurvey =
    TerminalSurvey { carried: 2, bodies_missing: 0, failed: 1, other: 3, compact: 40 };

fn queue_prune() -> Prune {
    Prune::oldest(Ring::Queue, DAY)
}

/// Slot 1 is the oldest sealed one; slot 3 is open.
fn queue_ring() -> Reply {
    observed(ring(Ring::Queue, "s5 s4 p3 o6"))
}

fn happy() -> Script {
    vec![
        vec![Reply::Locked, queue_ring()],
        vec![Reply::Locked, CLEAR, CLEAR, CLEAR],
        vec![Reply::Locked, CLEAR, CLEAR, CLEAR, Reply::Surveyed(FOUND)],
        vec![Reply::Carried { rows: 2, deltas: 2 }, Reply::Folded { other: 43, failed: 1 }],
        vec![Reply::Locked, CLEAR, CLEAR, CLEAR],
        vec![Reply::Truncated, Reply::Marked],
    ]
}

fn surveyed(found: TerminalSurvey) -> Script {
    let mut script = happy();
    script.truncate(3);
    script[2][4] = Reply::Surveyed(found);
    script
}

/// R032-12 to R032-15, law 14: one transaction; the locks in order; gates before and again after
/// each of them; nothing but TRUNCATE and the mark under the exclusive lock.
#[test]
fn a_queue_slot_is_carried_folded_and_truncated() {
    assert_eq!(
        plan(queue_prune(), happy()),
        "\
turn 1, ask
  lock the queue ring
  observe the queue ring
turn 2, ask
  lock slot 1 of the queue ring
  probe for pending ready rows in slot 1
  probe for open receipts of slot 1
  probe for active leases of slot 1
turn 3, ask
  keep writers out of slot 1, waiting 50 ms at most
  probe for pending ready rows in slot 1
  probe for open receipts of slot 1
  probe for active leases of slot 1
  survey the terminal rows of slot 1, cutoff t273600s
turn 4, ask
  carry failures of slot 1 to slot 3 g6, cutoff t273600s
  fold the terminal rows of slot 1 into the rollups, cutoff t273600s
turn 5, ask
  keep everyone out of slot 1 of the queue ring, waiting 50 ms at most
  probe for pending ready rows in slot 1
  probe for open receipts of slot 1
  probe for active leases of slot 1
turn 6, last, with COMMIT
  truncate slot 1 of the queue ring
  mark slot 1 of the queue ring pruned
commit: Ok(Pruned { slot: Slot(1), generation: Generation(4), carried_failed_rows: 2, \
         folded_failed: 1, folded_other: 43 })
"
    );
}

/// R032-14: contention gives `Blocked` with the slot; before a slot was chosen there is none.
#[test]
fn it_withstands_wrong_replies_and_refusals() {
    let blocked = Ok(PruneOutcome::Blocked { slot: Slot(1) });
    withstands(&queue_prune(), &happy(), |o| *o == blocked || o.is_err());
    let first = vec![vec![Reply::Locked, queue_ring()]];
    for (script, expected) in [
        (vec![vec![Reply::Refused(Refusal::LockTimeout)]], Err(Refusal::LockTimeout)),
        ([first, vec![vec![Reply::Refused(Refusal::LockTimeout)]]].concat(), blocked),
    ] {
        let mut machine = queue_prune();
        let mut turn = awa_core::Machine::start(&mut machine);
        for replies in script {
            turn = awa_core::Machine::resume(&mut machine, replies);
        }
        assert_eq!(turn, awa_core::Turn::Rollback(expected));
    }
}

/// R032-01: zero switches the floor off; nothing is carried then.
#[test]
fn without_a_floor_there_is_no_cutoff_and_no_carry() {
    let found = TerminalSurvey { carried: 0, failed: 3, ..FOUND };
    let mut script = happy();
    script[2][4] = Reply::Surveyed(found);
    script[3] = vec![Reply::Folded { other: 43, failed: 3 }];
    let text = plan(Prune::oldest(Ring::Queue, Floor::new(Span::ZERO)), script.clone());
    assert!(text.contains("survey the terminal rows of slot 1, no floor\n"), "{text}");
    assert!(text.contains("fold the terminal rows of slot 1 into the rollups, no floor\n"));
    assert!(!text.contains("carry failures"));
    script.truncate(3);
    script[2][4] = Reply::Surveyed(FOUND);
    let unfloored = Prune::oldest(Ring::Queue, Floor::new(Span::ZERO));
    let what = "failures to carry without a floor";
    assert_eq!(fault(unfloored, script), Fault::Unbalanced { what, expected: 0, found: 2 });
}

/// R032-01: a floor longer than time carries from the earliest instant on, without overflow.
#[test]
fn a_floor_for_ever_keeps_everything() {
    let text = plan(Prune::oldest(Ring::Queue, Floor::new(Span::FOREVER)), happy());
    assert!(
        text.contains("carry failures of slot 1 to slot 3 g6, cutoff t-210866803200s"),
        "{text}"
    );
}

#[test]
fn nothing_to_carry_asks_for_no_carry() {
    let mut script = happy();
    script[2][4] = Reply::Surveyed(TerminalSurvey { carried: 0, ..FOUND });
    script[3] = vec![Reply::Folded { other: 43, failed: 1 }];
    let text = plan(queue_prune(), script);
    assert!(!text.contains("carry failures"), "{text}");
    assert!(text.contains("carried_failed_rows: 0"), "{text}");
}

/// Law 7, R026-13, R026-24: what is in use is stepped over and named, before any child is locked,
/// with writers out, and under the exclusive lock (H07, H23).
#[test]
fn a_held_gate_skips_the_slot_wherever_it_is_seen() {
    let gates =
        [Gate::PendingReady(Slot(1)), Gate::OpenReceipts(Slot(1)), Gate::ActiveLeases(Slot(1))];
    for turn in [1, 2, 4] {
        for (i, reason) in gates.into_iter().enumerate() {
            let mut script = happy();
            script.truncate(turn + 1);
            script[turn][1 + i] = held(77);
            assert_eq!(
                outcome(queue_prune(), script),
                Ok(PruneOutcome::SkippedActive { slot: Slot(1), reason, witness: 77 })
            );
        }
    }
}

/// The first of several held gates is the reason; a refusal after it is still a refusal.
#[test]
fn a_refusal_behind_a_held_gate_counts() {
    let mut script = happy();
    script.truncate(2);
    script[1] = vec![Reply::Locked, held(5), held(6), CLEAR];
    assert_eq!(
        outcome(queue_prune(), script.clone()),
        Ok(PruneOutcome::SkippedActive {
            slot: Slot(1),
            reason: Gate::PendingReady(Slot(1)),
            witness: 5
        })
    );
    script[1][2] = Reply::Refused(Refusal::Conflict);
    let text = plan(queue_prune(), {
        script[1].truncate(3);
        script
    });
    assert!(text.ends_with("roll back: Ok(Blocked { slot: Slot(1) })\n"), "{text}");
}

/// H30, R026-03: no body is invented; the slot is reported and stays, other slots go on.
#[test]
fn missing_bodies_are_reported_and_nothing_moves() {
    let script = surveyed(TerminalSurvey { bodies_missing: 1, ..FOUND });
    let fault = Fault::BodyMissing { rows: 1 };
    let said = outcome(queue_prune(), script).expect("an outcome");
    assert_eq!(said, PruneOutcome::Faulty { slot: Slot(1), fault });
    assert_eq!(
        said.to_string(),
        "slot 1 stays as it is: 1 narrow terminal rows have no retained ready row"
    );
}

/// R032-06: COMMIT is withheld until both readings agree, each of them.
#[test]
fn readings_that_disagree_are_a_fault() {
    let cases = [
        ((1, 1), (43, 1), "rows carried, of those surveyed", 2, 1),
        ((3, 3), (43, 1), "rows carried, of those surveyed", 2, 3),
        ((2, 1), (43, 1), "deltas of the rows carried", 2, 1),
        ((2, 2), (43, 0), "failures folded, of those surveyed", 1, 0),
        ((2, 2), (43, 3), "failures folded, of those surveyed", 1, 3),
        ((2, 2), (42, 1), "other rows folded, of those surveyed", 43, 42),
        ((2, 2), (3, 1), "other rows folded, of those surveyed", 43, 3),
    ];
    for ((rows, deltas), (other, failed), what, expected, found) in cases {
        let mut script = happy();
        script.truncate(4);
        script[3] = vec![Reply::Carried { rows, deltas }, Reply::Folded { other, failed }];
        assert_eq!(fault(queue_prune(), script), Fault::Unbalanced { what, expected, found });
    }
}

/// Law 12: nothing is clamped.
#[test]
fn a_survey_below_zero_or_beyond_bigint_is_a_fault() {
    for (found, what) in [
        (TerminalSurvey { carried: -1, ..FOUND }, "failures inside the floor"),
        (TerminalSurvey { bodies_missing: -1, ..FOUND }, "bodies missing"),
        (TerminalSurvey { failed: -1, ..FOUND }, "failures past the floor"),
        (TerminalSurvey { other: -1, ..FOUND }, "other rows of retryable history"),
        (TerminalSurvey { compact: -1, ..FOUND }, "compact successes"),
    ] {
        let negative = Fault::Negative { what, value: -1 };
        assert_eq!(fault(queue_prune(), surveyed(found)), negative);
    }
    let overflow = TerminalSurvey { other: i64::MAX, ..FOUND };
    assert!(matches!(
        fault(queue_prune(), surveyed(overflow)),
        Fault::Unbalanced { what: "terminal rows of a slot", .. }
    ));
}

/// Law 6: only a sealed slot; never the open one, whoever asks (H25).
#[test]
fn only_sealed_slots_are_pruned() {
    let on = |machine, slots| {
        outcome(machine, vec![vec![Reply::Locked, observed(ring(Ring::Queue, slots))]])
    };
    assert_eq!(on(queue_prune(), "o1 p0 p0"), Ok(PruneOutcome::Noop));
    for (slot, state) in [(0, Some(SlotState::Open)), (1, Some(SlotState::Pruned)), (9, None)] {
        let slot = Slot(slot);
        assert_eq!(
            on(Prune::slot(Ring::Queue, slot, DAY), "o7 p0 s3"),
            Ok(PruneOutcome::NotSealed { slot, state })
        );
    }
}

/// Law 7: the next sealed slot, when the oldest is held.
#[test]
fn a_named_slot_is_pruned_though_an_older_one_is_sealed() {
    let mut script = happy();
    script.truncate(2);
    script[1][1] = held(9);
    let text = plan(Prune::slot(Ring::Queue, Slot(0), DAY), script);
    assert!(text.contains("lock slot 0 of the queue ring"), "{text}");
}

/// A cursor that names no open slot, or a second open slot, is a fault of the ring's books.
#[test]
fn a_ring_that_contradicts_itself_is_a_fault() {
    let seen = |view| fault(queue_prune(), vec![vec![Reply::Locked, observed(view)]]);
    let mut stale = ring(Ring::Queue, "s5 s4 p3 o6");
    stale.current.generation.0 = 5;
    let at_cursor = "slots open at the ring's cursor";
    assert_eq!(seen(stale), Fault::Unbalanced { what: at_cursor, expected: 1, found: 0 });
    let mut sealed = ring(Ring::Queue, "s5 s4 p3 o6");
    sealed.slots[3].state = SlotState::Sealed;
    assert_eq!(seen(sealed), Fault::Unbalanced { what: at_cursor, expected: 1, found: 0 });
    let twice = ring(Ring::Queue, "s5 s4 o6 o5");
    let open = "open slots of the ring";
    assert_eq!(seen(twice), Fault::Unbalanced { what: open, expected: 1, found: 2 });
    let other = seen(ring(Ring::Claim, "s5 s4 p3 o6"));
    assert!(matches!(other, Fault::UnexpectedReply { .. }), "{other:?}");
}

/// R032-15: the lease and the claim ring carry nothing; their gates are their own.
#[test]
fn lease_and_claim_slots_are_truncated_when_empty_of_life() {
    let counted = Reply::ClaimsCounted { claims: 7 };
    for (which, gate, before, after) in [
        (Ring::Lease, Gate::HeldLeases(Slot(0)), vec![CLEAR], CLEAR),
        (Ring::Claim, Gate::OpenClaims(Slot(0)), vec![counted.clone(), CLEAR], counted),
    ] {
        let probe = format!("  probe for {gate}\n");
        let count = "  count the claims in slot 0\n";
        let (counted, again) =
            if which == Ring::Claim { (count, count) } else { ("", probe.as_str()) };
        let machine = Prune::oldest(which, DAY);
        let gates = before.len();
        let script = vec![
            vec![Reply::Locked, observed(ring(which, "s2 o3 p1"))],
            [vec![Reply::Locked], before].concat(),
            vec![Reply::Locked, after],
            vec![Reply::Truncated, Reply::Marked],
        ];
        assert_eq!(
            plan(machine.clone(), script.clone()),
            format!(
                "\
turn 1, ask
  lock the {which} ring
  observe the {which} ring
turn 2, ask
  lock slot 0 of the {which} ring
{counted}{probe}\
turn 3, ask
  keep everyone out of slot 0 of the {which} ring, waiting 50 ms at most
{again}\
turn 4, last, with COMMIT
  truncate slot 0 of the {which} ring
  mark slot 0 of the {which} ring pruned
commit: Ok(Pruned {{ slot: Slot(0), generation: Generation(2), carried_failed_rows: 0, \
         folded_failed: 0, folded_other: 0 }})
"
            )
        );
        let blocked = Ok(PruneOutcome::Blocked { slot: Slot(0) });
        withstands(&machine, &script, |o| *o == blocked || o.is_err());
        let skipped = Ok(PruneOutcome::SkippedActive { slot: Slot(0), reason: gate, witness: 8 });
        let mut early = script[..2].to_vec();
        early[1][gates] = held(8);
        assert_eq!(outcome(machine.clone(), early), skipped);
        if which == Ring::Lease {
            let mut late = script[..3].to_vec();
            late[2][1] = held(8);
            assert_eq!(outcome(machine, late), skipped);
        }
    }
}

/// R032-14: where claims are not as many as before they were proved to be closed, the claim ring's gate
/// is asked again, under the lock; never is a slot truncated for a proof that misses one.
#[test]
fn a_claim_that_comes_after_the_proof_is_proved_itself() {
    let machine = Prune::oldest(Ring::Claim, DAY);
    for found in [6, 8] {
        let mut script = vec![
            vec![Reply::Locked, observed(ring(Ring::Claim, "s2 o3 p1"))],
            vec![Reply::Locked, Reply::ClaimsCounted { claims: 7 }, CLEAR],
            vec![Reply::Locked, Reply::ClaimsCounted { claims: found }],
            vec![held(8)],
        ];
        let reason = Gate::OpenClaims(Slot(0));
        let skipped = PruneOutcome::SkippedActive { slot: Slot(0), reason, witness: 8 };
        assert_eq!(outcome(machine.clone(), script.clone()), Ok(skipped));
        script[3] = vec![CLEAR];
        script.push(vec![Reply::Truncated, Reply::Marked]);
        let text = plan(machine.clone(), script.clone());
        let turns =
            "turn 4, ask\n  probe for open claims in slot 0\nturn 5, last, with COMMIT\n  truncate";
        assert!(text.contains(turns), "{text}");
        let blocked = Ok(PruneOutcome::Blocked { slot: Slot(0) });
        withstands(&machine, &script, |o| *o == blocked || o.is_err());
    }
    let negative = vec![
        vec![Reply::Locked, observed(ring(Ring::Claim, "s2 o3 p1"))],
        vec![Reply::Locked, Reply::ClaimsCounted { claims: -1 }, CLEAR],
    ];
    let fault = fault(machine, negative);
    assert_eq!(fault, Fault::Negative { what: "claims", value: -1 });
}

/// Law 14: the bound on the wait is the caller's.
#[test]
fn locks_wait_as_long_as_they_are_told() {
    let patient = queue_prune().waiting(900.try_into().expect("not zero"));
    let text = plan(patient, happy());
    assert_eq!(text.matches("waiting 900 ms at most").count(), 2, "{text}");
}
