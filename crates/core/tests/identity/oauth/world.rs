//! Records in memory, and the people and programs of the tests.

use std::{collections::BTreeMap, sync::Arc};

use asyncgate_core::{
    Env, Ids, Policy, PrincipalKey, PrincipalKind, Stamp, Timestamp,
    identity::{
        Changes, DEFAULT_TENANT, Find, IdentityLink, OauthClient, Person, Record, RecordKey,
        RecordKind, Role, Scope, Scopes, TenantRecord, TokenFamily,
        audit::Event,
        manage::{Actor, Origin, clients},
        oauth::{
            AuthorizationRequest, Entering, Exchange, FoundCode, FoundToken, GrantRefusal, Issued,
            Lifetimes, LoginRefusal, NewClient, Refresh, exchange, family_of, issue_code, refresh,
            register_stranger, revoke,
        },
    },
};

pub const START_MS: i64 = 1_767_610_000_000;
pub const DAY_MS: i64 = 86_400_000;
pub const REDIRECT: &str = "https://client.example/callback";
pub const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";
pub const OTHER_CHALLENGE: &str = "0000lhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";

/// Tokens that live for some days, so that both can end first.
pub const LIVES: Lifetimes = Lifetimes {
    access_ms: 5 * DAY_MS,
    refresh_ms: 9 * DAY_MS,
};

/// A store of records, with a clock.
pub struct World {
    pub records: BTreeMap<RecordKey, Record>,
    pub events: Vec<Event>,
    pub now: Timestamp,
    drawn: u64,
}

impl World {
    /// A world with the default tenant.
    pub fn new() -> Self {
        let tenant = Record::Tenant(TenantRecord::built_in());
        Self {
            records: BTreeMap::from([(tenant.key(), tenant)]),
            events: Vec::new(),
            now: Timestamp::from_millis(START_MS),
            drawn: 0,
        }
    }

    pub fn env(&mut self) -> Env {
        self.drawn += 1;
        Env {
            now: self.now,
            ids: Ids::new(Stamp::from_u64(self.drawn << 12), self.drawn),
            instance: "here".into(),
            policy: Arc::new(Policy::default()),
            quotas: None,
        }
    }

    pub fn advance(&mut self, millis: i64) {
        self.now = self.now.plus_millis(millis);
    }

    pub fn apply(&mut self, changes: Changes) {
        for record in changes.put {
            self.records.insert(record.key(), record);
        }
        for key in changes.removed {
            self.records.remove(&key);
        }
        self.events
            .extend(changes.audit.iter().map(|draft| draft.event));
    }

    pub fn find(&self, find: &Find) -> Option<Record> {
        let is_found = |record: &&Record| match find {
            Find::Id { key, .. } => record.key() == *key,
            Find::Name { kind, name } => {
                record.key().kind == *kind && record.name().as_ref() == Some(name)
            }
        };
        self.records.values().find(is_found).cloned()
    }

    pub fn tenant(&self) -> Option<TenantRecord> {
        self.find(&Find::tenant(DEFAULT_TENANT))?.into_tenant()
    }

    pub fn suspend(&mut self, suspended: bool) {
        let tenant = self.tenant().unwrap();
        let suspended_at = tenant.tenant().suspended(suspended, self.now).suspended_at;
        let record = Record::Tenant(TenantRecord {
            suspended_at,
            ..tenant
        });
        self.records.insert(record.key(), record);
    }

    pub fn client(&self, id: asyncgate_core::RecordId) -> Option<OauthClient> {
        self.find(&Find::id(RecordKind::OauthClient, id))?
            .into_client()
    }

    pub fn link(&self, id: asyncgate_core::RecordId) -> Option<IdentityLink> {
        self.find(&Find::id(RecordKind::IdentityLink, id))?
            .into_link()
    }

    pub fn family(&self, id: asyncgate_core::RecordId) -> Option<TokenFamily> {
        self.find(&Find::id(RecordKind::TokenFamily, id))?
            .into_family()
    }

    /// Registers a client.
    pub fn register(&mut self, by: Registrar) -> OauthClient {
        let mut env = self.env();
        let decision = match by {
            Registrar::Admin => {
                let tenant = self.tenant().map(Record::Tenant);
                clients::register(&admin(), &mut env, tenant.as_ref(), new_client()).unwrap()
            }
            Registrar::Stranger => register_stranger(&mut env, new_client()).unwrap(),
        };
        self.apply(decision.changes);
        decision.output
    }

    /// Lets a person in.
    pub fn let_in(&mut self, link: IdentityLink) -> IdentityLink {
        let record = Record::IdentityLink(IdentityLink {
            id: self.env().ids.record(),
            ..link
        });
        self.records.insert(record.key(), record.clone());
        record.into_link().unwrap()
    }

    /// Logs a person in for a client.
    pub fn log_in(
        &mut self,
        asked: &AuthorizationRequest,
        person: &IdentityLink,
        hash: &str,
    ) -> Result<asyncgate_core::identity::Grant, LoginRefusal> {
        let mut env = self.env();
        let (client, tenant) = (self.client(asked.client), self.tenant());
        let link = self.link(person.id);
        let entering = Entering {
            client: client.as_ref(),
            tenant: tenant.as_ref(),
            link: link.as_ref(),
        };
        let decision = issue_code(&mut env, asked, entering, hash);
        self.apply(decision.changes);
        decision.output
    }

    /// Exchanges the code with this hash.
    pub fn exchange(&mut self, hash: &str, asked: &Exchange) -> Result<Issued, GrantRefusal> {
        let mut env = self.env();
        let code = self.find(&Find::code(hash)).and_then(Record::into_code);
        let grant = code.as_ref().map(|code| code.grant.clone());
        let found = FoundCode {
            family: code.as_ref().and_then(|code| self.family(family_of(code))),
            client: self.client(asked.client),
            tenant: self.tenant(),
            link: grant.and_then(|grant| self.link(grant.identity)),
            code,
        };
        let decision = exchange(&mut env, found, asked, LIVES);
        self.apply(decision.changes);
        decision.output
    }

    /// Uses the refresh token with this hash.
    pub fn refresh(&mut self, hash: &str, asked: &Refresh) -> Result<Issued, GrantRefusal> {
        let mut env = self.env();
        let token = self
            .find(&Find::refresh_token(hash))
            .and_then(Record::into_refresh_token);
        let family = token.as_ref().and_then(|token| self.family(token.family));
        let link = family
            .as_ref()
            .and_then(|family| self.link(family.grant.identity));
        let found = FoundToken {
            token,
            family,
            client: self.client(asked.client),
            tenant: self.tenant(),
            link,
        };
        let decision = refresh(&mut env, found, asked, LIVES);
        self.apply(decision.changes);
        decision.output
    }

    /// Revokes a family for a client.
    pub fn revoke(
        &mut self,
        family: asyncgate_core::RecordId,
        client: &OauthClient,
    ) -> Result<(), GrantRefusal> {
        let mut env = self.env();
        let family = self.family(family);
        let decision = revoke(&mut env, family, client.id);
        self.apply(decision.changes);
        decision.output
    }
}

/// Whoever registers a client.
#[derive(Debug, Clone, Copy)]
pub enum Registrar {
    Admin,
    Stranger,
}

pub fn admin() -> Actor {
    Actor {
        tenant: DEFAULT_TENANT,
        principal: PrincipalKey {
            kind: PrincipalKind::Service,
            id: "admin".into(),
        },
        scopes: Role::Admin.default_scopes(),
        narrowed: false,
        origin: Origin::default(),
    }
}

pub fn new_client() -> NewClient {
    NewClient {
        tenant: DEFAULT_TENANT,
        name: "a client".to_owned(),
        redirect_uris: vec![REDIRECT.to_owned(), "http://localhost:8080/cb".to_owned()],
        scopes: Scopes::of(&[Scope::TasksRead, Scope::TasksWrite, Scope::AdminRead]),
        secret_hash: None,
    }
}

pub fn new_person(subject: &str) -> IdentityLink {
    IdentityLink {
        id: asyncgate_core::RecordId::from_bytes([0; 16]),
        tenant: DEFAULT_TENANT,
        provider: "acme".to_owned(),
        person: Person::Subject(subject.to_owned()),
        principal: PrincipalKey {
            kind: PrincipalKind::Human,
            id: subject.into(),
        },
        role: Role::Agent,
        scopes: None,
        password_hash: None,
        created_at: Timestamp::from_millis(START_MS),
    }
}

pub fn asking(client: &OauthClient) -> AuthorizationRequest {
    AuthorizationRequest {
        client: client.id,
        redirect_uri: REDIRECT.to_owned(),
        state: None,
        code_challenge: CHALLENGE.to_owned(),
        scopes: Scopes::of(&[Scope::TasksRead, Scope::TasksWrite]),
        resource: None,
    }
}

pub fn exchanging(client: &OauthClient, refresh_hash: &str) -> Exchange {
    Exchange {
        client: client.id,
        redirect_uri: REDIRECT.to_owned(),
        challenge: CHALLENGE.to_owned(),
        resource: None,
        refresh_hash: refresh_hash.to_owned(),
    }
}

pub fn refreshing(client: &OauthClient, refresh_hash: &str) -> Refresh {
    Refresh {
        client: client.id,
        scope: None,
        resource: None,
        refresh_hash: refresh_hash.to_owned(),
    }
}
