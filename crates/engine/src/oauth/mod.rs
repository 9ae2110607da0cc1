//! The engine's side of OAuth: logins, codes, tokens, and clients that register themselves.
//!
//! A facade reads requests and writes answers, and calls an [`Oauth`] in between. The rules are in
//! `core::identity::oauth`; here, their records are loaded, secrets are drawn, and decisions are committed.
//!
//! Invariants: secrets are kept as hashes only; a wrong password costs as much as a wrong name; whatever is tried
//! without a credential is limited by client.

mod attempts;
mod clients;
mod login;
mod sealed;
mod tokens;

use std::{borrow::Cow, net::IpAddr, sync::Arc};

use asyncgate_api::Code;
use asyncgate_core::{
    Decision, RecordId, TenantId, Timestamp,
    admission::sha256,
    hex,
    identity::{
        Changes, Find, OauthClient, Record, RecordKind, TenantRecord,
        audit::{Draft, Event},
        oauth::{ClientName, ErrorCode, Lifetimes, Refusal, document_client_id},
    },
};
use tokio::sync::{OnceCell, Semaphore};

use crate::{CorrId, Engine, Fault, Remote, UserAgent};
use attempts::Attempts;
pub(crate) use clients::client_secret;
pub use clients::{Registered, Registration};
pub use login::{Identified, PasswordRefusal};
pub use tokens::{ClientProof, CodeExchange, TokenRefresh, Tokens};

/// The most passwords that are hashed at a time. It leaves processors and memory to others.
const MAX_HASHING: usize = 2;
/// The memory that a decision takes while it waits, roughly.
const WEIGHT: usize = 1_024;

/// The settings of tokens and logins.
#[derive(Debug, Clone)]
pub struct OauthSettings {
    /// The `iss` claim of tokens.
    pub issuer: String,
    /// The name that every token has among its audience.
    pub audience: String,
    /// How long tokens live.
    pub lifetimes: Lifetimes,
    /// True if people may log in with a password that is kept here.
    pub local_login: bool,
    /// True if clients may register themselves.
    pub dynamic_registration: bool,
    /// True if a document can describe a client.
    pub client_documents: bool,
    /// The tenant, by name or id, of clients that register themselves or that a document describes.
    pub registration_tenant: String,
}

/// What stands behind the routes of OAuth.
pub struct Oauth {
    engine: Arc<Engine>,
    settings: OauthSettings,
    bounds: Arc<Bounds>,
}

/// What strangers are held to. It outlives a change of the settings, so that nobody gets new attempts by one.
struct Bounds {
    attempts: Attempts,
    hashing: Semaphore,
    /// The hash of a password that nobody has.
    decoy: OnceCell<String>,
}

impl std::fmt::Debug for Oauth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Oauth")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl Oauth {
    /// Makes what stands behind the routes. The engine needs a keyring.
    pub fn new(engine: Arc<Engine>, settings: OauthSettings) -> Self {
        let bounds = Bounds {
            attempts: Attempts::default(),
            hashing: Semaphore::new(MAX_HASHING),
            decoy: OnceCell::new(),
        };
        Self {
            engine,
            settings,
            bounds: Arc::new(bounds),
        }
    }

    /// Returns the same with other settings.
    #[must_use]
    pub fn with_settings(&self, settings: OauthSettings) -> Self {
        Self {
            engine: Arc::clone(&self.engine),
            settings,
            bounds: Arc::clone(&self.bounds),
        }
    }

    /// Returns the engine.
    pub const fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Returns the settings.
    pub const fn settings(&self) -> &OauthSettings {
        &self.settings
    }

    /// Returns the time by which tokens are judged.
    pub fn now(&self) -> Timestamp {
        self.engine.now()
    }

    /// Returns the document with the public keys of tokens.
    pub fn public_keys(&self) -> Result<serde_json::Value, Fault> {
        Ok(self.engine.keyring()?.public_keys())
    }

    /// Draws a text that nobody can guess.
    pub fn draw(&self) -> Result<String, Fault> {
        Ok(self.engine.keyring()?.secret()?.reveal().to_owned())
    }

    /// Returns a client, unless its time is over.
    pub async fn client(&self, id: RecordId) -> Result<Option<OauthClient>, Fault> {
        let found = self.find(Find::id(RecordKind::OauthClient, id)).await?;
        let client = found.and_then(Record::into_client);
        Ok(client.filter(|client| client.is_current(self.now())))
    }

    /// Returns the client of a name, unless its time is over. Of a document's client that is what the document said when
    /// it was read last.
    pub async fn client_named(&self, name: &ClientName) -> Result<Option<OauthClient>, Fault> {
        let (id, document) = match name {
            ClientName::Id(id) => (*id, None),
            ClientName::Document(_) if !self.settings.client_documents => return Ok(None),
            ClientName::Document(address) => {
                let tenant = self.tenant(&self.settings.registration_tenant).await?;
                let Some(tenant) = tenant else {
                    return Ok(None);
                };
                (document_client_id(tenant.id, address), Some(address))
            }
        };
        let client = self.client(id).await?;
        // Nobody calls a document's client by its id, so the document is always read before a login.
        Ok(client.filter(|client| client.document.as_ref() == document))
    }

    async fn find(&self, find: Find) -> Result<Option<Record>, Fault> {
        Ok(self.engine.store.identity().record(find).await?)
    }

    async fn tenant(&self, named: &str) -> Result<Option<TenantRecord>, Fault> {
        let find = match named.parse::<TenantId>() {
            Ok(id) => Find::tenant(id),
            Err(_) => Find::tenant_named(named),
        };
        Ok(self.find(find).await?.and_then(Record::into_tenant))
    }

    /// Records that somebody was not let in. A client has one entry a minute, with the number of refusals before it that
    /// had none: neither log grows with strangers.
    fn note_failure(&self, tenant: Option<TenantId>, reason: &str, details: &[(&str, &str)]) {
        let Some(untold) = self.bounds.attempts.untold_refusals(self.now(), tenant) else {
            return;
        };
        let count = untold.to_string();
        let more = (untold > 0).then_some(("more_since_the_last_entry", count.as_str()));
        let details: Vec<(&str, &str)> = details.iter().copied().chain(more).collect();
        let draft = self.engine.draft_of(tenant, Event::AuthFailure);
        self.engine.audit(draft.because(reason).with(&details));
        tracing::info!(event = "oauth.refused", reason, refused = untold + 1);
    }
}

/// Whoever sends a request, as far as the audit log tells.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Visitor {
    ip: Option<IpAddr>,
    user_agent: Option<Arc<str>>,
    corr_id: Option<Arc<str>>,
}

impl Visitor {
    /// Returns the sender of the request that the current task answers. A decision runs elsewhere, so it takes this along.
    fn current() -> Self {
        Self {
            ip: Remote::current().and_then(Remote::ip),
            user_agent: UserAgent::current(),
            corr_id: CorrId::current().map(|id| id.text),
        }
    }

    fn sign(&self, draft: Draft) -> Draft {
        draft.from_request(self.ip, self.user_agent.as_deref(), self.corr_id.as_deref())
    }

    /// Puts the sender on the entries of a decision.
    fn sign_all<T>(&self, mut decision: Decision<T, Changes>) -> Decision<T, Changes> {
        let drafts = std::mem::take(&mut decision.changes.audit).into_iter();
        decision.changes.audit = drafts.map(|draft| self.sign(draft)).collect();
        decision
    }

    /// Puts the sender on the entries of a decision, and makes one that changes nothing of a refusal.
    fn sign_tried<T, E>(
        &self,
        tried: Result<Decision<T, Changes>, E>,
    ) -> Decision<Result<T, E>, Changes> {
        match tried.map(|decision| self.sign_all(decision)) {
            Ok(decision) => Decision {
                changes: decision.changes,
                output: Ok(decision.output),
            },
            Err(refusal) => Decision {
                changes: Changes::default(),
                output: Err(refusal),
            },
        }
    }
}

/// Makes the fault of a request that OAuth has a name for.
pub fn oauth_fault(code: ErrorCode, description: impl Into<Cow<'static, str>>) -> Fault {
    let status = match code {
        ErrorCode::InvalidClient => Code::Unauthorized,
        ErrorCode::AccessDenied => Code::Forbidden,
        ErrorCode::ServerError => Code::Internal,
        ErrorCode::TemporarilyUnavailable => Code::Unavailable,
        ErrorCode::InvalidRequest
        | ErrorCode::InvalidGrant
        | ErrorCode::InvalidScope
        | ErrorCode::InvalidTarget
        | ErrorCode::UnsupportedGrantType
        | ErrorCode::UnsupportedResponseType
        | ErrorCode::InvalidRedirectUri
        | ErrorCode::InvalidClientMetadata => Code::BadRequest,
    };
    let description = description.into();
    Fault::new(status, description.clone())
        .with("error", code.as_str())
        .with("error_description", description.into_owned())
}

impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Self {
        oauth_fault(refusal.code, refusal.description)
    }
}

/// Returns the hash by which a random secret is known. Nobody can guess such a secret, so the hash need not be slow.
pub(crate) fn hash(secret: &str) -> String {
    hex::encode(&sha256(secret.as_bytes()))
}

/// Takes the records that a decision declared, in their order. Those that it did not are absent.
fn take<const N: usize>(records: Vec<Option<Record>>) -> [Option<Record>; N] {
    let mut records = records.into_iter();
    std::array::from_fn(|_| records.next().flatten())
}
