//! JSON as `jsonb` keeps and prints it, and what the engine reads in a job's payload.

use std::fmt;
use std::iter::Peekable;
use std::str::Chars;

use awa_core::limits::ERRORS_KEPT_MAX;
use awa_core::rules::BodyTraits;
use awa_core::{Attempt, Instant};

/// Scalars keep their spelling, strings with their quotes; objects are in `jsonb`'s order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Json {
    Plain(String),
    List(Vec<Json>),
    Map(Vec<(String, Json)>),
}

impl Json {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut rest = text.chars().peekable();
        let value = value(&mut rest)?;
        blank(&mut rest);
        rest.next().is_none().then_some(value)
    }

    fn field(&self, name: &str) -> Option<&Self> {
        match self {
            Self::Map(fields) => {
                fields.iter().find(|(key, _)| *key == quoted(name)).map(|(_, value)| value)
            }
            Self::Plain(_) | Self::List(_) => None,
        }
    }

    fn set(&mut self, name: String, value: Self) {
        if let Self::Map(fields) = self {
            fields.retain(|(key, _)| *key != name);
            fields.push((name, value));
            fields.sort_by(|(a, _), (b, _)| (a.len(), a).cmp(&(b.len(), b)));
        }
    }

    fn items(&self) -> &[Self] {
        match self {
            Self::List(items) => items,
            Self::Plain(_) | Self::Map(_) => &[],
        }
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(word) => f.write_str(word),
            Self::List(items) => {
                let shown: Vec<_> = items.iter().map(Self::to_string).collect();
                write!(f, "[{}]", shown.join(", "))
            }
            Self::Map(fields) => {
                f.write_str("{")?;
                for (i, (key, value)) in fields.iter().enumerate() {
                    f.write_str(if i == 0 { "" } else { ", " })?;
                    write!(f, "{key}: {value}")?;
                }
                f.write_str("}")
            }
        }
    }
}

fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c < ' ' => quoted.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted + "\""
}

type Rest<'a> = Peekable<Chars<'a>>;

fn blank(rest: &mut Rest<'_>) {
    while rest.next_if(|c| " \t\n\r".contains(*c)).is_some() {}
}

fn value(rest: &mut Rest<'_>) -> Option<Json> {
    blank(rest);
    match rest.peek()? {
        '{' => {
            let mut map = Json::Map(Vec::new());
            items(rest, '}', |rest| {
                let key = text(rest)?;
                blank(rest);
                rest.next_if_eq(&':')?;
                map.set(key, value(rest)?);
                Some(())
            })?;
            Some(map)
        }
        '[' => {
            let mut list = Vec::new();
            items(rest, ']', |rest| value(rest).map(|item| list.push(item)))?;
            Some(Json::List(list))
        }
        '"' => text(rest).map(Json::Plain),
        _ => {
            let mut word = String::new();
            while let Some(c) = rest.next_if(|c| c.is_ascii_alphanumeric() || "+-.".contains(*c)) {
                word.push(c);
            }
            (!word.is_empty()).then_some(Json::Plain(word))
        }
    }
}

fn items(
    rest: &mut Rest<'_>,
    end: char,
    mut item: impl FnMut(&mut Rest<'_>) -> Option<()>,
) -> Option<()> {
    rest.next();
    blank(rest);
    if rest.next_if_eq(&end).is_some() {
        return Some(());
    }
    loop {
        blank(rest);
        item(rest)?;
        blank(rest);
        match rest.next()? {
            ',' => {}
            c => return (c == end).then_some(()),
        }
    }
}

/// A string as it is spelt, with its quotes.
fn text(rest: &mut Rest<'_>) -> Option<String> {
    let mut text = String::from(rest.next_if_eq(&'"')?);
    loop {
        let c = rest.next()?;
        text.push(c);
        match c {
            '"' => return Some(text),
            '\\' => text.push(rest.next()?),
            _ => {}
        }
    }
}

/// The payload with one more error; the newest are kept (H20).
pub(crate) fn with_error(
    payload: Option<&str>,
    attempt: Attempt,
    at: Instant,
    error: &str,
) -> String {
    let empty = Json::Map(Vec::new());
    let mut whole = payload.and_then(Json::parse).unwrap_or_else(|| empty.clone());
    let mut errors = whole.field("errors").map_or(&[][..], Json::items).to_vec();
    let mut entry = empty;
    entry.set(quoted("attempt"), Json::Plain(attempt.0.to_string()));
    entry.set(quoted("at"), Json::Plain(at.unix_us().to_string()));
    entry.set(quoted("error"), Json::Plain(quoted(error)));
    errors.push(entry);
    errors.drain(..errors.len().saturating_sub(ERRORS_KEPT_MAX));
    whole.set(quoted("errors"), Json::List(errors));
    whole.to_string()
}

/// The payload with each error's time shown as `set`.
pub(crate) fn without_times(payload: &str) -> String {
    let mut whole = Json::parse(payload).unwrap_or_else(|| Json::Plain(payload.to_owned()));
    if let Some(errors) = whole.field("errors") {
        let mut errors = errors.items().to_vec();
        errors.iter_mut().for_each(|e| e.set(quoted("at"), Json::Plain(quoted("set"))));
        whole.set(quoted("errors"), Json::List(errors));
    }
    whole.to_string()
}

/// What in a body decides how its success may be stored (`R026-15`).
pub(crate) fn traits(payload: Option<&str>) -> BodyTraits {
    let Some(whole) = payload.and_then(Json::parse) else { return BodyTraits::default() };
    let filled = |name| whole.field(name).is_some_and(|list| !list.items().is_empty());
    let own = [quoted("_awa_original_priority"), quoted("_awa_original_queue")];
    let custom_metadata = match whole.field("metadata") {
        Some(Json::Map(fields)) => fields.iter().any(|(key, _)| !own.contains(key)),
        Some(Json::Plain(_) | Json::List(_)) | None => false,
    };
    BodyTraits {
        unique_key: false,
        tags: filled("tags"),
        errors: filled("errors"),
        custom_metadata,
    }
}
