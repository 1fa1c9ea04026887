//! Text for a person: the ring, counts and a timeline, on a terminal or in a pipe.
//!
//! Every function gives text without a closing line feed. Columns are counted in characters.

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::time::Duration;

mod counts;
mod ring;

pub(crate) use counts::counts;
pub(crate) use ring::ring;

/// Characters of a line, unless one word or number alone is longer.
pub(crate) const COLUMNS: usize = 80;

/// How text may be drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Style {
    /// With escape sequences for colour.
    pub(crate) colour: bool,
    /// With characters beyond ASCII.
    pub(crate) unicode: bool,
}

/// What a colour says.
#[derive(Clone, Copy)]
enum Paint {
    Bold,
    Dim,
    Red,
    Green,
    Yellow,
}

impl Style {
    /// The style for standard output as this process finds it.
    pub(crate) fn of_stdout() -> Self {
        Self::of(io::stdout().is_terminal(), |name| std::env::var_os(name))
    }

    /// The style for standard error.
    pub(crate) fn of_stderr() -> Self {
        Self::of(io::stderr().is_terminal(), |name| std::env::var_os(name))
    }

    /// Colour on a terminal only, unless `NO_COLOR` is set to anything or `TERM` says that the
    /// terminal has none. Characters beyond ASCII unless the locale names another encoding; where
    /// no locale is set, as in most containers, what reads our output still reads UTF-8.
    pub(crate) fn of(terminal: bool, variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let set = |name| variable(name).filter(|value| !value.is_empty());
        let dumb = set("TERM").is_some_and(|term| term == "dumb");
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set);
        let unicode = locale.is_none_or(|locale| {
            let locale = locale.to_string_lossy().to_ascii_lowercase();
            locale.contains("utf-8") || locale.contains("utf8")
        });
        Self { colour: terminal && !dumb && set("NO_COLOR").is_none(), unicode }
    }

    fn paint(self, paint: Paint, text: &str) -> String {
        if !self.colour || text.trim().is_empty() {
            return text.to_owned();
        }
        let code = match paint {
            Paint::Bold => 1,
            Paint::Dim => 2,
            Paint::Red => 31,
            Paint::Green => 32,
            Paint::Yellow => 33,
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }
}

/// One event of a timeline: `[  1.234s] sentence`. Long sentences are broken between words, and what
/// follows is indented under the first word; a line feed in the sentence begins such a line too.
pub(crate) fn moment(elapsed: Duration, sentence: &str, style: Style) -> String {
    let (s, ms) = (elapsed.as_secs(), elapsed.subsec_millis());
    let stamp = format!("[{s:>3}.{ms:03}s]");
    let indent = stamp.chars().count() + 1;
    let lines: Vec<String> =
        sentence.lines().flat_map(|line| wrapped(line, COLUMNS - indent)).collect();
    let joined = lines.join(&format!("\n{}", " ".repeat(indent)));
    format!("{} {joined}", style.paint(Paint::Dim, &stamp)).trim_end().to_owned()
}

/// `text` in lines of at most `columns` characters, broken between words.
fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        let taken = line.chars().count();
        if taken > 0 && taken + 1 + word.chars().count() > columns {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    lines
}

/// `n` with a comma between thousands.
pub(crate) fn thousands(n: impl Into<i128>) -> String {
    let n = n.into();
    let digits = n.unsigned_abs().to_string();
    let mut text = String::from(if n < 0 { "-" } else { "" });
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `bytes` in the largest binary unit that leaves at least 1: `1.2 MiB`.
pub(crate) fn human_bytes(bytes: i64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let size = bytes.unsigned_abs();
    // The tenth is rounded down, so that no number ever shows as 1024.0 of its unit.
    let unit = (1..=units.len()).rev().find(|power| size >> (10 * power) > 0);
    let sign = if bytes < 0 { "-" } else { "" };
    match unit {
        None => format!("{sign}{size} B"),
        Some(power) => {
            let tenths = (u128::from(size) * 10) >> (10 * power);
            format!("{sign}{}.{} {}", tenths / 10, tenths % 10, units[power - 1])
        }
    }
}

/// A name that others chose, safe to print and at most `columns` wide: control characters, which
/// could drive the terminal, are shown as their escapes, and what is too long is cut with a mark.
pub(crate) fn shown(name: &str, columns: usize, style: Style) -> String {
    let printable = |c: char| !c.is_control() && (style.unicode || c.is_ascii());
    let mut text = String::new();
    for c in name.chars() {
        if printable(c) {
            text.push(c);
        } else {
            text.extend(c.escape_default());
        }
    }
    if text.chars().count() <= columns {
        return text;
    }
    let mark = if style.unicode { "…" } else { "..." };
    let kept = columns.saturating_sub(mark.chars().count());
    text.chars().take(kept).chain(mark.chars()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) const PLAIN: Style = Style { colour: false, unicode: true };
    pub(super) const ASCII: Style = Style { colour: false, unicode: false };
    pub(super) const COLOUR: Style = Style { colour: true, unicode: true };

    fn style(terminal: bool, variables: &[(&str, &str)]) -> Style {
        Style::of(terminal, |name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
        })
    }

    #[test]
    fn colour_is_for_terminals_that_want_it() {
        assert!(style(true, &[]).colour);
        assert!(style(true, &[("NO_COLOR", ""), ("TERM", "xterm")]).colour);
        assert!(!style(false, &[]).colour);
        assert!(!style(true, &[("NO_COLOR", "1")]).colour);
        assert!(!style(true, &[("TERM", "dumb")]).colour);
    }

    #[test]
    fn the_first_locale_that_is_set_decides_on_unicode() {
        assert!(style(true, &[]).unicode);
        assert!(style(false, &[("LANG", "de_DE.UTF-8")]).unicode);
        assert!(style(false, &[("LC_ALL", "C.utf8"), ("LANG", "C")]).unicode);
        assert!(
            style(false, &[("LC_ALL", ""), ("LC_CTYPE", "en_GB.UTF-8"), ("LANG", "C")]).unicode
        );
        assert!(!style(false, &[("LANG", "C")]).unicode);
        assert!(!style(true, &[("LC_ALL", "POSIX"), ("LANG", "en_GB.UTF-8")]).unicode);
        assert!(!style(true, &[("LANG", "de_DE.ISO-8859-1")]).unicode);
    }

    #[test]
    fn a_moment_has_its_time_and_indents_what_follows() {
        let at = |ms, sentence| moment(Duration::from_millis(ms), sentence, PLAIN);
        assert_eq!(at(1_234, "The server is up."), "[  1.234s] The server is up.");
        assert_eq!(at(0, ""), "[  0.000s]");
        assert_eq!(at(1_234_567, "Late."), "[1234.567s] Late.");
        let long = "Pruned slot 3: 48 failures inside the floor were carried to slot 4, \
                    1,204 successes and 12 failures past the floor were counted and dropped.\n\
                    Nothing was lost.";
        let expected = "\
[ 61.500s] Pruned slot 3: 48 failures inside the floor were carried to slot 4,
           1,204 successes and 12 failures past the floor were counted and
           dropped.
           Nothing was lost.";
        assert_eq!(at(61_500, long), expected);
        let word = "x".repeat(100);
        assert_eq!(
            at(0, &format!("a {word} b")),
            format!("[  0.000s] a\n{0}{word}\n{0}b", " ".repeat(11))
        );
        let painted = moment(Duration::from_millis(7), "Up.", COLOUR);
        assert_eq!(painted, "\u{1b}[2m[  0.007s]\u{1b}[0m Up.");
    }

    #[test]
    fn numbers_are_grouped() {
        let table = [(0_i64, "0"), (999, "999"), (1_000, "1,000"), (-123_456, "-123,456")];
        for (n, text) in table {
            assert_eq!(thousands(n), text);
        }
        assert_eq!(thousands(i64::MIN), "-9,223,372,036,854,775,808");
    }

    #[test]
    fn bytes_have_a_unit() {
        for (bytes, text) in [
            (0, "0 B"),
            (1_023, "1023 B"),
            (1_024, "1.0 KiB"),
            (1_048_575, "1023.9 KiB"),
            (1_300_000, "1.2 MiB"),
            (-8_192, "-8.0 KiB"),
            (i64::MAX, "7.9 EiB"),
        ] {
            assert_eq!(human_bytes(bytes), text);
        }
    }

    #[test]
    fn a_name_cannot_drive_the_terminal() {
        assert_eq!(shown("mail", 20, PLAIN), "mail");
        assert_eq!(shown("a\u{1b}[2Jb\n", 20, PLAIN), "a\\u{1b}[2Jb\\n");
        assert_eq!(shown("Grüße", 20, ASCII), "Gr\\u{fc}\\u{df}e");
        assert_eq!(shown("a very long queue name", 10, PLAIN), "a very lo…");
        assert_eq!(shown("a very long queue name", 10, ASCII), "a very ...");
    }
}
