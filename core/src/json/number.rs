//! What PostgreSQL's `numeric` can hold, and how long it prints.

/// Digits that `numeric` holds before the point.
const WHOLE_DIGITS_MAX: i64 = 131_072;
/// Digits that it holds after the point; trailing zeros count.
const SCALE_MAX: i64 = 16_383;
/// From this exponent on it refuses even a zero.
const EXPONENT_END: i64 = (i32::MAX / 2) as i64;

/// Bytes of a number as `numeric` prints it (`-0` may print a byte shorter), or `None` where
/// `numeric` refuses it. `whole` is a JSON number's: `0`, or no zero in front.
pub(super) fn printed_len(
    negative: bool,
    whole: &[u8],
    fraction: &[u8],
    exponent: i64,
) -> Option<usize> {
    if exponent.saturating_abs() >= EXPONENT_END {
        return None;
    }
    let scale = (fraction.len() as i64 - exponent).max(0);
    // Digits left of the point from the first that isn't 0 on; below 0 for zeros right of it.
    let lead = match (whole, fraction.iter().position(|&b| b != b'0')) {
        ([b'0'], None) => 0,
        ([b'0'], Some(zeros)) => exponent - zeros as i64,
        (whole, _) => exponent + whole.len() as i64,
    };
    let fits = scale <= SCALE_MAX && lead <= WHOLE_DIGITS_MAX;
    fits.then(|| {
        usize::from(negative) + lead.max(1) as usize + usize::from(scale > 0) + scale as usize
    })
}
