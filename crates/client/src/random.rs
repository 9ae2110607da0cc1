//! The client's random numbers: jitter for retries, and idempotency keys.
//!
//! The rule that only the server reads the random source is about decisions that must be repeatable
//! from a seed. A client stands outside of them.

use std::{fmt::Write, time::Duration};

/// A name that nobody has chosen before, or `None` if the machine has no random source.
pub(crate) fn idempotency_key() -> Option<String> {
    let mut key = String::with_capacity(32);
    for byte in bytes::<16>()? {
        // Writing to a string cannot fail.
        let _ = write!(key, "{byte:02x}");
    }
    Some(key)
}

/// A random part of `limit`, all parts being equally likely.
pub(crate) fn part_of(limit: Duration) -> Duration {
    // Without randomness, half is as good a guess as any.
    let part = bytes::<4>().map_or(0.5, |bytes| {
        f64::from(u32::from_le_bytes(bytes)) / (f64::from(u32::MAX) + 1.0)
    });
    limit.mul_f64(part)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the client is outside of what must be repeatable"
)]
fn bytes<const N: usize>() -> Option<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_differ_and_are_plain_text() {
        let (one, other) = (idempotency_key().unwrap(), idempotency_key().unwrap());
        assert_ne!(one, other);
        assert_eq!(one.len(), 32);
        assert!(one.bytes().all(|byte| byte.is_ascii_hexdigit()));
    }

    #[test]
    fn a_part_is_never_more_than_the_whole() {
        let whole = Duration::from_millis(100);
        let parts: Vec<_> = (0..1_000).map(|_| part_of(whole)).collect();
        assert!(parts.iter().all(|part| *part < whole));
        assert!(parts.iter().any(|part| *part < whole / 4));
        assert!(parts.iter().any(|part| *part > whole * 3 / 4));
    }
}
