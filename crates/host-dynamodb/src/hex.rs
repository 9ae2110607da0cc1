//! Hexadecimal digits: bytes as text, and back.

pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        for digit in [byte >> 4, byte & 15] {
            text.push(char::from(DIGITS[usize::from(digit)]));
        }
    }
    text
}

/// Reads exactly `N` bytes, or returns none.
pub(crate) fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
        for digit in pair {
            let digit = char::from(*digit).to_digit(16)?;
            *byte = *byte << 4 | u8::try_from(digit).ok()?;
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_survive_the_way_to_text_and_back() {
        assert_eq!(hex(&[0, 0x0f, 0xa5]), "000fa5");
        assert_eq!(bytes("000fa5"), Some([0, 0x0f, 0xa5]));
        for bad in ["", "000fa", "000fa5a5", "000fag", "00 0fa"] {
            assert_eq!(bytes::<3>(bad), None, "{bad:?}");
        }
    }
}
