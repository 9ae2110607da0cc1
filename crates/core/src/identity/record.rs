//! The records of identity: tenants, and everything that lets somebody in.
//!
//! Invariants: a record keeps its kind, id and tenant for ever; no two records of a kind have one name; no record
//! holds a secret, only what a secret can be checked against.

use serde::{Deserialize, Serialize};

use super::{
    KeyLife, LimitException, Quotas, Role, Scope, Scopes, Tenant, TenantTier,
    stored::{some_text, some_time, text, time},
};
use crate::{PrincipalKey, RecordId, TenantId, Timestamp, preimage::Preimage};

/// The tenant that exists from the start.
pub const DEFAULT_TENANT: TenantId =
    TenantId::from_bytes([0, 0, 0, 0, 0, 0, 0x70, 0, 0x80, 0, 0, 0, 0, 0, 0, 1]);

/// How long a used or expired authorization code is still known, so that a second use is told from an invention.
const CODE_KEPT_MS: i64 = 24 * 3_600_000;

/// A tenant as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantRecord {
    /// Its id.
    #[serde(with = "text")]
    pub id: TenantId,
    /// Its name. No other tenant has it.
    pub name: String,
    /// Its tier.
    #[serde(with = "text")]
    pub tier: TenantTier,
    /// The quotas that it was given by name.
    #[serde(with = "text")]
    pub own_quotas: Quotas,
    /// The time since which it is suspended.
    #[serde(with = "some_time")]
    pub suspended_at: Option<Timestamp>,
    /// The time at which it was made.
    #[serde(with = "time")]
    pub created_at: Timestamp,
    /// Other limits until a time, also if that time is over. Absent from the text if there is none, as in texts that
    /// were written before there were exceptions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exception: Option<LimitException>,
}

impl TenantRecord {
    /// Returns the default tenant as it stands until somebody changes it. A store has this record from the start.
    pub fn built_in() -> Self {
        Self {
            id: DEFAULT_TENANT,
            name: "default".to_owned(),
            tier: TenantTier::Enterprise,
            own_quotas: Quotas::default(),
            suspended_at: None,
            created_at: Timestamp::default(),
            exception: None,
        }
    }

    /// Returns the exception that counts now.
    pub fn exception_at(&self, now: Timestamp) -> Option<&LimitException> {
        let exception = self.exception.as_ref();
        exception.filter(|exception| now < exception.until)
    }

    /// Returns what the rules know of it.
    pub fn tenant(&self) -> Tenant {
        let exception = self.exception.as_ref();
        Tenant {
            tier: self.tier,
            own_quotas: self.own_quotas,
            suspended_at: self.suspended_at,
            exception: exception.map(|exception| (exception.effect, exception.until)),
        }
    }
}

/// An API key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiKey {
    /// Its id.
    #[serde(with = "text")]
    pub id: RecordId,
    /// The public part of the key, by which it is found.
    pub lookup_id: String,
    /// The tenant of its bearer.
    #[serde(with = "text")]
    pub tenant: TenantId,
    /// The principal that its bearer acts as.
    #[serde(with = "text")]
    pub principal: PrincipalKey,
    /// The role of its bearer.
    #[serde(with = "text")]
    pub role: Role,
    /// The scopes that it was given; absent if it has those of its role.
    #[serde(with = "some_text")]
    pub scopes: Option<Scopes>,
    /// A word for people.
    pub label: Option<String>,
    /// The slow hash of the whole key.
    pub hash: String,
    /// A short digest of the whole key, by which most wrong ones are refused without the slow hash. Older records
    /// have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check: Option<String>,
    /// The time at which it was made.
    #[serde(with = "time")]
    pub created_at: Timestamp,
    /// The first moment at which it is not valid any more.
    #[serde(with = "some_time")]
    pub expires_at: Option<Timestamp>,
    /// About the time at which it was last used.
    #[serde(with = "some_time")]
    pub last_used_at: Option<Timestamp>,
    /// The time at which it was revoked.
    #[serde(with = "some_time")]
    pub revoked_at: Option<Timestamp>,
    /// The key that took its place.
    #[serde(with = "some_text")]
    pub replaced_by: Option<RecordId>,
}

impl ApiKey {
    /// Returns the times that decide if it is good.
    pub const fn life(&self) -> KeyLife {
        KeyLife {
            created_at: self.created_at,
            expires_at: self.expires_at,
            revoked_at: self.revoked_at,
            replaced: self.replaced_by.is_some(),
        }
    }

    /// Returns true if its bearer may manage tenants, while it is valid.
    pub fn is_platform_admin(&self) -> bool {
        let scopes = self.role.effective_scopes(self.scopes);
        scopes.contains(Scope::PlatformAdmin)
    }
}

/// A macaroon that the server minted. Those that were derived from it have its id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Macaroon {
    /// Its id.
    #[serde(with = "text")]
    pub id: RecordId,
    /// The tenant of its bearer.
    #[serde(with = "text")]
    pub tenant: TenantId,
    /// The principal that its bearer acts as.
    #[serde(with = "text")]
    pub principal: PrincipalKey,
    /// The role of its bearer.
    #[serde(with = "text")]
    pub role: Role,
    /// The name of the key that its signature starts from.
    pub root_key: String,
    /// The time at which it was minted.
    #[serde(with = "time")]
    pub created_at: Timestamp,
    /// The first moment at which it is not valid any more.
    #[serde(with = "time")]
    pub expires_at: Timestamp,
    /// The time at which it was revoked.
    #[serde(with = "some_time")]
    pub revoked_at: Option<Timestamp>,
}

/// A program that may ask people for tokens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OauthClient {
    /// Its id.
    #[serde(with = "text")]
    pub id: RecordId,
    /// The tenant whose people it serves.
    #[serde(with = "text")]
    pub tenant: TenantId,
    /// A name for people.
    pub name: String,
    /// The addresses to which codes may be sent.
    pub redirect_uris: Vec<String>,
    /// The scopes that it may ask for.
    #[serde(with = "text")]
    pub scopes: Scopes,
    /// The hash of its secret; absent for a client that has none.
    pub secret_hash: Option<String>,
    /// The time at which it was registered.
    #[serde(with = "time")]
    pub created_at: Timestamp,
    /// The time from which on a client that registered itself is forgotten, unless it is used; absent for a client
    /// that an admin registered.
    #[serde(default, with = "some_time")]
    pub expires_at: Option<Timestamp>,
    /// The address of the document that describes it, which is its name; absent for a client that was registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub document: Option<String>,
}

impl OauthClient {
    /// Returns the name by which others know it.
    pub fn public_name(&self) -> String {
        self.document.clone().unwrap_or_else(|| self.id.to_string())
    }

    /// Returns true unless the client registered itself and its time is over.
    pub fn is_current(&self, now: Timestamp) -> bool {
        self.expires_at.is_none_or(|end| now < end)
    }
}

/// How a provider of identities names a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Person {
    /// By the provider's own name, which is never given to anybody else.
    Subject(String),
    /// By an e-mail address that the provider has verified.
    Email(String),
}

/// The leave of a person to enter a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdentityLink {
    /// Its id.
    #[serde(with = "text")]
    pub id: RecordId,
    /// The tenant.
    #[serde(with = "text")]
    pub tenant: TenantId,
    /// The name of the provider of identities.
    pub provider: String,
    /// The person, as the provider names them.
    pub person: Person,
    /// The principal that the person acts as.
    #[serde(with = "text")]
    pub principal: PrincipalKey,
    /// The role of the person.
    #[serde(with = "text")]
    pub role: Role,
    /// The scopes that the person was given; absent if they are those of the role.
    #[serde(with = "some_text")]
    pub scopes: Option<Scopes>,
    /// The slow hash of the person's password. Only people whose provider is the server itself have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password_hash: Option<String>,
    /// The time at which it was added.
    #[serde(with = "time")]
    pub created_at: Timestamp,
}

/// What a person granted to a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The client.
    #[serde(with = "text")]
    pub client: RecordId,
    /// The leave by which the person entered. Nothing is granted any more once it is gone.
    #[serde(with = "text")]
    pub identity: RecordId,
    /// The principal that the client acts as.
    #[serde(with = "text")]
    pub principal: PrincipalKey,
    /// The role of that principal.
    #[serde(with = "text")]
    pub role: Role,
    /// The scopes that were granted.
    #[serde(with = "text")]
    pub scopes: Scopes,
    /// The resource that the client named.
    pub resource: Option<String>,
}

/// A code that a client exchanges for tokens, once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuthorizationCode {
    /// Its id.
    #[serde(with = "text")]
    pub id: RecordId,
    /// The tenant.
    #[serde(with = "text")]
    pub tenant: TenantId,
    /// The hash of the code, by which it is found.
    pub hash: String,
    /// What it stands for.
    pub grant: Grant,
    /// The address to which it was sent.
    pub redirect_uri: String,
    /// The challenge that the client must answer.
    pub code_challenge: String,
    /// The time at which it was made.
    #[serde(with = "time")]
    pub created_at: Timestamp,
    /// The first moment at which it is not valid any more.
    #[serde(with = "time")]
    pub expires_at: Timestamp,
    /// The tokens that came of it; present once it was used.
    #[serde(with = "some_text")]
    pub family: Option<RecordId>,
}

/// All tokens that came of one code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenFamily {
    /// Its id.
    #[serde(with = "text")]
    pub id: RecordId,
    /// The tenant.
    #[serde(with = "text")]
    pub tenant: TenantId,
    /// What its tokens stand for.
    pub grant: Grant,
    /// The time of the exchange.
    #[serde(with = "time")]
    pub created_at: Timestamp,
    /// The first moment at which none of its tokens is valid any more, access tokens included.
    #[serde(with = "time")]
    pub expires_at: Timestamp,
    /// The time at which all of it was revoked.
    #[serde(with = "some_time")]
    pub revoked_at: Option<Timestamp>,
}

/// A refresh token: it is used once and then known as used, so that a thief is noticed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefreshToken {
    /// Its id.
    #[serde(with = "text")]
    pub id: RecordId,
    /// The tenant.
    #[serde(with = "text")]
    pub tenant: TenantId,
    /// The hash of the token, by which it is found.
    pub hash: String,
    /// The family that it belongs to.
    #[serde(with = "text")]
    pub family: RecordId,
    /// The time at which it was made.
    #[serde(with = "time")]
    pub created_at: Timestamp,
    /// The first moment at which it is not valid any more.
    #[serde(with = "time")]
    pub expires_at: Timestamp,
    /// The time at which it was used.
    #[serde(with = "some_time")]
    pub used_at: Option<Timestamp>,
}

/// A record of any kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Record {
    /// A tenant.
    Tenant(TenantRecord),
    /// An API key.
    ApiKey(ApiKey),
    /// A macaroon.
    Macaroon(Macaroon),
    /// A client of OAuth.
    OauthClient(OauthClient),
    /// The leave of a person to enter.
    IdentityLink(IdentityLink),
    /// A code.
    AuthorizationCode(AuthorizationCode),
    /// A family of tokens.
    TokenFamily(TokenFamily),
    /// A refresh token.
    RefreshToken(RefreshToken),
}

/// The kinds of records. Stores keep their numbers, so a new kind goes to the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RecordKind {
    /// A tenant.
    Tenant,
    /// An API key.
    ApiKey,
    /// A macaroon.
    Macaroon,
    /// A client of OAuth.
    OauthClient,
    /// The leave of a person to enter.
    IdentityLink,
    /// A code.
    AuthorizationCode,
    /// A family of tokens.
    TokenFamily,
    /// A refresh token.
    RefreshToken,
}

impl RecordKind {
    /// Every kind.
    pub const ALL: [Self; 8] = [
        Self::Tenant,
        Self::ApiKey,
        Self::Macaroon,
        Self::OauthClient,
        Self::IdentityLink,
        Self::AuthorizationCode,
        Self::TokenFamily,
        Self::RefreshToken,
    ];
}

/// The kind and id of a record: no other record has both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordKey {
    /// The kind.
    pub kind: RecordKind,
    /// The id.
    pub id: RecordId,
}

impl Record {
    /// Returns the key.
    pub const fn key(&self) -> RecordKey {
        let (kind, id) = match self {
            // A tenant is its own tenant, and its record has its id.
            Self::Tenant(tenant) => (
                RecordKind::Tenant,
                RecordId::from_bytes(*tenant.id.as_bytes()),
            ),
            Self::ApiKey(key) => (RecordKind::ApiKey, key.id),
            Self::Macaroon(macaroon) => (RecordKind::Macaroon, macaroon.id),
            Self::OauthClient(client) => (RecordKind::OauthClient, client.id),
            Self::IdentityLink(link) => (RecordKind::IdentityLink, link.id),
            Self::AuthorizationCode(code) => (RecordKind::AuthorizationCode, code.id),
            Self::TokenFamily(family) => (RecordKind::TokenFamily, family.id),
            Self::RefreshToken(token) => (RecordKind::RefreshToken, token.id),
        };
        RecordKey { kind, id }
    }

    /// Returns the tenant that it belongs to.
    pub const fn tenant(&self) -> TenantId {
        match self {
            Self::Tenant(tenant) => tenant.id,
            Self::ApiKey(key) => key.tenant,
            Self::Macaroon(macaroon) => macaroon.tenant,
            Self::OauthClient(client) => client.tenant,
            Self::IdentityLink(link) => link.tenant,
            Self::AuthorizationCode(code) => code.tenant,
            Self::TokenFamily(family) => family.tenant,
            Self::RefreshToken(token) => token.tenant,
        }
    }

    /// Returns the name by which it is found without its id.
    pub fn name(&self) -> Option<String> {
        match self {
            Self::Tenant(tenant) => Some(tenant.name.clone()),
            Self::ApiKey(key) => Some(key.lookup_id.clone()),
            Self::IdentityLink(link) => {
                Some(person_name(link.tenant, &link.provider, &link.person))
            }
            Self::AuthorizationCode(code) => Some(code.hash.clone()),
            Self::RefreshToken(token) => Some(token.hash.clone()),
            Self::Macaroon(_) | Self::OauthClient(_) | Self::TokenFamily(_) => None,
        }
    }

    /// Returns the principal that it lets somebody act as.
    pub const fn principal(&self) -> Option<&PrincipalKey> {
        match self {
            Self::ApiKey(key) => Some(&key.principal),
            Self::Macaroon(macaroon) => Some(&macaroon.principal),
            Self::IdentityLink(link) => Some(&link.principal),
            Self::AuthorizationCode(code) => Some(&code.grant.principal),
            Self::TokenFamily(family) => Some(&family.grant.principal),
            Self::Tenant(_) | Self::OauthClient(_) | Self::RefreshToken(_) => None,
        }
    }

    /// Returns the time from which on nobody can tell whether it is still stored. Keys are kept: lists show them.
    pub const fn forget_at(&self) -> Option<Timestamp> {
        match self {
            Self::Macaroon(macaroon) => Some(macaroon.expires_at),
            Self::AuthorizationCode(code) => Some(code.expires_at.plus_millis(CODE_KEPT_MS)),
            Self::TokenFamily(family) => Some(family.expires_at),
            Self::RefreshToken(token) => Some(token.expires_at),
            Self::OauthClient(client) => client.expires_at,
            Self::Tenant(_) | Self::ApiKey(_) | Self::IdentityLink(_) => None,
        }
    }

    /// Returns until when it is a key of a platform admin, if it is one and was not revoked.
    pub fn platform_until(&self) -> Option<Timestamp> {
        let Self::ApiKey(key) = self else {
            return None;
        };
        let lives = key.revoked_at.is_none() && key.is_platform_admin();
        let end = key.expires_at.unwrap_or(Timestamp::from_millis(i64::MAX));
        lives.then_some(end)
    }

    /// Returns the tenant, if it is one.
    pub fn into_tenant(self) -> Option<TenantRecord> {
        let Self::Tenant(tenant) = self else {
            return None;
        };
        Some(tenant)
    }

    /// Returns the client, if it is one.
    pub fn into_client(self) -> Option<OauthClient> {
        let Self::OauthClient(client) = self else {
            return None;
        };
        Some(client)
    }

    /// Returns the leave to enter, if it is one.
    pub fn into_link(self) -> Option<IdentityLink> {
        let Self::IdentityLink(link) = self else {
            return None;
        };
        Some(link)
    }

    /// Returns the code, if it is one.
    pub fn into_code(self) -> Option<AuthorizationCode> {
        let Self::AuthorizationCode(code) = self else {
            return None;
        };
        Some(code)
    }

    /// Returns the family of tokens, if it is one.
    pub fn into_family(self) -> Option<TokenFamily> {
        let Self::TokenFamily(family) = self else {
            return None;
        };
        Some(family)
    }

    /// Returns the refresh token, if it is one.
    pub fn into_refresh_token(self) -> Option<RefreshToken> {
        let Self::RefreshToken(token) = self else {
            return None;
        };
        Some(token)
    }

    /// Returns the text in which a store keeps it.
    pub fn to_text(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self)
    }

    /// Reads a record back from its text.
    pub fn from_text(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }
}

/// A way to name one record.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Find {
    /// By its id. A record of another tenant than the one that is given is not found.
    Id {
        /// The kind and the id.
        key: RecordKey,
        /// The tenant in which it must be; absent if any will do.
        within: Option<TenantId>,
    },
    /// By its name.
    Name {
        /// The kind.
        kind: RecordKind,
        /// The name.
        name: String,
    },
}

impl Find {
    /// Names a record by its id, in whatever tenant.
    pub const fn id(kind: RecordKind, id: RecordId) -> Self {
        Self::Id {
            key: RecordKey { kind, id },
            within: None,
        }
    }

    /// Names a record of a tenant by its id.
    pub const fn within(tenant: TenantId, kind: RecordKind, id: RecordId) -> Self {
        Self::Id {
            key: RecordKey { kind, id },
            within: Some(tenant),
        }
    }

    /// Names a tenant by its id.
    pub const fn tenant(id: TenantId) -> Self {
        Self::id(RecordKind::Tenant, RecordId::from_bytes(*id.as_bytes()))
    }

    /// Names a tenant by its name.
    pub fn tenant_named(name: &str) -> Self {
        Self::named(RecordKind::Tenant, name)
    }

    /// Names an API key by its public part.
    pub fn key(lookup_id: &str) -> Self {
        Self::named(RecordKind::ApiKey, lookup_id)
    }

    /// Names the leave of a person to enter a tenant.
    pub fn person(tenant: TenantId, provider: &str, person: &Person) -> Self {
        let name = person_name(tenant, provider, person);
        Self::named(RecordKind::IdentityLink, &name)
    }

    /// Names a code by its hash.
    pub fn code(hash: &str) -> Self {
        Self::named(RecordKind::AuthorizationCode, hash)
    }

    /// Names a refresh token by its hash.
    pub fn refresh_token(hash: &str) -> Self {
        Self::named(RecordKind::RefreshToken, hash)
    }

    fn named(kind: RecordKind, name: &str) -> Self {
        let name = name.to_owned();
        Self::Name { kind, name }
    }
}

/// Returns the name of a person within a tenant. It is a hash, so that no two persons share it whatever they are
/// called.
fn person_name(tenant: TenantId, provider: &str, person: &Person) -> String {
    let mut parts = Preimage::new("asyncgate.person.v1");
    parts.add(tenant.as_bytes());
    parts.add(provider.as_bytes());
    match person {
        Person::Subject(subject) => {
            parts.add(b"subject");
            parts.add(subject.as_bytes());
        }
        Person::Email(email) => {
            parts.add(b"email");
            // Nobody gives out two mailboxes that differ in case only.
            parts.add(email.to_lowercase().as_bytes());
        }
    }
    parts.hash().to_hex().to_string()
}
