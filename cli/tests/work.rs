//! `awa work`: what becomes of jobs by how their command ends, and how a worker is stopped.
#![allow(clippy::unwrap_used)]

mod common;

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, Stdio};
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
/// The commands that run go on until the shortage was said.
#[test]
fn a_host_that_can_start_no_more_commands_costs_no_attempt() {
    let bench = Bench::new();
    bench.enqueue(&"{\"kind\":\"k\",\"max_attempts\":1}\n".repeat(40));
    let file = Marks::new(&bench);
    std::fs::write(&file.path, "").unwrap();
    let exec = format!("while test -e {}; do sleep 0.05; done", file.quoted());
    let args = ["work", "q", "--drain", "--json", "--concurrency", "40", "--exec", &exec];
    let whole = bench.command(&args);
    // Its connections to the server, and half a dozen commands.
    let mut limited = Command::new("sh")
        .args(["-c", "ulimit -n 48; exec \"$@\"", "sh"])
        .arg(whole.get_program())
        .args(whole.get_args())
        .envs(whole.get_envs().filter_map(|(name, value)| Some((name, value?))))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = BufReader::new(limited.stderr.take().unwrap());
    let mut said = String::new();
    stderr.read_line(&mut said).unwrap();
    assert!(said.contains("this host can't start it"), "{said}");
    drop(file);
    stderr.read_to_string(&mut said).unwrap();
    let done = Ended::from(limited.wait_with_output().unwrap()).done();
    assert_eq!(said.matches("this host can't start it").count(), 1, "{said}");
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
    until("the end of what was left behind", || !lives(&pid));
}

/// Whether a process is there and has not ended. One that has is there until its parent looks, who may take
/// his time where its own parent is gone.
fn lives(pid: &str) -> bool {
    let listed = Command::new("ps").args(["-o", "stat=", "-p", pid]).output().unwrap();
    let stat = String::from_utf8(listed.stdout).unwrap();
    !stat.trim().is_empty() && !stat.trim().starts_with('Z')
}

/// A file that commands write a line to when they begin; it goes with this value.
struct Marks {
    path: std::path::PathBuf,
}

impl Marks {
    /// There is no such file yet.
    fn new(bench: &Bench) -> Self {
        let path = std::env::temp_dir().join(format!("awa-test-{}", bench.schema));
        let marks = Self { path };
        marks.remove();
        marks
    }

    /// Its name, for a shell.
    fn quoted(&self) -> String {
        format!("'{}'", self.path.display().to_string().replace('\'', r"'\''"))
    }

    fn lines(&self) -> Vec<String> {
        let text = std::fs::read_to_string(&self.path).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    fn remove(&self) {
        match std::fs::remove_file(&self.path) {
            Ok(()) => {}
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{error}"),
        }
    }
}

impl Drop for Marks {
    fn drop(&mut self) {
        self.remove();
    }
}

/// A second signal kills the commands and hands their jobs back: they are in their lane at once, no
/// attempt the poorer, the last attempt too, and the worker ends well.
#[test]
fn a_second_signal_hands_jobs_back_at_once() {
    let bench = Bench::new();
    bench.enqueue(&"{\"kind\":\"k\",\"max_attempts\":1}\n".repeat(2));
    let marks = Marks::new(&bench);
    let exec = format!("echo $$ >> {}; exec sleep 600", marks.quoted());
    let mut worker = bench.start(&["work", "q", "--concurrency", "2", "--exec", &exec]);
    until("two commands at work", || marks.lines().len() == 2);
    let told = Instant::now();
    signal(&worker, "INT");
    // Two signals that come together are one.
    hears(&mut worker);
    signal(&worker, "INT");
    let done = ended(worker).done();
    // It says itself that it would wait 30 s, and did not begin to before it was told.
    assert!(told.elapsed() < Duration::from_secs(30), "it did not wait for its patience");
    assert_eq!(
        done.out,
        "Claimed 2 jobs: 0 completed, 0 failed for good, 0 will be retried, 2 handed back.\n"
    );
    assert_eq!((bench.count("available"), bench.count("total")), (2, 2));
    for pid in marks.lines() {
        until("the end of a command that was killed", || !lives(&pid));
    }
}

/// One signal lets commands that run finish, and claims nothing more.
#[test]
fn one_signal_lets_commands_finish() {
    let bench = Bench::new();
    bench.enqueue(&"{\"kind\":\"k\"}\n".repeat(3));
    let marks = Marks::new(&bench);
    let file = marks.quoted();
    let exec = format!("echo $$ >> {file}; while test -e {file}; do sleep 0.05; done");
    let mut worker = bench.start(&["work", "q", "--concurrency", "1", "--exec", &exec]);
    until("a command at work", || marks.lines().len() == 1);
    signal(&worker, "TERM");
    hears(&mut worker);
    drop(marks);
    let done = ended(worker).done();
    assert_eq!(
        done.out,
        "Claimed 1 job: 1 completed, 0 failed for good, 0 will be retried, 0 handed back.\n"
    );
    assert_eq!((bench.count("completed"), bench.count("available")), (1, 2));
}
