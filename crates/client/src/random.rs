//! The client's random numbers: jitter for retries, and idempotency keys.
//!
//! Only the server may read the random source, because decisions must be repeatable from a seed. A
//! client takes no part in decisions, so the rule does not bind it.

use std::{
    fmt::Write,
    time::{Duration, SystemTime},
};

/// Returns a unique name, or `None` if the machine has no random source.
///
/// It begins with the time, so that the server's index of keys grows at its end. If keys were wholly
/// random, each would change another page of the index, and the server would write half as much again
/// for a task.
pub(crate) fn idempotency_key() -> Option<String> {
    let random = u128::from_le_bytes(bytes()?);
    let mut key = String::with_capacity(32);
    // Writing to a string cannot fail.
    let _ = write!(key, "{:032x}", (millis() << 80) | (random >> 48));
    Some(key)
}

#[expect(
    clippy::disallowed_methods,
    reason = "a wrong clock only makes keys that are less in order"
)]
fn millis() -> u128 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis())
}

/// Returns a random part of `limit`; all parts are equally likely.
pub(crate) fn part_of(limit: Duration) -> Duration {
    // Without a random source, half of the limit is the average.
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
        assert!(one[..12] <= other[..12] && &one[..12] > "019000000000");
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
