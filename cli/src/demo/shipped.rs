//! What the demo ships with: jobs, and what must come of them.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The demo's jobs as NDJSON.
pub(crate) const JOBS: &str = include_str!("../../demo/jobs.ndjson");

const EXPECTED: &str = include_str!("../../demo/EXPECTED.json");

/// What must come of [`JOBS`]. `demo/generate.py` states it together with the jobs; nothing here is
/// found out by running a handler, so that a demo which agrees with it has shown something.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Expected {
    /// All jobs.
    pub(crate) jobs: u64,
    /// Those that fail for good, by their data.
    pub(crate) fail: u64,
    /// The same by kind.
    pub(crate) kinds: BTreeMap<String, Share>,
    /// By queue.
    pub(crate) queues: BTreeMap<String, Share>,
    /// By priority, 1 to 4.
    pub(crate) priorities: BTreeMap<String, Share>,
    /// The lines of the jobs that fail, from 1, by the first words of their error.
    pub(crate) failing_lines: BTreeMap<String, Vec<usize>>,
}

/// A part of the jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Share {
    /// How many there are.
    pub(crate) jobs: u64,
    /// How many of them fail for good.
    pub(crate) fail: u64,
}

impl Expected {
    /// What the project ships.
    ///
    /// # Errors
    /// `demo/EXPECTED.json` was edited by hand and is no longer what this type reads.
    pub(crate) fn shipped() -> Result<Self, serde_json::Error> {
        serde_json::from_str(EXPECTED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::handlers;
    use crate::ndjson::{JobLine, read_jobs};

    fn outcome(job: &JobLine) -> Result<(), String> {
        match job.kind.as_str() {
            "digest" => handlers::digest(&serde_json::from_str(&job.args).unwrap()),
            "parse" => handlers::parse(&serde_json::from_str(&job.args).unwrap()),
            "render" => handlers::render(&serde_json::from_str(&job.args).unwrap()),
            other => panic!("line {}: no handler for {other}", job.line),
        }
    }

    #[test]
    fn exactly_the_jobs_that_must_fail_do_and_for_the_stated_reason() {
        let mut failing_lines: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for job in read_jobs(JOBS.as_bytes()).unwrap() {
            if let Err(error) = outcome(&job) {
                let (first_words, _) = error.split_once(':').unwrap();
                failing_lines.entry(first_words.to_owned()).or_default().push(job.line);
            }
        }
        assert_eq!(failing_lines, Expected::shipped().unwrap().failing_lines);
    }

    #[test]
    fn the_file_holds_what_is_stated() {
        let expected = Expected::shipped().unwrap();
        let fails = |line: usize| expected.failing_lines.values().any(|all| all.contains(&line));
        let (mut kinds, mut queues, mut priorities) = <(Shares, Shares, Shares)>::default();
        let mut all = Share::default();
        for job in read_jobs(JOBS.as_bytes()).unwrap() {
            let queue = job.queue.unwrap().as_str().to_owned();
            for share in [
                &mut all,
                kinds.entry(job.kind.as_str().to_owned()).or_default(),
                queues.entry(queue).or_default(),
                priorities.entry(job.priority.0.to_string()).or_default(),
            ] {
                share.jobs += 1;
                share.fail += u64::from(fails(job.line));
            }
        }
        assert_eq!(all, Share { jobs: expected.jobs, fail: expected.fail });
        assert_eq!(kinds, expected.kinds);
        assert_eq!(queues, expected.queues);
        assert_eq!(priorities, expected.priorities);
    }

    type Shares = BTreeMap<String, Share>;

    #[test]
    fn the_demo_is_of_a_size_to_show_something() {
        let expected = Expected::shipped().unwrap();
        assert_eq!(expected.jobs, 3_000);
        assert!((100..=150).contains(&expected.fail), "{}", expected.fail);
        assert!(expected.queues.values().all(|queue| queue.fail > 0), "{:?}", expected.queues);
        assert!(JOBS.len() < 600_000, "{} bytes", JOBS.len());
    }
}
