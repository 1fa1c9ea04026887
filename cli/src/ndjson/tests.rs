//! What NDJSON is taken and what is refused, with the place.

use std::io::{BufReader, Cursor, Read};

use super::*;

fn jobs(text: &str) -> Vec<JobLine> {
    read_jobs(text.as_bytes()).unwrap_or_else(|error| panic!("{text:?}: {error}"))
}

fn refused(input: impl AsRef<[u8]>) -> NdjsonError {
    let input = input.as_ref();
    match read_jobs(input) {
        Ok(jobs) => panic!("{:?} was taken as {jobs:?}", String::from_utf8_lossy(input)),
        Err(error) => error,
    }
}

/// That `input` is refused at `line` and `column` with this text after the place.
fn fails(input: impl AsRef<[u8]>, line: usize, column: usize, message: &str) {
    let error = refused(input);
    assert_eq!(error.to_string(), format!("line {line}, column {column}: {message}"));
}

#[test]
fn a_kind_is_enough() {
    let expected = JobLine {
        line: 1,
        kind: Kind::new("digest").unwrap(),
        args: "{}".to_owned(),
        queue: None,
        priority: Priority(2),
        shard: Shard(0),
        max_attempts: 25,
        due: Due::Now,
        tags: vec![],
        metadata: None,
    };
    assert_eq!(jobs(r#"{"kind":"digest"}"#), std::slice::from_ref(&expected));
    let nulls = r#"{"kind":"digest","queue":null,"priority":null,"shard":null,"max_attempts":null,
        "run_at":null,"in_s":null,"tags":null,"metadata":null}"#;
    assert_eq!(jobs(&nulls.replace('\n', " ")), [expected]);
}

#[test]
fn every_field_is_read() {
    let line = concat!(
        r#"{"metadata":{"trace":"a-1","n":1.10},"tags":["vip","Übung"],"in_s":90.5,"max_attempts":"#,
        r#"3,"shard":63,"priority":4,"queue":"mail","args":[1,null],"kind":"s\u0065nd"}"#
    );
    let expected = JobLine {
        line: 1,
        kind: Kind::new("send").unwrap(),
        args: "[1,null]".to_owned(),
        queue: Some(QueueName::new("mail").unwrap()),
        priority: Priority(4),
        shard: Shard(63),
        max_attempts: 3,
        due: Due::After(Span::from_ms(90_500)),
        tags: vec!["vip".to_owned(), "Übung".to_owned()],
        metadata: Some(r#"{"trace":"a-1","n":1.10}"#.to_owned()),
    };
    assert_eq!(jobs(line), [expected]);
    let at = jobs(r#"{"kind":"k","run_at":"1970-01-01T01:00:01+01:00"}"#);
    assert_eq!(at[0].due, Due::At(Instant::from_unix_us(1_000_000)));
    assert_eq!(jobs(r#"{"kind":"k","args":null}"#)[0].args, "null");
}

#[test]
fn args_are_kept_as_the_file_spells_them() {
    for args in [
        "12345678901234567890123456789.000100",
        "1E+2",
        "-0.0",
        r#"{ "b" : 1.10, "a": 9007199254740993 }"#,
        r#""\u00e9 \ud83d\ude00 / \/""#,
        r#"{"a":1,"a":2}"#,
    ] {
        let line = format!(r#"{{"kind":"k","args": {args} }}"#);
        assert_eq!(jobs(&line)[0].args, args);
    }
}

#[test]
fn blank_lines_line_ends_and_a_byte_order_mark_are_fine() {
    let read = jobs("\u{feff}{\"kind\":\"a\"}\r\n\r\n \t\n{\"kind\":\"b\"}\n\n{\"kind\":\"c\"}");
    let lines: Vec<_> = read.iter().map(|j| (j.line, j.kind.as_str())).collect();
    assert_eq!(lines, [(1, "a"), (4, "b"), (6, "c")]);
    assert_eq!(jobs(""), []);
    assert_eq!(jobs("\n\r\n"), []);
}

#[test]
fn one_flawed_line_refuses_the_file() {
    let good = "{\"kind\":\"a\"}\n".repeat(3);
    fails(format!("{good}{{\"kind\":7}}\n{good}"), 4, 9, "$.kind: must be text in quotes");
}

#[test]
fn malformed_json_has_its_place() {
    let table = [
        ("\n{\"kind\":\"k\",}", 2, 13, "$: not valid JSON"),
        (r#"{"kind":"é","args":{"a":[1,2,}]}}"#, 1, 30, "$.args.a[2]: not valid JSON"),
        (r#"{"kind":"k","args":01}"#, 1, 21, "$.args: not valid JSON"),
        (r#"{"kind":"k"} {"kind":"l"}"#, 1, 14, "$: not valid JSON"),
        (r#"{"kind":"k""#, 1, 12, "$: not valid JSON"),
        ("{'kind':1}", 1, 2, "$: not valid JSON"),
        ("kind: k", 1, 1, "$: not valid JSON"),
        ("  [1]", 1, 3, "$: must be an object with a job's keys"),
        ("\"text\"", 1, 1, "$: must be an object with a job's keys"),
        ("{\"kind\":\"a\tb\"}", 1, 11, "$.kind: not valid JSON"),
    ];
    for (text, line, column, message) in table {
        fails(text, line, column, message);
    }
}

#[test]
fn what_jsonb_cannot_hold_has_its_path() {
    let (nul, half) =
        ("holds a NUL character, which PostgreSQL cannot store", "holds half of a surrogate pair");
    let table = [
        (r#"{"kind":"k","args":{"to":["a","\u0000"]}}"#, 32, "$.args.to[1]", nul),
        (r#"{"kind":"ü","args":{"x":"é\ud83d!"}}"#, 27, "$.args.x", half),
        (r#"{"kind":"k","args":{"\udc00":1}}"#, 22, "$.args", half),
        (r#"{"kind":"k\u0000"}"#, 11, "$.kind", nul),
        (r#"{"kind":"k","tags":["a","b\u0000"]}"#, 27, "$.tags[1]", nul),
        (r#"{"kind":"k","metadata":{"t":"\udead"}}"#, 30, "$.metadata.t", half),
        (
            r#"{"kind":"k","args":1e999999}"#,
            20,
            "$.args",
            "holds a number that PostgreSQL cannot store",
        ),
        (r#"{"kind":"k","x\ud800":1}"#, 15, "$", half),
    ];
    for (text, column, path, reason) in table {
        fails(text, 1, column, &format!("{path}: {reason}"));
    }
}

#[test]
fn args_may_be_as_deep_as_core_allows() {
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    let deepest = nested(limits::ARGS_DEPTH_MAX);
    let line = format!(r#"{{"kind":"k","args":{deepest}}}"#);
    assert_eq!(jobs(&line)[0].args, deepest);
    let error = refused(format!(r#"{{"kind":"k","args":{}}}"#, nested(limits::ARGS_DEPTH_MAX + 1)));
    assert!(matches!(error.flaw, Flaw::Json(JsonReason::TooDeep)), "{error}");
    assert_eq!(error.column, 20 + limits::ARGS_DEPTH_MAX);
}

#[test]
fn a_typo_does_not_vanish() {
    let error = refused(r#"{"kind":"k","args":{},"priorty":1}"#);
    assert_eq!((error.line, error.column, error.path.as_deref()), (1, 23, Some("$")));
    let message = error.flaw.to_string();
    assert!(message.starts_with("unknown key \"priorty\"; a job has kind, args, "), "{message}");
    fails(r#"{"kind":"k","kind":"k"}"#, 1, 13, "$: key \"kind\" is given twice");
    fails(r#"{"kind":"k","k\u0069nd":"k"}"#, 1, 13, "$: key \"kind\" is given twice");
    fails(r#" {"args":{}}"#, 1, 2, "$: key \"kind\" is missing");
    let nul = refused(r#"{"kind":"k","\u0000":1}"#).to_string();
    assert!(nul.contains(r#"unknown key "\0""#), "{nul}");
}

#[test]
fn numbers_out_of_bounds_are_refused_and_not_clamped() {
    let table = [
        ("priority", "0", "priority is 0; it must lie between 1 and 4"),
        ("priority", "5", "priority is 5; it must lie between 1 and 4"),
        ("priority", "-1", "priority is -1; it must lie between 1 and 4"),
        ("priority", "65537", "priority is 65537; it must lie between 1 and 4"),
        ("priority", "2.0", "must be a whole number"),
        ("priority", "\"2\"", "must be a whole number"),
        ("shard", "64", "shard is 64; it must lie between 0 and 63"),
        ("max_attempts", "0", "max_attempts is 0; it must lie between 1 and 32767"),
        ("max_attempts", "32768", "max_attempts is 32768; it must lie between 1 and 32767"),
        ("max_attempts", "99999999999999999999", "must be a whole number"),
        ("max_attempts", "true", "must be a whole number"),
    ];
    for (key, value, message) in table {
        let text = format!(r#"{{"kind":"k","{key}":{value}}}"#);
        fails(&text, 1, 16 + key.len(), &format!("$.{key}: {message}"));
    }
}

#[test]
fn texts_have_their_type_and_length() {
    let long = "ü".repeat(101);
    let table = [
        ("kind", "null".to_owned(), "must be text in quotes"),
        ("kind", "\"\"".to_owned(), "kind must not be empty"),
        ("kind", format!("\"{long}\""), "kind is 202 bytes long; at most 200 are allowed"),
        ("queue", "\"\"".to_owned(), "queue must not be empty"),
        ("queue", "{}".to_owned(), "must be text in quotes"),
    ];
    for (key, value, message) in table {
        let rest = if key == "kind" { "" } else { r#","kind":"k""# };
        let text = format!(r#"{{"{key}":{value}{rest}}}"#);
        fails(&text, 1, 5 + key.len(), &format!("$.{key}: {message}"));
    }
    fails(r#"{"kind":"k","tags":"vip"}"#, 1, 20, "$.tags: must be an array of texts");
    fails(r#"{"kind":"k","tags":["vip", 7]}"#, 1, 28, "$.tags[1]: must be text in quotes");
    fails(r#"{"kind":"k","tags":[""]}"#, 1, 21, "$.tags[0]: tag must not be empty");
    let text = format!(r#"{{"kind":"k","tags":["{long}"]}}"#);
    fails(text, 1, 21, "$.tags[0]: tag is 202 bytes long; at most 200 are allowed");
    fails(r#"{"kind":"k","metadata":[1]}"#, 1, 24, "$.metadata: must be an object");
}

#[test]
fn a_time_is_given_once_and_well() {
    let instant = "$.run_at: must be an instant like \"2026-11-30T08:15:00+01:00\"";
    fails(r#"{"kind":"k","run_at":"tomorrow"}"#, 1, 22, instant);
    fails(r#"{"kind":"k","run_at":1796026530}"#, 1, 22, "$.run_at: must be text in quotes");
    let seconds =
        "$.in_s: must be seconds from now: a number, at least 0, with at most six decimals";
    for value in ["-1", "1e3", "0.0000001", "\"5\"", "9223372036855", "99999999999999999999"] {
        fails(format!(r#"{{"kind":"k","in_s":{value}}}"#), 1, 20, seconds);
    }
    for (value, us) in [("0", 0), ("0.000001", 1), ("9223372036854.775807", i64::MAX as u64)] {
        let read = jobs(&format!(r#"{{"kind":"k","in_s":{value}}}"#));
        assert_eq!(read[0].due, Due::After(Span::from_us(us)));
    }
    let both = r#"{"kind":"k","run_at":"2026-11-30T08:15:00Z","in_s":5}"#;
    fails(both, 1, 52, "$.in_s: give either \"run_at\" or \"in_s\", not both");
}

#[test]
fn bytes_that_are_no_utf8_are_refused_with_their_place() {
    let mut input = b"{\"kind\":\"k\"}\n{\"kind\":\"\xc3\xa9".to_vec();
    input.extend(b"\xff\"}\n");
    fails(input, 2, 11, "byte 12 of the line is not UTF-8");
    fails(b"\xff\xfe{\0", 1, 1, "byte 1 of the line is not UTF-8");
    fails(b"\xef\xbb\xbf{\xc3", 1, 2, "byte 5 of the line is not UTF-8");
    fails("\u{feff}\u{feff}{}", 1, 1, "$: not valid JSON");
}

#[test]
fn a_line_is_bounded_and_read_no_further() {
    let endless = std::io::repeat(b'x').take(u64::MAX);
    let error = read_jobs(BufReader::with_capacity(1 << 16, endless)).unwrap_err();
    assert_eq!(error.to_string(), "line 1, column 1: the line is longer than 17825792 bytes");
}

#[test]
fn args_are_bounded() {
    let of_bytes = |bytes: usize| format!(r#"{{"kind":"k","args":"{}"}}"#, "a".repeat(bytes - 2));
    assert_eq!(jobs(&of_bytes(limits::ARGS_BYTES_MAX))[0].args.len(), limits::ARGS_BYTES_MAX);
    let too_long = "$.args: args is 16777217 bytes long; at most 16777216 are allowed";
    fails(of_bytes(limits::ARGS_BYTES_MAX + 1), 1, 20, too_long);
    let metadata = of_bytes(limits::ARGS_BYTES_MAX + 1).replace("args", "metadata");
    let too_long = "$.metadata: metadata is 16777217 bytes long; at most 16777216 are allowed";
    fails(metadata, 1, 24, too_long);
}

#[test]
fn a_source_that_breaks_is_an_error_of_its_line() {
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("the pipe burst"))
        }
    }
    let source = Cursor::new("{\"kind\":\"a\"}\n").chain(Broken);
    let error = read_jobs(BufReader::new(source)).unwrap_err();
    assert_eq!(error.to_string(), "line 2, column 1: could not be read: the pipe burst");
    assert!(error.source().is_some());
}

/// What `awa enqueue --help` says of each key is what is read, with the bounds of the engine.
#[test]
fn the_help_tells_of_every_key() {
    let told = |key: &str| {
        let from = HELP.find(&format!("\n  {key} ")).unwrap_or_else(|| panic!("{key} is not told"));
        let entry = &HELP[from + 1..];
        let next = entry.match_indices("\n").find(|(at, _)| !entry[at + 1..].starts_with("    "));
        entry[..next.map_or(entry.len(), |(at, _)| at)].to_owned()
    };
    let names = limits::NAME_BYTES_MAX.to_string();
    let table: [(&str, &[String]); 10] = [
        ("kind", std::slice::from_ref(&names)),
        ("args", &[limits::ARGS_BYTES_MAX.to_string(), limits::ARGS_DEPTH_MAX.to_string()]),
        ("queue", std::slice::from_ref(&names)),
        ("priority", &[limits::PRIORITY_MAX.to_string(), limits::PRIORITY_DEFAULT.to_string()]),
        ("shard", &[(limits::SHARDS_MAX - 1).to_string()]),
        ("max_attempts", &[limits::ATTEMPTS_MAX.to_string(), limits::ATTEMPTS_DEFAULT.to_string()]),
        ("run_at", &["2026-11-30T08:15:00+01:00".to_owned()]),
        ("in_s", &["six".to_owned()]),
        ("tags", std::slice::from_ref(&names)),
        ("metadata", &[(limits::ARGS_DEPTH_MAX - 1).to_string()]),
    ];
    assert_eq!(table.map(|(key, _)| key), fields::KEYS);
    for (key, facts) in table {
        let told = told(key);
        assert!(facts.iter().all(|fact| told.contains(fact.as_str())), "{told}");
        assert!(told.contains("default") || key == "kind", "{told}");
    }
    assert!(HELP.contains(&LINE_BYTES_MAX.to_string()));
    assert!(HELP.lines().all(|line| line.chars().count() <= 88), "{HELP}");
}
