//! What PostgreSQL's `jsonb` can hold, found out before anything is sent; and error text made
//! storable, whatever a handler put into it.

use alloc::vec::Vec;

use crate::fault::{Field, JsonReason, UserError};
use crate::limits::{ARGS_BYTES_MAX, ARGS_DEPTH_MAX};

mod error_text;
mod number;
mod trail;

pub use error_text::keep_error_text;
use number::printed_len;
use trail::Place;

/// What a checked text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Whether the outermost value is an object.
    pub is_object: bool,
}

/// Checks that `text` is RFC 8259 JSON that a `jsonb` column can hold. Allocates only for an
/// error's path.
///
/// # Errors
/// [`UserError::TooLong`] over [`ARGS_BYTES_MAX`]. Numbers count as long as `jsonb` prints them:
/// `1e131071` is nine bytes to store and 131,072 to read back, and a job that is stored but can't
/// be read would wedge its lane (H09).
/// [`UserError::Json`] with path, line and column (both from 1, in characters) for a syntax error,
/// a NUL, half a surrogate pair, nesting over [`ARGS_DEPTH_MAX`] or a number out of range.
pub fn check(text: &str) -> Result<Shape, UserError> {
    check_field(Field::Args, text)
}

/// The same for the text of `field`, which an error names.
///
/// # Errors
/// As for [`check`].
pub fn check_field(field: Field, text: &str) -> Result<Shape, UserError> {
    within_bounds(field, text.len())?;
    let mut scan = Scan::new(text.as_bytes(), None);
    match scan.document() {
        Ok(shape) => {
            within_bounds(field, text.len().saturating_add(scan.printed_extra)).map(|()| shape)
        }
        Err(flaw) => Err(located(field, text.as_bytes(), flaw)),
    }
}

fn within_bounds(field: Field, bytes: usize) -> Result<(), UserError> {
    if bytes > ARGS_BYTES_MAX {
        return Err(UserError::TooLong { field, bytes, max: ARGS_BYTES_MAX });
    }
    Ok(())
}

/// The error with its place. A second scan finds the same flaw and takes down the path, so that
/// the common case keeps no path at all.
fn located(field: Field, text: &[u8], flaw: Flaw) -> UserError {
    let mut scan = Scan::new(text, Some(Vec::new()));
    let again = scan.document();
    debug_assert!(again.is_err());
    let path = trail::path(scan.trail.as_deref().unwrap_or_default(), text);
    let (line, column) = trail::line_and_column(&text[..flaw.at]);
    UserError::Json { field, path, reason: flaw.reason, line, column }
}

#[derive(Clone, Copy)]
struct Flaw {
    reason: JsonReason,
    at: usize,
}

struct Scan<'a> {
    text: &'a [u8],
    at: usize,
    depth: usize,
    /// Bit `d`: the container at depth `d` is an object.
    objects: [u64; ARGS_DEPTH_MAX.div_ceil(64)],
    /// Bytes that numbers take when printed, beyond those of their source.
    printed_extra: usize,
    trail: Option<Vec<Place>>,
}

impl<'a> Scan<'a> {
    const fn new(text: &'a [u8], trail: Option<Vec<Place>>) -> Self {
        let objects = [0; ARGS_DEPTH_MAX.div_ceil(64)];
        Self { text, at: 0, depth: 0, objects, printed_extra: 0, trail }
    }

    fn document(&mut self) -> Result<Shape, Flaw> {
        self.blank();
        let is_object = self.peek() == Some(b'{');
        loop {
            if self.value_opens()? {
                continue;
            }
            // A value has ended. Close what it closes, until a comma calls for another.
            while self.depth > 0 && self.closes()? {}
            if self.depth == 0 {
                self.blank();
                let ended = self.peek().is_none();
                return if ended { Ok(Shape { is_object }) } else { self.flaw(JsonReason::Syntax) };
            }
        }
    }

    /// Scans a scalar or an empty container whole (`false`), or the start of a container up to its
    /// first value (`true`).
    fn value_opens(&mut self) -> Result<bool, Flaw> {
        match self.peek() {
            Some(b'{') => return self.open(true),
            Some(b'[') => return self.open(false),
            Some(b'"') => self.string()?,
            Some(b'-' | b'0'..=b'9') => self.number()?,
            Some(b't') => self.word(b"true")?,
            Some(b'f') => self.word(b"false")?,
            Some(b'n') => self.word(b"null")?,
            Some(_) | None => return self.flaw(JsonReason::Syntax),
        }
        Ok(false)
    }

    fn open(&mut self, object: bool) -> Result<bool, Flaw> {
        if self.depth == ARGS_DEPTH_MAX {
            return self.flaw(JsonReason::TooDeep);
        }
        let (word, bit) = (self.depth / 64, self.depth % 64);
        self.objects[word] = self.objects[word] & !(1 << bit) | u64::from(object) << bit;
        self.depth += 1;
        if let Some(trail) = &mut self.trail {
            trail.push(Place { key: None, index: 0, inside: false });
        }
        self.at += 1;
        self.blank();
        if self.peek() == Some(if object { b'}' } else { b']' }) {
            self.close();
            return Ok(false);
        }
        if object {
            self.key()?
        } else {
            self.enter(None)
        }
        Ok(true)
    }

    fn close(&mut self) {
        self.at += 1;
        self.depth -= 1;
        if let Some(trail) = &mut self.trail {
            trail.pop();
        }
    }

    /// After a value in a container: `true` if the container ends here, `false` if another value
    /// follows, which is then next.
    fn closes(&mut self) -> Result<bool, Flaw> {
        let depth = self.depth - 1;
        let object = self.objects[depth / 64] & (1 << (depth % 64)) != 0;
        if let Some(place) = self.trail.as_mut().and_then(|t| t.last_mut()) {
            place.inside = false;
            place.index += 1;
        }
        self.blank();
        match (self.peek(), object) {
            (Some(b'}'), true) | (Some(b']'), false) => self.close(),
            (Some(b','), _) => {
                self.at += 1;
                self.blank();
                if object {
                    self.key()?
                } else {
                    self.enter(None)
                }
                return Ok(false);
            }
            _ => return self.flaw(JsonReason::Syntax),
        }
        Ok(true)
    }

    fn key(&mut self) -> Result<(), Flaw> {
        let start = self.at;
        if self.peek() != Some(b'"') {
            return self.flaw(JsonReason::Syntax);
        }
        self.string()?;
        let end = self.at;
        self.blank();
        if self.peek() != Some(b':') {
            return self.flaw(JsonReason::Syntax);
        }
        self.at += 1;
        self.blank();
        self.enter(Some((start, end)));
        Ok(())
    }

    fn enter(&mut self, key: Option<(usize, usize)>) {
        if let Some(place) = self.trail.as_mut().and_then(|t| t.last_mut()) {
            place.key = key;
            place.inside = true;
        }
    }

    fn string(&mut self) -> Result<(), Flaw> {
        self.at += 1;
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => self.escape()?,
                Some(0) => return self.flaw(JsonReason::Nul),
                Some(1..=0x1F) | None => return self.flaw(JsonReason::Syntax),
                Some(_) => self.at += 1,
            }
        }
    }

    fn escape(&mut self) -> Result<(), Flaw> {
        match self.text.get(self.at + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 2,
            Some(b'u') => match self.code_unit(self.at) {
                None => return self.flaw(JsonReason::Syntax),
                Some(0) => return self.flaw(JsonReason::Nul),
                Some(0xD800..=0xDBFF) => match self.code_unit(self.at + 6) {
                    Some(0xDC00..=0xDFFF) => self.at += 12,
                    Some(_) | None => return self.flaw(JsonReason::LoneSurrogate),
                },
                Some(0xDC00..=0xDFFF) => return self.flaw(JsonReason::LoneSurrogate),
                Some(_) => self.at += 6,
            },
            Some(_) | None => return self.flaw(JsonReason::Syntax),
        }
        Ok(())
    }

    /// The value of a `\uXXXX` at `at`, if one is there.
    fn code_unit(&self, at: usize) -> Option<u32> {
        let digits = self.text.get(at..at + 6)?.strip_prefix(b"\\u")?;
        digits.iter().try_fold(0, |unit, &b| Some(unit * 16 + char::from(b).to_digit(16)?))
    }

    fn word(&mut self, word: &[u8]) -> Result<(), Flaw> {
        if !self.text[self.at..].starts_with(word) {
            return self.flaw(JsonReason::Syntax);
        }
        self.at += word.len();
        Ok(())
    }

    fn number(&mut self) -> Result<(), Flaw> {
        let start = self.at;
        let negative = self.peek() == Some(b'-');
        self.at += usize::from(negative);
        let whole = self.digits()?;
        if whole.len() > 1 && whole[0] == b'0' {
            self.at -= whole.len() - 1;
            return self.flaw(JsonReason::Syntax);
        }
        let mut fraction: &[u8] = &[];
        if self.peek() == Some(b'.') {
            self.at += 1;
            fraction = self.digits()?;
        }
        let mut exponent = 0;
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            let sign = if self.peek() == Some(b'-') { -1 } else { 1 };
            self.at += usize::from(matches!(self.peek(), Some(b'-' | b'+')));
            let size = |e: i64, b: &u8| e.saturating_mul(10).saturating_add(i64::from(b - b'0'));
            exponent = sign * self.digits()?.iter().fold(0, size);
        }
        match printed_len(negative, whole, fraction, exponent) {
            Some(len) => {
                let extra = len.saturating_sub(self.at - start);
                self.printed_extra = self.printed_extra.saturating_add(extra);
                Ok(())
            }
            None => Err(Flaw { reason: JsonReason::NumberRange, at: start }),
        }
    }

    fn digits(&mut self) -> Result<&'a [u8], Flaw> {
        let rest = &self.text[self.at..];
        let len = rest.iter().take_while(|b| b.is_ascii_digit()).count();
        self.at += len;
        if len == 0 { self.flaw(JsonReason::Syntax) } else { Ok(&rest[..len]) }
    }

    fn blank(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    const fn flaw<T>(&self, reason: JsonReason) -> Result<T, Flaw> {
        Err(Flaw { reason, at: self.at })
    }
}
