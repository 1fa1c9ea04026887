//! Args that `jsonb` can't hold are found before anything is sent; error text is always storable.

use awa_core::UserError;
use awa_core::fault::{Field, JsonReason};
use awa_core::json::{Shape, check, keep_error_text};
use awa_core::limits::{ARGS_BYTES_MAX, ARGS_DEPTH_MAX, ERROR_BYTES_MAX};

fn fails(text: &str, reason: JsonReason, path: &str, line: usize, column: usize) {
    let field = Field::Args;
    let expected = UserError::Json { field, path: path.to_owned(), reason, line, column };
    assert_eq!(check(text), Err(expected), "{text:?}");
}

#[test]
fn json_is_accepted() {
    for text in [
        "null",
        "true",
        "false",
        "0",
        "-0",
        "12.50",
        "1e5",
        "1E+5",
        "-1.5e-3",
        "\"\"",
        "[]",
        "{}",
        " \t\r\n[ ] \n",
        "[1,2,[3,{}],\"x\"]",
        r#"{"":{"a":[{"b":null}]},"c":-1}"#,
        r#""\"\\\/\b\f\n\r\té\u00e9""#,
        r#""\ud83d\ude00 \uD83D\uDE00""#,
        "\"\u{7f}\u{2028}😀\"",
        r#"{"a":1,"a":2}"#,
        "\"\u{fffe}\\uffff\"",
    ] {
        let is_object = text.trim_start().starts_with('{');
        assert_eq!(check(text), Ok(Shape { is_object }), "{text:?}");
    }
}

#[test]
fn a_syntax_error_has_path_line_and_column() {
    let table = [
        ("", "$", 1, 1),
        ("  ", "$", 1, 3),
        ("nul", "$", 1, 1),
        ("nulls", "$", 1, 5),
        ("+1", "$", 1, 1),
        ("01", "$", 1, 2),
        ("-01", "$", 1, 3),
        ("1.", "$", 1, 3),
        (".5", "$", 1, 1),
        ("1e", "$", 1, 3),
        ("-", "$", 1, 2),
        ("0x10", "$", 1, 2),
        ("NaN", "$", 1, 1),
        ("1 2", "$", 1, 3),
        ("'a'", "$", 1, 1),
        ("\u{feff}1", "$", 1, 1),
        ("\u{a0}1", "$", 1, 1),
        ("[1,]", "$[1]", 1, 4),
        ("[1 2]", "$", 1, 4),
        ("[", "$[0]", 1, 2),
        ("[1}", "$", 1, 3),
        ("{\"a\":1,}", "$", 1, 8),
        ("{\"a\" 1}", "$", 1, 6),
        ("{a:1}", "$", 1, 2),
        ("{\"a\":}", "$.a", 1, 6),
        ("{\"a\":1]", "$", 1, 7),
        ("{\n  \"items\": [\n    1, 2, 3,\n    {\"name\": nope}\n]}", "$.items[3].name", 4, 14),
        ("{\"é\": [\"ü\", tru]}", "$[\"é\"][1]", 1, 13),
        ("{\"odd key\": {\"1st\": x}}", "$[\"odd key\"][\"1st\"]", 1, 21),
        ("{\"a\\\"b\": x}", "$[\"a\\\"b\"]", 1, 10),
        ("[[1],[2,[3]],x]", "$[2]", 1, 14),
        ("\"a\nb\"", "$", 1, 3),
        ("\"a\u{1f}b\"", "$", 1, 3),
        ("\"abc", "$", 1, 5),
        ("\"\\x\"", "$", 1, 2),
        ("\"\\u12g4\"", "$", 1, 2),
        ("\"\\u+123\"", "$", 1, 2),
        ("\"\\u12", "$", 1, 2),
        ("\"\\", "$", 1, 2),
    ];
    for (text, path, line, column) in table {
        fails(text, JsonReason::Syntax, path, line, column);
    }
}

#[test]
fn nul_and_half_pairs_are_found_in_values_and_keys() {
    for (text, path, column) in [
        (r#"{"a":["x\u0000"]}"#, "$.a[0]", 9),
        (r#"{"a":{"k\u0000":1}}"#, "$.a", 9),
        ("[\"x\0\"]", "$[0]", 4),
    ] {
        fails(text, JsonReason::Nul, path, 1, column);
    }
    // An escaped backslash before `u0000` is text, not an escape.
    assert!(check(r#""\\u0000""#).is_ok());
    for text in [
        r#""\ud800""#,
        r#""\udc00""#,
        r#""\ud800\ud800""#,
        r#""\ud800\n""#,
        r#""\ud800\u00""#,
        r#""\uDBFFx""#,
        r#""\ud83d\\ude00""#,
    ] {
        fails(text, JsonReason::LoneSurrogate, "$", 1, 2);
    }
    fails(r#"{"\ude00\ud83d":1}"#, JsonReason::LoneSurrogate, "$", 1, 3);
}

#[test]
fn nesting_is_bounded() {
    let nest = |open: &str, close: &str, n: usize| open.repeat(n) + "1" + &close.repeat(n);
    assert!(check(&nest("[", "]", ARGS_DEPTH_MAX)).is_ok());
    assert!(check(&nest("{\"a\":", "}", ARGS_DEPTH_MAX)).is_ok());
    let deep = nest("[", "]", ARGS_DEPTH_MAX + 1);
    let path = "$".to_owned() + &"[0]".repeat(ARGS_DEPTH_MAX);
    fails(&deep, JsonReason::TooDeep, &path, 1, ARGS_DEPTH_MAX + 1);
    // An unbounded recursion would overflow the stack here.
    assert!(check(&"[".repeat(ARGS_BYTES_MAX)).is_err());
    // Objects and arrays close with their own bracket at every depth.
    for depth in [1, 63, 64, 65, 127, 128, 129, ARGS_DEPTH_MAX] {
        let mixed = |n: usize| if n.is_multiple_of(3) { ("{\"k\":", "}") } else { ("[", "]") };
        let open: String = (0..depth).map(|n| mixed(n).0).collect();
        let close: Vec<_> = (0..depth).rev().map(|n| mixed(n).1).collect();
        assert!(check(&format!("{open}0{}", close.concat())).is_ok());
        let wrong = if close[0] == "}" { "]" } else { "}" };
        assert!(check(&format!("{open}0{wrong}{}", close[1..].concat())).is_err());
    }
}

/// The boundary as PostgreSQL 15 showed it for each of these texts cast to `jsonb`.
#[test]
fn numbers_are_those_that_numeric_holds() {
    let zeros = |n: usize| "0".repeat(n);
    let held = [
        "1e131071",
        "-1e131071",
        "0.001e131074",
        "10e131070",
        "99.9e131070",
        "99999e131067",
        "1e-16383",
        "0e-16383",
        "0e200000",
        "0e1073741822",
        "1.5e-16382",
        "0.5e1",
        "1e+5",
        "-0.0",
    ]
    .map(str::to_owned)
    .into_iter()
    .chain([
        "9".repeat(131_072),
        format!("0.{}", zeros(16_383)),
        format!("0.{}1e16001", zeros(16_000)),
        format!("0.{}1e147455", zeros(16_383)),
    ]);
    for text in held {
        assert!(check(&text).is_ok(), "{:.40}", text);
    }
    let refused = [
        "1e131072",
        "0.001e131075",
        "10e131071",
        "99999e131068",
        "1e-16384",
        "0e-16384",
        "1.5e-16383",
        "0e1073741823",
        "0e-1073741822",
        "0e99999999999999999999",
        "1e-99999999999999999999",
    ]
    .map(str::to_owned)
    .into_iter()
    .chain([
        "9".repeat(131_073),
        format!("0.{}", zeros(16_384)),
        format!("0.{}1e147456", zeros(16_383)),
    ]);
    for text in refused {
        fails(&format!("[0,{text}]"), JsonReason::NumberRange, "$[1]", 1, 4);
    }
}

#[test]
fn size_counts_numbers_as_they_print() {
    let too_long =
        |bytes| Err(UserError::TooLong { field: Field::Args, bytes, max: ARGS_BYTES_MAX });
    let string = |bytes: usize| format!("\"{}\"", "a".repeat(bytes - 2));
    assert!(check(&string(ARGS_BYTES_MAX)).is_ok());
    assert_eq!(check(&string(ARGS_BYTES_MAX + 1)), too_long(ARGS_BYTES_MAX + 1));
    // As many small numbers as fit print no longer than they are written.
    let ones = format!("[{}1]", "1,".repeat((ARGS_BYTES_MAX - 3) / 2));
    assert!(check(&ones).is_ok());
    // 1 kB of text that would be read back as 17 MB.
    let big = format!("[{}0]", "1e131071,".repeat(128));
    assert_eq!(check(&big), too_long(big.len() + 128 * (131_072 - 8)));
    assert!(check(&format!("[{}0]", "1e131071,".repeat(120))).is_ok());
}

#[test]
fn a_long_key_is_cut_in_the_path() {
    let text = format!("{{\"{}\":x}}", "ключ".repeat(1000));
    let shown = format!("$[\"{}…\"]", "ключ".repeat(16));
    fails(&text, JsonReason::Syntax, &shown, 1, 4000 + 5);
    let exact = format!("{{\"{}\":x}}", "k".repeat(64));
    fails(&exact, JsonReason::Syntax, &format!("$.{}", "k".repeat(64)), 1, 69);
}

/// A fixed sequence of numbers that look random.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }
}

fn value(dice: &mut Dice, depth: usize, out: &mut String) {
    let scalars =
        ["0", "-1.5e3", "true", "null", "\"é😀\"", r#""\u00e9\ud83d\ude00""#, "\"\"", "1e9"];
    match dice.below(if depth == 0 { 1 } else { 3 }) {
        0 => out.push_str(scalars[dice.below(scalars.len())]),
        kind => {
            let (open, close) = if kind == 1 { ('[', ']') } else { ('{', '}') };
            out.push(open);
            for n in 0..dice.below(4) {
                out.push_str(if n > 0 { " ,\n" } else { "" });
                out.push_str(if kind == 2 { "\"k\" : " } else { "" });
                value(dice, depth - 1, out);
            }
            out.push(close);
        }
    }
}

#[test]
fn generated_json_is_accepted_and_broken_json_never_panics() {
    let mut dice = Dice(7);
    let splices =
        ["", "\"", "{", "}", "[", "]", ",", ":", "\\", "0", "-", "e", "\\u", "\\ud800", "é", "\0"];
    let (mut accepted, mut refused) = (0, 0);
    for _ in 0..20_000 {
        let mut text = String::new();
        value(&mut dice, 6, &mut text);
        assert!(check(&text).is_ok(), "{text:?}");
        let cuts: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
        let from = dice.below(cuts.len());
        let to = cuts.get(from + dice.below(4)).copied().unwrap_or(text.len());
        text.replace_range(cuts[from]..to, splices[dice.below(splices.len())]);
        match check(&text) {
            Ok(_) => accepted += 1,
            Err(UserError::Json { path, line, column, .. }) => {
                refused += 1;
                let lines: Vec<_> = text.split('\n').collect();
                assert!(path.starts_with('$') && line <= lines.len(), "{text:?}");
                assert!(column <= lines[line - 1].chars().count() + 1, "{text:?}");
            }
            Err(other) => panic!("{other} of {text:?}"),
        }
    }
    assert!(accepted > 500 && refused > 5_000, "{accepted} accepted, {refused} refused");
}

#[test]
fn error_text_is_made_storable() {
    for (bytes, kept) in [
        (&b""[..], ""),
        (b"boom", "boom"),
        (b"a\0b\0", "a␀b␀"),
        ("naïve 😀".as_bytes(), "naïve 😀"),
        (b"a\xffb", "a\u{fffd}b"),
        // Half of a surrogate pair as some languages write it; a character cut short.
        (b"\xed\xa0\x80", "\u{fffd}\u{fffd}\u{fffd}"),
        (b"x\xf0\x9f\x98", "x\u{fffd}"),
    ] {
        assert_eq!(keep_error_text(bytes), kept);
    }
}

#[test]
fn long_error_text_is_cut_at_a_character_and_says_so() {
    let full = vec![b'a'; ERROR_BYTES_MAX];
    assert_eq!(keep_error_text(&full).as_bytes(), full);
    for unit in ["a", "é", "€", "😀", "\0"] {
        for len in [ERROR_BYTES_MAX + 1, ERROR_BYTES_MAX + 2, ERROR_BYTES_MAX + 9, 20 << 20] {
            let text = unit.repeat(len.div_ceil(unit.len()));
            let kept = keep_error_text(text.as_bytes());
            assert!(kept.len() <= ERROR_BYTES_MAX && kept.len() > ERROR_BYTES_MAX - 50);
            let (body, note) = kept.split_once("\n[").expect("a note");
            let body_source = body.replace('␀', "\0");
            assert!(text.starts_with(&body_source));
            let missing = text.len() - body_source.len();
            assert_eq!(note, format!("{missing} bytes cut]"));
        }
    }
    // Bytes that decode to something longer than themselves are cut as well.
    let kept = keep_error_text(&vec![0xff; ERROR_BYTES_MAX]);
    assert!(kept.len() <= ERROR_BYTES_MAX && kept.ends_with(" bytes cut]"));
    assert!(kept.starts_with("\u{fffd}\u{fffd}"));
}

#[test]
fn any_bytes_give_storable_text() {
    let mut dice = Dice(11);
    let pieces: [&[u8]; 8] = [
        b"plain ",
        b"\0",
        b"\xff",
        "😀".as_bytes(),
        b"\xed\xbf\xbf",
        b"\xf0\x9f",
        b"\n",
        "é".as_bytes(),
    ];
    for _ in 0..300 {
        let len = ERROR_BYTES_MAX - 40 + dice.below(80);
        let mut bytes = Vec::new();
        while bytes.len() < len {
            bytes.extend_from_slice(pieces[dice.below(pieces.len())]);
        }
        let kept = keep_error_text(&bytes);
        assert!(kept.len() <= ERROR_BYTES_MAX && !kept.contains('\0'));
        let lossy = String::from_utf8_lossy(&bytes).replace('\0', "␀");
        let body = kept.rsplit_once("\n[").filter(|(_, note)| note.ends_with(" cut]"));
        assert!(lossy.starts_with(body.map_or(kept.as_str(), |(body, _)| body)));
        assert_eq!(body.is_none(), lossy.len() <= ERROR_BYTES_MAX);
    }
}
