//! Scenario files: a history and what must be said, on every storage.
//!
//! ```text
//! # H05 R026-09: the sentence that this shows.
//! enqueue 2 a/2
//! crash after 4: claim a/2 10
//! claim a/2 10
//! ----
//! jobs 1 2
//! crashed
//! jobs 1 2
//! ```
//!
//! Lines that begin with `#` are remarks; those at the top cite what the scenario is for, and
//! `# only: World` keeps one off storages whose clock goes by itself. Below `----` stands one line
//! for each operation. After each, counts and jobs are held against the Ledger (H36).
//!
//! With `AWA_REWRITE_SCENARIOS` set, [`check_all`] writes what was said into the files: look at the
//! difference before you believe it.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Op, Player, Rings, Storage, Wrong};

const LINE: &str = "----";
const REWRITE: &str = "AWA_REWRITE_SCENARIOS";

/// One file.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its path.
    pub path: PathBuf,
    /// Whether only the World, whose clock stands, can play it.
    pub only_world: bool,
    /// Everything above the line, as it stands there.
    above: String,
    ops: Vec<Op>,
    expected: Vec<String>,
}

/// All scenarios, by name.
///
/// # Errors
/// A file that can't be read.
pub fn all() -> Result<Vec<Scenario>, Wrong> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let wrong = |e: std::io::Error| Wrong(format!("{}: {e}", dir.display()));
    let mut paths = Vec::new();
    for entry in fs::read_dir(&dir).map_err(wrong)? {
        let path = entry.map_err(wrong)?.path();
        if path.extension().is_some_and(|extension| extension == "txt") {
            paths.push(path);
        }
    }
    paths.sort();
    paths.into_iter().map(Scenario::read).collect()
}

/// Plays scenarios on storages that `fresh` makes and gives back, and says in what they differ from
/// their files; with `AWA_REWRITE_SCENARIOS` set, rewrites those instead.
///
/// # Errors
/// All that is wrong.
pub fn check_all<S: Storage>(
    scenarios: &[Scenario],
    storage: S,
    mut fresh: impl FnMut(S, Rings) -> S,
) -> Result<(), Wrong> {
    let mut storage = storage;
    let mut wrongs = String::new();
    for scenario in scenarios {
        storage = fresh(storage, Rings::SMALL);
        let (used, said) = scenario.play(storage);
        storage = used;
        if let Err(wrong) = said.and_then(|said| scenario.judge(&said)) {
            wrongs += &format!("{}:\n{wrong}\n", scenario.path.display());
        }
    }
    if wrongs.is_empty() { Ok(()) } else { Err(Wrong(wrongs)) }
}

impl Scenario {
    fn read(path: PathBuf) -> Result<Self, Wrong> {
        let wrong = |what: String| Wrong(format!("{}: {what}", path.display()));
        let text = fs::read_to_string(&path).map_err(|e| wrong(e.to_string()))?;
        let (above, below) = match text.split_once(&format!("\n{LINE}\n")) {
            Some((above, below)) => (format!("{above}\n"), below),
            None => (text.clone(), ""),
        };
        let lines = above.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
        let ops = lines.map(str::parse).collect::<Result<Vec<Op>, String>>().map_err(wrong)?;
        let only_world = above.lines().any(|line| line == "# only: World");
        let expected = below.lines().map(str::to_owned).collect();
        Ok(Self { path, only_world, above, ops, expected })
    }

    /// Plays it to its end, and gives the storage back with what was said.
    fn play<S: Storage>(&self, storage: S) -> (S, Result<Vec<String>, Wrong>) {
        let mut player = match Player::new(storage) {
            Ok(player) => player,
            Err((storage, wrong)) => return (storage, Err(wrong)),
        };
        let mut said = Vec::new();
        for (n, op) in self.ops.iter().enumerate() {
            let played = player.play(op).and_then(|line| {
                player.check_counts()?;
                player.check_jobs()?;
                Ok(line)
            });
            match played {
                Ok(line) => said.push(line),
                Err(wrong) => {
                    let wrong = Wrong(format!("operation {}, {op}: {wrong}", n + 1));
                    return (player.storage, Err(wrong));
                }
            }
        }
        let quiet = player.quiesce();
        (player.storage, quiet.map(|()| said))
    }

    fn judge(&self, said: &[String]) -> Result<(), Wrong> {
        if std::env::var_os(REWRITE).is_some() {
            let text = format!("{}{LINE}\n{}\n", self.above, said.join("\n"));
            return fs::write(&self.path, text).map_err(|e| Wrong(e.to_string()));
        }
        let mut wrongs = String::new();
        let none = || "(nothing)".to_owned();
        for (n, op) in self.ops.iter().enumerate() {
            let due = self.expected.get(n).cloned().unwrap_or_else(none);
            if due != said[n] {
                wrongs += &format!("{op}\n  expected: {due}\n  said:     {}\n", said[n]);
            }
        }
        if self.expected.len() > self.ops.len() {
            wrongs += "more is expected than operations are there\n";
        }
        if wrongs.is_empty() { Ok(()) } else { Err(Wrong(wrongs)) }
    }
}
