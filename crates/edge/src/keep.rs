//! Answers that keep the grant for their memory until they are sent.

use asyncgate_engine::Grant;
use bytes::Bytes;

/// Returns the bytes of an answer, which keep the grant for as long as any part of them is somewhere: in the body, and
/// in the buffers of the protocol, which take a whole answer before the client has room for it.
pub fn keep_grant(bytes: Vec<u8>, grant: Grant) -> Bytes {
    if grant.is_empty() {
        return bytes.into();
    }
    Bytes::from_owner(Kept {
        bytes,
        _grant: grant,
    })
}

/// Bytes with the grant for their memory.
struct Kept {
    bytes: Vec<u8>,
    _grant: Grant,
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use asyncgate_engine::{Budget, Holder, TenantId};

    use super::*;

    #[test]
    fn bytes_keep_their_grant_until_the_last_part_is_gone() {
        let budget = Budget::new(100_000);
        let holder = Holder::tenant(TenantId::from_bytes([1; 16]));
        let grant = budget.take(holder, 5_000).unwrap();
        let mut bytes = keep_grant(vec![7; 5_000], grant);
        let part = bytes.split_off(4_999);
        drop(bytes);
        assert_eq!((part.as_ref(), budget.taken()), (&[7][..], 5_000));
        drop(part);
        assert_eq!(budget.taken(), 0);
    }
}
