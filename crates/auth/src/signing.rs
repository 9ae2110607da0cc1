//! The RSA keys of access tokens: the one that signs, and all whose tokens are still accepted.
//!
//! Invariants: a key that has signed stays accepted for as long as a token of it can live; the start does not wait
//! for a key to be made; a damaged key is told, not replaced.

use std::sync::{Arc, PoisonError, RwLock};

use asyncgate_core::Timestamp;
use asyncgate_credentials::jwt::{KeySet, SigningKey, VerifyingKey};
use asyncgate_engine::Clock;
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};
use tokio::{runtime::Handle, sync::watch};

use crate::files::Files;
use crate::machine::Machine;
use crate::open::Error;

/// The file with the private key, in PKCS #8.
const PRIVATE: &str = "token.key";
/// The file with the public keys that have ever signed.
const PUBLIC: &str = "token-keys.json";
const VERSION: u32 = 1;
/// The longest life of an access token: 90 days, and one more for clocks that differ.
const TOKEN_LIFE_MS: i64 = 91 * 86_400_000;

/// The reason why nothing can be signed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no key to sign tokens with: {0}")]
pub struct NoSigningKey(String);

/// The keys of access tokens.
pub struct SigningKeys {
    files: Arc<dyn Files>,
    machine: Machine,
    clock: Arc<dyn Clock>,
    /// Absent while the first key is being made.
    current: watch::Sender<Option<Result<Arc<SigningKey>, NoSigningKey>>>,
    accepted: RwLock<Arc<KeySet>>,
    /// True if the settings give the key, so that only they can change it.
    given: bool,
}

impl std::fmt::Debug for SigningKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SigningKeys")
            .field("accepted", &self.accepted())
            .finish_non_exhaustive()
    }
}

impl SigningKeys {
    /// Takes the key of the settings in DER, or that of the file. If there is neither, has one made beside the
    /// start, since that takes about a second.
    pub(crate) fn open(
        files: Arc<dyn Files>,
        machine: Machine,
        clock: Arc<dyn Clock>,
        given: Option<&[u8]>,
    ) -> Result<Arc<Self>, Error> {
        let keys = Self {
            files,
            machine,
            clock,
            current: watch::Sender::new(None),
            accepted: RwLock::default(),
            given: given.is_some(),
        };
        let place = keys.files.place(PRIVATE);
        let (der, place) = match given {
            Some(der) => (Some(der.to_vec()), "security.jwt.private_key_path"),
            None => {
                let read = keys.files.read(PRIVATE);
                let read = read.map_err(|reason| Error::file("read", &place, &reason))?;
                (read, place.as_str())
            }
        };
        match der {
            Some(der) => {
                let key = SigningKey::from_der(&der).map_err(|bad| Error::Damaged {
                    place: place.to_owned(),
                    problem: bad.to_string(),
                })?;
                keys.adopt(key)?;
                Ok(Arc::new(keys))
            }
            None => {
                // Tokens of an earlier key may be about: somebody has removed it to have another one made.
                keys.accept(&keys.past()?);
                let keys = Arc::new(keys);
                Arc::clone(&keys).make_aside();
                Ok(keys)
            }
        }
    }

    /// Returns the key that signs, once there is one.
    pub async fn current(&self) -> Result<Arc<SigningKey>, NoSigningKey> {
        let mut current = self.current.subscribe();
        let known = current.wait_for(Option::is_some).await;
        let known = known.ok().and_then(|known| known.clone());
        // The sender lives as long as these keys.
        known.unwrap_or_else(|| Err(NoSigningKey("the server ends".to_owned())))
    }

    /// Returns the key that signs, if it is there already.
    pub fn now(&self) -> Result<Arc<SigningKey>, NoSigningKey> {
        let known = self.current.borrow().clone();
        known.unwrap_or_else(|| Err(NoSigningKey("it is being made".to_owned())))
    }

    /// Returns the keys whose tokens are accepted.
    pub fn accepted(&self) -> Arc<KeySet> {
        let accepted = self.accepted.read();
        Arc::clone(&accepted.unwrap_or_else(PoisonError::into_inner))
    }

    /// Makes another key and signs with it from now on. Tokens of the former one stay valid. Blocks for about a
    /// second.
    pub fn rotate(&self) -> Result<(), NoSigningKey> {
        if self.given {
            let reason = "security.jwt.private_key_path names the key";
            return Err(NoSigningKey(reason.to_owned()));
        }
        self.make().map_err(|e| NoSigningKey(e.to_string()))
    }

    /// Takes another key of the settings, in DER. Tokens of the former one stay valid.
    pub fn replace(&self, der: &[u8]) -> Result<(), Error> {
        let key = SigningKey::from_der(der).map_err(|bad| Error::Damaged {
            place: "security.jwt.private_key_path".to_owned(),
            problem: bad.to_string(),
        })?;
        self.adopt(key)
    }

    /// Makes a key on a thread for work that blocks. The runtime waits for such threads when it ends: a process that
    /// exits while the library makes a key is aborted by the library.
    fn make_aside(self: Arc<Self>) {
        let making = move || {
            if let Err(error) = self.make() {
                tracing::error!(%error, "no access token can be issued until the next start");
                let none = NoSigningKey(error.to_string());
                self.current.send_replace(Some(Err(none)));
            }
        };
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(making)),
            Err(_) => making(),
        }
    }

    fn make(&self) -> Result<(), Error> {
        let broken = |problem: String| Error::SigningKey { problem };
        let der = (self.machine.make_signing_key)().map_err(|e| broken(e.to_string()))?;
        let key = SigningKey::from_der(&der).map_err(|e| broken(e.to_string()))?;
        let place = self.files.place(PRIVATE);
        let written = self.files.replace(PRIVATE, &der);
        written.map_err(|reason| Error::file("write", &place, &reason))?;
        self.adopt(key)
    }

    /// Signs with a key from now on. Whatever has signed before is retired.
    fn adopt(&self, key: SigningKey) -> Result<(), Error> {
        let now = self.clock.now();
        let past = self.past()?;
        let own = Public::of(key.verifying_key());
        let mut public: Vec<Public> = past.iter().filter(|it| it.n != own.n).cloned().collect();
        for old in &mut public {
            old.retired_at.get_or_insert(now.as_millis());
        }
        public.retain(|old| old.is_accepted(now));
        public.push(own);
        if public != past {
            self.keep(&public)?;
        }
        self.accept(&public);
        self.current.send_replace(Some(Ok(Arc::new(key))));
        Ok(())
    }

    fn accept(&self, public: &[Public]) {
        let keys: KeySet = public.iter().filter_map(Public::key).collect();
        let mut accepted = self
            .accepted
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *accepted = Arc::new(keys);
    }

    fn past(&self) -> Result<Vec<Public>, Error> {
        let place = self.files.place(PUBLIC);
        let read = self.files.read(PUBLIC);
        let Some(text) = read.map_err(|reason| Error::file("read", &place, &reason))? else {
            return Ok(Vec::new());
        };
        let damaged = |problem: String| Error::Damaged {
            place: place.clone(),
            problem,
        };
        let content: Content =
            serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
        if content.version != VERSION {
            let problem = format!("version {} is not {VERSION}", content.version);
            return Err(damaged(problem));
        }
        Ok(content.keys)
    }

    fn keep(&self, public: &[Public]) -> Result<(), Error> {
        let content = Content {
            version: VERSION,
            keys: public.to_vec(),
        };
        let place = self.files.place(PUBLIC);
        let text = serde_json::to_vec_pretty(&content).map_err(std::io::Error::from);
        let kept = text.and_then(|text| self.files.replace(PUBLIC, &text));
        kept.map_err(|reason| Error::file("write", &place, &reason))
    }
}

/// The file of public keys.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    version: u32,
    keys: Vec<Public>,
}

/// A public key that has signed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Public {
    /// The modulus, in base64url.
    n: String,
    /// The exponent, in base64url.
    e: String,
    /// The time since which another one signs, in milliseconds.
    retired_at: Option<i64>,
}

impl Public {
    fn of(key: &VerifyingKey) -> Self {
        Self {
            n: BASE64_URL_SAFE_NO_PAD.encode(key.modulus()),
            e: BASE64_URL_SAFE_NO_PAD.encode(key.exponent()),
            retired_at: None,
        }
    }

    fn key(&self) -> Option<VerifyingKey> {
        let decode = |text: &str| BASE64_URL_SAFE_NO_PAD.decode(text).ok();
        Some(VerifyingKey::new(decode(&self.n)?, decode(&self.e)?))
    }

    fn is_accepted(&self, now: Timestamp) -> bool {
        let end = |retired: i64| retired.saturating_add(TOKEN_LIFE_MS);
        self.retired_at
            .is_none_or(|retired| now.as_millis() < end(retired))
    }
}
