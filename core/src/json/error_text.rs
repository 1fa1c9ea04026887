//! Error text made storable.

use alloc::format;
use alloc::string::String;

use crate::limits::ERROR_BYTES_MAX;

/// The longest closing note: its words and a 20-digit number.
const NOTE_BYTES_MAX: usize = 40;

/// Any bytes that a handler left as its error, as text that PostgreSQL stores: what is not UTF-8
/// becomes U+FFFD, NUL becomes U+2400 `␀`, and beyond [`ERROR_BYTES_MAX`] bytes the rest is cut at
/// a character and a closing note says how many bytes of the original are missing. Never fails, so
/// that no error text keeps a terminal fact from being stored; looks at no more than it keeps.
#[must_use]
pub fn keep_error_text(text: &[u8]) -> String {
    // Every byte of input gives at least one of output, so nothing past this window can be kept;
    // the last bytes of the window may be half a character, but they lie past the cut.
    let window = &text[..text.len().min(ERROR_BYTES_MAX + 4)];
    let mut kept = String::with_capacity(window.len().min(ERROR_BYTES_MAX));
    let (mut read, mut cut_kept, mut cut_read) = (0, 0, 0);
    let valid_then_invalid = window.utf8_chunks().flat_map(|chunk| {
        let valid = chunk.valid().chars().map(|c| (c, c.len_utf8()));
        let invalid = Some(chunk.invalid().len()).filter(|&len| len > 0);
        valid.chain(invalid.map(|len| (char::REPLACEMENT_CHARACTER, len)))
    });
    for (character, source_len) in valid_then_invalid {
        let stored = if character == '\0' { '\u{2400}' } else { character };
        if kept.len() + stored.len_utf8() > ERROR_BYTES_MAX {
            kept.truncate(cut_kept);
            kept.push_str(&format!("\n[{} bytes cut]", text.len() - cut_read));
            return kept;
        }
        kept.push(stored);
        read += source_len;
        if kept.len() + NOTE_BYTES_MAX <= ERROR_BYTES_MAX {
            (cut_kept, cut_read) = (kept.len(), read);
        }
    }
    kept
}
