//! One line into one job.

use std::fmt;

use awa::core::fault::{Field, JsonReason, UserError};
use awa::core::{Instant, Kind, Priority, QueueName, Shard, Span, in_range, json, limits};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::{Due, Flaw, JobLine, NdjsonError, rfc3339};

/// Every key that a job may have.
pub(super) const KEYS: [&str; 10] = [
    "kind",
    "args",
    "queue",
    "priority",
    "shard",
    "max_attempts",
    "run_at",
    "in_s",
    "tags",
    "metadata",
];

/// The job that `text`, the line of this `number`, describes.
pub(super) fn job(number: usize, text: &str) -> Result<JobLine, NdjsonError> {
    let line = Line { number, text };
    let values = line.values()?;
    // A `null` says what an absent key says; only `args` may hold one, and `kind` has no default.
    let stated = |key| values.iter().find(|v| v.key == key);
    let given = |key| stated(key).filter(|v| v.text != "null");
    let whole = |key, field, least, most, default| {
        given(key).map_or(Ok(default), |v| v.whole(field, least, most))
    };
    let (shard_max, attempts_max) = (limits::SHARDS_MAX - 1, limits::ATTEMPTS_MAX);
    let kind = stated("kind").ok_or_else(|| line.fails(Flaw::MissingKey("kind")))?;
    let due = match (given("run_at"), given("in_s")) {
        (None, None) => Due::Now,
        (Some(at), None) => Due::At(at.instant()?),
        (None, Some(after)) => Due::After(after.seconds()?),
        (Some(_), Some(after)) => return Err(after.fails(Flaw::TwoTimes)),
    };
    Ok(JobLine {
        line: number,
        kind: kind.name(Kind::new)?,
        args: stated("args").map_or("{}", |v| v.text).to_owned(),
        queue: given("queue").map(|v| v.name(QueueName::new)).transpose()?,
        priority: Priority(whole(
            "priority",
            Field::Priority,
            1,
            limits::PRIORITY_MAX,
            limits::PRIORITY_DEFAULT,
        )?),
        shard: Shard(whole("shard", Field::Shard, 0, shard_max, 0)?),
        max_attempts: whole(
            "max_attempts",
            Field::MaxAttempts,
            1,
            attempts_max,
            limits::ATTEMPTS_DEFAULT,
        )?,
        due,
        tags: given("tags").map_or(Ok(Vec::new()), Value::tags)?,
        metadata: given("metadata").map(Value::object).transpose()?,
    })
}

#[derive(Clone, Copy)]
struct Line<'a> {
    number: usize,
    text: &'a str,
}

/// The value of one key, or one item of it.
#[derive(Clone, Copy)]
struct Value<'a> {
    line: Line<'a>,
    key: &'static str,
    item: Option<usize>,
    /// Its JSON as the line spells it: a part of the line's own text.
    text: &'a str,
}

impl<'a> Line<'a> {
    /// The members of the line's object: known keys, none twice, each value one that can be stored.
    fn values(self) -> Result<Vec<Value<'a>>, NdjsonError> {
        let members: Members<'a> =
            serde_json::from_str(self.text).map_err(|error| self.malformed(&error))?;
        let mut values: Vec<Value<'a>> = Vec::with_capacity(members.0.len());
        for (key_text, value) in members.0 {
            let name = self.key(key_text.get())?;
            let fails_at_key = |flaw| self.fails_at(key_text.get(), "$".to_owned(), flaw);
            let Some(key) = KEYS.iter().find(|known| **known == name) else {
                return Err(fails_at_key(Flaw::UnknownKey(name)));
            };
            if values.iter().any(|v| v.key == *key) {
                return Err(fails_at_key(Flaw::RepeatedKey(name)));
            }
            let value = Value { line: self, key, item: None, text: value.get() };
            value.check()?;
            values.push(value);
        }
        Ok(values)
    }

    /// A key's characters. One that holds half a surrogate pair has none.
    fn key(self, text: &'a str) -> Result<String, NdjsonError> {
        serde_json::from_str(text).map_err(|error| match json::check(text) {
            Err(UserError::Json { reason, column, .. }) => {
                let mut fails = self.fails_at(text, "$".to_owned(), Flaw::Json(reason));
                fails.column += column - 1;
                fails
            }
            Ok(_) | Err(_) => self.malformed(&error),
        })
    }

    /// The error for a line that serde_json did not take as an object; core knows the path and the
    /// character, serde_json only the byte.
    fn malformed(self, error: &serde_json::Error) -> NdjsonError {
        let start = self.text.trim_start();
        match json::check(self.text) {
            Err(UserError::Json { path, reason, column, .. }) => {
                let (line, flaw) = (self.number, Flaw::Json(reason));
                NdjsonError { line, column, path: Some(path), flaw }
            }
            Ok(_) | Err(_) if !start.starts_with('{') => {
                self.fails_at(start, "$".to_owned(), Flaw::NotA("an object with a job's keys"))
            }
            Ok(_) | Err(_) => {
                let before = &self.text.as_bytes()[..error.column().min(self.text.len())];
                let column = String::from_utf8_lossy(before).chars().count().max(1);
                let flaw = Flaw::Json(JsonReason::Syntax);
                NdjsonError { line: self.number, column, path: None, flaw }
            }
        }
    }

    /// The error for the line's object as a whole.
    fn fails(self, flaw: Flaw) -> NdjsonError {
        self.fails_at(self.text.trim_start(), "$".to_owned(), flaw)
    }

    /// The error for `part`, a part of the line's own text.
    fn fails_at(self, part: &str, path: String, flaw: Flaw) -> NdjsonError {
        let at = part.as_ptr().addr() - self.text.as_ptr().addr();
        let column = 1 + self.text[..at].chars().count();
        NdjsonError { line: self.number, column, path: Some(path), flaw }
    }
}

impl<'a> Value<'a> {
    fn path(&self) -> String {
        let item = self.item.map_or(String::new(), |index| format!("[{index}]"));
        format!("$.{}{item}", self.key)
    }

    fn fails(&self, flaw: Flaw) -> NdjsonError {
        self.line.fails_at(self.text, self.path(), flaw)
    }

    /// That the value is JSON which can be stored.
    fn check(&self) -> Result<(), NdjsonError> {
        let field = if self.key == "metadata" { Field::Metadata } else { Field::Args };
        json::check_field(field, self.text).map(|_| ()).map_err(|error| match error {
            UserError::Json { path, reason, column, .. } => {
                let mut fails = self.fails(Flaw::Json(reason));
                fails.column += column - 1;
                fails.path = Some(self.path() + path.strip_prefix('$').unwrap_or(&path));
                fails
            }
            other => self.fails(Flaw::Bounds(other)),
        })
    }

    fn string(&self) -> Result<String, NdjsonError> {
        serde_json::from_str(self.text).map_err(|_| self.fails(Flaw::NotA("text in quotes")))
    }

    fn name<N>(&self, checked: fn(&str) -> Result<N, UserError>) -> Result<N, NdjsonError> {
        checked(&self.string()?).map_err(|error| self.fails(Flaw::Bounds(error)))
    }

    fn whole(&self, field: Field, least: i16, most: i16) -> Result<i16, NdjsonError> {
        let value = self.text.parse().map_err(|_| self.fails(Flaw::NotA("a whole number")))?;
        let value = in_range(field, value, least.into(), most.into());
        value.map(|v| v as i16).map_err(|error| self.fails(Flaw::Bounds(error)))
    }

    fn instant(&self) -> Result<Instant, NdjsonError> {
        let wanted = "an instant like \"2026-11-30T08:15:00+01:00\"";
        rfc3339::parse(&self.string()?).ok_or_else(|| self.fails(Flaw::NotA(wanted)))
    }

    fn seconds(&self) -> Result<Span, NdjsonError> {
        let wanted = "seconds from now: a number, at least 0, with at most six decimals";
        span(self.text).ok_or_else(|| self.fails(Flaw::NotA(wanted)))
    }

    fn tags(&self) -> Result<Vec<String>, NdjsonError> {
        let items: Vec<&RawValue> = serde_json::from_str(self.text)
            .map_err(|_| self.fails(Flaw::NotA("an array of texts")))?;
        let tag = |(index, item): (usize, &&'a RawValue)| {
            let value = Value { item: Some(index), text: item.get(), ..*self };
            value.name(tag)
        };
        items.iter().enumerate().map(tag).collect()
    }

    fn object(&self) -> Result<String, NdjsonError> {
        if !self.text.starts_with('{') {
            return Err(self.fails(Flaw::NotA("an object")));
        }
        Ok(self.text.to_owned())
    }
}

/// The tag, if it is as long as a tag may be. A NUL was found before.
fn tag(text: &str) -> Result<String, UserError> {
    let (field, bytes, max) = (Field::Tag, text.len(), limits::NAME_BYTES_MAX);
    match bytes {
        0 => Err(UserError::Empty { field }),
        _ if bytes > max => Err(UserError::TooLong { field, bytes, max }),
        _ => Ok(text.to_owned()),
    }
}

/// The span of `text`, a JSON number of seconds; `None` if it is none, negative, finer than a
/// microsecond or longer than a span can be.
fn span(text: &str) -> Option<Span> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let digits_only = whole.bytes().chain(decimals.bytes()).all(|b| b.is_ascii_digit());
    if !digits_only || decimals.len() > 6 {
        return None;
    }
    let us = whole.parse::<i64>().ok()?.checked_mul(1_000_000)?;
    let fraction = format!("{decimals:0<6}").parse::<i64>().ok()?;
    Some(Span::from_us(us.checked_add(fraction)? as u64))
}

/// The members of an object in the order of the text, repeated ones too, all as they are spelt.
struct Members<'a>(Vec<(&'a RawValue, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MembersVisitor).map(|Members(all)| Self(all))
    }
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Members<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
        let mut all = Vec::new();
        while let Some(member) = map.next_entry()? {
            all.push(member);
        }
        Ok(Members(all))
    }
}
