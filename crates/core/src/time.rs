//! Points in time: milliseconds since 1970 in UTC, written as RFC 3339.

use std::{fmt, str::FromStr};

/// A point in time with millisecond precision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(i64);

impl Timestamp {
    /// Builds a time from milliseconds since 1970-01-01T00:00:00Z.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Returns the milliseconds since 1970-01-01T00:00:00Z.
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// Returns this time plus `millis`; stops at the end of time instead of overflowing.
    #[must_use]
    pub const fn plus_millis(self, millis: i64) -> Self {
        Self(self.0.saturating_add(millis))
    }

    /// Returns the milliseconds from `earlier` to this time; negative if `earlier` is the later one.
    pub const fn millis_since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let days = self.0.div_euclid(86_400_000);
        let millis = self.0.rem_euclid(86_400_000);
        let (year, month, day) = civil_from_days(days);
        let (hour, minute) = (millis / 3_600_000, millis / 60_000 % 60);
        let (second, fraction) = (millis / 1_000 % 60, millis % 1_000);
        // The template below has room for the four digits of a year that RFC 3339 allows.
        if !(0..=9_999).contains(&year) {
            return write!(
                f,
                "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{fraction:03}Z"
            );
        }
        // Times stand in every answer, and writing digits into a template is several times faster
        // than the formatter.
        let mut text = *b"0000-00-00T00:00:00.000Z";
        put(&mut text[..4], year);
        put(&mut text[5..7], month);
        put(&mut text[8..10], day);
        put(&mut text[11..13], hour);
        put(&mut text[14..16], minute);
        put(&mut text[17..19], second);
        put(&mut text[20..23], fraction);
        f.write_str(std::str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}

/// Writes the last digits of a number, as many as there is room for.
fn put(room: &mut [u8], mut number: i64) {
    for digit in room.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

/// The error for a text that is no time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a time as RFC 3339 writes it, such as 2026-01-05T11:00:00Z")]
pub struct NotATime;

impl FromStr for Timestamp {
    type Err = NotATime;

    /// Reads RFC 3339 with any offset. Digits finer than a millisecond are dropped.
    fn from_str(text: &str) -> Result<Self, NotATime> {
        read(text).ok_or(NotATime)
    }
}

fn read(text: &str) -> Option<Timestamp> {
    // Checked: the 19th byte may lie inside a character of several bytes.
    let (date, rest) = text.split_at_checked(19)?;
    let date = date.as_bytes();
    let signs = [(4, b'-'), (7, b'-'), (13, b':'), (16, b':')];
    let between = matches!(date[10], b'T' | b't' | b' ');
    if !between || signs.iter().any(|&(at, sign)| date[at] != sign) {
        return None;
    }
    let part = |from: usize, to: usize| number(date.get(from..to)?);
    let (year, month, day) = (part(0, 4)?, part(5, 7)?, part(8, 10)?);
    let (hour, minute, second) = (part(11, 13)?, part(14, 16)?, part(17, 19)?);
    // Second 60 is a leap second: the arithmetic below makes it the first second of the next minute.
    let real = (1..=12).contains(&month)
        && (1..=days_in(year, month)).contains(&day)
        && hour < 24
        && minute < 60
        && second <= 60;
    let (fraction, offset) = match rest.strip_prefix('.') {
        Some(rest) => {
            // An offset must follow, so a fraction that ends the text is refused.
            let digits = rest.find(|sign: char| !sign.is_ascii_digit())?;
            rest.split_at_checked(digits)?
        }
        None => ("", rest),
    };
    // RFC 3339 demands at least one digit after a point.
    if !real || (fraction.is_empty() && rest.starts_with('.')) {
        return None;
    }
    // Exactly three digits: shorter fractions are padded with zeros, longer ones are cut.
    let millis = number(format!("{fraction:0<3.3}").as_bytes())?;
    let offset = match offset.as_bytes() {
        [b'Z' | b'z'] => 0,
        [sign @ (b'+' | b'-'), a, b, b':', c, d] => {
            let (hours, minutes) = (number(&[*a, *b])?, number(&[*c, *d])?);
            let minutes = (hours < 24 && minutes < 60).then_some(hours * 60 + minutes)?;
            if *sign == b'+' { minutes } else { -minutes }
        }
        _ => return None,
    };
    let minutes = (days_from_civil(year, month, day) * 24 + hour) * 60 + minute - offset;
    Some(Timestamp((minutes * 60 + second) * 1_000 + millis))
}

fn number(digits: &[u8]) -> Option<i64> {
    digits.iter().try_fold(0, |number, digit| {
        let digit = digit.is_ascii_digit().then(|| i64::from(digit - b'0'))?;
        Some(number * 10 + digit)
    })
}

const fn days_in(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

/// Returns the day number of a proleptic Gregorian date; the reverse of [`civil_from_days`].
const fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Returns the proleptic Gregorian date of a day number. It counts eras of 400 years that begin in
/// March, so that the leap day is the last day of its year.
const fn civil_from_days(days: i64) -> (i64, i64, i64) {
    // 719468 days lie between 0000-03-01 and 1970-01-01.
    let shifted = days.saturating_add(719_468);
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = year_of_era + era * 400 + if month <= 2 { 1 } else { 0 };
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_rfc_3339() {
        for (millis, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_767_610_800_123, "2026-01-05T11:00:00.123Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (-62_167_219_200_001, "-001-12-31T23:59:59.999Z"),
            (-62_167_219_200_000, "0000-01-01T00:00:00.000Z"),
            (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
            (253_402_300_800_000, "10000-01-01T00:00:00.000Z"),
        ] {
            assert_eq!(Timestamp::from_millis(millis).to_string(), text);
        }
    }

    #[test]
    fn times_are_read_back_with_any_offset() {
        for millis in [0, -1, 951_782_400_000, 1_767_610_800_123, 4_107_542_400_000] {
            let time = Timestamp::from_millis(millis);
            assert_eq!(time.to_string().parse(), Ok(time));
        }
        for (text, millis) in [
            ("1970-01-01T00:00:00Z", 0),
            ("1970-01-01t00:00:00.5z", 500),
            ("1970-01-01 01:00:00+01:00", 0),
            ("1969-12-31T23:30:00.0009-00:30", 0),
            ("2016-12-31T23:59:60Z", 1_483_228_800_000),
        ] {
            assert_eq!(text.parse(), Ok(Timestamp::from_millis(millis)), "{text}");
        }
        for text in [
            "",
            "1970-01-01",
            "1970-01-01T00:00:00",
            "1970-01-01T00:00:00.Z",
            "1970-13-01T00:00:00Z",
            "1970-02-29T00:00:00Z",
            "1970-01-01T24:00:00Z",
            "1970-01-01T00:00:00+24:00",
            "1970-01-01T00:00:00Zx",
            "1970-01-01T00:00:0äZ",
            "-970-01-01T00:00:00Z",
        ] {
            assert_eq!(text.parse::<Timestamp>(), Err(NotATime), "{text}");
        }
    }

    #[test]
    fn arithmetic_stops_at_the_end_of_time() {
        let end = Timestamp::from_millis(i64::MAX);
        assert_eq!(end.plus_millis(1), end);
    }
}
