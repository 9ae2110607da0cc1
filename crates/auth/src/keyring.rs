//! The secrets of this server, and what it remembers of the records behind credentials.

use std::sync::{Arc, PoisonError, RwLock};

use asyncgate_api::Code;
use asyncgate_core::identity::{Changes, KeyStanding, RecordKey, Rejection};
use asyncgate_core::{Decision, Env, Ids, Policy, RecordId, Stamp, TenantId, Timestamp};
use asyncgate_credentials::jwt::{self, Claims, Expected};
use asyncgate_credentials::macaroon;
use asyncgate_engine::{
    Caller, Clock, Fault, Keyring, MintedKey, MintedMacaroon, NewSecret, NewTokenKey,
    RetiredTokenKey,
};
use asyncgate_store::identity::{Reads, Snapshot};
use asyncgate_store::{Store, transact};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::sync::Semaphore;

use crate::ends;
use crate::files::Files;
use crate::hash::{self, HashCost, NotHashed};
use crate::machine::{Machine, NoRandomness};
use crate::open::{Error, Settings};
use crate::plain_key::{PlainKey, base62, lookup_id};
use crate::records::Records;
use crate::root_key::MacaroonKey;
use crate::signing::{NotRotated, SigningKeys};
use crate::verify::Check;

/// The slow hashes of new secrets that are made at the same time. Each takes memory and a processor.
const MAX_HASHES: usize = 2;
/// The characters of a secret: about 238 random bits.
const SECRET_LEN: usize = 40;

/// The secrets of this server.
pub struct ServerKeyring {
    pub(crate) machine: Machine,
    pub(crate) files: Arc<dyn Files>,
    pub(crate) records: Arc<Records>,
    pub(crate) signing: Arc<SigningKeys>,
    pub(crate) macaroon: MacaroonKey,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    issuer: String,
    audience: String,
    hash_cost: RwLock<HashCost>,
    hashing: Semaphore,
}

impl std::fmt::Debug for ServerKeyring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerKeyring").finish_non_exhaustive()
    }
}

impl ServerKeyring {
    /// Reads the secrets, or makes those that are missing. Blocks on the disk, but not on the key of tokens, which
    /// takes longer to be made.
    pub fn open(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        files: Arc<dyn Files>,
        machine: Machine,
        settings: &Settings,
    ) -> Result<Arc<Self>, Error> {
        let given = settings.macaroon_secret.as_deref();
        let macaroon = MacaroonKey::open(files.as_ref(), machine, given)?;
        let signing = SigningKeys::open(
            Arc::clone(&files),
            machine,
            Arc::clone(&clock),
            settings.signing_key.as_deref(),
        )?;
        let records = Records::new(Arc::clone(&store), Arc::clone(&clock), settings.proof_ttl);
        Ok(Arc::new(Self {
            machine,
            files,
            records: Arc::new(records),
            signing,
            macaroon,
            store,
            clock,
            issuer: settings.issuer.clone(),
            audience: settings.audience.clone(),
            hash_cost: RwLock::new(settings.hash_cost),
            hashing: Semaphore::new(MAX_HASHES),
        }))
    }

    /// Puts other settings in force, as far as that needs no restart: times, costs, and the key of tokens.
    pub fn reload(&self, settings: &Settings) {
        self.records.set_ttl(settings.proof_ttl);
        let mut cost = self
            .hash_cost
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *cost = settings.hash_cost;
        drop(cost);
        if let Err(error) = self.signing.read(settings.signing_key.as_deref()) {
            tracing::error!(event = "auth.reload", %error, "the key of access tokens stays as it was");
        }
    }

    /// Returns the keys of access tokens.
    pub fn signing_keys(&self) -> &Arc<SigningKeys> {
        &self.signing
    }

    /// Checks the signature, issuer, audience and time of an access token.
    pub(crate) fn verify_token(&self, token: &str) -> Result<Claims, jwt::Refusal> {
        let expected = Expected {
            issuer: &self.issuer,
            audience: &self.audience,
            now: self.clock.now(),
            leeway_secs: 0,
        };
        jwt::verify(&self.signing.accepted(), token, &expected)
    }

    /// Makes an API key with what is stored of it.
    pub(crate) async fn make_key(&self) -> Result<(PlainKey, MintedKey), Error> {
        let plain = PlainKey::generate(self.machine)?;
        let secret = NewSecret::new(plain.reveal().to_owned());
        let minted = MintedKey {
            lookup_id: lookup_id(plain.reveal()).unwrap_or_default().to_owned(),
            hash: self.slow_hash(secret.clone()).await?,
            check: Check::of(plain.reveal()).to_string(),
            secret,
        };
        Ok((plain, minted))
    }

    /// Returns true if somebody has a key to manage tenants with.
    pub(crate) async fn has_platform_key(&self) -> Result<bool, Error> {
        let reads = Reads {
            platform_keys: true,
            ..Reads::default()
        };
        let decide = |now, snapshot: Snapshot| {
            let mut keys = snapshot.platform_keys.iter();
            Ok(Decision {
                output: keys.any(|key| key.life().standing(now) == KeyStanding::Valid),
                changes: Changes::default(),
            })
        };
        let tenant = asyncgate_core::identity::DEFAULT_TENANT;
        Ok(self.transact(tenant, reads, decide).await??)
    }

    /// Runs a decision about records.
    pub(crate) async fn transact<T: Send + 'static>(
        &self,
        tenant: TenantId,
        reads: Reads,
        mut decide: impl FnMut(Timestamp, Snapshot) -> Result<Decision<T, Changes>, Rejection>
        + Send
        + 'static,
    ) -> Result<Result<T, Rejection>, asyncgate_store::Error> {
        let now = self.clock.now();
        // These decisions draw no ids.
        let env = Env {
            now,
            ids: Ids::new(Stamp::of_millis(now.as_millis()), 0),
            instance: "".into(),
            policy: Arc::new(Policy::default()),
            quotas: None,
        };
        let decide = move |env: Env, snapshot| decide(env.now, snapshot);
        let decided = transact(self.store.as_ref(), tenant, env, 0, reads, decide).await?;
        Ok(decided.map(|committed| committed.output))
    }

    /// Returns a source of ids for new records.
    pub(crate) fn ids(&self) -> Result<Ids, NoRandomness> {
        let seed = u64::from_le_bytes(self.machine.bytes()?);
        Ok(Ids::new(
            Stamp::of_millis(self.clock.now().as_millis()),
            seed,
        ))
    }

    async fn slow_hash(&self, secret: NewSecret) -> Result<String, NotHashed> {
        let (machine, cost) = (self.machine, *self.cost());
        self.aside(move || hash::hash(machine, cost, secret.reveal()))
            .await?
    }

    fn cost(&self) -> std::sync::RwLockReadGuard<'_, HashCost> {
        self.hash_cost
            .read()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs slow work on a thread of its own, few at a time.
    async fn aside<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, NotHashed> {
        // The semaphore is never closed.
        let _turn = self.hashing.acquire().await;
        let done = tokio::task::spawn_blocking(work).await;
        done.map_err(|error| NotHashed::Cost(error.to_string()))
    }
}

impl Keyring for ServerKeyring {
    fn api_key(&self) -> BoxFuture<'_, Result<MintedKey, Fault>> {
        async move {
            let (_, minted) = self.make_key().await.map_err(failed)?;
            Ok(minted)
        }
        .boxed()
    }

    fn macaroon(&self, id: RecordId, caveats: &[String]) -> Result<MintedMacaroon, Fault> {
        let identifier = self.macaroon.identifier(id);
        let minted = macaroon::mint(self.macaroon.key(), &identifier, caveats);
        let minted = minted.map_err(|malformed| Fault::bad_request(malformed.to_string()))?;
        Ok(MintedMacaroon {
            secret: NewSecret::new(minted.encode()),
            identifier,
            root_key: self.macaroon.name().to_owned(),
        })
    }

    fn secret(&self) -> Result<NewSecret, Fault> {
        let text = base62(self.machine, SECRET_LEN).map_err(failed)?;
        Ok(NewSecret::new(text))
    }

    fn hash(&self, secret: NewSecret) -> BoxFuture<'_, Result<String, Fault>> {
        async move { self.slow_hash(secret).await.map_err(failed) }.boxed()
    }

    fn has_hash(&self, secret: NewSecret, hash: String) -> BoxFuture<'_, Result<bool, Fault>> {
        let work = move || hash::matches(&hash, secret.reveal());
        async move { self.aside(work).await.map_err(failed) }.boxed()
    }

    fn sign(&self, claims: &Claims) -> Result<String, Fault> {
        let key = self.signing.now().map_err(|error| {
            Fault::new(Code::Unavailable, "no access token can be issued yet")
                .retry_after(1)
                .because(error.to_string())
        })?;
        jwt::sign(&key, claims).map_err(failed)
    }

    fn new_token_key(&self) -> BoxFuture<'_, Result<NewTokenKey, Fault>> {
        let signing = Arc::clone(&self.signing);
        async move {
            let made = self.aside(move || signing.prepare()).await;
            made.map_err(failed)?.map_err(not_rotated)
        }
        .boxed()
    }

    fn sign_with(&self, key: NewTokenKey) -> BoxFuture<'_, Result<Option<RetiredTokenKey>, Fault>> {
        let signing = Arc::clone(&self.signing);
        let kept = tokio::task::spawn_blocking(move || signing.rotate(&key));
        async move { kept.await.map_err(failed)?.map_err(not_rotated) }.boxed()
    }

    fn read_token(&self, token: &str) -> Option<Claims> {
        self.verify_token(token).ok()
    }

    fn mac(&self, message: &[u8]) -> [u8; 32] {
        self.macaroon.mac(message)
    }

    fn public_keys(&self) -> serde_json::Value {
        self.signing.accepted().to_jwks()
    }

    fn forget(&self, record: RecordKey) {
        self.records.forget(record);
    }

    fn until_ended(&self, caller: &Caller) -> BoxFuture<'static, ()> {
        let (records, clock) = (Arc::clone(&self.records), Arc::clone(&self.clock));
        ends::until_ended(records, clock, caller).boxed()
    }
}

fn failed(error: impl std::fmt::Display) -> Fault {
    Fault::new(Code::Internal, "the secret could not be made").because(error.to_string())
}

fn not_rotated(reason: NotRotated) -> Fault {
    match reason {
        NotRotated::Given => Fault::new(
            Code::Conflict,
            "security.jwt.private_key_path names the key of access tokens: put another key into that file, then let \
             the server read it again (SIGHUP)",
        ),
        NotRotated::Failed(error) => failed(error),
    }
}
