//! Reading times in exactly the form in which `core` writes them.

use asyncgate_core::Timestamp;

/// Reads a time in the form `2026-01-05T11:00:00.123Z`: exactly these digits and signs, so that one
/// time has one text.
pub(crate) fn parse(text: &str) -> Option<Timestamp> {
    let at: Timestamp = text.parse().ok()?;
    (at.to_string() == text).then_some(at)
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
