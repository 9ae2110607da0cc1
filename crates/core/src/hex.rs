//! Bytes as hexadecimal digits, and back.
//!
//! Digits are written in lower case. Readers take an exact number of bytes, because every field that
//! is written so has a fixed length.

use base16ct::{lower, mixed};

/// Returns the digits of the bytes.
pub fn encode(bytes: &[u8]) -> String {
    lower::encode_string(bytes)
}

/// Appends the digits of the bytes to a text.
pub fn append(text: &mut String, bytes: &[u8]) {
    let mut digits = [0; 64];
    for piece in bytes.chunks(digits.len() / 2) {
        // A piece has at most half as many bytes as there is room for digits, so this cannot fail.
        if let Ok(digits) = lower::encode_str(piece, &mut digits) {
            text.push_str(digits);
        }
    }
}

/// Returns the bytes of `2 * N` lower-case digits; `None` for anything else.
pub fn decode<const N: usize>(digits: impl AsRef<[u8]>) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    let read = lower::decode(digits, &mut bytes).ok()?.len();
    (read == N).then_some(bytes)
}

/// Returns the bytes of `2 * N` digits in either case; `None` for anything else.
pub fn decode_any_case<const N: usize>(digits: impl AsRef<[u8]>) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    let read = mixed::decode(digits, &mut bytes).ok()?.len();
    (read == N).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_read_back() {
        let all: [u8; 256] = std::array::from_fn(|n| n as u8);
        let digits = encode(&all);
        assert!(digits.starts_with("000102") && digits.ends_with("fdfeff"));
        assert_eq!(decode(&digits), Some(all));
        assert_eq!(decode_any_case(digits.to_uppercase()), Some(all));
        let mut text = "0x".to_owned();
        append(&mut text, &all);
        assert_eq!(text, format!("0x{digits}"));
    }

    #[test]
    fn only_digits_and_exactly_as_many_are_read() {
        assert_eq!(decode("0aff"), Some([0x0a, 0xff]));
        assert_eq!(decode_any_case("0aFf"), Some([0x0a, 0xff]));
        for text in [
            "", "0a", "0af", "0aff0", "0aff00", "0ag0", "0xff", "+aff", "ää",
        ] {
            assert_eq!(decode::<2>(text), None, "{text}");
            assert_eq!(decode_any_case::<2>(text), None, "{text}");
        }
        assert_eq!(decode::<2>("0aFF"), None);
    }
}
