//! `awa work`: what becomes of jobs by how their command ends, and how a worker is stopped.
#![allow(clippy::unwrap_used)]

mod common;

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use common::{Bench, Ended};
use serde_json::Value;

/// Far longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

fn work(bench: &Bench, exec: &str) -> Value {
    bench.run(&["work", "q", "--drain", "--json", "--exec", exec]).done().json()
}

/// Looks until `is_so`.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "in vain: {what}");
        std::thread::yield_now();
    }
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status();
    assert!(sent.unwrap().success());
}

/// Waits until the worker says that it has heard the first signal.
fn hears(worker: &mut Child) {
    let mut heard = String::new();
    BufReader::new(worker.stderr.as_mut().unwrap()).read_line(&mut heard).unwrap();
    assert!(heard.starts_with("awa: stopping: commands that run have 30 s"), "{heard}");
}

fn ended(child: Child) -> Ended {
    child.wait_with_output().unwrap().into()
}

/// Each way in which an attempt can end is told apart, to a program and to a person.
#[test]
fn ends_are_told_apart() {
    let bench = Bench::new();
    let args = ["0", "0", "75", "1", "126", "127"];
    let lines: String = args.map(|n| format!("{{\"kind\":\"k\",\"args\":{n}}}\n")).concat();
    // Its last attempt: there is nothing to be retried.
    bench.enqueue(&format!("{lines}{{\"kind\":\"k\",\"args\":75,\"max_attempts\":1}}"));
    let done = work(&bench, "exit $(cat)");
    let number = |key: &str| done[key].as_i64().unwrap();
    // On a slow machine one that is retried may be due again before the worker has ended.
    assert!(number("retried") >= 3 && number("not_run") >= 2, "{done}");
    assert_eq!(number("claimed"), 4 + number("retried"), "{done}");
    let ends = ["completed", "failed", "handed_back", "stale", "rejected"].map(number);
    assert_eq!(ends, [2, 2, 0, 0, 0], "{done}");
    let counts = ["completed", "failed", "cancelled", "total"].map(|state| bench.count(state));
    assert_eq!(counts, [2, 2, 0, 7]);

    let bench = Bench::new();
    bench.enqueue("{\"kind\":\"k\"}");
    let said = bench.run(&["work", "q", "--drain", "--exec", "true"]).done();
    assert_eq!(
        (said.out.as_str(), said.err.as_str()),
        ("Claimed 1 job: 1 completed, 0 failed for good, 0 will be retried, 0 handed back.\n", "")
    );
}

/// A command that can't be run fails no job for good: they are tried again, and it is said, once.
#[test]
fn a_command_that_cannot_be_run_is_said_and_fails_no_job() {
    let bench = Bench::new();
    let ids = bench.enqueue(&"{\"kind\":\"k\"}\n".repeat(3));
    let ran = bench.run(&["work", "q", "--drain", "--exec", "/no/such/handler"]).done();
    assert_eq!(ran.err.matches("could not be run (exit status: 127)").count(), 1, "{ran:?}");
    assert!(ran.err.contains("/no/such/handler"), "{ran:?}");
    assert!(ran.out.contains("0 completed, 0 failed for good, "), "{ran:?}");
    assert!(ran.out.contains("The command could not be run in "), "{ran:?}");
    assert_eq!((bench.count("failed"), bench.count("completed"), bench.count("total")), (0, 0, 3));
    let shown = bench.run(&["show", &ids[0].to_string(), "--json"]).done().json();
    assert!(shown["payload"].to_string().contains("could not be run"), "{shown}");
}

/// What the worker's host is short of says nothing of the jobs: they wait, and none is the poorer by an attempt.
#[test]
fn a_host_that_can_start_no_more_commands_costs_no_attempt() {
    let bench = Bench::new();
    bench.enqueue(&"{\"kind\":\"k\",\"max_attempts\":1}\n".repeat(40));
    let args = ["work", "q", "--drain", "--json", "--concurrency", "40", "--exec", "sleep 0.3"];
    let whole = bench.command(&args);
    // Its connections to the server, and half a dozen commands.
    let limited = Command::new("sh")
        .args(["-c", "ulimit -n 48; exec \"$@\"", "sh"])
        .arg(whole.get_program())
        .args(whole.get_args())
        .envs(whole.get_envs().filter_map(|(name, value)| Some((name, value?))))
        .output();
    let done = Ended::from(limited.unwrap()).done();
    assert_eq!(done.err.matches("this host can't start it").count(), 1, "{done:?}");
    let json = done.json();
    let ends =
        ["claimed", "completed", "retried", "failed", "not_run"].map(|key| json[key].as_i64());
    assert_eq!(ends, [40, 40, 0, 0, 0].map(Some), "{json}");
}

/// What a command leaves running neither keeps its attempt open nor outlives it.
#[test]
fn what_a_command_leaves_behind_ends_with_it() {
    let bench = Bench::new();
    bench.enqueue("{\"kind\":\"k\"}");
    let begun = Instant::now();
    let done = work(&bench, "sleep 600 & echo $! >&2; exit 1");
    assert_eq!(done["failed"], 1);
    assert!(begun.elapsed() < PATIENCE);
    let list = bench.run(&["list", "--state", "failed", "--json"]).done().json();
    let shown = bench.run(&["show", &list[0]["job"].to_string(), "--json"]).done().json();
    let error = shown["payload"]["errors"][0]["error"].as_str().unwrap().to_owned();
    let pid = error.rsplit(' ').next().unwrap().to_owned();
    let lives = || Command::new("kill").args(["-0", &pid]).output().unwrap().status.success();
    until("the end of what was left behind", || !lives());
}

/// A file that commands write a line to when they begin.
fn marks(bench: &Bench) -> (std::path::PathBuf, String) {
    let file = std::env::temp_dir().join(format!("awa-test-{}", bench.schema));
    let exec = format!("echo $$ >> {}; exec sleep 600", file.display());
    (file, exec)
}

fn lines(file: &std::path::Path) -> Vec<String> {
    std::fs::read_to_string(file).unwrap_or_default().lines().map(str::to_owned).collect()
}

/// A second signal kills the commands and hands their jobs back: they are in their lane at once, no
/// attempt the poorer, the last attempt too, and the worker ends well.
#[test]
fn a_second_signal_hands_jobs_back_at_once() {
    let bench = Bench::new();
    bench.enqueue(&"{\"kind\":\"k\",\"max_attempts\":1}\n".repeat(2));
    let (file, exec) = marks(&bench);
    let begun = Instant::now();
    let mut worker = bench.start(&["work", "q", "--concurrency", "2", "--exec", &exec]);
    until("two commands at work", || lines(&file).len() == 2);
    signal(&worker, "INT");
    // Two signals that come together are one.
    hears(&mut worker);
    signal(&worker, "INT");
    let done = ended(worker).done();
    assert!(begun.elapsed() < Duration::from_secs(25), "it did not wait for its patience");
    assert_eq!(
        done.out,
        "Claimed 2 jobs: 0 completed, 0 failed for good, 0 will be retried, 2 handed back.\n"
    );
    assert_eq!((bench.count("available"), bench.count("total")), (2, 2));
    for pid in lines(&file) {
        let lives = Command::new("kill").args(["-0", &pid]).output().unwrap();
        assert!(!lives.status.success(), "{pid} still runs");
    }
    std::fs::remove_file(&file).unwrap();
}

/// One signal lets commands that run finish, and claims nothing more.
#[test]
fn one_signal_lets_commands_finish() {
    let bench = Bench::new();
    bench.enqueue(&"{\"kind\":\"k\"}\n".repeat(3));
    let (file, _) = marks(&bench);
    let path = file.display();
    let exec = format!("echo $$ >> {path}; while test -e {path}; do sleep 0.05; done");
    let mut worker = bench.start(&["work", "q", "--concurrency", "1", "--exec", &exec]);
    until("a command at work", || lines(&file).len() == 1);
    signal(&worker, "TERM");
    hears(&mut worker);
    std::fs::remove_file(&file).unwrap();
    let done = ended(worker).done();
    assert_eq!(
        done.out,
        "Claimed 1 job: 1 completed, 0 failed for good, 0 will be retried, 0 handed back.\n"
    );
    assert_eq!((bench.count("completed"), bench.count("available")), (1, 2));
}
