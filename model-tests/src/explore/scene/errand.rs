//! The shipped machines that actors drive.

use awa_core::machine::cancel::Cancel;
use awa_core::machine::claim::Claim;
use awa_core::machine::close::Close;
use awa_core::machine::poll::PollLanes;
use awa_core::machine::promote::Promote;
use awa_core::machine::prune::Prune;
use awa_core::machine::rescue::Rescue;
use awa_core::machine::retry::MovePiece;
use awa_core::machine::rollup::Rollup;
use awa_core::machine::rotate::Rotate;
use awa_core::{Machine, Reply, Ring, Slot, Step, Turn};

use super::Twist;
use crate::drive::{Driving, Progress};
use crate::world::World;

macro_rules! errands {
    ($($name:ident: $machine:ty,)+) => {
        /// A machine under way.
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        #[expect(missing_docs, reason = "each is named as its machine")]
        pub enum Errand { $($name(Driving<$machine>),)+ }

        /// What a machine came to.
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        #[expect(missing_docs, reason = "each is named as its machine")]
        pub enum Outcome { $($name(<$machine as Machine>::Outcome),)+ }

        impl Errand {
            pub(super) fn step(&mut self, world: &mut World) -> Progress<Outcome> {
                match self {
                    $(Self::$name(driving) => match driving.step(world) {
                        Progress::Stepped => Progress::Stepped,
                        Progress::Waits { on } => Progress::Waits { on },
                        Progress::Done(outcome) => Progress::Done(Outcome::$name(outcome)),
                        Progress::Failed(failure) => Progress::Failed(failure),
                    },)+
                }
            }

            /// The step that the next act runs: see [`Driving::next_step`].
            #[must_use]
            pub fn next_step(&self) -> Option<&Step> {
                match self { $(Self::$name(driving) => driving.next_step(),)+ }
            }

            /// The step that a machine that was not started yet begins with.
            pub(super) fn first_step(&self) -> Option<Step> {
                match self {
                    $(Self::$name(driving) => match driving.machine().clone().start() {
                        Turn::Ask(steps) | Turn::Last(steps) => steps.into_iter().next(),
                        Turn::Commit(_) | Turn::Rollback(_) | Turn::Bug(_) => None,
                    },)+
                }
            }
        }
    };
}

errands! {
    Claim: Claim,
    Poll: PollLanes,
    Close: Close,
    Rotate: Rotate,
    Prune: Twisted<Prune>,
    Rollup: Rollup,
    Promote: Promote,
    Retry: MovePiece,
    Cancel: Cancel,
    Rescue: Rescue,
}

/// A prune with a [`Twist`]: the steps that shut others out are taken out of its turns, and it is told
/// that they were done; or one more is put in, and it isn't told.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Twisted<M> {
    machine: M,
    twist: Twist,
    /// Places of the steps that were taken out of the last turn, or put in.
    places: Vec<usize>,
}

impl<M: Machine> Twisted<M> {
    pub(super) const fn new(machine: M, twist: Twist) -> Self {
        Self { machine, twist, places: Vec::new() }
    }

    fn edited(&mut self, steps: Vec<Step>) -> Vec<Step> {
        self.places.clear();
        let mut edited = Vec::new();
        for (place, step) in steps.into_iter().enumerate() {
            let shuts = matches!(step, Step::ExcludeWriters { .. } | Step::Exclude { .. });
            if shuts && self.twist == Twist::NobodyShutOut {
                self.places.push(place);
                continue;
            }
            if let (Step::Exclude { timeout_ms, .. }, Twist::ShutsClaimsFirst) = (&step, self.twist)
            {
                self.places.push(edited.len());
                let (ring, slot, timeout_ms) = (Ring::Claim, Slot(0), *timeout_ms);
                edited.push(Step::Exclude { ring, slot, timeout_ms });
            }
            edited.push(step);
        }
        edited
    }

    fn turned(&mut self, turn: Turn<M::Outcome>) -> Turn<M::Outcome> {
        match turn {
            Turn::Ask(steps) => Turn::Ask(self.edited(steps)),
            Turn::Last(steps) => Turn::Last(self.edited(steps)),
            Turn::Commit(_) | Turn::Rollback(_) | Turn::Bug(_) => turn,
        }
    }
}

impl<M: Machine> Machine for Twisted<M> {
    type Outcome = M::Outcome;

    fn start(&mut self) -> Turn<M::Outcome> {
        let turn = self.machine.start();
        self.turned(turn)
    }

    fn resume(&mut self, mut replies: Vec<Reply>) -> Turn<M::Outcome> {
        for place in self.places.drain(..) {
            if self.twist == Twist::NobodyShutOut {
                replies.insert(place, Reply::Locked);
            } else if replies.get(place) == Some(&Reply::Locked) {
                replies.remove(place);
            }
        }
        let turn = self.machine.resume(replies);
        self.turned(turn)
    }
}
