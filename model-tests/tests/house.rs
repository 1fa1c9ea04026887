//! The house keeps its own rules: who may use what, one name in five homes, every requirement with
//! a test, files that can be read in one sitting.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

/// What each crate may use beside itself (ARCHITECTURE.md, "Who may use what").
const MAY_USE: &[(&str, &[&str])] = &[
    ("awa-core", &["serde"]),
    ("awa-sqlgen", &["awa-core", "postgres-types", "bytes"]),
    (
        "awa-driver",
        &[
            "awa-core",
            "awa-sqlgen",
            "awa-migrations",
            "tokio-postgres",
            "bytes",
            "futures-util",
            "tokio",
            "tracing",
        ],
    ),
    ("awa-migrations", &["sha2"]),
    ("awa-model-tests", &["awa-core", "proptest", "insta"]),
    ("awa", &["awa-driver", "serde", "serde_json", "tokio", "tracing"]),
    (
        "awa-cli",
        &[
            "awa",
            "awa-devpg",
            "clap",
            "indicatif",
            "rustix",
            "serde",
            "serde_json",
            "sha2",
            "tokio",
            "tracing-subscriber",
        ],
    ),
    (
        "awa-bench",
        &[
            "anyhow",
            "awa",
            "awa-devpg",
            "clap",
            "comfy-table",
            "futures-util",
            "hdrhistogram",
            "indicatif",
            "plotters",
            "serde",
            "serde_json",
            "tokio",
        ],
    ),
];

fn metadata() -> serde_json::Value {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let out = Command::new(cargo)
        .args(["metadata", "--format-version=1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).unwrap()
}

#[test]
fn crates_use_only_what_their_room_allows() {
    let metadata = metadata();
    let packages = metadata["packages"].as_array().unwrap();
    for (name, allowed) in MAY_USE {
        let package = packages.iter().find(|p| p["name"] == *name).unwrap();
        for dependency in package["dependencies"].as_array().unwrap() {
            let shipped = dependency["kind"].is_null();
            let used = dependency["name"].as_str().unwrap();
            assert!(!shipped || allowed.contains(&used), "{name} must not use {used}");
        }
    }
}

#[test]
fn an_oracle_never_sees_sql() {
    let metadata = metadata();
    let packages = metadata["packages"].as_array().unwrap();
    let oracle = packages.iter().find(|p| p["name"] == "awa-model-tests").unwrap();
    let uses: Vec<_> = oracle["dependencies"].as_array().unwrap().iter().collect();
    for dependency in uses {
        let used = dependency["name"].as_str().unwrap();
        assert!(!["awa-sqlgen", "awa-driver", "awa"].contains(&used), "an oracle peeks at {used}");
    }
}

#[test]
fn core_knows_no_clock_no_chance_no_sql() {
    let banned = [
        "std::",
        "HashMap",
        "HashSet",
        "SystemTime",
        "rand::",
        "async fn",
        "ready_entries",
        "done_entries",
        "select ",
        "insert into",
        "queue_ring_state",
    ];
    for file in sources(&root().join("core/src"), "rs") {
        let text = fs::read_to_string(&file).unwrap();
        let shipped = text.split("#[cfg(test)]").next().unwrap();
        for line in shipped.lines().filter(|l| !l.trim_start().starts_with("//")) {
            for word in banned {
                assert!(!line.contains(word), "{}: {line}", file.display());
            }
        }
    }
}

#[test]
fn sql_stands_only_in_sql_files() {
    for room in ["driver/src", "awa/src", "cli/src", "sqlgen/src"] {
        for file in sources(&root().join(room), "rs") {
            let text = fs::read_to_string(&file).unwrap();
            let shipped = text.split("#[cfg(test)]").next().unwrap();
            for line in shipped.lines().filter(|l| !l.trim_start().starts_with("//")) {
                let lower = line.to_lowercase();
                for word in [
                    "\"select ",
                    "\"insert ",
                    "\"delete from",
                    "\"update ",
                    "\"with ",
                    "\"lock table",
                ] {
                    assert!(!lower.contains(word), "{}: {line}", file.display());
                }
            }
        }
    }
}

/// The names that `Step::name` can give.
fn step_names() -> BTreeSet<String> {
    let text = fs::read_to_string(root().join("core/src/step.rs")).unwrap();
    let arms = text.lines().filter(|l| l.trim_start().starts_with("Self::") && l.contains("=> \""));
    let names = arms.filter_map(|l| l.split('"').nth(1));
    names.filter(|n| n.chars().all(char::is_alphanumeric)).map(str::to_owned).collect()
}

#[test]
fn a_step_has_one_name_in_all_its_homes() {
    let steps = step_names();
    assert!(steps.len() > 40, "{steps:?}");
    let files: BTreeSet<_> = sources(&root().join("sqlgen/sql"), "sql")
        .iter()
        .filter(|p| p.parent().is_some_and(|dir| dir.ends_with("sql")))
        .map(|p| p.file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    for step in &steps {
        assert!(files.contains(step), "no sqlgen/sql/{step}.sql");
    }
    for file in &files {
        // A step may have a second spelling: for one row, or for rings that carry nothing.
        let spellings = ["", "One", "Transient"];
        let known = steps
            .iter()
            .any(|s| file.strip_prefix(s.as_str()).is_some_and(|rest| spellings.contains(&rest)));
        assert!(known, "sqlgen/sql/{file}.sql belongs to no step");
    }
    let world: String = sources(&root().join("model-tests/src/world"), "rs")
        .iter()
        .chain([&root().join("model-tests/src/world.rs")])
        .map(|p| fs::read_to_string(p).unwrap())
        .collect();
    for step in steps.iter().filter(|s| !s.starts_with("Probe")) {
        assert!(world.contains(&format!("Step::{step}")), "World does not apply {step}");
    }
    let mapping = fs::read_to_string(root().join("correctness/storage/MAPPING.md")).unwrap();
    for step in ["Rotate", "CarryForward", "FoldRollup", "Truncate", "FoldDeltas", "RetryTerminal"]
    {
        assert!(mapping.contains(step), "MAPPING.md does not say what {step} is in the model");
    }
}

const REQUIREMENTS: &[(&str, &[u32])] = &[
    ("R026", &[1, 2, 3, 4, 5, 9, 11, 12, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 31]),
    ("R032", &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17]),
];

const HAZARDS: &[u32] = &[
    1, 2, 3, 4, 5, 6, 7, 11, 12, 13, 14, 15, 18, 19, 20, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31,
    33, 35, 36, 37, 38, 39, 43, 44, 45, 46, 47, 53, 54, 55, 57, 58, 59, 60, 61, 62,
];

/// What the doc comments of tests cite, and the headers of scenario files, with where.
fn citations() -> BTreeMap<String, Vec<String>> {
    let mut cited: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut note = |text: &str, place: &str| {
        for word in text.split(|c: char| !(c.is_alphanumeric() || c == '-')) {
            if is_citation(word) {
                cited.entry(word.to_owned()).or_default().push(place.to_owned());
            }
        }
    };
    for file in sources(&root(), "rs") {
        let text = fs::read_to_string(&file).unwrap();
        let mut comment = String::new();
        let mut is_test = false;
        for line in text.lines().map(str::trim_start) {
            if line.starts_with("///") || line.starts_with("//") {
                comment.push_str(line);
            } else if line.starts_with("#[") {
                is_test |= line.contains("test]") || line.contains("::test(");
            } else {
                if is_test && line.contains("fn ") {
                    note(&comment, &format!("{}: {line}", file.display()));
                }
                comment.clear();
                is_test = false;
            }
        }
    }
    for file in sources(&root().join("model-tests/scenarios"), "txt") {
        let text = fs::read_to_string(&file).unwrap();
        for line in text.lines().take_while(|l| l.starts_with('#')) {
            note(line, &file.display().to_string());
        }
    }
    cited
}

fn is_citation(word: &str) -> bool {
    let requirement = word.len() == 7 && (word.starts_with("R026-") || word.starts_with("R032-"));
    let hazard =
        word.len() == 3 && word.starts_with('H') && word[1..].chars().all(|c| c.is_ascii_digit());
    requirement || hazard
}

#[test]
fn every_requirement_and_hazard_has_a_test_that_cites_it() {
    let cited = citations();
    let requirements = REQUIREMENTS
        .iter()
        .flat_map(|(record, numbers)| numbers.iter().map(move |n| format!("{record}-{n:02}")));
    let hazards = HAZARDS.iter().map(|n| format!("H{n:02}"));
    let missing: Vec<_> =
        requirements.chain(hazards).filter(|id| !cited.contains_key(id)).collect();
    assert!(missing.is_empty(), "no test cites {missing:?}");
}

#[test]
fn a_file_can_be_read_in_one_sitting() {
    for file in sources(&root(), "rs") {
        let lines = fs::read_to_string(&file).unwrap().lines().count();
        assert!(lines <= 500, "{} has {lines} lines", file.display());
    }
}

#[test]
fn the_book_of_limits_is_the_schema_too() {
    let schema = fs::read_to_string(root().join("migrations/sql/v026.sql")).unwrap();
    let args_max = awa_core::limits::ARGS_BYTES_MAX.to_string();
    assert!(schema.contains(&args_max), "enqueue() in v026.sql bounds args otherwise than core");
    for ring in [("queue", awa_core::limits::QUEUE_SLOTS), ("claim", awa_core::limits::CLAIM_SLOTS)]
    {
        assert!(schema.contains(&format!("('{}', {}, ", ring.0, ring.1)), "{ring:?}");
    }
}

fn sources(dir: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let Ok(entries) = fs::read_dir(dir) else { return found };
    for entry in entries.map(Result::unwrap) {
        let path = entry.path();
        let name = entry.file_name();
        if path.is_dir() {
            if name != "target" && name != ".git" && name != ".cache" {
                found.extend(sources(&path, extension));
            }
        } else if path.extension().is_some_and(|e| e == extension) {
            found.push(path);
        }
    }
    found.sort();
    found
}
