//! Scripted replies, and the values that they are made of.

use std::fmt::Debug;

use awa_core::machine::walk::walk;
use awa_core::rules::BodyTraits;
use awa_core::{
    Attempt, BatchId, ClaimedJob, Fault, Generation, Instant, JobId, Kind, LaneId, Machine, NewJob,
    Place, QueueName, Receipt, Refusal, Reply, Ring, RingView, RunLease, Segment, Slot, SlotState,
    SlotView, Turn,
};

/// One list of replies for each turn of a machine.
pub(crate) type Script = Vec<Vec<Reply>>;

/// The machine's plan under `script`, with its outcome as `{:?}`. Every reply must be used.
pub(crate) fn plan<M: Machine<Outcome: Debug>>(machine: M, script: Script) -> String {
    let mut replies = script.into_iter().flatten();
    let text = walk(
        machine,
        |step| replies.next().unwrap_or_else(|| panic!("no reply for: {step}")),
        |outcome| format!("{outcome:?}"),
    );
    let unused: Vec<_> = replies.collect();
    assert!(unused.is_empty(), "not asked for: {unused:?}\n{text}");
    text
}

/// The outcome under `script`, committed or rolled back.
pub(crate) fn outcome<M: Machine>(mut machine: M, script: Script) -> M::Outcome {
    match end(&mut machine, &script) {
        Turn::Commit(outcome) | Turn::Rollback(outcome) => outcome,
        Turn::Bug(fault) => panic!("{fault}"),
        Turn::Ask(steps) | Turn::Last(steps) => panic!("still asks {steps:?}"),
    }
}

/// The fault under `script`.
pub(crate) fn fault<M: Machine<Outcome: Debug>>(mut machine: M, script: Script) -> Fault {
    match end(&mut machine, &script) {
        Turn::Bug(fault) => fault,
        Turn::Ask(_) | Turn::Last(_) | Turn::Commit(_) | Turn::Rollback(_) => {
            panic!("no fault in {script:?}")
        }
    }
}

fn end<M: Machine>(machine: &mut M, script: &[Vec<Reply>]) -> Turn<M::Outcome> {
    let mut turn = machine.start();
    for replies in script {
        let steps = asked(&turn);
        assert_eq!(steps, replies.len(), "the script of this turn has another length");
        turn = machine.resume(replies.clone());
    }
    turn
}

fn asked<O>(turn: &Turn<O>) -> usize {
    match turn {
        Turn::Ask(steps) | Turn::Last(steps) => steps.len(),
        Turn::Commit(_) | Turn::Rollback(_) | Turn::Bug(_) => panic!("ended before its script"),
    }
}

/// Runs `script`, which ends in a COMMIT, and then again with each reply refused, wrong, missing or
/// followed by one too many. A refusal must give a rollback with an outcome that `is_refused`
/// knows; the rest must be reported as `UnexpectedReply`, and nothing may be committed.
pub(crate) fn withstands<M>(machine: &M, script: &Script, is_refused: impl Fn(&M::Outcome) -> bool)
where
    M: Machine<Outcome: Debug> + Clone,
{
    let ended = end(&mut machine.clone(), script);
    assert!(matches!(ended, Turn::Commit(_)), "{ended:?}");
    for turn in 0..script.len() {
        let resumed = |replies: Vec<Reply>| {
            let mut machine = machine.clone();
            end(&mut machine, &script[..turn]);
            machine.resume(replies)
        };
        for place in 0..script[turn].len() {
            for refusal in [Refusal::LockTimeout, Refusal::Conflict] {
                let mut refused = script[turn][..place].to_vec();
                refused.push(Reply::Refused(refusal));
                match resumed(refused) {
                    Turn::Rollback(outcome) => assert!(is_refused(&outcome), "{outcome:?}"),
                    other => panic!("refused at {turn}.{place}: {other:?}"),
                }
            }
            let mut wrong = script[turn].clone();
            wrong[place] = if wrong[place] == Reply::Woken { Reply::Marked } else { Reply::Woken };
            let missing = script[turn][..place].to_vec();
            let mut extra = script[turn].clone();
            extra.push(Reply::Woken);
            for replies in [wrong, missing, extra] {
                match resumed(replies.clone()) {
                    Turn::Bug(Fault::UnexpectedReply { .. }) => {}
                    other => panic!("{replies:?} at {turn}.{place}: {other:?}"),
                }
            }
        }
    }
}

pub(crate) const HOUR: i64 = 3_600_000_000;

/// `hours` after 1970.
pub(crate) const fn at_hour(hours: i64) -> Instant {
    Instant::from_unix_us(hours * HOUR)
}

/// A ring at hour 100: each slot's letter says its state, `o`pen, `s`ealed or `p`runed, and the
/// number after it the generation; `p3 s1 o2` has slot 2 open in generation 2.
pub(crate) fn ring(ring: Ring, slots: &str) -> RingView {
    let view = |(number, word): (usize, &str)| {
        let (state, generation) = word.split_at(1);
        let state = match state {
            "o" => SlotState::Open,
            "s" => SlotState::Sealed,
            "p" => SlotState::Pruned,
            other => panic!("{other}"),
        };
        SlotView {
            slot: Slot(number as i32),
            generation: Generation(generation.parse().expect("a generation")),
            state,
            opened_at: at_hour(0),
            sealed_at: (state == SlotState::Sealed).then(|| at_hour(1)),
        }
    };
    let slots: Vec<_> = slots.split(' ').enumerate().map(view).collect();
    let open = slots.iter().find(|s| s.state == SlotState::Open).expect("an open slot");
    RingView { ring, now: at_hour(100), current: open.segment(), slots: slots.clone() }
}

pub(crate) fn observed(view: RingView) -> Reply {
    Reply::RingObserved(view)
}

pub(crate) const CLEAR: Reply = Reply::Probed { held_by: None };

pub(crate) const fn held(witness: i64) -> Reply {
    Reply::Probed { held_by: Some(witness) }
}

pub(crate) const fn segment(slot: i32, generation: i64) -> Segment {
    Segment { slot: Slot(slot), generation: Generation(generation) }
}

pub(crate) fn queue(name: &str) -> QueueName {
    QueueName::new(name).expect("a name")
}

pub(crate) fn new_job(lane: i64) -> NewJob {
    let kind = Kind::new("mail").expect("a kind");
    NewJob::new(LaneId(lane), kind, "{}".to_owned(), 3, None).expect("a job")
}

/// The receipt at the one-based `index` of `batch`; job and lease follow from them.
pub(crate) fn receipt(batch: i64, index: u16) -> Receipt {
    Receipt {
        claim_slot: Slot(0),
        batch: BatchId(batch),
        index: Place::new(index.into()).expect("a place"),
        job: JobId(batch + i64::from(index)),
        run_lease: RunLease(1),
    }
}

pub(crate) fn claimed_job(receipt: Receipt, attempt: i16, traits: BodyTraits) -> ClaimedJob {
    ClaimedJob {
        receipt,
        kind: "mail".to_owned(),
        args: "{}".to_owned(),
        attempt: Attempt(attempt),
        max_attempts: 3,
        run_at: at_hour(1),
        created_at: at_hour(1),
        traits,
        payload: None,
    }
}
