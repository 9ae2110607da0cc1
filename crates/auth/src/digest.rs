//! Digests, by which credentials are known and compared.

use crate::machine::{Machine, NoRandomness};

/// A digest of a credential. Comparing two takes the same time wherever they differ.
pub(crate) type Digest = blake3::Hash;

/// A hash of credentials under a key of this process, so that a digest is of no use outside of it.
pub(crate) struct Digester {
    key: [u8; 32],
}

impl Digester {
    pub(crate) fn new(machine: Machine) -> Result<Self, NoRandomness> {
        let key = machine.bytes()?;
        Ok(Self { key })
    }

    pub(crate) fn digest(&self, credential: &str) -> Digest {
        blake3::keyed_hash(&self.key, credential.as_bytes())
    }
}
