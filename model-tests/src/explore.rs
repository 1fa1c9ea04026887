//! Breadth-first exploration of every interleaving at small scope.
//!
//! A [`Model`] says which actions a state offers and what each leads to. [`explore`] visits every
//! state that can be reached and stops at the first one that breaks a promise: breadth first, so no
//! shorter run breaks one. Its answer is `Ok` only if the whole space was visited and every
//! `sometimes` witness was true somewhere: a model in which nothing happens does not pass, and
//! neither does a run that was cut off.
//!
//! A visited state is remembered by 128 bits of its hash and a link to where it was reached from.
//! The hash has fixed seeds, so counts and traces are the same in every run.

use std::collections::HashSet;
use std::fmt;
use std::hash::Hash;
use std::mem;

mod digest;
pub mod scene;
mod verdict;

use digest::{ByDigest, digest};
pub use verdict::{Counterexample, Coverage, Stopped};

/// A promise that does not hold, and what was seen instead.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Broken {
    /// The promise's name: what a mutation test asserts.
    pub name: &'static str,
    /// The evidence, for people.
    pub detail: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.detail)
    }
}

/// The name of the promise that a run never gets stuck before it is at rest.
pub const DEADLOCK: &str = "Deadlock";

/// A predicate that some transition must fulfil, given the states before and after it, with its name.
pub type Witness<S> = (&'static str, fn(&S, &S) -> bool);

/// A transition system.
pub trait Model {
    /// Equal states must have equal futures.
    type State: Clone + Eq + Hash;
    /// What may happen next; `Display` is its line in a trace.
    type Action: fmt::Display;

    /// Where runs begin.
    fn initial(&self) -> Vec<Self::State>;

    /// Appends what `state` offers, in an order that depends on `state` alone.
    fn actions(&self, state: &Self::State, actions: &mut Vec<Self::Action>);

    /// Where `action` leads; `None` if it cannot happen now (a lock is held, say).
    fn next(&self, state: &Self::State, action: &Self::Action) -> Option<Self::State>;

    /// What must hold in `state`, which was reached from `before` (`None`: a run begins in it). Asked
    /// once a state: what the step to it can't have broken need not be looked at again.
    ///
    /// # Errors
    /// The first promise that doesn't hold.
    fn check(&self, before: Option<&Self::State>, state: &Self::State) -> Result<(), Broken>;

    /// Whether a run may end here. A state that leads nowhere and isn't at rest is a [`DEADLOCK`].
    fn at_rest(&self, state: &Self::State) -> bool;

    /// What must be true of some transition each, lest a pass be vacuous.
    fn sometimes(&self) -> Vec<Witness<Self::State>>;

    /// The line that a trace shows for `action` between these states.
    fn narrate(
        &self,
        _before: &Self::State,
        action: &Self::Action,
        _after: &Self::State,
    ) -> String {
        action.to_string()
    }
}

/// How a state was reached first: the number of the state before it (its own number if a run
/// begins here), and the place of the action among that state's.
#[derive(Clone, Copy)]
struct Reached {
    from: u32,
    action: u32,
}

/// Visits every state that can be reached, at most `states_max` of them.
///
/// # Errors
/// A broken promise, a space larger than `states_max` (at most 2³²), or a witness that never fired.
pub fn explore<M: Model>(model: &M, states_max: usize) -> Result<Coverage, Stopped> {
    let mut search = Search {
        model,
        states_max: states_max.min(u32::MAX as usize),
        known: HashSet::default(),
        reached: Vec::new(),
        wanted: model.sometimes(),
        witnessed: Vec::new(),
        layer: Vec::new(),
        depth: 0,
    };
    search.run()
}

struct Search<'m, M: Model> {
    model: &'m M,
    states_max: usize,
    known: HashSet<u128, ByDigest>,
    reached: Vec<Reached>,
    wanted: Vec<Witness<M::State>>,
    witnessed: Vec<(&'static str, usize)>,
    /// States of the next depth, with their numbers.
    layer: Vec<(u32, M::State)>,
    depth: usize,
}

impl<M: Model> Search<'_, M> {
    fn run(&mut self) -> Result<Coverage, Stopped> {
        for (place, state) in (0u32..).zip(self.model.initial()) {
            let own_number = self.reached.len() as u32;
            self.visit(None, state, Reached { from: own_number, action: place })?;
        }
        let (mut transitions, mut ends, mut actions) = (0, 0, Vec::new());
        let mut deepest = 0;
        while !self.layer.is_empty() {
            deepest = self.depth;
            self.depth += 1;
            for (number, state) in mem::take(&mut self.layer) {
                actions.clear();
                self.model.actions(&state, &mut actions);
                let mut leads_on = false;
                for (place, action) in (0u32..).zip(&actions) {
                    let Some(next) = self.model.next(&state, action) else { continue };
                    leads_on = true;
                    transitions += 1;
                    self.witness(&state, &next, transitions);
                    self.visit(Some(&state), next, Reached { from: number, action: place })?;
                }
                if !leads_on {
                    ends += 1;
                    if !self.model.at_rest(&state) {
                        let detail = "nothing can happen, and not everyone is done".to_owned();
                        return Err(self.broken(number, Broken { name: DEADLOCK, detail }));
                    }
                }
            }
        }
        let states = self.reached.len();
        if !self.wanted.is_empty() {
            let never = self.wanted.iter().map(|(name, _)| *name).collect();
            return Err(Stopped::Vacuous { never, states });
        }
        let witnessed = mem::take(&mut self.witnessed);
        Ok(Coverage { states, transitions, depth: deepest, ends, witnessed })
    }

    fn visit(
        &mut self,
        before: Option<&M::State>,
        state: M::State,
        reached: Reached,
    ) -> Result<(), Stopped> {
        if !self.known.insert(digest(&state)) {
            return Ok(());
        }
        if self.reached.len() == self.states_max {
            return Err(Stopped::CutOff { states_max: self.states_max, depth: self.depth });
        }
        let number = self.reached.len() as u32;
        self.reached.push(reached);
        self.model.check(before, &state).map_err(|broken| self.broken(number, broken))?;
        self.layer.push((number, state));
        Ok(())
    }

    fn witness(&mut self, before: &M::State, after: &M::State, transition: usize) {
        let witnessed = &mut self.witnessed;
        self.wanted.retain(|(name, holds)| {
            let fires = holds(before, after);
            if fires {
                witnessed.push((name, transition));
            }
            !fires
        });
    }

    /// Runs the actions that led to state `last` again, this time with a pencil.
    fn broken(&self, last: u32, broken: Broken) -> Stopped {
        let (mut way, mut number) = (Vec::new(), last);
        let start = loop {
            let Reached { from, action } = self.reached[number as usize];
            if from == number {
                break action as usize;
            }
            way.push(action as usize);
            number = from;
        };
        let mut state = self.model.initial().swap_remove(start);
        let mut trace = Vec::new();
        for place in way.into_iter().rev() {
            let mut actions = Vec::new();
            self.model.actions(&state, &mut actions);
            let Some(next) = self.model.next(&state, &actions[place]) else {
                let lost = "(the model answers otherwise than before: it is not deterministic)";
                trace.push(lost.to_owned());
                break;
            };
            trace.push(self.model.narrate(&state, &actions[place], &next));
            state = next;
        }
        Stopped::Counterexample(Counterexample { broken, trace, states: self.reached.len() })
    }
}
