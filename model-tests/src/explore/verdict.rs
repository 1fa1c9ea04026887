//! What an exploration comes to.

use std::fmt;

use super::Broken;

/// The whole space, visited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coverage {
    /// Distinct states.
    pub states: usize,
    /// Actions that led somewhere, also to states that were known.
    pub transitions: usize,
    /// Actions on the shortest way to the remotest state.
    pub depth: usize,
    /// States that lead nowhere.
    pub ends: usize,
    /// The witnesses' names, each with the number of the first transition that fulfils it.
    pub witnessed: Vec<(&'static str, usize)>,
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { states, transitions, depth, ends, witnessed } = self;
        write!(
            f,
            "exhausted: {states} states, {transitions} transitions, depth {depth}, {ends} ends"
        )?;
        for (name, first) in witnessed {
            write!(f, "\n  sometimes {name} (first in transition {first})")?;
        }
        Ok(())
    }
}

/// Why an exploration does not end in [`Coverage`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// A promise is broken.
    Counterexample(Counterexample),
    /// More states than the bound: nothing is known about the rest.
    CutOff {
        /// The bound.
        states_max: usize,
        /// Actions on the shortest way to the state that went over it.
        depth: usize,
    },
    /// Every state was visited, and these witnesses were never true.
    Vacuous {
        /// Their names.
        never: Vec<&'static str>,
        /// Distinct states.
        states: usize,
    },
}

/// A shortest run that breaks a promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counterexample {
    /// The promise.
    pub broken: Broken,
    /// The run, an action a line.
    pub trace: Vec<String>,
    /// States visited before it was found.
    pub states: usize,
}

impl fmt::Display for Counterexample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} ({} steps, {} states)", self.broken, self.trace.len(), self.states)?;
        for (i, line) in self.trace.iter().enumerate() {
            writeln!(f, "{:>4}  {line}", i + 1)?;
        }
        Ok(())
    }
}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Counterexample(found) => found.fmt(f),
            Self::CutOff { states_max, depth } => {
                write!(f, "cut off at {states_max} states, depth {depth}: nothing was proved")
            }
            Self::Vacuous { never, states } => {
                write!(f, "vacuous: in none of {states} states {}", never.join(", or "))
            }
        }
    }
}

impl Stopped {
    /// The counterexample, if one was found.
    #[must_use]
    pub fn counterexample(self) -> Option<Counterexample> {
        match self {
            Self::Counterexample(found) => Some(found),
            Self::CutOff { .. } | Self::Vacuous { .. } => None,
        }
    }
}
