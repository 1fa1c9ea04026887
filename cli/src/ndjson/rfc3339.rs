//! Instants as RFC 3339 spells them.

use awa::core::Instant;

/// The instant that `text` names, or `None` if it is no RFC 3339 date and time with an offset.
/// A space may stand for the `T`. Finer than a microsecond is rounded up, so that nothing runs
/// early; second 60 is the next minute's first, as in PostgreSQL.
pub(super) fn parse(text: &str) -> Option<Instant> {
    let mut rest = Rest(text.as_bytes());
    let year = rest.number(4)?;
    rest.one_of(b"-")?;
    let month = rest.number(2)?;
    rest.one_of(b"-")?;
    let day = rest.number(2)?;
    rest.one_of(b"Tt ")?;
    let hour = rest.number(2)?;
    rest.one_of(b":")?;
    let minute = rest.number(2)?;
    rest.one_of(b":")?;
    let second = rest.number(2)?;
    let fraction_us = rest.fraction_us()?;
    let offset_s = rest.offset_s()?;
    let in_calendar = (1..=12).contains(&month) && (1..=days_in(year, month)).contains(&day);
    if !in_calendar || hour > 23 || minute > 59 || second > 60 || !rest.0.is_empty() {
        return None;
    }
    let days = days_since_1970(year, month, day);
    let seconds = days * 86_400 + hour * 3_600 + minute * 60 + second - offset_s;
    Some(Instant::from_unix_us(seconds * 1_000_000 + fraction_us))
}

/// `at` in UTC, to the microsecond where it has a fraction.
pub(crate) fn format(at: Instant) -> String {
    let (seconds, us) = (at.unix_us().div_euclid(1_000_000), at.unix_us().rem_euclid(1_000_000));
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // A first guess that is never too late, whichever side of 1970; the calendar sets it right.
    let mut year = 1970 + days.div_euclid(if days < 0 { 365 } else { 366 });
    while days_since_1970(year + 1, 1, 1) <= days {
        year += 1;
    }
    let month = (1..=12).rev().find(|month| days_since_1970(year, *month, 1) <= days).unwrap_or(1);
    let day = days - days_since_1970(year, month, 1) + 1;
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    let fraction = if us == 0 { String::new() } else { format!(".{us:06}") };
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}Z")
}

struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn number(&mut self, digits: usize) -> Option<i64> {
        let (these, rest) = self.0.split_at_checked(digits)?;
        self.0 = rest;
        these.iter().try_fold(0, |n, b| b.is_ascii_digit().then(|| n * 10 + i64::from(b - b'0')))
    }

    fn one_of(&mut self, wanted: &[u8]) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        wanted.contains(first).then_some(*first)
    }

    fn fraction_us(&mut self) -> Option<i64> {
        let Some(after_point) = self.0.strip_prefix(b".") else { return Some(0) };
        let len = after_point.iter().take_while(|b| b.is_ascii_digit()).count();
        let (digits, rest) = after_point.split_at(len);
        self.0 = rest;
        let digit = |place: usize| digits.get(place).map_or(0, |b| i64::from(b - b'0'));
        let us = (0..6).fold(0, |us, place| us * 10 + digit(place));
        let finer = digits.iter().skip(6).any(|b| *b != b'0');
        (len > 0).then(|| us + i64::from(finer))
    }

    fn offset_s(&mut self) -> Option<i64> {
        let sign = match self.one_of(b"Zz+-")? {
            b'+' => 1,
            b'-' => -1,
            _ => return Some(0),
        };
        let hours = self.number(2)?;
        self.one_of(b":")?;
        let minutes = self.number(2)?;
        (hours <= 23 && minutes <= 59).then(|| sign * (hours * 3_600 + minutes * 60))
    }
}

fn days_in(year: i64, month: i64) -> i64 {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if leap => 29,
        2 => 28,
        _ => 31,
    }
}

/// Days of the proleptic Gregorian calendar. Years are counted from March, so that the leap day is
/// a year's last and a month's first day is a linear function of the month.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let months_since_march = (month + 9) % 12;
    let day_of_year = (153 * months_since_march + 2) / 5 + day - 1;
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    year * 365 + leap_days + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reference figures are PostgreSQL's: `extract(epoch from '…'::timestamptz) * 1e6`.
    #[test]
    fn instants_are_read_as_postgresql_reads_them() {
        for (text, us) in [
            ("1970-01-01T00:00:00Z", 0),
            ("1969-12-31T23:59:59.999999Z", -1),
            ("2000-02-29T12:00:00Z", 951_825_600_000_000),
            ("2026-11-30T08:15:30.25+01:00", 1_796_022_930_250_000),
            ("2026-11-30t08:15:30-05:30", 1_796_046_330_000_000),
            ("2026-11-30 08:15:30z", 1_796_026_530_000_000),
            ("1900-03-01T00:00:00Z", -2_203_891_200_000_000),
            ("0001-01-01T00:00:00Z", -62_135_596_800_000_000),
            ("9999-12-31T23:59:60Z", 253_402_300_800_000_000),
        ] {
            assert_eq!(parse(text), Some(Instant::from_unix_us(us)), "{text}");
        }
    }

    #[test]
    fn nothing_runs_early() {
        for (text, us) in [
            ("1970-01-01T00:00:00.0000001Z", 1),
            ("1970-01-01T00:00:00.999999900Z", 1_000_000),
            ("1970-01-01T00:00:00.999999000Z", 999_999),
            ("1969-12-31T23:59:59.9999989Z", -1),
        ] {
            assert_eq!(parse(text), Some(Instant::from_unix_us(us)), "{text}");
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "",
            "now",
            "2026-11-30",
            "2026-11-30T08:15:30",
            "2026-11-30T08:15Z",
            "2026-02-29T00:00:00Z",
            "1900-02-29T00:00:00Z",
            "2026-04-31T00:00:00Z",
            "2026-00-10T00:00:00Z",
            "2026-13-10T00:00:00Z",
            "2026-01-00T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:60:00Z",
            "2026-01-01T00:00:61Z",
            "2026-01-01T00:00:00.Z",
            "2026-01-01T00:00:00+0100",
            "2026-01-01T00:00:00+24:00",
            "2026-01-01T00:00:00Z ",
            "+026-01-01T00:00:00Z",
            "2026-01-01T00:00:00é",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_formatted_parses_to_the_same() {
        for us in [
            0,
            -1,
            1,
            951_782_399_999_999,
            951_782_400_000_000,
            4_102_444_800_000_000,
            -62_135_596_800_000_000,
        ] {
            let at = Instant::from_unix_us(us);
            assert_eq!(parse(&format(at)), Some(at), "{}", format(at));
        }
        assert_eq!(
            format(Instant::from_unix_us(1_796_000_000_500_000)),
            "2026-11-30T00:53:20.500000Z"
        );
    }
}
