//! The explorer itself: counts are exact, counterexamples shortest, and nothing passes by accident.
#![allow(clippy::unwrap_used)]

use std::fmt;

use awa_model_tests::explore::{Broken, DEADLOCK, Model, Stopped, Witness, explore};

/// Two counters that go up to `top`; the wrong twin of a mutex, a trap, as the test wants.
struct Counters {
    top: u16,
    /// The pair that breaks a promise.
    forbidden: Option<(u16, u16)>,
    /// The pair that offers nothing.
    trap: Option<(u16, u16)>,
    witnesses: Vec<Witness<(u16, u16)>>,
}

impl Counters {
    fn up_to(top: u16) -> Self {
        Self { top, forbidden: None, trap: None, witnesses: Vec::new() }
    }
}

#[derive(Clone, Copy)]
enum Up {
    Left,
    Right,
}

impl fmt::Display for Up {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Left => "left",
            Self::Right => "right",
        })
    }
}

impl Model for Counters {
    type State = (u16, u16);
    type Action = Up;

    fn initial(&self) -> Vec<Self::State> {
        vec![(0, 0)]
    }

    fn actions(&self, state: &Self::State, actions: &mut Vec<Up>) {
        if Some(*state) != self.trap {
            actions.extend([Up::Left, Up::Right]);
        }
    }

    fn next(&self, &(l, r): &Self::State, action: &Up) -> Option<Self::State> {
        match action {
            Up::Left => (l < self.top).then_some((l + 1, r)),
            Up::Right => (r < self.top).then_some((l, r + 1)),
        }
    }

    fn check(&self, _: Option<&Self::State>, state: &Self::State) -> Result<(), Broken> {
        if Some(*state) == self.forbidden {
            return Err(Broken { name: "Forbidden", detail: format!("{state:?}") });
        }
        Ok(())
    }

    fn at_rest(&self, state: &Self::State) -> bool {
        *state == (self.top, self.top)
    }

    fn sometimes(&self) -> Vec<Witness<Self::State>> {
        self.witnesses.clone()
    }

    fn narrate(&self, _: &Self::State, action: &Up, after: &Self::State) -> String {
        format!("{action} to {after:?}")
    }
}

#[test]
fn counts_are_exact() {
    let mut model = Counters::up_to(999);
    model.witnesses.push(("both are there", |_, s| *s == (999, 999)));
    let coverage = explore(&model, 1_000_000).unwrap();
    assert_eq!(coverage.states, 1_000_000);
    assert_eq!(coverage.transitions, 2 * 999 * 1_000);
    assert_eq!((coverage.depth, coverage.ends), (1_998, 1));
    assert_eq!(coverage.witnessed, [("both are there", 2 * 999 * 1_000 - 1)]);
}

#[test]
fn a_counterexample_is_shortest_and_printed_for_people() {
    let model = Counters { forbidden: Some((1, 2)), ..Counters::up_to(9) };
    let found = explore(&model, 1_000).unwrap_err().counterexample().unwrap();
    assert_eq!(found.broken.name, "Forbidden");
    assert_eq!(found.trace.len(), 3);
    let shown = found.to_string();
    assert!(shown.starts_with("Forbidden: (1, 2) (3 steps,"), "{shown}");
    assert!(shown.contains("\n   3  right to (1, 2)\n"), "{shown}");
    assert_eq!(
        explore(&model, 1_000).unwrap_err().to_string(),
        shown,
        "another run, another trace"
    );
}

#[test]
fn a_run_that_is_cut_off_proves_nothing() {
    let stopped = explore(&Counters::up_to(9), 99).unwrap_err();
    assert_eq!(stopped, Stopped::CutOff { states_max: 99, depth: 18 });
    assert!(explore(&Counters::up_to(9), 100).is_ok());
}

#[test]
fn a_witness_that_never_fires_fails_the_run() {
    let mut model = Counters::up_to(9);
    model.witnesses.push(("left is first", |_, s| s.0 > s.1));
    model.witnesses.push(("left is ten", |_, s| s.0 == 10));
    let stopped = explore(&model, 100).unwrap_err();
    assert_eq!(stopped, Stopped::Vacuous { never: vec!["left is ten"], states: 100 });
}

#[test]
fn a_run_that_is_stuck_before_its_end_is_a_deadlock() {
    let model = Counters { trap: Some((2, 2)), ..Counters::up_to(2) };
    assert!(explore(&model, 100).is_ok(), "the end may be a trap");
    let model = Counters { trap: Some((0, 1)), ..Counters::up_to(2) };
    let found = explore(&model, 100).unwrap_err().counterexample().unwrap();
    assert_eq!(found.broken.name, DEADLOCK);
    assert_eq!(found.trace, ["right to (0, 1)"]);
}

/// What a digest must tell apart: lengths, ends, order.
#[test]
fn unlike_states_have_unlike_digests() {
    struct Once(Vec<Vec<u8>>);
    impl Model for Once {
        type State = Vec<u8>;
        type Action = u8;
        fn initial(&self) -> Vec<Vec<u8>> {
            self.0.clone()
        }
        fn actions(&self, _: &Vec<u8>, _: &mut Vec<u8>) {}
        fn next(&self, _: &Vec<u8>, _: &u8) -> Option<Vec<u8>> {
            None
        }
        fn check(&self, _: Option<&Vec<u8>>, _: &Vec<u8>) -> Result<(), Broken> {
            Ok(())
        }
        fn at_rest(&self, _: &Vec<u8>) -> bool {
            true
        }
        fn sometimes(&self) -> Vec<Witness<Vec<u8>>> {
            Vec::new()
        }
    }
    let mut states = vec![Vec::new()];
    for length in 1..=20 {
        for (bit, place) in (0..8).flat_map(|bit| (0..length).map(move |place| (bit, place))) {
            let mut state = vec![0; length];
            states.push(state.clone());
            state[place] = 1 << bit;
            states.push(state);
        }
    }
    states.sort();
    states.dedup();
    let coverage = explore(&Once(states.clone()), usize::MAX).unwrap();
    assert_eq!(coverage.states, states.len());
}
