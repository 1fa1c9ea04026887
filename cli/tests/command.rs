//! What a user of `awa` types, and what comes of it: output, errors and exit codes.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Bench, run};
use serde_json::json;

/// A number that no float can hold comes out as it went in, in args and in metadata, for a person and
/// for a program.
#[test]
fn numbers_are_not_rounded() {
    let bench = Bench::new();
    let large = "123456789012345678901234567890";
    let small = "0.10000000000000000000000000000000000001";
    let line = format!(
        r#"{{"kind":"k","args":{{"n":{large}}},"metadata":{{"n":{small},"m":[{large}]}}}}"#
    );
    let id = bench.enqueue(&line)[0].to_string();
    for flags in [&["show", &id, "--json"][..], &["show", &id]] {
        let shown = bench.run(flags).done();
        assert!(shown.out.contains(&format!(r#"{{"n": {large}}}"#)), "{shown:?}");
        assert!(shown.out.contains(small), "{shown:?}");
        assert!(shown.out.contains(&format!("[{large}]")), "{shown:?}");
    }
}

/// Args are `jsonb`: of a key that stands twice in one object the last value is kept. That goes for the
/// job's own keys no more than for any typo: there the line is refused.
#[test]
fn of_a_key_given_twice_in_args_the_last_value_is_kept() {
    let bench = Bench::new();
    let line = r#"{"kind":"k","args":{"a":1,"b":{"c":1,"c":2},"a":3},"metadata":{"m":1,"m":2}}"#;
    let id = bench.enqueue(line)[0].to_string();
    let shown = bench.run(&["show", &id, "--json"]).done().json();
    assert_eq!(shown["args"], json!({"a": 3, "b": {"c": 2}}));
    assert_eq!(shown["payload"], json!({"metadata": {"m": 2}}));
    let twice = bench.feed(&["enqueue", "--queue", "q"], r#"{"kind":"k","args":1,"args":2}"#);
    twice.fails(65, &["standard input: line 1, column 22", "\"args\" is given twice"]);
}

/// A list says nothing of what it does not load; `show` says that a job has no payload.
#[test]
fn a_list_leaves_out_what_it_does_not_load() {
    let bench = Bench::new();
    let id = bench.enqueue(r#"{"kind":"k","args":[1]}"#)[0];
    let list = bench.run(&["list", "--state", "available", "--queue", "q", "--json"]).done().json();
    let row = list[0].as_object().unwrap();
    assert_eq!((row["job"].as_i64(), row["kind"].as_str()), (Some(id), Some("k")));
    assert!(!row.contains_key("args") && !row.contains_key("payload"), "{row:?}");
    let shown = bench.run(&["show", &id.to_string(), "--json"]).done().json();
    assert_eq!((&shown["args"], &shown["payload"]), (&json!([1]), &json!(null)));
    assert!(shown.as_object().unwrap().contains_key("payload"));
    let none = bench.run(&["list", "--state", "failed"]).done();
    assert_eq!(none.out, "No failed job matches.\n");
}

/// Every command refuses a queue that is not declared alike.
#[test]
fn an_unknown_queue_is_refused() {
    let bench = Bench::new();
    for args in [
        &["list", "--state", "failed", "--queue", "nope"][..],
        &["counts", "nope"],
        &["retry-failed", "--queue", "nope"],
        &["discard-failed", "--queue", "nope"],
        &["work", "nope", "--exec", "true"],
    ] {
        bench.run(args).fails(65, &["queue \"nope\" is not declared"]);
    }
}

/// The error for a job that can't be placed says where it stands and what to do; nothing is enqueued.
#[test]
fn a_job_that_cannot_be_placed_has_its_line() {
    let bench = Bench::new();
    let good = "{\"kind\":\"k\"}\n";
    let feed = |text: &str| bench.feed(&["enqueue", "--queue", "q"], text);
    feed(&format!("{good}\n{good}{{\"kind\":\"k\",\"queue\":\"a b\"}}\n{good}")).fails(
        65,
        &["standard input: line 4: queue \"a b\" is not declared in this schema; \
             `awa declare-queue 'a b'` declares it; nothing was enqueued"],
    );
    feed(&format!("{good}{{\"kind\":\"k\",\"shard\":3}}\n")).fails(
        65,
        &["line 2: ", "shard 3 of queue \"q\"", "`awa declare-queue q --shards 4` adds it"],
    );
    let elsewhere = bench.feed(&["enqueue", "--queue", "nope"], &format!("\n{good}"));
    elsewhere
        .fails(65, &["line 2: no \"queue\" is given, and queue \"nope\"", "declare-queue nope"]);
    // In the second statement of a transaction: the first one's jobs are gone with it.
    let many = good.repeat(5_001);
    feed(&format!("{many}{{\"kind\":\"k\",\"queue\":\"nope\"}}\n"))
        .fails(65, &["line 5002: queue"]);
    let deep = format!("{}{}", "[".repeat(255), "]".repeat(255));
    let deep = feed(&format!("{good}{{\"kind\":\"k\",\"metadata\":{{\"a\":{deep}}}}}\n"));
    deep.fails(65, &["line 2: metadata at $.a[0]", "is nested too deep"]);
    assert_eq!(bench.count("total"), 0);
    // A source that can't be read is not malformed.
    bench.run(&["enqueue", "/"]).fails(1, &["/: line 1, column 1: could not be read"]);
    bench.run(&["enqueue", "/no/such"]).fails(1, &["/no/such: No such file"]);
}

/// More jobs than one statement takes are one transaction all the same, and their ids keep the order of
/// the file. Nobody watches a pipe: no progress is written to it.
#[test]
fn a_large_file_is_enqueued_whole_and_in_order() {
    let bench = Bench::new();
    let lines: String = (0..12_001).map(|n| format!("{{\"kind\":\"k\",\"args\":{n}}}\n")).collect();
    let done = bench.feed(&["enqueue", "--queue", "q", "--json"], &lines).done();
    assert_eq!(done.err, "");
    let ids: Vec<_> = done.json()["jobs"].as_array().unwrap().clone();
    assert_eq!(ids.len(), 12_001);
    assert_eq!(bench.count("available"), 12_001);
    for place in [0, 4_999, 5_000, 12_000] {
        let shown = bench.run(&["show", &ids[place].to_string(), "--json"]).done().json();
        assert_eq!(shown["args"], json!(place));
    }
    let said = bench.feed(&["enqueue", "--queue", "q"], "{\"kind\":\"k\"}").done();
    assert_eq!((said.out.as_str(), said.err.as_str()), ("Enqueued 1 job.\n", ""));
}

/// `enqueue --help` describes what a line may hold; see also the test beside the reader.
#[test]
fn the_help_of_enqueue_describes_the_keys() {
    let help = run(&["enqueue", "--help"]).done().out;
    for part in ["max_attempts  whole number, 1 to 32767; default 25", "17825792 bytes"] {
        assert!(help.contains(part), "{help}");
    }
}

/// What lies out of an option's range is refused with the option and the range, before anything is
/// connected to.
#[test]
fn options_out_of_range_are_refused() {
    for (option, value, range) in [
        ("--concurrency", "0", "1..=10000"),
        ("--deadline-s", "0", "1..=31536000"),
        ("--exec", "", "say what to run"),
        ("--exec", " \n", "say what to run"),
    ] {
        let mut args = vec!["work", "q", option, value];
        if option != "--exec" {
            args.extend(["--exec", "true"]);
        }
        run(&args).fails(2, &[option, range]);
    }
    for (args, parts) in [
        (&["list", "--state", "failed", "--limit", "0"][..], ["--limit", "1..=10000"]),
        (&["declare-queue", "q", "--shards", "65"], ["--shards", "1..=64"]),
        (&["list", "--state", "broken"], ["--state", "available, scheduled"]),
        (&["retry-failed"], ["--queue", "--kind"]),
    ] {
        run(args).fails(2, &parts);
    }
}

/// An error of the connection names the server and not the password.
#[test]
fn a_server_that_is_not_there_is_named() {
    // Nobody is given this port by chance, as one could be that was free a moment ago.
    let port = 1;
    let url = format!("postgresql://ada:sesame@127.0.0.1:{port}/app");
    for args in [&["counts", "q"][..], &["migrate"], &["work", "q", "--exec", "true"]] {
        let args: Vec<_> = args.iter().copied().chain(["--database-url", &url]).collect();
        let ended = run(&args);
        ended.fails(1, &[&format!("awa: connect to 127.0.0.1:{port}: ")]);
        assert!(!ended.err.contains("sesame"), "{ended:?}");
    }
    let socket = run(&["counts", "q", "--database-url", "host=/nowhere port=5433 user=ada"]);
    socket.fails(1, &["awa: connect to /nowhere/.s.PGSQL.5433: "]);
    run(&["counts", "q", "--database-url", "host=a prot=1"]).fails(1, &["unknown option `prot`"]);
    run(&["counts", "q"]).fails(1, &["--database-url", "$DATABASE_URL"]);
    run(&["counts", "q", "--database-url", " "]).fails(1, &["--database-url", "$DATABASE_URL"]);
}

/// One thing is told in the singular.
#[test]
fn one_is_not_many() {
    let bench = Bench::new();
    let said = |args: &[&str]| bench.run(args).done().out;
    assert_eq!(said(&["declare-queue", "one"]), "Queue one is declared with 1 shard.\n");
    assert_eq!(
        said(&["declare-queue", "two", "--shards", "2"]),
        "Queue two is declared with 2 shards.\n"
    );
    // What it has, not what was asked for.
    assert_eq!(bench.run(&["declare-queue", "two", "--json"]).done().json()["shards"], 2);
    bench.enqueue("{\"kind\":\"k\"}");
    bench.run(&["work", "q", "--drain", "--exec", "exit 1"]).done();
    assert_eq!(said(&["rebuild-counts"]), "Counted 1 row of history anew.\n");
    assert_eq!(said(&["discard-failed", "--queue", "q"]), "Discarded 1 failed job.\n");
}

/// One job is retried, discarded and cancelled by its id; what it is not fit for is said with its state,
/// and the exit code tells a job that is left alone from one that is not there.
#[test]
fn one_job_is_operated_on_by_its_id() {
    let bench = Bench::new();
    let job = bench.enqueue("{\"kind\":\"k\"}")[0].to_string();
    let ends = |args: &[&str], code: i32, said: &str| {
        let ended = bench.run(args);
        assert_eq!((ended.code, ended.out.as_str()), (Some(code), said), "{args:?} {ended:?}");
    };
    let is = |state: &str, done: &str| {
        format!("job {job} is {state}: only failed and cancelled jobs are {done}.\n")
    };
    ends(&["retry", &job], 3, &is("available", "retried"));
    ends(&["discard-failed", "--job", &job], 3, &is("available", "discarded"));
    ends(&["cancel", &job], 0, &format!("Cancelled job {job}.\n"));
    ends(&["cancel", &job], 3, &format!("job {job} is cancelled already.\n"));
    ends(&["retry-failed", "--job", &job], 0, &format!("Retried job {job}.\n"));
    ends(&["cancel", &job], 0, &format!("Cancelled job {job}.\n"));
    ends(&["discard-failed", "--job", &job], 0, &format!("Discarded job {job}.\n"));
    for args in [&["retry", &job][..], &["discard-failed", "--job", &job], &["cancel", &job]] {
        ends(args, 4, &format!("No retained job {job}.\n"));
    }
    let nothing = "No failed job matched; nothing was discarded.\n";
    ends(&["discard-failed", "--queue", "q"], 0, nothing);
}

/// A log that goes to a file or a pipe is plain text, like all else there.
#[test]
fn a_log_has_colours_on_a_terminal_only() {
    let bench = Bench::new();
    let logged = bench.command(&["counts", "q"]).env("AWA_LOG", "trace").output().unwrap();
    let said = String::from_utf8(logged.stderr).unwrap();
    assert!(!said.is_empty() && !said.contains('\u{1b}'), "{said}");
}
