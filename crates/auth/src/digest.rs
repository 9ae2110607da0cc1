//! Digests, by which credentials are known and compared.

use std::array;
use std::ops::RangeInclusive;
use std::sync::Mutex;

use constant_time_eq::constant_time_eq;

use crate::machine::{Machine, NoRandomness};

/// A digest of a credential. Comparing two takes the same time wherever they differ.
pub(crate) type Digest = blake3::Hash;

/// Credentials of these lengths are hashed once and then recognised. API keys are shorter: hashing one costs no more than
/// recognising it. Longer ones would take too much memory.
const KEPT_BYTES: RangeInclusive<usize> = 129..=4_096;
/// The number of places for credentials that were hashed lately.
const PLACES: usize = 256;

/// A hash of credentials under a key of this process, so that a digest is of no use outside of it.
///
/// A token has a thousand bytes, and hashing them costs more than anything else that is done for a known credential.
/// So the digests of long credentials that were proved lately are kept, each in the one place that its last bytes name.
/// Nobody learns from the time of a comparison where two credentials differ.
pub(crate) struct Digester {
    key: [u8; 32],
    recent: [Mutex<Option<Hashed>>; PLACES],
}

/// A credential and its digest.
struct Hashed {
    credential: Box<[u8]>,
    digest: Digest,
}

impl Digester {
    pub(crate) fn new(machine: Machine) -> Result<Self, NoRandomness> {
        let key = machine.bytes()?;
        Ok(Self {
            key,
            recent: array::from_fn(|_| Mutex::default()),
        })
    }

    pub(crate) fn digest(&self, credential: &str) -> Digest {
        let credential = credential.as_bytes();
        self.recognise(credential)
            .unwrap_or_else(|| blake3::keyed_hash(&self.key, credential))
    }

    /// Keeps the digest of a credential that was proved. What strangers send is not kept.
    pub(crate) fn keep(&self, credential: &str, digest: Digest) {
        let credential = credential.as_bytes();
        if !KEPT_BYTES.contains(&credential.len()) || self.recognise(credential).is_some() {
            return;
        }
        if let Ok(mut place) = self.recent[place_of(credential)].try_lock() {
            *place = Some(Hashed {
                credential: credential.into(),
                digest,
            });
        }
    }

    fn recognise(&self, credential: &[u8]) -> Option<Digest> {
        if !KEPT_BYTES.contains(&credential.len()) {
            return None;
        }
        // Whoever finds the place in use hashes: that is quicker than waiting.
        let place = self.recent[place_of(credential)].try_lock().ok()?;
        let hashed = place.as_ref()?;
        constant_time_eq(&hashed.credential, credential).then_some(hashed.digest)
    }
}

/// Returns the place of a credential. Its last bytes are those of a signature, so they differ from those of others.
fn place_of(credential: &[u8]) -> usize {
    let last = credential.last_chunk().copied();
    let mixed = u64::from_le_bytes(last.unwrap_or_default()).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 56) as usize % PLACES
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::fakes::machine;

    /// Shows a credential as often as a caller does that is let in.
    fn show(digester: &Digester, credential: &str) -> Digest {
        let digest = digester.digest(credential);
        digester.keep(credential, digest);
        digest
    }

    #[test]
    fn a_recognised_credential_has_the_digest_of_a_new_one() {
        let digester = Digester::new(machine()).unwrap();
        let hash = |credential: &str| blake3::keyed_hash(&digester.key, credential.as_bytes());
        // All of these share a place, so each takes that of the one before.
        let tail = "t".repeat(8);
        let credentials: Vec<String> = [0, 100, 120, 121, 122, 1_000, 4_088, 4_089]
            .into_iter()
            .flat_map(|len| ["a", "b"].map(|fill| fill.repeat(len) + &tail))
            .collect();
        for credential in credentials.iter().chain(&credentials) {
            assert_eq!(show(&digester, credential), hash(credential));
            assert_eq!(digester.digest(credential), hash(credential), "recognised");
            let recognised = digester.recognise(credential.as_bytes());
            assert_eq!(recognised.is_some(), KEPT_BYTES.contains(&credential.len()));
        }
        let kept = digester.recent.iter();
        assert_eq!(kept.filter(|it| it.lock().unwrap().is_some()).count(), 1);
    }

    #[test]
    fn what_was_not_proved_is_not_kept() {
        let digester = Digester::new(machine()).unwrap();
        let token = "x".repeat(1_000);
        digester.digest(&token);
        assert!(digester.recognise(token.as_bytes()).is_none());
    }

    #[test]
    fn one_changed_byte_makes_another_credential() {
        let digester = Digester::new(machine()).unwrap();
        let token = "x".repeat(1_000);
        let digest = show(&digester, &token);
        for at in 0..token.len() {
            let mut changed = token.clone().into_bytes();
            changed[at] = b'y';
            let changed = String::from_utf8(changed).unwrap();
            assert_ne!(show(&digester, &changed), digest, "byte {at}");
            assert_eq!(show(&digester, &token), digest);
        }
        assert_ne!(digester.digest(&token[1..]), digest);
    }

    #[test]
    fn callers_at_one_time_get_the_digests_of_their_own_credentials() {
        let digester = Digester::new(machine()).unwrap();
        thread::scope(|scope| {
            for fill in ["a", "b", "c"] {
                let digester = &digester;
                scope.spawn(move || {
                    let credential = fill.repeat(500) + "same end";
                    let hash = blake3::keyed_hash(&digester.key, credential.as_bytes());
                    for _ in 0..1_000 {
                        assert_eq!(show(digester, &credential), hash);
                    }
                });
            }
        });
    }
}
