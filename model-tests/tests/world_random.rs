//! Random interleavings of the shipped machines, a statement at a time, with crashes: the
//! invariants hold after every act, nothing is passed over, and in the end every job is accounted for.
#![allow(clippy::unwrap_used)]

mod world_common;

use std::collections::BTreeMap;

use awa_core::machine::cancel::Cancel;
use awa_core::machine::claim::{Claim, ClaimOutcome};
use awa_core::machine::close::{Close, Finished};
use awa_core::machine::enqueue::Enqueue;
use awa_core::machine::promote::Promote;
use awa_core::machine::prune::Prune;
use awa_core::machine::rebuild::Rebuild;
use awa_core::machine::retry::{DiscardFailed, MovePiece, RetryFailed};
use awa_core::machine::rollup::Rollup;
use awa_core::machine::rotate::Rotate;
use awa_core::{ClaimedJob, Ending, Exit, JobId, Ring, Span, TerminalFilter, Window};
use awa_model_tests::drive::{Driving, Failure, Producing, Progress, run};
use awa_model_tests::world::{Mutation, Patience, SessionId, World};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use world_common::*;

/// A machine under way.
enum Way {
    Producing(Producing),
    Enqueue(Driving<Enqueue>),
    Claim(Driving<Claim>),
    Close(Driving<Close>),
    Prune(Driving<Prune>),
    Rotate(Driving<Rotate>),
    Rollup(Driving<Rollup>),
    Rebuild(Driving<Rebuild>),
    Promote(Driving<Promote>),
    Cancel(Driving<Cancel>),
    Move(Driving<MovePiece>),
}

#[derive(Default)]
struct Run {
    ways: BTreeMap<SessionId, Way>,
    window: Window,
    claimed: Vec<ClaimedJob>,
    /// Claims that took jobs, prunes that emptied a slot.
    claims: usize,
    prunes: usize,
}

type Broke = Result<(), String>;

fn over<O>(progress: Progress<O>) -> Result<Option<O>, String> {
    match progress {
        Progress::Stepped | Progress::Waits { .. } => Ok(None),
        Progress::Done(outcome) => Ok(Some(outcome)),
        Progress::Failed(Failure::Bug(fault)) => Err(format!("Bug: {fault}")),
        Progress::Failed(failure) => Err(format!("{failure:?}")),
    }
}

impl Run {
    fn begin(&mut self, w: &World, s: SessionId, what: u8, pick: usize) {
        let rings = [Ring::Queue, Ring::Queue, Ring::Claim, Ring::Lease];
        let ring = rings[pick % 4];
        let queue = || TerminalFilter::Queue(queue());
        let way = match what {
            0 | 1 => Way::Producing(Producing::new(s, vec![job(); 1 + pick % 2])),
            2 => Way::Enqueue(Driving::new(
                s,
                Enqueue::new(vec![job(), job_of(OTHER, "1")]).unwrap(),
            )),
            3..=5 if !self.ways.values().any(|way| matches!(way, Way::Claim(_))) => Way::Claim(
                Driving::new(s, claim_machine(self.window.clone(), [1, 2, 50][pick % 3])),
            ),
            6 | 7 if !self.claimed.is_empty() => {
                Way::Close(Driving::new(s, self.close(what, pick)))
            }
            8 | 9 => Way::Prune(Driving::new(s, Prune::oldest(ring, floor([0, 3, 600][pick % 3])))),
            10 | 11 => Way::Rotate(Driving::new(s, Rotate::ring(ring))),
            12 => Way::Rollup(Driving::new(s, Rollup::new(slot(pick as i32 % 3)))),
            13 => Way::Rebuild(Driving::new(s, Rebuild::default())),
            14 => Way::Promote(Driving::new(s, Promote::new(2).unwrap())),
            15 => Way::Cancel(Driving::new(
                s,
                Cancel::new(JobId(1 + pick as i64 % (w.tally().0 + 1))),
            )),
            16 => Way::Move(Driving::new(s, RetryFailed::new(queue(), 2).unwrap().next().unwrap())),
            17 => {
                Way::Move(Driving::new(s, DiscardFailed::new(queue(), 1).unwrap().next().unwrap()))
            }
            _ => return,
        };
        self.ways.insert(s, way);
    }

    /// Ends one attempt, or all that are known.
    fn close(&mut self, what: u8, pick: usize) -> Close {
        let one = self.claimed[pick % self.claimed.len()].receipt;
        let named = |j: &ClaimedJob| pick.is_multiple_of(2) || j.receipt == one;
        let jobs: Vec<ClaimedJob> = self.claimed.iter().filter(|j| named(j)).cloned().collect();
        // Sometimes they stay in the list: the attempts are then ended twice.
        if !pick.is_multiple_of(5) {
            self.claimed.retain(|j| !named(j));
        }
        if what == 6 {
            return Close::compact(jobs.iter().map(|j| j.receipt).collect());
        }
        let exit = |(i, job): (usize, &ClaimedJob)| {
            let ending = match (i + pick) % 4 {
                0 => Finished::failed(job, b"boom", Some(Span::ZERO)).ending,
                1 => Ending::Completed,
                _ => Finished::failed_for_good(job, b"boom").ending,
            };
            Exit { receipt: job.receipt, ending }
        };
        Close::general(jobs.iter().enumerate().map(exit).collect())
    }

    fn act(&mut self, w: &mut World, s: SessionId) -> Broke {
        let Some(mut way) = self.ways.remove(&s) else { return Ok(()) };
        let done = match &mut way {
            Way::Producing(p) => over(p.step(w))?.is_some(),
            Way::Enqueue(d) => over(d.step(w))?.is_some(),
            Way::Close(d) => over(d.step(w))?.is_some(),
            Way::Rotate(d) => over(d.step(w))?.is_some(),
            Way::Rollup(d) => over(d.step(w))?.is_some(),
            Way::Rebuild(d) => over(d.step(w))?.is_some(),
            Way::Promote(d) => over(d.step(w))?.is_some(),
            Way::Cancel(d) => over(d.step(w))?.is_some(),
            Way::Move(d) => over(d.step(w))?.is_some(),
            Way::Prune(d) => match over(d.step(w))? {
                Some(outcome) => {
                    self.prunes += usize::from(format!("{outcome:?}").contains("Pruned {"));
                    true
                }
                None => false,
            },
            Way::Claim(d) => match over(d.step(w))? {
                Some(ClaimOutcome::Claimed { jobs, window, .. }) => {
                    self.window = window;
                    self.claims += usize::from(!jobs.is_empty());
                    self.claimed.extend(jobs);
                    true
                }
                Some(ClaimOutcome::Refused { window, .. }) => {
                    self.window = window;
                    true
                }
                None => false,
            },
        };
        if !done {
            self.ways.insert(s, way);
        }
        Ok(())
    }

    fn check(&self, w: &World) -> Broke {
        w.check_invariants().map_err(|b| format!("{}: {}", b.name, b.detail))?;
        w.check_window(LANE, &self.window).map_err(|b| format!("{}: {}", b.name, b.detail))
    }
}

/// An act: which session, what it begins if it is free, and a pick for what is open in that.
type Act = (u8, u8, usize);

fn history(mutation: Mutation, patience: Patience, acts: &[Act]) -> Result<Run, String> {
    let mut w = world();
    (w.mutation, w.patience) = (mutation, patience);
    let mut r = Run::default();
    for (session, what, pick) in acts {
        let s = SessionId(1 + session % 5);
        w.now = w.now.after(Span::from_secs(u64::from(pick.is_multiple_of(4))));
        if !r.ways.contains_key(&s) {
            r.begin(&w, s, *what, *pick);
        } else if pick.is_multiple_of(97) {
            // The backend dies. A window is lost with its connection.
            if let Some(Way::Claim(_)) = r.ways.remove(&s) {
                r.window = Window::default();
            }
            w.crash(s);
        }
        r.act(&mut w, s)?;
        r.check(&w)?;
    }
    for s in (1..=5).map(SessionId) {
        if let Some(Way::Claim(_)) = r.ways.remove(&s) {
            r.window = Window::default();
        }
        w.crash(s);
    }
    // In the end everything that can be claimed is.
    let (jobs, window) = claim(&mut w, r.window.clone(), 4_000);
    (r.window, r.claims) = (window, r.claims + usize::from(!jobs.is_empty()));
    r.check(&w)?;
    let left = run(&mut w, A, claim_machine(Window::default(), 4_000));
    let (left, _) = took(left.map_err(|f| format!("{f:?}"))?);
    if left.is_empty() { Ok(r) } else { Err(format!("LeftBehind: {:?}", ids(&left))) }
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    prop::collection::vec((0..5u8, 0..18u8, 0..1000usize), 1..400)
}

fn patience() -> impl Strategy<Value = Patience> {
    prop_oneof![Just(Patience::None), Just(Patience::Patient)]
}

/// What random histories find of a mutation within some hundred runs; the others need an order of
/// acts that chance seldom makes, and have histories of their own.
#[test]
fn chance_finds_wrong_protocols_and_does_something() {
    let mut seeded = TestRunner::deterministic();
    let mut cases = Vec::new();
    for _ in 0..400 {
        cases.push(acts().new_tree(&mut seeded).unwrap().current());
    }
    let (mut claims, mut prunes) = (0, 0);
    for case in &cases {
        let run = history(Mutation::None, Patience::Patient, case).unwrap();
        (claims, prunes) = (claims + run.claims, prunes + run.prunes);
    }
    assert!(claims > 400 && prunes > 100, "{claims} claims, {prunes} prunes");
    for mutation in [
        Mutation::XmaxAsWitness,
        Mutation::PositionAfterXid,
        Mutation::XidAfterPosition,
        Mutation::LockInSameStatement,
        Mutation::NoSecondGate,
        Mutation::FrontierForgotten,
        Mutation::LaneLockForgotten,
        Mutation::CarryForgetsDelta,
        Mutation::CarriesNarrow,
        Mutation::ClosesTwice,
    ] {
        let found = cases.iter().any(|case| history(mutation, Patience::Patient, case).is_err());
        assert!(found, "{mutation:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(96) })]

    #[test]
    fn any_interleaving_keeps_the_invariants(acts in acts(), patience in patience()) {
        prop_assert_eq!(history(Mutation::None, patience, &acts).map(drop), Ok(()));
    }
}
