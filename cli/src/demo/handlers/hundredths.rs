//! Amounts with two decimals, exact.

use std::fmt;

/// Hundredths of whatever is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Hundredths(i64);

impl Hundredths {
    /// The amount that `text` spells: digits, perhaps a minus before and a point with one or two
    /// decimals behind. `None` for anything else and beyond 64 bits.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (negative, size) = text.strip_prefix('-').map_or((false, text), |size| (true, size));
        let (whole, decimals) = size.split_once('.').unwrap_or((size, "0"));
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        if !digits(whole) || !digits(decimals) || decimals.len() > 2 {
            return None;
        }
        let fraction = format!("{decimals:0<2}").parse::<i64>().ok()?;
        let size = whole.parse::<i64>().ok()?.checked_mul(100)?.checked_add(fraction)?;
        Some(Self(if negative { -size } else { size }))
    }

    /// The sum, if 64 bits hold it.
    pub(super) fn plus(self, other: Self) -> Option<Self> {
        self.0.checked_add(other.0).map(Self)
    }
}

impl fmt::Display for Hundredths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sign, size) = (if self.0 < 0 { "-" } else { "" }, self.0.unsigned_abs());
        write!(f, "{sign}{}.{:02}", size / 100, size % 100)
    }
}
