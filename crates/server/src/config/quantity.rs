//! Durations and sizes as people write them: `250ms`, `5s`, `7d`; `512KiB`, `1MiB`.

use std::time::Duration;

const TIMES: [(&str, u64); 5] = [
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

const SIZES: [(&str, u64); 3] = [("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// Parses a whole number with a unit. A bare number is refused: some settings are named after seconds,
/// others after milliseconds, and a guess would be wrong for one of them.
pub fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = split(text)?;
    let (_, millis) = TIMES.iter().find(|(name, _)| *name == unit)?;
    number.checked_mul(*millis).map(Duration::from_millis)
}

/// Parses a whole number of bytes, with or without a unit.
pub fn size(text: &str) -> Option<u64> {
    let (number, unit) = split(text)?;
    let factor = match unit {
        "" => 1,
        unit => SIZES.iter().find(|(name, _)| *name == unit)?.1,
    };
    number.checked_mul(factor)
}

fn split(text: &str) -> Option<(u64, &str)> {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    Some((digits.parse().ok()?, unit))
}

/// Formats a duration in the largest unit that divides it.
pub fn show_duration(time: Duration) -> String {
    let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    show(millis, &TIMES, "ms")
}

/// Formats a size in the largest unit that divides it.
pub fn show_size(bytes: u64) -> String {
    show(bytes, &SIZES, "B")
}

fn show(amount: u64, units: &[(&str, u64)], smallest: &str) -> String {
    let (name, factor) = units
        .iter()
        .find(|(_, factor)| amount >= *factor && amount.is_multiple_of(*factor))
        .copied()
        .unwrap_or((smallest, 1));
    format!("{}{name}", amount / factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        for (text, millis) in [
            ("250ms", 250),
            ("5s", 5_000),
            ("2m", 120_000),
            ("12h", 43_200_000),
            ("7d", 604_800_000),
            ("0s", 0),
        ] {
            assert_eq!(
                duration(text),
                Some(Duration::from_millis(millis)),
                "{text}"
            );
        }
        for text in [
            "",
            "5",
            "s",
            "5 s",
            "-5s",
            "1.5s",
            "5S",
            "5sec",
            "1h30m",
            "99999999999999999999d",
            "18446744073709551615d",
        ] {
            assert_eq!(duration(text), None, "{text}");
        }
    }

    #[test]
    fn sizes_may_have_units() {
        for (text, bytes) in [
            ("17", 17),
            ("17B", 17),
            ("512KiB", 524_288),
            ("1MiB", 1 << 20),
        ] {
            assert_eq!(size(text), Some(bytes), "{text}");
        }
        for text in [
            "",
            "KiB",
            "1KB",
            "1kib",
            "-1",
            "1.5MiB",
            "1 MiB",
            "18446744073709551615MiB",
        ] {
            assert_eq!(size(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_shown_can_be_read_back() {
        for text in ["0ms", "250ms", "5s", "90s", "5m", "7d", "25h"] {
            assert_eq!(show_duration(duration(text).unwrap()), text);
        }
        for text in ["0B", "17B", "512KiB", "1MiB", "1025KiB"] {
            assert_eq!(show_size(size(text).unwrap()), text);
        }
    }
}
