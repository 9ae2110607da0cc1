//! The findings of a verifier about a ledger without a break.

use serde::Serialize;

/// A ledger that is whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The tenant of the ledger.
    pub tenant_id: String,
    /// The number of receipts; also the place of the last one.
    pub receipts: u64,
    /// The link of the last receipt.
    pub link: String,
    /// The number of assigned tasks.
    pub tasks: u64,
    /// The number of open obligations.
    pub open_obligations: u64,
    /// The number of verified signatures, that of the head included.
    pub signatures: u64,
    /// The key that signed the head; absent when the head is not signed, so that nobody vouches for
    /// the ledger.
    pub signed_by: Option<String>,
    /// The time at which the head was signed, or read without a signature.
    pub signed_at: String,
    /// The keys of all signatures, in the order of their first use. More than one means that the
    /// server's key was replaced.
    pub keys: Vec<KeyUse>,
    /// The time of the first receipt.
    pub first_at: Option<String>,
    /// The time of the last receipt.
    pub last_at: Option<String>,
}

/// A key and the heads that it signed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KeyUse {
    /// The key, in hexadecimal digits.
    pub public_key: String,
    /// The place of the first head it signed.
    pub first_seq: u64,
    /// The place of the last head it signed.
    pub last_seq: u64,
    /// The number of heads it signed.
    pub signatures: u64,
}
