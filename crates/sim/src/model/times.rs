//! Reading times in answers. The model does not format its own times to compare the texts: the engine does
//! that, and both would make the same mistake.

use asyncgate_core::Timestamp;

/// Returns true if a text is this time: RFC 3339 in UTC, to the millisecond.
pub(super) fn shows(text: &str, at: Timestamp) -> bool {
    read(text) == Some(at)
}

fn read(text: &str) -> Option<Timestamp> {
    let text: &[u8; 24] = text.as_bytes().try_into().ok()?;
    let marks = [
        (4, b'-'),
        (7, b'-'),
        (10, b'T'),
        (13, b':'),
        (16, b':'),
        (19, b'.'),
        (23, b'Z'),
    ];
    if marks.iter().any(|(place, mark)| text[*place] != *mark) {
        return None;
    }
    let number = |from: usize, to: usize| {
        text[from..to].iter().try_fold(0, |sum, digit| {
            digit
                .is_ascii_digit()
                .then(|| sum * 10 + i64::from(digit - b'0'))
        })
    };
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let length = days(year + month / 12, month % 12 + 1) - days(year, month);
    let real = (1..=12).contains(&month) && (1..=length).contains(&day);
    if !real || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let seconds = (((days(year, month) + day - 1) * 24 + hour) * 60 + minute) * 60 + second;
    Some(Timestamp::from_millis(seconds * 1_000 + number(20, 23)?))
}

/// Returns the days from 1970 to the first of a month. Years are counted from March, so that a leap day
/// is the last day of its year.
const fn days(year: i64, month: i64) -> i64 {
    let year = if month > 2 { year } else { year - 1 };
    let leap_days = year / 4 - year / 100 + year / 400;
    let from_march = (month + 9) % 12;
    year * 365 + leap_days + (from_march * 153 + 2) / 5 - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_they_are_written() {
        let mut millis = -2_000_000_000_123;
        while millis < 10_000_000_000_000 {
            let at = Timestamp::from_millis(millis);
            assert!(shows(&at.to_string(), at), "{at}");
            assert!(!shows(&at.to_string(), at.plus_millis(1)));
            millis += 40_000_000_321;
        }
    }

    #[test]
    fn other_forms_are_not_read() {
        let at = Timestamp::from_millis(0);
        for text in [
            "",
            "1970-01-01T00:00:00Z",
            "1970-01-01T00:00:00.000+",
            "1970-01-01 00:00:00.000Z",
            "1969-12-32T00:00:00.000Z",
            "1969-12-31T24:00:00.000Z",
            "1969-13-01T00:00:00.000Z",
            "1970-00-32T00:00:00.000Z",
        ] {
            assert!(!shows(text, at), "{text}");
        }
    }
}
