//! The life of an API key: it is made, perhaps replaced, and ends by expiry or revocation.

use crate::Timestamp;

/// The times that decide if a key is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyLife {
    /// The time at which it was made.
    pub created_at: Timestamp,
    /// The first moment at which it is not valid any more.
    pub expires_at: Option<Timestamp>,
    /// The time at which it was revoked.
    pub revoked_at: Option<Timestamp>,
    /// True if another key has replaced it.
    pub replaced: bool,
}

/// The state of a key at some time. To the bearer of a bad key both ends look the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyStanding {
    /// It is good.
    Valid,
    /// Its time is over.
    Expired,
    /// Somebody took it back.
    Revoked,
}

/// A refusal to make or to change a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyRejection {
    /// Two ways to say when a key ends contradict each other, even if they agree by chance.
    #[error("give expires_at or expires_in_secs, not both")]
    TwoExpiries,
    /// The key would never be valid.
    #[error("the expiry is not in the future")]
    ExpiryNotAhead,
    /// A key that has ended cannot be rotated; a new one must be made.
    #[error("the key has ended")]
    Ended,
    /// The newer key is the one to rotate.
    #[error("the key has been replaced already")]
    Replaced,
    /// Without it nobody could manage tenants any more.
    #[error("this is the last key of a platform admin")]
    LastPlatformAdmin,
}

/// The outcome of a rotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rotation {
    /// The key that is replaced.
    pub old: KeyLife,
    /// The key that replaces it.
    pub new: KeyLife,
}

impl KeyLife {
    /// Begins the life of a key.
    pub const fn begin(now: Timestamp, expires_at: Option<Timestamp>) -> Self {
        Self {
            created_at: now,
            expires_at,
            revoked_at: None,
            replaced: false,
        }
    }

    /// Returns the key's state. Expiry is exact: at `expires_at` the key is not valid any more.
    pub fn standing(&self, now: Timestamp) -> KeyStanding {
        // A clock that was set back must not make a revoked key good again, so the time of the
        // revocation is not compared.
        if self.revoked_at.is_some() {
            KeyStanding::Revoked
        } else if self.expires_at.is_some_and(|end| now >= end) {
            KeyStanding::Expired
        } else {
            KeyStanding::Valid
        }
    }

    /// Replaces the key by a new one. Both are valid for `overlap_secs` more, but the old one not beyond
    /// its own expiry. The new one lives as long as the old one was meant to.
    pub fn rotate(&self, now: Timestamp, overlap_secs: u64) -> Result<Rotation, KeyRejection> {
        if self.standing(now) != KeyStanding::Valid {
            return Err(KeyRejection::Ended);
        }
        if self.replaced {
            return Err(KeyRejection::Replaced);
        }
        let overlap_ends = after(now, overlap_secs);
        let old_ends = self
            .expires_at
            .map_or(overlap_ends, |end| end.min(overlap_ends));
        let length_ms = self.expires_at.map(|end| end.millis_since(self.created_at));
        Ok(Rotation {
            old: Self {
                expires_at: Some(old_ends),
                replaced: true,
                ..*self
            },
            new: Self::begin(
                now,
                length_ms.map(|length_ms| now.plus_millis(length_ms).min(END_OF_TIME)),
            ),
        })
    }

    /// Revokes the key. Again is fine and keeps the first time.
    ///
    /// `other_platform_admins` is the number of other valid keys that may manage tenants; none if this key
    /// may not.
    pub fn revoke(
        &self,
        now: Timestamp,
        other_platform_admins: Option<usize>,
    ) -> Result<Self, KeyRejection> {
        let valid = self.standing(now) == KeyStanding::Valid;
        if valid && other_platform_admins == Some(0) {
            return Err(KeyRejection::LastPlatformAdmin);
        }
        Ok(Self {
            revoked_at: self.revoked_at.or(Some(now)),
            ..*self
        })
    }
}

/// Returns the expiry of a new key, as its maker named it: by a time, by a length, or not at all.
pub fn expiry(
    now: Timestamp,
    expires_at: Option<Timestamp>,
    expires_in_secs: Option<u64>,
) -> Result<Option<Timestamp>, KeyRejection> {
    let end = match (expires_at, expires_in_secs) {
        (Some(_), Some(_)) => return Err(KeyRejection::TwoExpiries),
        (Some(end), None) => Some(end),
        (None, Some(seconds)) => Some(after(now, seconds)),
        (None, None) => None,
    };
    if end.is_some_and(|end| end <= now) {
        return Err(KeyRejection::ExpiryNotAhead);
    }
    Ok(end)
}

/// The last moment that RFC 3339 can write.
const END_OF_TIME: Timestamp = Timestamp::from_millis(253_402_300_799_999);

/// Returns the time so many seconds from now, as far as it can be written.
pub(super) fn after(now: Timestamp, seconds: u64) -> Timestamp {
    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
    now.plus_millis(seconds.saturating_mul(1_000))
        .min(END_OF_TIME)
}
