//! An authenticator on a store in memory, with a clock that the test moves, and ways to put records there.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use asyncgate_api::Code;
use asyncgate_auth::fakes::{TestAuth, settings};
use asyncgate_auth::{Files, MemoryFiles, PlainKey, Settings};
use asyncgate_core::identity::audit::{Entry, Event};
use asyncgate_core::identity::{
    ApiKey, Find, Grant, Macaroon, Record, RecordKind, Role, Scopes, TenantRecord, TokenFamily,
};
use asyncgate_core::{PrincipalKey, PrincipalKind, RecordId, TenantId, Timestamp};
use asyncgate_credentials::jwt::Claims;
use asyncgate_engine::fakes::{FakeClock, START_MS};
use asyncgate_engine::{
    Authenticator as _, Caller, Clock as _, CorrId, Fault, Keyring as _, Remote, RequestContext,
    Source, registry,
};
use asyncgate_store::Store as _;
use asyncgate_store::identity::AuditFilter;
use prometheus_client::registry::Registry;
use serde_json::Value;

/// A tenant beside the default one.
pub const TENANT: TenantId = TenantId::from_bytes([7; 16]);

pub struct World {
    pub at: TestAuth,
    pub files: Arc<dyn Files>,
    pub settings: Settings,
}

/// A fresh id for a record.
pub fn new_id() -> RecordId {
    static USED: AtomicU32 = AtomicU32::new(0);
    let [a, b, c, d] = USED.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    RecordId::from_bytes([1, 2, 3, 4, 5, 6, 0x70, 7, 0x80, 8, 9, 10, a, b, c, d])
}

pub fn millis(ms: i64) -> Timestamp {
    Timestamp::from_millis(ms)
}

pub fn principal(id: &str) -> PrincipalKey {
    PrincipalKey {
        kind: PrincipalKind::Agent,
        id: id.into(),
    }
}

impl World {
    /// A world in which [`TENANT`] exists.
    pub async fn new() -> Self {
        Self::with(settings()).await
    }

    pub async fn with(settings: Settings) -> Self {
        Self::at_clock(FakeClock::at(START_MS), settings).await
    }

    /// A world whose clock moves with that of the runtime, which the test can pause.
    pub async fn running() -> Self {
        Self::at_clock(FakeClock::running_from(START_MS), settings()).await
    }

    async fn at_clock(clock: FakeClock, settings: Settings) -> Self {
        let files: Arc<dyn Files> = Arc::new(MemoryFiles::default());
        let clock = Arc::new(clock);
        let world = Self {
            at: TestAuth::over(&Arc::default(), &clock, Arc::clone(&files), &settings),
            files,
            settings,
        };
        world.put_tenant(TENANT, None).await;
        world
    }

    /// Another server on the same store and clock, with these files.
    pub fn beside(&self, files: Arc<dyn Files>) -> Self {
        Self {
            at: TestAuth::over(
                &self.at.store,
                &self.at.clock,
                Arc::clone(&files),
                &self.settings,
            ),
            files,
            settings: self.settings.clone(),
        }
    }

    pub fn now(&self) -> Timestamp {
        self.at.clock.now()
    }

    /// Writes records without telling any server.
    pub async fn put(&self, put: Vec<Record>) {
        self.at.put(put).await;
    }

    /// Writes a record, and tells this server as an operation would.
    pub async fn change(&self, record: Record) {
        let key = record.key();
        self.put(vec![record]).await;
        self.at.keyring.forget(key);
    }

    pub async fn find(&self, find: Find) -> Option<Record> {
        self.at.store.identity().record(find).await.unwrap()
    }

    pub async fn put_tenant(&self, id: TenantId, suspended_at: Option<Timestamp>) {
        self.put(vec![tenant(id, suspended_at)]).await;
    }

    /// Makes a key and stores its record.
    pub async fn key(&self, role: Role, scopes: Option<Scopes>) -> (String, ApiKey) {
        self.key_of(TENANT, role, scopes, None).await
    }

    pub async fn key_of(
        &self,
        tenant: TenantId,
        role: Role,
        scopes: Option<Scopes>,
        expires_at: Option<Timestamp>,
    ) -> (String, ApiKey) {
        let minted = self.at.keyring.api_key().await.unwrap();
        let key = ApiKey {
            id: new_id(),
            lookup_id: minted.lookup_id,
            tenant,
            principal: principal("alice"),
            role,
            scopes,
            label: None,
            hash: minted.hash,
            check: Some(minted.check),
            created_at: self.now(),
            expires_at,
            last_used_at: None,
            revoked_at: None,
            replaced_by: None,
        };
        self.put(vec![Record::ApiKey(key.clone())]).await;
        (minted.secret.reveal().to_owned(), key)
    }

    /// Reads the stored record of a key.
    pub async fn stored(&self, key: &ApiKey) -> ApiKey {
        let found = self.find(Find::id(RecordKind::ApiKey, key.id)).await;
        let Some(Record::ApiKey(key)) = found else {
            panic!("no such key");
        };
        key
    }

    pub async fn revoke(&self, key: &ApiKey) {
        self.change(Record::ApiKey(self.revoked(key))).await;
    }

    pub fn revoked(&self, key: &ApiKey) -> ApiKey {
        ApiKey {
            revoked_at: Some(self.now()),
            ..key.clone()
        }
    }

    /// Mints a macaroon that lives for so long, and stores its record.
    pub async fn macaroon(&self, caveats: &[&str], life_ms: i64) -> (String, Macaroon) {
        let id = new_id();
        let caveats: Vec<String> = caveats.iter().map(|text| (*text).to_owned()).collect();
        let minted = self.at.keyring.macaroon(id, &caveats).unwrap();
        let macaroon = Macaroon {
            id,
            tenant: TENANT,
            principal: principal("alice"),
            role: Role::Agent,
            root_key: minted.root_key,
            created_at: self.now(),
            expires_at: self.now().plus_millis(life_ms),
            revoked_at: None,
        };
        self.put(vec![Record::Macaroon(macaroon.clone())]).await;
        (minted.secret.reveal().to_owned(), macaroon)
    }

    /// The claims of a token that lives for a minute.
    pub fn claims(&self) -> Claims {
        let second = self.now().as_millis() / 1_000;
        Claims {
            issuer: "asyncgate".to_owned(),
            audience: vec!["asyncgate-api".to_owned()],
            subject: "someone".to_owned(),
            tenant: TENANT,
            principal: principal("alice"),
            role: None,
            scopes: None,
            expires_at: second + 60,
            issued_at: second,
            not_before: None,
            client_id: None,
            token_id: None,
            family: None,
        }
    }

    pub fn token(&self, claims: &Claims) -> String {
        self.at.keyring.sign(claims).unwrap()
    }

    /// Stores a family of tokens.
    pub async fn family(&self) -> TokenFamily {
        let family = TokenFamily {
            id: new_id(),
            tenant: TENANT,
            grant: Grant {
                identity: RecordId::from_bytes([3; 16]),
                client: new_id(),
                principal: principal("alice"),
                role: Role::Agent,
                scopes: Role::Agent.default_scopes(),
                resource: None,
            },
            created_at: self.now(),
            expires_at: self.now().plus_millis(86_400_000),
            revoked_at: None,
        };
        self.put(vec![Record::TokenFamily(family.clone())]).await;
        family
    }

    pub async fn check(&self, credential: &str) -> Result<Caller, Fault> {
        self.at.auth.authenticate(&request(1, credential)).await
    }

    pub async fn check_none(&self) -> Result<Caller, Fault> {
        let request = RequestContext::default();
        self.at.auth.authenticate(&request).await
    }

    /// Returns the code of a refusal, or nothing if the credential is good.
    pub async fn code(&self, credential: &str) -> Option<Code> {
        self.code_from(1, credential).await
    }

    pub async fn code_from(&self, address: u8, credential: &str) -> Option<Code> {
        let checked = self.at.auth.authenticate(&request(address, credential));
        checked.await.err().map(|fault| fault.code)
    }

    /// Shows credentials all at once from one address each, and returns the outcomes in this order.
    pub async fn show(&self, shown: Vec<(u8, String)>) -> Vec<Option<Code>> {
        let calls = shown.into_iter().map(|(address, credential)| {
            let auth = self.at.auth.clone();
            tokio::spawn(async move {
                let request = request(address, &credential);
                let checked = auth.authenticate(&request).await;
                checked.err().map(|fault| fault.code)
            })
        });
        let all = futures_util::future::join_all(calls).await;
        all.into_iter().map(Result::unwrap).collect()
    }

    /// The metrics in text form.
    pub fn counted(&self) -> String {
        let mut registry = Registry::default();
        self.at.auth.register_metrics(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        text
    }

    /// The value of a sample.
    pub fn metric(&self, name: &str) -> u64 {
        let text = self.counted();
        let sample = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        sample
            .unwrap_or_else(|| panic!("{name}: {text}"))
            .parse()
            .unwrap()
    }

    /// The Argon2id hashes that were made.
    pub fn hashes(&self) -> u64 {
        self.metric("credential_hashes_total")
    }

    /// The entries of a log about an event, the oldest first.
    pub async fn entries(&self, tenant: Option<TenantId>, event: Event) -> Vec<Entry> {
        self.at.engine.flush_audit().await.unwrap();
        let filter = AuditFilter {
            tenant,
            event: Some(event),
            limit: 1_000,
            ..AuditFilter::default()
        };
        let page = self.at.store.identity().audit(filter).await.unwrap();
        page.entries.into_iter().rev().collect()
    }

    /// Runs an operation for somebody who was let in.
    pub async fn run(
        &self,
        caller: &Caller,
        operation: &str,
        input: &Value,
    ) -> Result<Value, Fault> {
        let entry = registry().iter().find(|it| it.spec.name == operation);
        let input = input.to_string();
        let source = Source::Json(input.as_bytes());
        let answer = (entry.unwrap().call)(&self.at.engine, caller, source).await?;
        Ok(serde_json::from_slice(&answer.json).unwrap())
    }

    /// Starts as the server does.
    pub async fn begin(&self) -> Option<PlainKey> {
        self.at.auth.begin().await.unwrap()
    }
}

/// A request from an address.
pub fn request(address: u8, credential: &str) -> RequestContext<'_> {
    RequestContext {
        credential: Some(credential),
        user_agent: Some("tester/1"),
        remote: Some(Remote::Network(([10, 0, 0, address], 9).into())),
        corr_id: Some(CorrId {
            text: "c-1".into(),
            given: true,
        }),
    }
}

pub fn tenant(id: TenantId, suspended_at: Option<Timestamp>) -> Record {
    Record::Tenant(TenantRecord {
        id,
        name: id.to_string(),
        suspended_at,
        ..TenantRecord::built_in()
    })
}

/// Returns a credential with the public part of this key and another secret.
pub fn guess(key: &str, n: u64) -> String {
    let secret = format!("{n:0>40}");
    format!("{}{secret}", &key[..16])
}
