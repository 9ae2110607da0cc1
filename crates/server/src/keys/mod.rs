//! Checks credentials, as the engine's `Authenticator`: against a shared key, against stored API keys, or
//! not at all (insecure development).
//!
//! Invariants: no credential is logged, and credentials are compared by digest only, so that the time of
//! a refusal tells nothing about them.

mod file;
mod record;
mod stored;
mod token;
mod verify;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use asyncgate_api::Code;
pub use asyncgate_core::identity::DEFAULT_TENANT;
use asyncgate_core::{Principal, PrincipalKind};
use asyncgate_engine::{Authenticator, Caller, Client, Clock, Fault, RequestContext, Role};
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, pending};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::clock::{NoRandomness, fill_random};
use crate::config::{Settings, StoreKind};
use crate::reloadable::Reloadable;
use file::KeyFile;
use record::Record;
use stored::StoredKeys;
pub use token::Token;
use verify::Verifier;

/// The reason why the keys cannot be used.
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

/// The authenticator of the server.
pub struct Keys {
    mode: Mode,
    /// The time for which a credential that was proved is trusted.
    proof_ttl: Reloadable<Duration>,
}

enum Mode {
    /// Nobody needs a credential.
    Open,
    /// One key, known by its digest.
    Shared { digester: Digester, digest: Digest },
    /// Keys with stored hashes.
    Stored(Arc<StoredKeys>),
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
    /// Sets up the mode that the settings choose. Returns a key that had to be made, to be shown once.
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
            return Ok((Self::new(Mode::Open, settings), None));
        }
        let digester = Digester::new()?;
        if let Some(key) = &settings.api_key {
            if key.reveal().len() < 16 {
                tracing::warn!("api_key is shorter than 16 characters and can be guessed");
            }
            let digest = digester.digest(key.reveal());
            let shared = Mode::Shared { digester, digest };
            return Ok((Self::new(shared, settings), None));
        }
        let file = match settings.store {
            StoreKind::Memory => None,
            StoreKind::Sqlite => Some(KeyFile::in_dir(&settings.data_dir)),
        };
        let (records, fresh) = load_or_create(file.as_ref(), clock.as_ref())?;
        let proof_ttl = Reloadable::new(settings.proof_ttl);
        let verifier = Verifier::new(digester, clock.clone());
        let stored = StoredKeys::new(records, file, clock.clone(), verifier, proof_ttl.clone())?;
        let keys = Self {
            mode: Mode::Stored(Arc::new(stored)),
            proof_ttl,
        };
        Ok((keys, fresh))
    }

    fn new(mode: Mode, settings: &Settings) -> Self {
        Self {
            mode,
            proof_ttl: Reloadable::new(settings.proof_ttl),
        }
    }

    async fn check(&self, client: Client, credential: Option<&str>) -> Result<Caller, Fault> {
        match (&self.mode, credential) {
            (Mode::Open, _) => Ok(admin()),
            (Mode::Shared { .. } | Mode::Stored(_), None) => Err(missing()),
            (Mode::Shared { digester, digest }, Some(credential)) => {
                let same = digester.digest(credential) == *digest;
                same.then(admin)
                    .ok_or_else(|| refused("it is not the shared key"))
            }
            (Mode::Stored(stored), Some(credential)) => {
                stored.authenticate(client, credential).await
            }
        }
    }

    /// Puts other settings in force.
    pub fn reload(&self, settings: &Settings) {
        self.proof_ttl.set(settings.proof_ttl);
    }

    /// Registers the metrics of remembered credentials. They stay at zero where nothing is remembered: a
    /// shared key is compared each time.
    pub fn register_metrics(&self, registry: &mut Registry) {
        let (entries, evictions, hashes) = match &self.mode {
            Mode::Stored(stored) => (
                stored.entries.clone(),
                stored.evictions.clone(),
                stored.verifier.hashes.clone(),
            ),
            Mode::Open | Mode::Shared { .. } => {
                (Gauge::default(), stored::evictions(), Counter::default())
            }
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
        registry.register(
            "credential_hashes",
            "Argon2id hashes that were made to prove credentials",
            hashes,
        );
    }
}

impl Authenticator for Keys {
    fn authenticate<'a>(
        &'a self,
        request: &RequestContext<'a>,
    ) -> BoxFuture<'a, Result<Caller, Fault>> {
        let (client, credential) = (Client::from(request.remote), request.credential);
        self.check(client, credential).boxed()
    }

    fn until_ended(&self, request: &RequestContext<'_>) -> BoxFuture<'static, ()> {
        match (&self.mode, request.credential) {
            (Mode::Stored(stored), Some(credential)) => stored.until_ended(credential).boxed(),
            // The shared key changes with a restart only, and without credentials none can end.
            (Mode::Open | Mode::Shared { .. } | Mode::Stored(_), _) => pending().boxed(),
        }
    }
}

/// Returns the admin of the default tenant: the caller behind the shared key, the first stored key and
/// `asyncgate mcp`.
pub fn admin() -> Caller {
    Caller {
        tenant: DEFAULT_TENANT,
        principal: Principal::new(PrincipalKind::Service, "admin"),
        role: Role::Admin,
    }
}

/// Reads the records of the file. At the first start, makes one record and returns its key.
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
    .because("there is no credential")
}

/// Refuses a credential. The caller does not learn the cause.
fn refused(cause: &'static str) -> Fault {
    Fault::new(Code::Unauthorized, "the credential is not valid").because(cause)
}

/// A digest of a credential. Comparing two takes the same time wherever they differ.
type Digest = blake3::Hash;

/// A hash of credentials under a key of this process, so that a digest is of no use outside of it.
struct Digester {
    key: [u8; 32],
}

impl Digester {
    fn new() -> Result<Self, NoRandomness> {
        let mut key = [0; 32];
        fill_random(&mut key)?;
        Ok(Self { key })
    }

    fn digest(&self, credential: &str) -> Digest {
        blake3::keyed_hash(&self.key, credential.as_bytes())
    }
}

#[cfg(test)]
mod tests;
