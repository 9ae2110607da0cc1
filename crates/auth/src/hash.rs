//! The slow hash of secrets: Argon2id, whose cost the settings choose.

use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher as _, PasswordVerifier as _};
use argon2::{Algorithm, Argon2, Params, Version};

use crate::machine::{Machine, NoRandomness};

/// The cost of a hash. Hashes that were made with another cost stay valid, because each one names its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HashCost {
    /// The passes over the memory.
    pub time: u32,
    /// The memory in KiB.
    pub memory_kib: u32,
    /// The lanes of the memory.
    pub parallelism: u32,
}

impl Default for HashCost {
    fn default() -> Self {
        Self {
            time: 2,
            memory_kib: 65_536,
            parallelism: 1,
        }
    }
}

/// The reason why a secret was not hashed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotHashed {
    /// There is no salt.
    #[error(transparent)]
    Random(#[from] NoRandomness),
    /// The cost cannot be had: it is out of bounds, or there is no memory.
    #[error("cannot hash a secret: {0}")]
    Cost(String),
}

/// Returns the Argon2id hash of a secret, in PHC form. It takes tens of milliseconds, so it belongs on a thread of
/// its own.
pub(crate) fn hash(machine: Machine, cost: HashCost, secret: &str) -> Result<String, NotHashed> {
    let salt: [u8; 16] = machine.bytes()?;
    let failed = |error: &dyn std::fmt::Display| NotHashed::Cost(error.to_string());
    let params = Params::new(cost.memory_kib, cost.time, cost.parallelism, None);
    let params = params.map_err(|error| failed(&error))?;
    let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
    let hash: PasswordHash = argon2
        .hash_password_with_salt(secret.as_bytes(), &salt)
        .map_err(|error| failed(&error))?;
    Ok(hash.to_string())
}

/// Returns true if a text can be the hash of a secret.
pub(crate) fn is_hash(text: &str) -> bool {
    PasswordHash::new(text).is_ok()
}

/// Returns true if a secret has this hash. The cost is that of the hash.
pub(crate) fn matches(hash: &str, secret: &str) -> bool {
    let hash = PasswordHash::new(hash);
    hash.is_ok_and(|hash| {
        let verified = Argon2::default().verify_password(secret.as_bytes(), &hash);
        verified.is_ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fakes::{CHEAP, machine};

    #[test]
    fn a_hash_names_its_cost_and_is_verified_by_it() {
        let hashed = hash(machine(), CHEAP, "secret").unwrap();
        assert!(
            hashed.starts_with("$argon2id$v=19$m=16,t=1,p=1$"),
            "{hashed}"
        );
        assert!(is_hash(&hashed) && matches(&hashed, "secret"));
        assert!(!matches(&hashed, "secreT") && !matches("", "secret"));
        assert_ne!(hash(machine(), CHEAP, "secret").unwrap(), hashed, "salted");
    }

    #[test]
    fn a_cost_that_cannot_be_had_is_told() {
        let cost = HashCost {
            memory_kib: 1,
            ..CHEAP
        };
        let refused = hash(machine(), cost, "secret").unwrap_err();
        assert!(refused.to_string().contains("cannot hash"), "{refused}");
    }
}
