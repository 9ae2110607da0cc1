//! Bodies and answers that keep the grant for their memory until they are read, or sent.

use asyncgate_engine::{Budget, Engine, Grant, Holder, TenantId};
use bytes::Bytes;

/// Returns the bytes of a body or of an answer, which keep the grant for as long as any part of them is somewhere: in the body, and
/// in the buffers of the protocol, which take a whole answer before the client has room for it.
pub fn keep_grant<B>(bytes: B, grant: Grant) -> Bytes
where
    B: AsRef<[u8]> + Into<Bytes> + Send + 'static,
{
    if grant.is_empty() {
        return bytes.into();
    }
    Bytes::from_owner(Kept {
        bytes,
        _grant: grant,
    })
}

/// Bytes with the grant for their memory.
struct Kept<B> {
    bytes: B,
    _grant: Grant,
}

impl<B: AsRef<[u8]>> AsRef<[u8]> for Kept<B> {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

/// Counts the bytes of answers that must be told, for one holder.
#[derive(Debug, Clone)]
pub struct Keeper {
    pub(crate) budget: Budget,
    pub(crate) holder: Holder,
}

impl Keeper {
    /// Returns the one for a caller of this tenant, on the connection of the current request.
    pub fn new(engine: &Engine, tenant: TenantId) -> Self {
        Self {
            budget: engine.budget().clone(),
            holder: Holder::tenant(tenant),
        }
    }

    /// Returns the bytes, which count until they are gone.
    pub fn keep<B>(&self, bytes: B) -> Bytes
    where
        B: AsRef<[u8]> + Into<Bytes> + Send + 'static,
    {
        let size = bytes.as_ref().len();
        keep_grant(bytes, self.budget.take_always(self.holder, size))
    }
}

#[cfg(test)]
mod tests {
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
