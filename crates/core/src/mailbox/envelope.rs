//! Hashes of messages: those that a receiver can check, and the chain that each shard keeps.
//!
//! ```text
//! payload_hash = BLAKE3(payload)
//! hash_chain   = BLAKE3("asyncgate.envelope.v1", L(topic), L(ts), L(idem_key), L(payload_hash),
//!                       u32(number of attrs), and by key order L(key) L(value))
//! link         = BLAKE3("asyncgate.mailbox.link.v1", L(previous link), L(hash_chain))
//! ```
//!
//! L(x) is the length of x in four big-endian bytes, followed by x in its wire form: `ts` in
//! RFC 3339, `payload_hash` as `b3:` and hexadecimal digits. In `link`, both parts are the 32 bytes.

use std::{collections::BTreeMap, fmt};

use super::Message;
use crate::{Link, Timestamp, preimage::Preimage};

/// A BLAKE3 hash, written as `b3:` and hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Digest([u8; 32]);

impl Digest {
    /// Builds a digest from the bytes of the hash.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes of the hash.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("b3:")?;
        f.write_str(&blake3::Hash::from_bytes(self.0).to_hex())
    }
}

/// Returns the hash of a message's content.
pub fn payload_hash(payload: &[u8]) -> Digest {
    Digest(*blake3::hash(payload).as_bytes())
}

/// Returns the hash of an envelope.
pub fn hash_chain(
    topic: &str,
    sent_at: Timestamp,
    idem_key: &str,
    payload_hash: &Digest,
    attrs: &BTreeMap<String, String>,
) -> Digest {
    let mut parts = Preimage::new("asyncgate.envelope.v1");
    parts.add(topic.as_bytes());
    parts.add(sent_at.to_string().as_bytes());
    parts.add(idem_key.as_bytes());
    parts.add(payload_hash.to_string().as_bytes());
    parts.add_count(attrs.len());
    for (key, value) in attrs {
        parts.add(key.as_bytes());
        parts.add(value.as_bytes());
    }
    Digest(*parts.hash().as_bytes())
}

/// The end of a shard's chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ChainHead {
    /// The number of messages in the chain so far.
    pub seq: u64,
    /// The link of the last one.
    pub link: Link,
}

impl ChainHead {
    /// Returns the head after a message with this hash.
    #[must_use]
    pub fn then(&self, hash_chain: &Digest) -> Self {
        let mut parts = Preimage::new("asyncgate.mailbox.link.v1");
        parts.add(self.link.as_bytes());
        parts.add(hash_chain.as_bytes());
        Self {
            seq: self.seq + 1,
            link: Link::from_bytes(*parts.hash().as_bytes()),
        }
    }

    /// Returns the bytes that a signature of this head covers.
    pub fn statement(&self, tenant: crate::TenantId, shard: u16, signed_at: Timestamp) -> Vec<u8> {
        let mut parts = Preimage::new("asyncgate.mailbox.head.v1");
        parts.add(tenant.as_bytes());
        parts.add(&shard.to_be_bytes());
        parts.add(&self.seq.to_be_bytes());
        parts.add(self.link.as_bytes());
        parts.add(&signed_at.as_millis().to_be_bytes());
        parts.into_bytes()
    }
}

/// The hash that a message does not match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// The content does not match its hash.
    PayloadHash,
    /// The envelope does not match its hash.
    HashChain,
}

impl Flaw {
    /// The flaw's name in metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PayloadHash => "payload_hash",
            Self::HashChain => "hash_chain",
        }
    }
}

impl Message {
    /// Checks the message against its hashes. A message that is gone has no content left to check.
    pub fn flaw(&self) -> Option<Flaw> {
        if payload_hash(&self.payload) != self.payload_hash {
            return Some(Flaw::PayloadHash);
        }
        // The envelope's hash covers the payload's hash, not the payload: both must be checked.
        let now = hash_chain(
            &self.topic,
            self.sent_at,
            &self.idem_key,
            &self.payload_hash,
            &self.attrs,
        );
        (now != self.hash_chain).then_some(Flaw::HashChain)
    }

    /// Returns the head of the shard's chain after this message.
    pub fn chain_head(&self) -> ChainHead {
        let before = ChainHead {
            seq: self.chain_seq.saturating_sub(1),
            link: self.prev,
        };
        before.then(&self.hash_chain)
    }
}

/// Returns the shard of a topic, or of a partition key within it. It is stable over restarts and
/// versions: the first eight bytes of BLAKE3 as a big-endian number, modulo the number of shards.
pub fn shard_of(topic: &str, partition_key: Option<&str>, shards: u16) -> u16 {
    // A hash of our own and not the hasher of a map: the place is stored and must never change.
    let mut parts = Preimage::new("asyncgate.shard.v1");
    parts.add(topic.as_bytes());
    if let Some(key) = partition_key {
        parts.add(key.as_bytes());
    }
    let hash = parts.hash();
    let mut head = [0; 8];
    head.copy_from_slice(&hash.as_bytes()[..8]);
    // The bias of the modulo is about one in 2^48 for any number of shards.
    (u64::from_be_bytes(head) % u64::from(shards.max(1))) as u16
}
