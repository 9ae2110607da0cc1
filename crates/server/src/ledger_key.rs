//! The Ed25519 key that ledgers are signed with: made at the first start, kept in the data directory.

use std::io;
use std::path::{Path, PathBuf};

use asyncgate_engine::Signer;
use ed25519_dalek::{Signer as _, SigningKey};

use crate::clock::{NoRandomness, fill_random};
use crate::data_dir;

const NAME: &str = "ledger.key";

/// The reason why there is no key to sign with.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot use the signing key {}: {reason}", path.display())]
    File { path: PathBuf, reason: io::Error },
    #[error("the signing key {} is damaged: restore it from a backup, or remove it and tell those \
             who verify the ledger that the key has changed", path.display())]
    Damaged { path: PathBuf },
    #[error(transparent)]
    Random(#[from] NoRandomness),
}

/// The key that signs ledgers.
pub struct LedgerKey(SigningKey);

impl LedgerKey {
    /// Reads the key of a data directory, or makes one if there is none.
    pub fn in_dir(dir: &Path) -> Result<Self, Error> {
        let path = dir.join(NAME);
        match std::fs::read(&path) {
            Ok(seed) => match seed.try_into() {
                Ok(seed) => Ok(Self(SigningKey::from_bytes(&seed))),
                Err(_) => Err(Error::Damaged { path }),
            },
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let key = Self::fresh()?;
                match data_dir::replace(&path, key.0.as_bytes()) {
                    Ok(()) => Ok(key),
                    Err(reason) => Err(Error::File { path, reason }),
                }
            }
            Err(reason) => Err(Error::File { path, reason }),
        }
    }

    /// Makes a new key.
    pub fn fresh() -> Result<Self, Error> {
        let mut seed = [0; 32];
        fill_random(&mut seed)?;
        Ok(Self(SigningKey::from_bytes(&seed)))
    }
}

impl Signer for LedgerKey {
    fn public_key(&self) -> [u8; 32] {
        self.0.verifying_key().to_bytes()
    }

    fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.0.sign(message).to_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_made_once_and_signs_what_it_verifies() {
        let dir = tempfile::tempdir().unwrap();
        let key = LedgerKey::in_dir(dir.path()).unwrap();
        let again = LedgerKey::in_dir(dir.path()).unwrap();
        assert_eq!(key.public_key(), again.public_key());
        let public = ed25519_dalek::VerifyingKey::from_bytes(&key.public_key()).unwrap();
        let signature = ed25519_dalek::Signature::from_bytes(&again.sign(b"head"));
        assert!(public.verify_strict(b"head", &signature).is_ok());
        assert!(public.verify_strict(b"tail", &signature).is_err());
    }

    #[test]
    fn a_damaged_key_is_refused_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(NAME), b"short").unwrap();
        assert!(matches!(
            LedgerKey::in_dir(dir.path()),
            Err(Error::Damaged { .. })
        ));
        assert_eq!(std::fs::read(dir.path().join(NAME)).unwrap(), b"short");
    }
}
