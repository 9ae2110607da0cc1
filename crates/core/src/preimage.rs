//! Hashing lists of parts so that no two different lists meet.

use crate::Principal;

/// A hash over a domain and parts, each behind its length.
pub(crate) struct Preimage(blake3::Hasher);

impl Preimage {
    pub(crate) fn new(domain: &str) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(domain.as_bytes());
        Self(hasher)
    }

    pub(crate) fn add(&mut self, part: &[u8]) {
        self.0.update(&(part.len() as u32).to_be_bytes());
        self.0.update(part);
    }

    pub(crate) fn add_principal(&mut self, principal: &Principal) {
        self.add(principal.kind.as_str().as_bytes());
        self.add(principal.id.as_bytes());
        self.add(
            principal
                .instance_id
                .as_deref()
                .unwrap_or_default()
                .as_bytes(),
        );
    }

    pub(crate) fn finish(&self) -> [u8; 32] {
        *self.0.finalize().as_bytes()
    }

    pub(crate) fn finish_hex(&self) -> String {
        self.0.finalize().to_hex().to_string()
    }
}
