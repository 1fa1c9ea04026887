//! What a machine would do, as text: it is run against answers that come from anywhere, and each
//! step is written down in the words of its `Display`. The plan is not told twice.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write as _;

use super::{Machine, Turn};
use crate::reply::Reply;
use crate::step::Step;

/// Runs `machine` to its end against `answer` and gives its steps, one a line, with a line for each
/// turn; `say` puts the outcome into words. A step that is refused ends its turn, as a driver would.
#[must_use]
pub fn walk<M: Machine>(
    mut machine: M,
    mut answer: impl FnMut(&Step) -> Reply,
    say: impl Fn(&M::Outcome) -> String,
) -> String {
    let mut text = String::new();
    let mut turn = machine.start();
    let mut number = 0;
    loop {
        number += 1;
        // Writing to a String can't fail.
        let (steps, title) = match turn {
            Turn::Ask(steps) => (steps, "ask"),
            Turn::Last(steps) => (steps, "last, with COMMIT"),
            Turn::Commit(outcome) => {
                let _ = writeln!(text, "commit: {}", say(&outcome));
                return text;
            }
            Turn::Rollback(outcome) => {
                let _ = writeln!(text, "roll back: {}", say(&outcome));
                return text;
            }
            Turn::Bug(fault) => {
                let _ = writeln!(text, "roll back and report: {fault}");
                return text;
            }
        };
        let _ = writeln!(text, "turn {number}, {title}");
        let mut replies = Vec::with_capacity(steps.len());
        for step in &steps {
            let _ = write!(text, "  {step}");
            let reply = answer(step);
            if let Reply::Probed { held_by: Some(witness) } = &reply {
                let _ = write!(text, " -- held by {witness}");
            }
            let refused = if let Reply::Refused(refusal) = &reply {
                let _ = write!(text, " -- refused: {refusal}");
                true
            } else {
                false
            };
            text.push('\n');
            replies.push(reply);
            if refused {
                break;
            }
        }
        turn = machine.resume(replies);
    }
}
