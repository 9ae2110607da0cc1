//! Nonces: bytes that may be used once.

use super::{Cell, Name, Row, name::Sort, seconds};
use crate::{TenantId, Timestamp};

/// The longest nonce.
pub const MAX_NONCE_BYTES: usize = 64;

/// A nonce to be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NonceCheck {
    /// The space within which the nonce is unique.
    pub namespace: [u8; 32],
    /// The nonce, 1 to [`MAX_NONCE_BYTES`] bytes.
    pub nonce: Vec<u8>,
    /// The time for which it counts as used. Callers ask for at most [`MAX_SECS`](super::MAX_SECS); warrants for
    /// a leeway more.
    pub ttl_secs: u64,
}

/// The answer about a nonce.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NonceResult {
    /// The nonce was new.
    Accepted,
    /// The nonce was used before.
    Replay {
        /// The time of its first use, in seconds since 1970, if the backend knows it.
        first_seen: Option<i64>,
    },
}

impl NonceCheck {
    pub(super) fn name(&self, tenant: TenantId) -> Name {
        Name::new(tenant, Sort::Nonce, &[&self.namespace, &self.nonce])
    }

    /// Returns the row to remember, or the replay. A repeated use does not prolong the first.
    pub(super) fn decide(&self, now: Timestamp, stored: Option<Row>) -> Result<Row, NonceResult> {
        if let Some(Row {
            cell: Cell::Nonce { first_seen },
            ..
        }) = stored
        {
            let first_seen = Some(first_seen);
            return Err(NonceResult::Replay { first_seen });
        }
        let ttl_ms = i64::try_from(self.ttl_secs.saturating_mul(1_000)).unwrap_or(i64::MAX);
        let first_seen = seconds(now);
        Ok(Row {
            cell: Cell::Nonce { first_seen },
            until: now.plus_millis(ttl_ms),
        })
    }
}
