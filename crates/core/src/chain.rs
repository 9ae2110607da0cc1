//! The hash chain that makes a ledger tamper-evident.
//!
//! Each receipt's link is a hash over the link before it and everything the receipt says, its id and
//! time included. Anyone who knows one link of a ledger can detect that something before it was
//! changed, left out, added or reordered. The server signs the head, so that others can trust a link.
//!
//! A preimage is a domain name and a list of parts, each part behind its length in four big-endian bytes:
//!
//! ```text
//! link = BLAKE3("asyncgate.link.v1", previous link, tenant id, receipt id, created at, type, from,
//!               to, task id, lease id, parents, canonical body, instance)
//! head = "asyncgate.head.v1", tenant id, seq, link, open obligations, signed at
//! ```

use std::{fmt, str::FromStr};

use crate::{Receipt, Seq, TenantId, Timestamp, preimage::Preimage};

/// The hash of a ledger up to and including one receipt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Link([u8; 32]);

impl Link {
    /// The link before the first receipt.
    pub const START: Self = Self([0; 32]);

    /// Builds a link from the bytes of the hash.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes of the hash.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns the link of `receipt`, which follows the receipt with this link.
    #[must_use]
    pub fn then(&self, tenant: TenantId, receipt: &Receipt) -> Self {
        let mut parts = Preimage::new("asyncgate.link.v1");
        parts.add(&self.0);
        parts.add(tenant.as_bytes());
        parts.add(receipt.id.as_bytes());
        // A statement leaves out id and time; the link covers them too, so that nothing can be redated.
        parts.add(&receipt.created_at.as_millis().to_be_bytes());
        receipt.add_statement(&mut parts);
        parts.add(receipt.instance.as_bytes());
        Self(*parts.hash().as_bytes())
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b3:{}", blake3::Hash::from_bytes(self.0).to_hex())
    }
}

/// The error for a text that is no link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a link: it must be b3: and 64 hexadecimal digits")]
pub struct NotALink;

impl FromStr for Link {
    type Err = NotALink;

    fn from_str(text: &str) -> Result<Self, NotALink> {
        let hex = text.strip_prefix("b3:").ok_or(NotALink)?;
        let hash = blake3::Hash::from_hex(hex).map_err(|_| NotALink)?;
        Ok(Self(*hash.as_bytes()))
    }
}

/// The end of a tenant's ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Head {
    /// The place of the last receipt, 0 when there is none.
    pub seq: Seq,
    /// The link of the last receipt.
    pub link: Link,
    /// The number of open obligations.
    pub open_obligations: u64,
}

impl Head {
    /// Returns the bytes that a signature of this head covers.
    pub fn statement(&self, tenant: TenantId, signed_at: Timestamp) -> Vec<u8> {
        let mut parts = Preimage::new("asyncgate.head.v1");
        parts.add(tenant.as_bytes());
        parts.add(&self.seq.to_be_bytes());
        parts.add(self.link.as_bytes());
        parts.add(&self.open_obligations.to_be_bytes());
        parts.add(&signed_at.as_millis().to_be_bytes());
        parts.into_bytes()
    }
}
