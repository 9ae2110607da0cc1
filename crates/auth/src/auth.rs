//! The authenticator: turns whatever credential a request shows into its caller.
//!
//! Invariants: no credential is logged, and credentials are compared as a whole, so that the time of a refusal
//! tells nothing about them; a credential that was proved costs one digest and one look from then on; an expiry is
//! exact, whatever is remembered.

use std::sync::Arc;

use asyncgate_core::identity::{DEFAULT_TENANT, Find, Record};
use asyncgate_core::{Principal, PrincipalKind, TenantId, Timestamp};
use asyncgate_credentials::jwt;
use asyncgate_engine::{
    Authenticator, Caller, Client, Clock, Credential, CredentialKind, Engine, Fault, Keyring as _,
    RequestContext, Role,
};
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, pending, ready};
use prometheus_client::registry::Registry;

use crate::denied::{Denied, Why};
use crate::digest::{Digest, Digester};
use crate::keyring::ServerKeyring;
use crate::known::Known;
use crate::lookups::Lookups;
use crate::machine::NoRandomness;
use crate::notes::Notes;
use crate::plain_key::looks_like_key;
use crate::proofs::{Evicted, Proof, Proofs};
use crate::shared_key::SharedKey;
use crate::verify::Verifier;
use crate::{Settings, macaroons};

/// The most looks at a credential whose records change all the time.
const MAX_LOOKS: usize = 8;

/// The authenticator of the server. Cloning shares it.
#[derive(Clone)]
pub struct Auth(Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) keyring: Arc<ServerKeyring>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) engine: Arc<Engine>,
    pub(crate) verifier: Verifier,
    pub(crate) lookups: Lookups,
    pub(crate) proofs: Proofs,
    digester: Digester,
    shared: Option<SharedKey>,
    insecure_dev: bool,
    notes: Notes,
}

impl std::fmt::Debug for Auth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Auth")
            .field("shared_key", &self.0.shared.is_some())
            .field("insecure_dev", &self.0.insecure_dev)
            .finish_non_exhaustive()
    }
}

/// A credential on its way to be proved.
pub(crate) struct Shown<'a> {
    pub credential: &'a str,
    pub digest: Digest,
    pub client: Client,
    /// The time at which it was shown.
    pub at: Timestamp,
}

/// The state of a proof at some time.
enum Standing {
    Good,
    /// A record that it stands on has to be read again.
    Stale,
    /// A record that it stands on is not what it was.
    Over,
    Expired,
    Suspended,
}

impl Auth {
    /// Sets up the authenticator of an engine. `clock` is that of the engine.
    pub fn new(
        engine: Arc<Engine>,
        keyring: Arc<ServerKeyring>,
        clock: Arc<dyn Clock>,
        settings: &Settings,
    ) -> Result<Self, NoRandomness> {
        let digester = Digester::new(keyring.machine)?;
        let shared = settings.shared_key.as_deref();
        Ok(Self(Arc::new(Inner {
            verifier: Verifier::new(Arc::clone(&clock)),
            lookups: Lookups::default(),
            proofs: Proofs::default(),
            shared: shared.map(|key| SharedKey::new(digester.digest(key))),
            digester,
            insecure_dev: settings.insecure_dev,
            notes: Notes::default(),
            keyring,
            clock,
            engine,
        })))
    }

    /// Registers the metrics of remembered credentials.
    pub fn register_metrics(&self, registry: &mut Registry) {
        self.0.proofs.register_metrics(registry);
        registry.register(
            "credential_hashes",
            "Argon2id hashes that were made to prove credentials",
            self.0.verifier.hashes.clone(),
        );
    }

    /// Returns true if somebody can get in without any stored key.
    pub(crate) fn needs_no_key(&self) -> bool {
        self.0.shared.is_some() || self.0.insecure_dev
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.0
    }
}

impl Authenticator for Auth {
    fn authenticate<'a>(
        &'a self,
        request: &RequestContext<'a>,
    ) -> BoxFuture<'a, Result<Caller, Fault>> {
        let inner = &*self.0;
        let client = Client::from(request.remote);
        let shown = request.credential.map(|it| inner.shown(it, client));
        if let Some(caller) = shown.as_ref().and_then(|shown| inner.remembered(shown)) {
            return ready(Ok(caller)).boxed();
        }
        let request = request.clone();
        async move {
            let checked = inner.check(shown, &request).await;
            checked.map_err(|denied| {
                inner.notes.failed(&inner.engine, &request, &denied);
                denied.into()
            })
        }
        .boxed()
    }

    fn until_ended(&self, request: &RequestContext<'_>) -> BoxFuture<'static, ()> {
        let Some(credential) = request.credential else {
            // Without credentials none can end.
            return pending().boxed();
        };
        let shown = self.0.shown(credential, Client::from(request.remote));
        if let Some(proof) = self.0.proofs.get(&shown.digest) {
            return self.0.keyring.until_ended(&proof.caller);
        }
        // It was accepted a moment ago, and is not remembered any more.
        let (auth, client, credential) = (self.clone(), shown.client, credential.to_owned());
        async move {
            let shown = auth.0.shown(&credential, client);
            match auth.0.admit(&shown, None).await {
                Ok(proof) => auth.0.keyring.until_ended(&proof.caller).await,
                // Nobody needs a credential, so this one does not matter.
                Err(_) if auth.0.insecure_dev => pending().await,
                Err(_) => {}
            }
        }
        .boxed()
    }
}

impl Inner {
    fn shown<'a>(&self, credential: &'a str, client: Client) -> Shown<'a> {
        Shown {
            credential,
            digest: self.digester.digest(credential),
            client,
            at: self.clock.now(),
        }
    }

    /// Returns the caller of a credential that was proved and needs no further look.
    fn remembered(&self, shown: &Shown<'_>) -> Option<Caller> {
        let proof = self.proofs.get(&shown.digest)?;
        self.check_shared(shown).ok()?;
        match self.standing(&proof, shown.at) {
            Standing::Good => {
                self.digester.keep(shown.credential, shown.digest);
                Some(let_in(&proof, shown.at))
            }
            Standing::Stale | Standing::Over | Standing::Expired | Standing::Suspended => None,
        }
    }

    async fn check(
        &self,
        shown: Option<Shown<'_>>,
        request: &RequestContext<'_>,
    ) -> Result<Caller, Denied> {
        let checked = match &shown {
            Some(shown) => {
                let proof = self.admit(shown, Some(request)).await;
                proof.map(|proof| let_in(&proof, shown.at))
            }
            None => Err(Why::Missing.into()),
        };
        match checked {
            // Whoever shows a good credential is its bearer even then, so that roles can be tried out.
            Err(_) if self.insecure_dev => Ok(dev()),
            checked => checked,
        }
    }

    /// Finds out who shows a credential. `request` is absent if nobody asks but the server itself.
    async fn admit(
        &self,
        shown: &Shown<'_>,
        request: Option<&RequestContext<'_>>,
    ) -> Result<Arc<Proof>, Denied> {
        self.check_shared(shown)?;
        let mut filled = false;
        for _ in 0..MAX_LOOKS {
            let proof = match self.proofs.get(&shown.digest) {
                Some(proof) => proof,
                None => {
                    filled = true;
                    let proof = Arc::new(self.prove(shown).await?);
                    self.proofs.insert(shown.digest, Arc::clone(&proof));
                    proof
                }
            };
            let caller = &proof.caller;
            let denied = |denied: Denied| denied.of(caller.tenant, &caller.principal.key());
            match self.standing(&proof, shown.at) {
                Standing::Good => {
                    if let Some(request) = request.filter(|_| filled) {
                        self.notes.succeeded(&self.engine, request, caller);
                    }
                    return Ok(proof);
                }
                Standing::Stale => {
                    for known in proof.records() {
                        self.keyring.records.freshen(known, shown.at).await?;
                    }
                }
                Standing::Over => {
                    let why = Evicted::REVOKED;
                    self.proofs.remove(&shown.digest, &proof, why);
                }
                Standing::Expired => {
                    let why = Evicted::EXPIRED;
                    self.proofs.remove(&shown.digest, &proof, why);
                    return Err(denied(expired(caller.credential.kind)));
                }
                Standing::Suspended => return Err(denied(Why::Suspended.into())),
            }
        }
        Err(Why::Busy.into())
    }

    /// Proves a credential of whatever kind.
    async fn prove(&self, shown: &Shown<'_>) -> Result<Proof, Denied> {
        if let Some(shared) = &self.shared
            && shared.is(&shown.digest)
        {
            let tenant = self.tenant(DEFAULT_TENANT, shown.at, Denied::not_valid);
            let tenant = tenant.await?;
            return Ok(Proof::new(platform_admin(), None, tenant));
        }
        let proved = if looks_like_key(shown.credential) {
            self.prove_key(shown).await
        } else if jwt::looks_like_token(shown.credential) {
            self.prove_token(shown).await
        } else if macaroons::looks_like_macaroon(shown.credential) {
            self.prove_macaroon(shown).await
        } else {
            Err(Denied::not_valid("it is of no known form").unlike_ours())
        };
        if let (Err(denied), Some(shared)) = (&proved, &self.shared)
            && denied.is_unlike_ours()
        {
            shared.count_wrong(shown.client, shown.digest, shown.at)?;
        }
        proved
    }

    /// Returns the record of a tenant. `unknown` refuses a credential whose tenant does not exist.
    pub(crate) async fn tenant(
        &self,
        id: TenantId,
        began: Timestamp,
        unknown: impl FnOnce(&'static str) -> Denied,
    ) -> Result<Arc<Known>, Denied> {
        let found = self.keyring.records.find(&Find::tenant(id), began).await?;
        found.ok_or_else(|| unknown("there is no such tenant"))
    }

    fn check_shared(&self, shown: &Shown<'_>) -> Result<(), Denied> {
        match &self.shared {
            Some(shared) if shared.is(&shown.digest) => shared.admit(shown.client, shown.at),
            Some(_) | None => Ok(()),
        }
    }

    fn standing(&self, proof: &Proof, began: Timestamp) -> Standing {
        // The credential may have waited for its hash or for the store, so this is the present.
        let now = self.clock.now();
        let records = &self.keyring.records;
        let is_fresh = |known: &Arc<Known>| records.is_fresh(known, began, now);
        if proof.has_expired(now) {
            Standing::Expired
        } else if proof.is_over() {
            Standing::Over
        } else if !proof.records().all(is_fresh) {
            Standing::Stale
        } else if is_suspended(&proof.tenant) && !proof.caller.runs_the_platform() {
            // Whoever runs the platform must be able to end the suspension.
            Standing::Suspended
        } else {
            Standing::Good
        }
    }
}

fn let_in(proof: &Proof, now: Timestamp) -> Caller {
    proof.touch(now);
    proof.caller.clone()
}

fn is_suspended(tenant: &Known) -> bool {
    match &tenant.record {
        Record::Tenant(tenant) => tenant.tenant().admit().is_err(),
        Record::ApiKey(_)
        | Record::Macaroon(_)
        | Record::OauthClient(_)
        | Record::IdentityLink(_)
        | Record::AuthorizationCode(_)
        | Record::TokenFamily(_)
        | Record::RefreshToken(_) => true,
    }
}

fn expired(kind: CredentialKind) -> Denied {
    match kind {
        CredentialKind::Macaroon => Denied::bad_macaroon("its time is over"),
        CredentialKind::ApiKey
        | CredentialKind::Jwt
        | CredentialKind::SharedKey
        | CredentialKind::Dev
        | CredentialKind::Server => Denied::not_valid("its time is over"),
    }
}

/// Returns the admin of the default tenant, who manages tenants too: the caller behind the shared key, the first
/// stored key and `asyncgate mcp`.
pub fn platform_admin() -> Caller {
    let principal = Principal::new(PrincipalKind::Service, "admin");
    Caller::new(DEFAULT_TENANT, principal, Role::Admin).with_platform()
}

/// Returns the caller of insecure development.
fn dev() -> Caller {
    Caller {
        credential: Credential::of_kind(CredentialKind::Dev),
        ..platform_admin()
    }
}
