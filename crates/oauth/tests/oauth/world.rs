//! A server in memory, with people and clients.

use std::sync::Arc;

use asyncgate_core::{
    Decision, PrincipalKey, PrincipalKind, RecordId, TenantId, Timestamp,
    identity::{
        Changes, DEFAULT_TENANT, Find, IdentityLink, Person, Record, RecordKind, Role, TokenFamily,
        audit::{Entry, Event},
        manage::people::LOCAL,
        oauth::{Lifetimes, Reach},
    },
};
use asyncgate_engine::{
    Caller, Engine, Principal, Settings, Source,
    fakes::{Counter, FakeClock, START_MS},
    oauth::{Oauth, OauthSettings},
    registry,
};
use asyncgate_oauth::{DocumentOptions, Facade, Lookup, Options, OwnAddress, ProviderSettings};
use asyncgate_store::{
    Store as _,
    identity::{AuditFilter, Reads},
    memory::MemoryStore,
};
use axum::Router;
use serde_json::{Value, json};

use super::{
    browser::{Answer, BASE, Browser, encode},
    keyring::{AUDIENCE, FakeKeyring, ISSUER, slow_hash},
};

pub const DAY_MS: i64 = 86_400_000;
pub const REDIRECT: &str = "https://client.example/callback?kept=1";
pub const LOOPBACK: &str = "http://127.0.0.1:7777/cb";
pub const PASSWORD: &str = "correct horse battery staple";
/// The verifier and the challenge of RFC 7636, appendix B.
pub const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
pub const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";

pub struct World {
    pub engine: Arc<Engine>,
    pub store: Arc<MemoryStore>,
    pub clock: Arc<FakeClock>,
    pub keyring: Arc<FakeKeyring>,
    pub facade: Facade,
    pub router: Router,
}

/// What is different in a test.
#[derive(Clone)]
pub struct Setup {
    pub enabled: bool,
    pub providers: Vec<ProviderSettings>,
    pub local_login: bool,
    pub dynamic_registration: bool,
    pub client_documents: bool,
    pub registration_tenant: String,
    pub reach: Reach,
    pub lookup: Lookup,
    pub public_url: Option<String>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            enabled: true,
            providers: Vec::new(),
            local_login: true,
            dynamic_registration: true,
            client_documents: true,
            registration_tenant: "default".to_owned(),
            reach: Reach::PublicAndOwnMachine,
            lookup: Lookup::default(),
            public_url: None,
        }
    }
}

impl Setup {
    fn parts(self) -> (OauthSettings, Options) {
        let settings = OauthSettings {
            issuer: ISSUER.to_owned(),
            audience: AUDIENCE.to_owned(),
            lifetimes: Lifetimes {
                access_ms: 30 * DAY_MS,
                refresh_ms: 90 * DAY_MS,
            },
            local_login: self.local_login,
            dynamic_registration: self.dynamic_registration,
            client_documents: self.client_documents,
            registration_tenant: self.registration_tenant,
        };
        let options = Options {
            enabled: self.enabled,
            own: OwnAddress {
                public_url: self.public_url,
                secure: false,
                listener: "127.0.0.1:8080".to_owned(),
            },
            providers: self.providers,
            documents: DocumentOptions {
                reach: self.reach,
                lookup: self.lookup,
            },
        };
        (settings, options)
    }
}

impl World {
    /// A server without providers, where Ada may log in with a password.
    pub async fn new() -> Self {
        let world = Self::with(Setup::default());
        world.let_in(local("ada")).await;
        world
    }

    pub fn with(setup: Setup) -> Self {
        let store = Arc::new(MemoryStore::default());
        let clock = Arc::new(FakeClock::at(START_MS));
        let keyring = Arc::new(FakeKeyring::default());
        let engine = Engine::new(
            Arc::<MemoryStore>::clone(&store),
            Arc::<FakeClock>::clone(&clock),
            Arc::new(Counter::default()),
            Settings::default(),
        );
        let engine = Arc::new(engine.with_keyring(Arc::<FakeKeyring>::clone(&keyring)));
        let (settings, options) = setup.parts();
        let oauth = Oauth::new(Arc::clone(&engine), settings);
        let facade = Facade::new(oauth, options);
        Self {
            router: facade.router(),
            facade,
            engine,
            store,
            clock,
            keyring,
        }
    }

    /// Puts other settings in force.
    pub fn reload(&self, setup: Setup) {
        let (settings, options) = setup.parts();
        self.facade.reload(settings, options);
    }

    pub fn now(&self) -> Timestamp {
        asyncgate_engine::Clock::now(&*self.clock)
    }

    pub fn browser(&self) -> Browser {
        Browser::new(&self.router)
    }

    /// Writes records.
    pub async fn put(&self, put: Vec<Record>) {
        self.change(Changes {
            put,
            ..Changes::default()
        })
        .await;
    }

    pub async fn change(&self, changes: Changes) {
        let env = asyncgate_core::Env {
            now: self.now(),
            ids: asyncgate_core::Ids::new(asyncgate_core::Stamp::from_u64(1), 1),
            instance: "test".into(),
            policy: Arc::default(),
            quotas: None,
        };
        let decide = move |_, _| {
            Ok(Decision {
                output: (),
                changes: changes.clone(),
            })
        };
        let written = asyncgate_store::transact(
            &*self.store,
            DEFAULT_TENANT,
            env,
            0,
            Reads::default(),
            decide,
        );
        written.await.unwrap().unwrap();
    }

    pub async fn let_in(&self, link: IdentityLink) -> IdentityLink {
        self.put(vec![Record::IdentityLink(link.clone())]).await;
        link
    }

    pub async fn find(&self, find: Find) -> Option<Record> {
        self.store.identity().record(find).await.unwrap()
    }

    pub async fn family(&self, id: &str) -> TokenFamily {
        let id: RecordId = id.parse().unwrap();
        let found = self.find(Find::id(RecordKind::TokenFamily, id)).await;
        found.and_then(Record::into_family).unwrap()
    }

    /// Calls an operation as an admin of the default tenant.
    pub async fn admin(&self, operation: &str, input: Value) -> Result<Value, String> {
        self.call(&admin(DEFAULT_TENANT), operation, input).await
    }

    pub async fn call(
        &self,
        caller: &Caller,
        operation: &str,
        input: Value,
    ) -> Result<Value, String> {
        let found = registry().iter().find(|it| it.spec.name == operation);
        let input = input.to_string();
        let source = Source::Json(input.as_bytes());
        let answer = (found.unwrap().call)(&self.engine, caller, source).await;
        let answer = answer.map_err(|fault| fault.code.as_str().to_owned())?;
        Ok(serde_json::from_slice(&answer.json).unwrap())
    }

    /// Registers a client that may ask for what agents and admins do.
    pub async fn client(&self, confidential: bool) -> Value {
        let input = json!({
            "client_name": "My <Agent>",
            "redirect_uris": [REDIRECT, LOOPBACK],
            "scopes": ["tasks:read", "tasks:write", "receipts:read", "admin:read"],
            "confidential": confidential,
        });
        self.admin("create_oauth_client", input).await.unwrap()
    }

    /// Logs Ada in with her password, and returns the code.
    pub async fn code(&self, client: &Value) -> String {
        let mut browser = self.browser();
        let page = browser.get(&authorize(client, &[])).await;
        let answer = log_in(&mut browser, &page, "ada", PASSWORD).await;
        let (_, params) = answer.redirect();
        params["code"].clone()
    }

    /// Exchanges a code, with these parameters instead of those of the same name.
    pub async fn exchange(&self, client: &Value, code: &str, changed: &[(&str, &str)]) -> Answer {
        let id = client["client_id"].as_str().unwrap();
        let good = [
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", REDIRECT),
            ("client_id", id),
            ("code_verifier", VERIFIER),
        ];
        let form = replaced(&good, changed);
        self.browser().post("/oauth/token", &form).await
    }

    pub async fn refresh(&self, client: &Value, token: &str, changed: &[(&str, &str)]) -> Answer {
        let id = client["client_id"].as_str().unwrap();
        let good = [
            ("grant_type", "refresh_token"),
            ("refresh_token", token),
            ("client_id", id),
        ];
        let form = replaced(&good, changed);
        self.browser().post("/oauth/token", &form).await
    }

    /// Logs Ada in and returns the answer with her tokens.
    pub async fn tokens(&self, client: &Value) -> Value {
        let code = self.code(client).await;
        let answer = self.exchange(client, &code, &[]).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    }

    /// Returns the entries of an audit log, oldest first.
    pub async fn audited(&self, tenant: Option<TenantId>) -> Vec<Entry> {
        self.engine.flush_audit().await.unwrap();
        let filter = AuditFilter {
            tenant,
            limit: 1_000,
            ..AuditFilter::default()
        };
        let page = self.store.identity().audit(filter).await.unwrap();
        let mut entries = page.entries;
        entries.reverse();
        entries
    }

    pub async fn events(&self) -> Vec<Event> {
        let entries = self.audited(Some(DEFAULT_TENANT)).await;
        entries.into_iter().map(|entry| entry.said.event).collect()
    }
}

pub fn admin(tenant: TenantId) -> Caller {
    let principal = Principal::new(PrincipalKind::Service, "admin");
    Caller::new(tenant, principal, Role::Admin)
}

/// Returns pairs, with the changed ones instead of those of the same name. One without a value is left out.
pub fn replaced<'a>(
    good: &[(&'a str, &'a str)],
    changed: &[(&'a str, &'a str)],
) -> Vec<(&'a str, &'a str)> {
    let is_kept = |(name, _): &&(&str, &str)| changed.iter().all(|(other, _)| other != name);
    let kept = good.iter().filter(is_kept);
    let added = changed.iter().filter(|(_, value)| !value.is_empty());
    kept.chain(added).copied().collect()
}

/// Returns the path of a good request of a client, with these parameters instead of those of the same name.
pub fn authorize(client: &Value, changed: &[(&str, &str)]) -> String {
    let id = client["client_id"].as_str().unwrap();
    let good = [
        ("response_type", "code"),
        ("client_id", id),
        ("redirect_uri", REDIRECT),
        ("state", "the state & more"),
        ("code_challenge", CHALLENGE),
        ("code_challenge_method", "S256"),
        ("scope", "tasks:read,tasks:write"),
    ];
    format!("/oauth/authorize?{}", encode(&replaced(&good, changed)))
}

/// Fills in the login page.
pub async fn log_in(browser: &mut Browser, page: &Answer, name: &str, password: &str) -> Answer {
    let login = page.hidden("login");
    let form = [
        ("login", login.as_str()),
        ("username", name),
        ("password", password),
    ];
    browser.post("/oauth/login", &form).await
}

/// Makes the leave of somebody who has a password here.
pub fn local(name: &str) -> IdentityLink {
    IdentityLink {
        provider: LOCAL.to_owned(),
        password_hash: Some(slow_hash(PASSWORD)),
        ..person("", Person::Subject(name.to_owned()))
    }
}

/// Makes the leave of a person of a provider.
pub fn person(provider: &str, person: Person) -> IdentityLink {
    let name = match &person {
        Person::Subject(name) | Person::Email(name) => name.clone(),
    };
    let digest = asyncgate_core::admission::sha256(name.as_bytes());
    let mut id = [0; 16];
    id.copy_from_slice(&digest[..16]);
    IdentityLink {
        id: RecordId::from_bytes(id),
        tenant: DEFAULT_TENANT,
        provider: provider.to_owned(),
        person,
        principal: PrincipalKey {
            kind: PrincipalKind::Human,
            id: name.into(),
        },
        role: Role::Agent,
        scopes: None,
        password_hash: None,
        created_at: Timestamp::from_millis(START_MS),
    }
}

/// Asserts that the browser was sent to the client with these parameters, and returns all of them.
pub fn sent_to_client(answer: &Answer) -> std::collections::BTreeMap<String, String> {
    let (address, params) = answer.redirect();
    assert_eq!(address, "https://client.example/callback", "{answer:?}");
    assert_eq!(params["kept"], "1");
    assert_eq!(params["iss"], BASE);
    assert_eq!(params["state"], "the state & more");
    params
}
