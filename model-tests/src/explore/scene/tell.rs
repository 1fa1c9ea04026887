//! A run as people read it.

use awa_core::{JobId, Reply, Step};

use super::produce::Act;
use super::{Action, Doing, Scene, State, Task, produce};
use crate::world::{Applied, SessionId};

/// The line for one action.
pub(super) fn line(scene: &Scene, before: &State, action: Action, after: &State) -> String {
    match action {
        Action::Go(a) => format!("{}: {}", who(scene, a), act(scene, before, a, after)),
        Action::Abort(a) => format!("{}: ROLLBACK", who(scene, a)),
        Action::Crash(a) => format!("{}: its backend dies", who(scene, a)),
        Action::Unheard(a) => format!("{}: COMMIT, and nobody hears of it", who(scene, a)),
    }
}

/// Actors by their trade, as counterexamples usually name them.
fn who(scene: &Scene, a: u8) -> String {
    let trade = match scene.actors[usize::from(a)].first() {
        Some(Task::Enqueue(_)) => "P",
        Some(Task::Claim { .. } | Task::ClaimFromCursor { .. } | Task::Poll { .. }) => "C",
        Some(Task::Close(_)) => "W",
        Some(Task::Rotate(_) | Task::Prune(_) | Task::Rollup(_) | Task::Promote | Task::Rescue) => {
            "M"
        }
        Some(Task::Retry | Task::Cancel(_)) => "O",
        Some(Task::Wait(_)) => "T",
        Some(Task::Replicate | Task::FailOver) | None => "S",
    };
    format!("{trade}{a}")
}

fn act(scene: &Scene, before: &State, a: u8, after: &State) -> String {
    let s = SessionId(a);
    let doing = |state: &State| state.actors[usize::from(a)].doing.clone();
    let Some(task) = scene.task(before, a) else { return "is done".to_owned() };
    if let Task::Enqueue(enqueue) = task {
        let progress = match doing(before) {
            Doing::Producing(progress) => progress,
            Doing::Nothing | Doing::Running(..) | Doing::Unconfirmed(..) => {
                produce::Progress::default()
            }
        };
        return match enqueue.act(&progress) {
            Act::Look => "reads which segment is open".to_owned(),
            Act::AssignXid => "is given its id".to_owned(),
            Act::Savepoint(end) => format!("draws a position under a savepoint: {end:?}"),
            Act::Draw => match doing(after) {
                Doing::Producing(progress) => progress.says_drawn(),
                Doing::Nothing | Doing::Running(..) | Doing::Unconfirmed(..) => "draws".to_owned(),
            },
            Act::Insert { lane } => format!("inserts into lane {lane}"),
            Act::Commit => "COMMIT".to_owned(),
        };
    }
    let step = match doing(before) {
        Doing::Running(errand, _) => errand.next_step().cloned(),
        Doing::Unconfirmed(..) => return "COMMIT".to_owned(),
        // Its first step has run already: say what it was.
        Doing::Nothing => {
            let errand = scene.errand(&mut before.clone(), a, *task);
            errand.and_then(|(errand, _)| errand.first_step())
        }
        Doing::Producing(_) => None,
    };
    match (step, task) {
        (Some(step), _) => {
            let mut world = before.world.clone();
            if !world.is_open(s) {
                world.begin(s);
            }
            let answer = match world.apply(s, &step) {
                Applied::Reply(reply) => reply_text(&reply),
                Applied::Waits { on } => {
                    let on: Vec<_> = on.iter().map(|s| who(scene, s.0)).collect();
                    format!(" -> waits for {}", on.join(", "))
                }
                Applied::Raised(raised) => format!(" -> {raised:?}"),
            };
            format!("{}{answer}", shortened(&step))
        }
        (None, Task::Wait(span)) => format!("{span} pass"),
        (None, Task::Replicate) => "a standby has replayed all this".to_owned(),
        (None, Task::FailOver) => "the standby takes over".to_owned(),
        (None, _) if after.world.is_open(s) => "hears that its COMMIT came through".to_owned(),
        (None, _) => {
            let mut undone = before.world.clone();
            undone.crash(s);
            let left_no_trace = undone == after.world;
            if left_no_trace { "ROLLBACK, or nothing to commit" } else { "COMMIT" }.to_owned()
        }
    }
}

fn shortened(step: &Step) -> String {
    match step {
        Step::ClaimReady { lane, window, limit, .. } => {
            format!("claims up to {limit} of {lane} {window}")
        }
        other => other.to_string(),
    }
}

fn jobs(ids: impl Iterator<Item = JobId>) -> String {
    let ids: Vec<_> = ids.map(|job| job.0.to_string()).collect();
    if ids.is_empty() { "none".to_owned() } else { ids.join(", ") }
}

fn reply_text(reply: &Reply) -> String {
    let text = match reply {
        Reply::Locked | Reply::Marked | Reply::Truncated => return String::new(),
        Reply::PositionRead(position) => position.to_string(),
        Reply::OwnXid(Some(xid)) => xid.to_string(),
        Reply::OwnXid(None) => "none".to_owned(),
        Reply::Claimed(claimed) => {
            let jobs = jobs(claimed.jobs.iter().map(|job| job.receipt.job));
            format!("{jobs} (in {})", claimed.seen)
        }
        Reply::Probed { held_by: None } => "nothing".to_owned(),
        Reply::Probed { held_by: Some(witness) } => format!("held by {witness}"),
        Reply::RingObserved(view) => view.to_string(),
        other => format!("{other:?}"),
    };
    format!(" -> {text}")
}
