//! What a verifier has found, when nothing is broken.

use serde::Serialize;

/// A ledger that is whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Whose ledger it is.
    pub tenant_id: String,
    /// How many receipts it has; also the place of the last one.
    pub receipts: u64,
    /// The link of the last receipt.
    pub link: String,
    /// How many tasks were assigned.
    pub tasks: u64,
    /// How many of the obligations are open.
    pub open_obligations: u64,
    /// How many signatures were checked, that of the head included.
    pub signatures: u64,
    /// The key that signed the head; absent when the head is not signed, and nobody vouches for
    /// the ledger.
    pub signed_by: Option<String>,
    /// When the head was signed, or given without a signature.
    pub signed_at: String,
    /// The keys of all signatures, in the order in which each was first used. More than one means
    /// that the server got another key.
    pub keys: Vec<KeyUse>,
    /// When the first receipt was written.
    pub first_at: Option<String>,
    /// When the last receipt was written.
    pub last_at: Option<String>,
}

/// A key and what it signed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KeyUse {
    /// The key, in hexadecimal digits.
    pub public_key: String,
    /// The place of the first head it signed.
    pub first_seq: u64,
    /// The place of the last head it signed.
    pub last_seq: u64,
    /// How many heads it signed.
    pub signatures: u64,
}
