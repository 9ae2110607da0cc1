//! Names of admission rows.

use std::hash::{Hash, Hasher};

use crate::TenantId;

/// The name of a row: 128 bits of a hash over the tenant, the sort of row, and its subject.
///
/// Each part is hashed behind its length, so that different inputs never give the same bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name([u8; 16]);

impl Hash for Name {
    /// Feeds only half of the name to the hasher: it is a hash already, and 64 bits are enough.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        state.write_u64(u64::from_ne_bytes([a, b, c, d, e, f, g, h]));
    }
}

/// The sort of a row. The numbers are part of stored names and never change.
#[derive(Debug, Clone, Copy)]
pub(super) enum Sort {
    Nonce = 1,
    Counter = 2,
    Window = 3,
    Bucket = 4,
    Delay = 5,
}

/// The bytes kept on the stack: enough for nearly all names, so that they need no allocation.
const USUAL_BYTES: usize = 384;

impl Name {
    pub(super) fn new(tenant: TenantId, sort: Sort, parts: &[&[u8]]) -> Self {
        let mut bytes = Bytes::default();
        // Tenant and sort have fixed lengths; only the parts after them need theirs.
        bytes.put(tenant.as_bytes());
        bytes.put(&[sort as u8]);
        for part in parts {
            bytes.put(&(part.len() as u64).to_be_bytes());
            bytes.put(part);
        }
        let mut head = [0; 16];
        head.copy_from_slice(&bytes.hash().as_bytes()[..16]);
        Self(head)
    }

    /// Builds a name from its sixteen bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Its sixteen bytes.
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0
    }
}

/// The bytes to be hashed. They stay on the stack while they fit, which is much faster.
struct Bytes {
    usual: [u8; USUAL_BYTES],
    len: usize,
    more: Option<Box<blake3::Hasher>>,
}

impl Default for Bytes {
    fn default() -> Self {
        Self {
            usual: [0; USUAL_BYTES],
            len: 0,
            more: None,
        }
    }
}

impl Bytes {
    fn put(&mut self, part: &[u8]) {
        let end = self.len + part.len();
        if let (None, Some(room)) = (&self.more, self.usual.get_mut(self.len..end)) {
            room.copy_from_slice(part);
            self.len = end;
            return;
        }
        let begun = &self.usual[..self.len];
        let more = self.more.get_or_insert_with(|| {
            let mut hasher = Box::new(blake3::Hasher::new());
            hasher.update(begun);
            hasher
        });
        more.update(part);
    }

    fn hash(&self) -> blake3::Hash {
        match &self.more {
            None => blake3::hash(&self.usual[..self.len]),
            Some(more) => more.finalize(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TENANT: TenantId = TenantId::from_bytes([7; 16]);

    #[test]
    fn no_two_inputs_meet() {
        let long = [b'x'; 1_000];
        let names = [
            Name::new(TENANT, Sort::Nonce, &[b"ab", b"c"]),
            Name::new(TENANT, Sort::Nonce, &[b"a", b"bc"]),
            Name::new(TENANT, Sort::Nonce, &[b"abc"]),
            Name::new(TENANT, Sort::Nonce, &[b"abc", b""]),
            Name::new(TENANT, Sort::Bucket, &[b"abc"]),
            Name::new(TenantId::from_bytes([8; 16]), Sort::Nonce, &[b"abc"]),
            Name::new(TENANT, Sort::Nonce, &[&long]),
            Name::new(TENANT, Sort::Nonce, &[&long, b"c"]),
            Name::new(TENANT, Sort::Nonce, &[b"c", &long]),
        ];
        for (n, one) in names.iter().enumerate() {
            for other in &names[n + 1..] {
                assert_ne!(one, other);
            }
        }
    }

    #[test]
    fn a_name_does_not_depend_on_where_its_bytes_were_gathered() {
        for len in [0, 300, 342, 343, 344, 345, 2_000] {
            let part = vec![3; len];
            let mut whole = Vec::from(TENANT.as_bytes());
            whole.push(Sort::Nonce as u8);
            for part in [&part[..], b"end"] {
                whole.extend_from_slice(&(part.len() as u64).to_be_bytes());
                whole.extend_from_slice(part);
            }
            let name = Name::new(TENANT, Sort::Nonce, &[&part, b"end"]);
            assert_eq!(name.to_bytes(), blake3::hash(&whole).as_bytes()[..16]);
            assert_eq!(Name::from_bytes(name.to_bytes()), name);
        }
    }
}
