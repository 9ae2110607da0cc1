//! The start: secrets are read or made, keys of older versions are taken over, and the first key is made.

use std::fmt::Display;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use asyncgate_core::PrincipalKey;
use asyncgate_core::identity::{ApiKey, DEFAULT_TENANT, Find, Rejection, first_key, import_keys};
use asyncgate_engine::Role;
use asyncgate_store::identity::{Reads, Snapshot};
use futures_util::future::BoxFuture;

use crate::auth::{Auth, platform_admin};
use crate::hash::{HashCost, NotHashed};
use crate::key_file::{self, OldKey, platform_scopes};
use crate::machine::NoRandomness;
use crate::plain_key::PlainKey;

/// The settings of credentials.
#[derive(Clone)]
pub struct Settings {
    /// A key whose bearer is the admin of the default tenant and manages tenants.
    pub shared_key: Option<String>,
    /// Nobody needs a credential.
    pub insecure_dev: bool,
    /// The time for which a proved credential is trusted before its record is read again.
    pub proof_ttl: Duration,
    /// The cost of new hashes.
    pub hash_cost: HashCost,
    /// The issuer of access tokens.
    pub issuer: String,
    /// The audience of access tokens.
    pub audience: String,
    /// The private key of access tokens in DER; without it one is made and kept.
    pub signing_key: Option<Vec<u8>>,
    /// The secret behind macaroons; without it one is made and kept.
    pub macaroon_secret: Option<Vec<u8>>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            shared_key: None,
            insecure_dev: false,
            proof_ttl: Duration::from_secs(30),
            hash_cost: HashCost::default(),
            issuer: "asyncgate".to_owned(),
            audience: "asyncgate-api".to_owned(),
            signing_key: None,
            macaroon_secret: None,
        }
    }
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings")
            .field("shared_key", &self.shared_key.as_ref().map(|_| "***"))
            .field("insecure_dev", &self.insecure_dev)
            .field("proof_ttl", &self.proof_ttl)
            .field("hash_cost", &self.hash_cost)
            .field("issuer", &self.issuer)
            .field("audience", &self.audience)
            .finish_non_exhaustive()
    }
}

/// The reason why credentials cannot be checked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be used.
    #[error("cannot {what} {place}: {reason}")]
    File {
        /// What was tried.
        what: &'static str,
        /// The file.
        place: String,
        /// The system's reason.
        reason: String,
    },
    /// A file does not hold what it should.
    #[error("{place} is damaged: {problem}")]
    Damaged {
        /// The file, or the setting that names it.
        place: String,
        /// What is wrong with it.
        problem: String,
    },
    /// No key for tokens could be made.
    #[error("cannot make a key for access tokens: {problem}")]
    SigningKey {
        /// The library's reason.
        problem: String,
    },
    /// The random source is gone.
    #[error(transparent)]
    Random(#[from] NoRandomness),
    /// A secret was not hashed.
    #[error(transparent)]
    Hash(#[from] NotHashed),
    /// The store does not work.
    #[error("cannot read or write the stored keys: {0}")]
    Store(#[from] asyncgate_store::Error),
    /// The stored keys do not allow it.
    #[error("cannot take over the keys of keys.json: {0}")]
    Rejected(#[from] Rejection),
}

impl Error {
    pub(crate) fn file(what: &'static str, place: &str, reason: &io::Error) -> Self {
        let reason: &dyn Display = reason;
        Self::File {
            what,
            place: place.to_owned(),
            reason: reason.to_string(),
        }
    }
}

impl Auth {
    /// Takes over the keys of an older version. Then, if nobody could manage this server, makes the first key and
    /// returns it, to be shown once.
    pub fn begin(&self) -> BoxFuture<'_, Result<Option<PlainKey>, Error>> {
        // Boxed, so that it is compiled here and not where it is awaited.
        Box::pin(async {
            self.import().await?;
            if self.needs_no_key() {
                return Ok(None);
            }
            self.make_first_key().await
        })
    }

    async fn import(&self) -> Result<(), Error> {
        let keyring = &self.inner().keyring;
        let files = keyring.files.as_ref();
        let Some(old) = key_file::read(files)? else {
            return Ok(());
        };
        let mut ids = keyring.ids()?;
        let record = |old: &OldKey| old.record(files, ids.record());
        let keys: Vec<ApiKey> = old.iter().map(record).collect::<Result<_, _>>()?;
        let finds = keys.iter().flat_map(|key| {
            [
                Find::key(&key.lookup_id),
                Find::tenant(key.tenant),
                Find::tenant_named(&key.tenant.to_string()),
            ]
        });
        let reads = Reads {
            records: finds.collect(),
            ..Reads::default()
        };
        let decide =
            move |now, snapshot: Snapshot| import_keys(&snapshot.records, keys.clone(), now);
        let imported = keyring.transact(DEFAULT_TENANT, reads, decide).await??;
        key_file::set_aside(files)?;
        tracing::info!(
            event = "auth.imported",
            keys = imported,
            "the keys of an older version are in the store now; their file was set aside"
        );
        Ok(())
    }

    async fn make_first_key(&self) -> Result<Option<PlainKey>, Error> {
        let keyring = &self.inner().keyring;
        // A key costs a slow hash, so whether it is needed is asked before it is made, and again when it is kept.
        if keyring.has_platform_key().await? {
            return Ok(None);
        }
        let (plain, minted) = keyring.make_key().await?;
        let admin = platform_admin();
        let key = ApiKey {
            id: keyring.ids()?.record(),
            lookup_id: minted.lookup_id,
            tenant: admin.tenant,
            principal: PrincipalKey {
                kind: admin.principal.kind,
                id: Arc::clone(&admin.principal.id),
            },
            role: Role::Admin,
            scopes: Some(platform_scopes()),
            label: Some("first key".to_owned()),
            hash: minted.hash,
            check: Some(minted.check),
            created_at: self.inner().clock.now(),
            expires_at: None,
            last_used_at: None,
            revoked_at: None,
            replaced_by: None,
        };
        let reads = Reads {
            records: vec![Find::key(&key.lookup_id)],
            platform_keys: true,
            ..Reads::default()
        };
        let decide =
            move |now, snapshot: Snapshot| Ok(first_key(&snapshot.platform_keys, key.clone(), now));
        let kept = keyring.transact(DEFAULT_TENANT, reads, decide).await??;
        Ok(kept.then_some(plain))
    }
}
