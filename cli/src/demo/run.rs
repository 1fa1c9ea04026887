//! The demo's own schemas: each is named after its run, held while that run lives, and dropped by the
//! next run if its own could not do it.

use std::time::{SystemTime, UNIX_EPOCH};

use awa::Hold;
use awa::core::SchemaName;

use crate::output::Failed;

/// What the names of all schemas of demos begin with.
const PREFIX: &str = "awa_demo_";
/// Follows [`PREFIX`] in the names of those that were asked to stay.
const KEPT: &str = "kept_";

/// A run of the demo. Its schema is held until this value, or the process, is gone.
pub(super) struct Run {
    pub(super) schema: SchemaName,
    _hold: Hold,
}

impl Run {
    /// A name that no other run has, and the hold on it. With `keep` it is none that a later run drops.
    pub(super) async fn begin(url: &str, keep: bool) -> Result<Self, Failed> {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let schema = SchemaName::new(&name(since_1970.as_millis(), std::process::id(), keep))?;
        // Held before it is made: a schema that nobody holds has no run.
        match awa::hold(url, &schema).await? {
            Some(hold) => Ok(Self { schema, _hold: hold }),
            None => Err(Failed::other("begin", format!("another session holds schema {schema}"))),
        }
    }
}

fn name(ms: u128, pid: u32, keep: bool) -> String {
    format!("{PREFIX}{}{ms}_{pid}", if keep { KEPT } else { "" })
}

/// Whether a demo that was not asked to keep it named a schema so.
fn is_to_be_dropped(schema: &str) -> bool {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let numbers = schema.strip_prefix(PREFIX).and_then(|rest| rest.split_once('_'));
    numbers.is_some_and(|(ms, pid)| number(ms) && number(pid))
}

/// A schema that a run left behind.
pub(super) struct Leftover {
    pub(super) schema: SchemaName,
    /// Whether it was dropped, or why not.
    pub(super) dropped: Result<(), awa::Error>,
}

/// Drops the schemas of runs that ended without doing it: those that nobody holds. Of several that look at
/// the same time, one drops each.
pub(super) async fn drop_leftovers(url: &str) -> Result<Vec<Leftover>, awa::Error> {
    let mut leftovers = Vec::new();
    for schema in awa::installations(url, PREFIX).await? {
        if !is_to_be_dropped(schema.as_str()) {
            continue;
        }
        if let Some(_hold) = awa::hold(url, &schema).await? {
            let dropped = awa::drop_installation(url, &schema).await;
            leftovers.push(Leftover { schema, dropped });
        }
    }
    Ok(leftovers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_run_named_and_was_not_to_keep_is_dropped() {
        assert!(is_to_be_dropped(&name(1_753_000_000_000, 4711, false)));
        for other in [
            &*name(1_753_000_000_000, 4711, true),
            "awa",
            "awa_demo",
            "awa_demo_",
            "awa_demo_1",
            "awa_demo_1_",
            "awa_demo__1",
            "awa_demo_1_2_3",
            "awa_demo_1_x",
            "awa_demo_1_٣",
            "my_awa_demo_1_2",
        ] {
            assert!(!is_to_be_dropped(other), "{other}");
        }
    }

    /// A run that lives holds its schema and keeps it; one that is gone has lost it, and its schema goes.
    /// One that was to be kept, and what others named alike, stays.
    #[tokio::test]
    async fn what_a_dead_run_left_is_dropped_and_what_a_living_one_has_is_not() {
        let url = awa_devpg::Server::shared().unwrap().url();
        let living = Run::begin(url, false).await.unwrap();
        let dead = SchemaName::new(&name(1, 1, false)).unwrap();
        let kept = SchemaName::new(&name(1, 1, true)).unwrap();
        let foreign = SchemaName::new(&format!("{PREFIX}of_mine")).unwrap();
        for schema in [&living.schema, &dead, &kept, &foreign] {
            awa::migrate(url, schema.as_str()).await.unwrap();
        }
        let mut dropped = Vec::new();
        for leftover in drop_leftovers(url).await.unwrap() {
            leftover.dropped.unwrap();
            dropped.push(leftover.schema);
        }
        assert!(dropped.contains(&dead), "{dropped:?}");
        let left = awa::installations(url, PREFIX).await.unwrap();
        for schema in [&living.schema, &kept, &foreign] {
            assert!(left.contains(schema) && !dropped.contains(schema), "{schema}: {left:?}");
        }
        assert!(!left.contains(&dead), "{left:?}");

        let was_living = living.schema.clone();
        drop(living);
        // The server learns of it when it gets round to it.
        while !drop_leftovers(url).await.unwrap().iter().any(|l| l.schema == was_living) {
            tokio::task::yield_now().await;
        }
        for schema in [&kept, &foreign] {
            awa::drop_installation(url, schema).await.unwrap();
        }
    }
}
