//! Reading the times that `core` writes, and nothing else.

use asyncgate_core::Timestamp;

/// The time that is written as `2026-01-05T11:00:00.123Z`: exactly these digits and signs, so that
/// no two texts mean one time.
pub(crate) fn parse(text: &str) -> Option<Timestamp> {
    let bytes: &[u8; 24] = text.as_bytes().try_into().ok()?;
    let signs = [
        (4, b'-'),
        (7, b'-'),
        (10, b'T'),
        (13, b':'),
        (16, b':'),
        (19, b'.'),
        (23, b'Z'),
    ];
    if signs.iter().any(|&(at, sign)| bytes[at] != sign) {
        return None;
    }
    let (year, month, day) = (
        number(&bytes[..4])?,
        number(&bytes[5..7])?,
        number(&bytes[8..10])?,
    );
    let (hour, minute, second) = (
        number(&bytes[11..13])?,
        number(&bytes[14..16])?,
        number(&bytes[17..19])?,
    );
    let millis = number(&bytes[20..23])?;
    let real = (1..=12).contains(&month)
        && (1..=days_in(year, month)).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60;
    let seconds = ((days_from_civil(year, month, day) * 24 + hour) * 60 + minute) * 60 + second;
    real.then(|| Timestamp::from_millis(seconds * 1_000 + millis))
}

fn number(digits: &[u8]) -> Option<i64> {
    digits.iter().try_fold(0, |number, digit| {
        digit
            .is_ascii_digit()
            .then(|| number * 10 + i64::from(digit - b'0'))
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

/// The day number of a Gregorian date, counting in eras of 400 years that begin in March.
const fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_core_writes_is_read_back() {
        let mut millis = -62_167_219_200_000;
        while millis < 253_402_300_799_999 {
            let at = Timestamp::from_millis(millis);
            assert_eq!(parse(&at.to_string()), Some(at), "{at}");
            millis += 8_640_000_001;
        }
    }

    #[test]
    fn what_core_would_not_write_is_no_time() {
        for text in [
            "",
            "2026-01-05T11:00:00Z",
            "2026-01-05t11:00:00.000Z",
            "2026-01-05T11:00:00.000z",
            "2026-01-05 11:00:00.000Z",
            "2026-01-05T11:00:00.000+",
            "2026-02-29T11:00:00.000Z",
            "2026-00-05T11:00:00.000Z",
            "2026-13-05T11:00:00.000Z",
            "2026-01-00T11:00:00.000Z",
            "2026-01-05T24:00:00.000Z",
            "2026-01-05T11:60:00.000Z",
            "2026-01-05T11:00:60.000Z",
            "+026-01-05T11:00:00.000Z",
            "2026-01-05T11:00:00.0\u{e9}Z",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
