//! Where in a text a flaw lies.

use alloc::format;
use alloc::string::String;

/// Characters of one key that an error's path shows.
const KEY_CHARS_SHOWN: usize = 64;

/// Where the scan stands in one open container.
pub(super) struct Place {
    /// Bytes of the key's source, quotes included; `None` in an array.
    pub(super) key: Option<(usize, usize)>,
    /// Items or members before.
    pub(super) index: usize,
    /// Inside a member or an item, rather than between two.
    pub(super) inside: bool,
}

/// The way through `places` into `text`, as `$.items[3].name`.
pub(super) fn path(places: &[Place], text: &[u8]) -> String {
    let mut path = String::from("$");
    for place in places.iter().filter(|place| place.inside) {
        match place.key {
            Some((start, end)) => push_key(&mut path, &text[start + 1..end - 1]),
            None => path.push_str(&format!("[{}]", place.index)),
        }
    }
    path
}

/// The place after `before`: lines and characters, both from 1.
pub(super) fn line_and_column(before: &[u8]) -> (usize, usize) {
    let line_start = before.iter().rposition(|&b| b == b'\n').map_or(0, |at| at + 1);
    let line = 1 + before.iter().filter(|&&b| b == b'\n').count();
    (line, 1 + before[line_start..].iter().filter(|&&b| b & 0xC0 != 0x80).count())
}

/// A key as `.name`, or as it stands in the source where that would mislead: `["odd key"]`.
fn push_key(path: &mut String, source: &[u8]) {
    let plain = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_';
    let text = String::from_utf8_lossy(&source[..source.len().min(4 * KEY_CHARS_SHOWN + 3)]);
    let shown: String = text.chars().take(KEY_CHARS_SHOWN).collect();
    let cut = if shown.len() < source.len() { "…" } else { "" };
    let starts_as_name = source.first().is_some_and(|b| !b.is_ascii_digit());
    if starts_as_name && cut.is_empty() && source.iter().all(plain) {
        path.push('.');
        path.push_str(&shown);
    } else {
        path.push_str(&format!("[\"{shown}{cut}\"]"));
    }
}
