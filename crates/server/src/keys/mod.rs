//! Who may call: the three ways a server can be told so, behind the engine's `Authenticator`.
//!
//! A shared key, stored API keys, or nobody needs a credential. No credential is logged, and none
//! is compared other than by digest, so that the time a refusal takes tells nothing about it.

mod file;
mod record;
mod stored;
mod token;

use std::path::PathBuf;
use std::sync::Arc;

use asyncgate_api::Code;
use asyncgate_core::{Principal, PrincipalKind, TenantId};
use asyncgate_engine::{Authenticator, Caller, Clock, Fault, RequestContext, Role};
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, ready};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::clock::{NoRandomness, fill_random};
use crate::config::{Settings, StoreKind};
use file::KeyFile;
use record::Record;
use stored::StoredKeys;
pub use token::Token;

/// The tenant that everything belongs to until there are others.
pub const DEFAULT_TENANT: TenantId =
    TenantId::from_bytes([0, 0, 0, 0, 0, 0, 0x70, 0, 0x80, 0, 0, 0, 0, 0, 0, 1]);

/// Why the keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot {what} {}: {reason}", path.display())]
    File {
        what: &'static str,
        path: PathBuf,
        reason: String,
    },
    #[error("key {id} in keys.json: {problem}")]
    Record { id: String, problem: String },
    #[error("cannot hash a key: {0}")]
    Hash(String),
    #[error(transparent)]
    Random(#[from] NoRandomness),
}

/// Checks credentials.
pub struct Keys {
    mode: Mode,
}

enum Mode {
    /// Nobody needs a credential.
    Open,
    /// One key, known by its digest.
    Shared {
        digester: Digester,
        digest: [u8; 32],
    },
    /// Keys with stored hashes.
    Stored(Box<StoredKeys>),
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.mode {
            Mode::Open => "Keys(open)",
            Mode::Shared { .. } => "Keys(shared)",
            Mode::Stored(_) => "Keys(stored)",
        })
    }
}

impl Keys {
    /// Sets up the way that the settings choose. A key that had to be made is given back, to be shown once.
    ///
    /// Blocks for the time of one Argon2id hash at the first start.
    pub fn open(
        settings: &Settings,
        clock: &Arc<dyn Clock>,
    ) -> Result<(Self, Option<Token>), Error> {
        if settings.allow_insecure_dev {
            tracing::warn!(
                "ALLOW_INSECURE_DEV: every caller is the admin, no credential is asked for; never do this in production"
            );
            return Ok((Self { mode: Mode::Open }, None));
        }
        let digester = Digester::new()?;
        if let Some(key) = &settings.api_key {
            if key.reveal().len() < 16 {
                tracing::warn!("api_key is shorter than 16 characters and can be guessed");
            }
            let digest = digester.digest(key.reveal());
            return Ok((
                Self {
                    mode: Mode::Shared { digester, digest },
                },
                None,
            ));
        }
        let file = match settings.store {
            StoreKind::Memory => None,
            StoreKind::Sqlite => Some(KeyFile::in_dir(&settings.data_dir)),
        };
        let (records, fresh) = load_or_create(file.as_ref(), clock.as_ref())?;
        let stored = StoredKeys::new(records, file, clock.clone(), digester)?;
        Ok((
            Self {
                mode: Mode::Stored(Box::new(stored)),
            },
            fresh,
        ))
    }
}

impl Keys {
    /// Makes the memory of checked credentials part of what `registry` reports. A shared key is compared
    /// each time, so there is none.
    pub fn register_metrics(&self, registry: &mut Registry) {
        let (entries, evictions) = match &self.mode {
            Mode::Stored(stored) => (stored.entries.clone(), stored.evictions.clone()),
            Mode::Open | Mode::Shared { .. } => (Gauge::default(), stored::evictions()),
        };
        registry.register(
            "cap_cache_entries",
            "Credentials that were proved and are remembered",
            entries,
        );
        registry.register(
            "cap_cache_evictions",
            "Proved credentials that were forgotten",
            evictions,
        );
    }
}

impl Authenticator for Keys {
    fn authenticate<'a>(
        &'a self,
        request: &RequestContext<'a>,
    ) -> BoxFuture<'a, Result<Caller, Fault>> {
        match (&self.mode, request.credential) {
            (Mode::Open, _) => ready(Ok(admin())).boxed(),
            (Mode::Shared { .. } | Mode::Stored(_), None) => ready(Err(missing())).boxed(),
            (Mode::Shared { digester, digest }, Some(credential)) => {
                let same = blake3::Hash::from_bytes(digester.digest(credential))
                    == blake3::Hash::from_bytes(*digest);
                ready(if same { Ok(admin()) } else { Err(refused()) }).boxed()
            }
            (Mode::Stored(stored), Some(credential)) => stored.authenticate(credential).boxed(),
        }
    }
}

/// The admin of the default tenant: who the shared key, the first key and the process itself act as.
pub fn admin() -> Caller {
    Caller {
        tenant: DEFAULT_TENANT,
        principal: Principal::new(PrincipalKind::Service, "admin"),
        role: Role::Admin,
    }
}

/// The records of the file; at the first start, one new record and its key.
fn load_or_create(
    file: Option<&KeyFile>,
    clock: &dyn Clock,
) -> Result<(Vec<Record>, Option<Token>), Error> {
    if let Some(file) = file
        && let Some(records) = file.load()?
    {
        if file.is_exposed() {
            tracing::warn!(path = %file.path().display(), "others than its owner may read the key file");
        }
        if records.is_empty() {
            tracing::warn!(path = %file.path().display(), "no key is stored; remove the file to have one made");
        }
        return Ok((records, None));
    }
    let token = Token::generate()?;
    let record = Record::for_token(&token, &admin(), clock.now().to_string())?;
    if let Some(file) = file {
        file.save(vec![record.clone()])?;
    }
    Ok((vec![record], Some(token)))
}

fn missing() -> Fault {
    Fault::new(
        Code::Unauthorized,
        "a credential is needed: send it as `Authorization: Bearer <key>`",
    )
}

fn refused() -> Fault {
    Fault::new(Code::Unauthorized, "the credential is not valid")
}

/// Digests credentials under a key of this process, so that digests mean nothing outside of it.
struct Digester {
    key: [u8; 32],
}

impl Digester {
    fn new() -> Result<Self, NoRandomness> {
        let mut key = [0; 32];
        fill_random(&mut key)?;
        Ok(Self { key })
    }

    fn digest(&self, credential: &str) -> [u8; 32] {
        *blake3::keyed_hash(&self.key, credential.as_bytes()).as_bytes()
    }
}

#[cfg(test)]
mod tests;
