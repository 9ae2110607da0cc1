//! Hashing lists of parts so that two different lists never give the same bytes.

use crate::{Json, Principal, json::write_canonical};

/// A domain name and parts, each behind its length. The parts are gathered and hashed in one go,
/// which is several times faster than many small updates of the hash.
pub(crate) struct Preimage(Vec<u8>);

impl Preimage {
    pub(crate) fn new(domain: &str) -> Self {
        // 512 bytes hold most receipts, so that the vector seldom grows.
        let mut bytes = Vec::with_capacity(512);
        bytes.extend_from_slice(domain.as_bytes());
        Self(bytes)
    }

    pub(crate) fn add(&mut self, part: &[u8]) {
        self.0.extend_from_slice(&(part.len() as u32).to_be_bytes());
        self.0.extend_from_slice(part);
    }

    /// Adds a JSON value by its canonical bytes.
    pub(crate) fn add_json(&mut self, json: &Json) {
        // The canonical bytes go straight into the buffer; their length is only known afterwards and
        // is written into the four bytes kept free here.
        let at = self.0.len();
        self.0.extend_from_slice(&[0; 4]);
        write_canonical(&mut self.0, json.text());
        let len = (self.0.len() - at - 4) as u32;
        self.0[at..at + 4].copy_from_slice(&len.to_be_bytes());
    }

    /// Adds the number of parts that follow.
    pub(crate) fn add_count(&mut self, count: usize) {
        self.0.extend_from_slice(&(count as u32).to_be_bytes());
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

    /// Returns the gathered bytes.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// Returns the hash of the gathered bytes.
    pub(crate) fn hash(&self) -> blake3::Hash {
        blake3::hash(&self.0)
    }
}
