//! Revocation: warrants and keys that must not be trusted any more.

use std::{collections::HashSet, fmt, str::FromStr};

use sha2::{Digest, Sha256};

use crate::Timestamp;

/// The kinds of things that can be revoked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SubjectKind {
    /// One warrant.
    WarrantId,
    /// All warrants of an issuer.
    IssuerKey,
    /// All warrants of a holder.
    HolderKey,
}

impl SubjectKind {
    /// Every kind, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::WarrantId, Self::IssuerKey, Self::HolderKey];

    /// The kind's name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::WarrantId => "warrant_id",
            Self::IssuerKey => "issuer_key",
            Self::HolderKey => "holder_key",
        }
    }

    /// Returns true if the subject is a key.
    pub const fn is_key(self) -> bool {
        match self {
            Self::WarrantId => false,
            Self::IssuerKey | Self::HolderKey => true,
        }
    }
}

/// The error for a text that names no kind of subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("kind must be warrant_id, issuer_key or holder_key")]
pub struct NotAKind;

impl FromStr for SubjectKind {
    type Err = NotAKind;

    fn from_str(text: &str) -> Result<Self, NotAKind> {
        let mut kinds = Self::ALL.into_iter();
        kinds.find(|kind| kind.as_str() == text).ok_or(NotAKind)
    }
}

/// A thing that can be revoked: the SHA-256 of a warrant's sixteen id bytes or of a key's thirty-two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Subject {
    /// The kind of thing.
    pub kind: SubjectKind,
    /// Its hash.
    pub hash: [u8; 32],
}

impl Subject {
    /// Returns the subject of one warrant.
    pub fn warrant(id: &[u8; 16]) -> Self {
        Self {
            kind: SubjectKind::WarrantId,
            hash: sha256(id),
        }
    }

    /// Returns the subject of a key, as issuer or as holder.
    pub fn key(kind: SubjectKind, key: &[u8; 32]) -> Self {
        let hash = sha256(key);
        Self { kind, hash }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hash = base16ct::HexDisplay(&self.hash);
        write!(f, "{}/{hash:x}", self.kind.as_str())
    }
}

/// Returns the SHA-256 of some bytes.
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// A subject that must not be trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revocation {
    /// The revoked subject.
    pub subject: Subject,
    /// The reason, if one was given.
    pub reason: Option<String>,
    /// The time from which it holds.
    pub revoked_at: Timestamp,
}

impl Revocation {
    /// Returns the revocation that holds, and true if it is this one: the first revocation stays.
    pub fn over(self, stored: Option<Self>) -> (Self, bool) {
        match stored {
            Some(first) => (first, false),
            None => (self, true),
        }
    }
}

/// Keys that cannot be revoked, because revoking them would stop everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Protected(HashSet<[u8; 32]>);

impl Protected {
    /// Protects keys, as issuers and as holders.
    pub fn new<'a>(keys: impl IntoIterator<Item = &'a [u8; 32]>) -> Self {
        Self(keys.into_iter().map(|key| sha256(key)).collect())
    }

    /// Returns true if a subject is a protected key.
    pub fn covers(&self, subject: &Subject) -> bool {
        // A warrant whose hash happens to be that of a key is not protected.
        subject.kind.is_key() && self.0.contains(&subject.hash)
    }
}

/// The times for which an answer about a revocation may be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RevocationCache {
    /// The time for which it is as good as new.
    pub ttl_ms: i64,
    /// The time for which it may be used while the registry cannot be reached.
    pub max_staleness_ms: i64,
}

impl Default for RevocationCache {
    fn default() -> Self {
        Self {
            ttl_ms: 60_000,
            max_staleness_ms: 300_000,
        }
    }
}

/// The age class of a kept answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// As good as new.
    Fresh,
    /// The registry must be asked first; the kept answer may be used if the registry cannot be reached.
    Stale,
    /// The kept answer must not be used.
    Expired,
}

impl RevocationCache {
    /// Returns the age class of an answer that was kept for `age_ms`.
    pub const fn freshness(&self, age_ms: i64) -> Freshness {
        if age_ms < self.ttl_ms {
            Freshness::Fresh
        } else if age_ms < self.max_staleness_ms {
            Freshness::Stale
        } else {
            Freshness::Expired
        }
    }
}
