//! The built command against a private server, with an installation of its own for each test.

// Each test binary uses a part of it.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

use std::io::Write as _;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

/// One installation with the queue `q`, made by the command itself.
pub struct Bench {
    pub url: String,
    pub schema: String,
}

/// How a command ended.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Ended {
    /// The answer, which must be all of standard output.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    pub fn done(self) -> Self {
        assert_eq!(self.code, Some(0), "{self:?}");
        self
    }

    /// That it failed with this code, said nothing on standard output, and each of `parts` on standard
    /// error.
    pub fn fails(&self, code: i32, parts: &[&str]) {
        assert_eq!((self.code, self.out.as_str()), (Some(code), ""), "{self:?}");
        for part in parts {
            assert!(self.err.contains(part), "{part:?} is not in {self:?}");
        }
    }
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }
}

/// The command, with no server named.
pub fn awa(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_awa"));
    command.args(args).env_remove("DATABASE_URL").env_remove("AWA_LOG");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs the command without a server to its end.
pub fn run(args: &[&str]) -> Ended {
    awa(args).output().unwrap().into()
}

impl Bench {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let server = awa_devpg::Server::shared().unwrap_or_else(|e| panic!("{e}"));
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let schema = format!("c{}_{number}", std::process::id());
        let bench = Self { url: server.url().to_owned(), schema };
        bench.run(&["migrate"]).done();
        bench.run(&["declare-queue", "q"]).done();
        bench
    }

    /// The command on this installation.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = awa(args);
        command.args(["--schema", &self.schema]).env("DATABASE_URL", &self.url);
        command
    }

    /// Runs the command to its end.
    pub fn run(&self, args: &[&str]) -> Ended {
        self.command(args).output().unwrap().into()
    }

    /// Runs the command with this on its standard input.
    pub fn feed(&self, args: &[&str], text: &str) -> Ended {
        let mut command = self.command(args);
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        child.wait_with_output().unwrap().into()
    }

    /// Starts the command and leaves it running.
    pub fn start(&self, args: &[&str]) -> Child {
        self.command(args).spawn().unwrap()
    }

    /// Enqueues lines on `q` and gives their ids.
    pub fn enqueue(&self, lines: &str) -> Vec<i64> {
        let done = self.feed(&["enqueue", "--queue", "q", "--json"], lines).done().json();
        done["jobs"].as_array().unwrap().iter().map(|id| id.as_i64().unwrap()).collect()
    }

    /// One of the exact counts of `q`.
    pub fn count(&self, state: &str) -> i64 {
        self.run(&["counts", "q", "--json"]).done().json()["q"][state].as_i64().unwrap()
    }
}
