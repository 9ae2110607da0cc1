//! A driver of records and audit logs, and samples of every kind of record.

use std::{
    ops::{Deref, DerefMut},
    sync::{Arc, Mutex},
};

use asyncgate_core::{
    Decision, Env, PrincipalKey, RecordId, TenantId, Timestamp,
    identity::{
        ApiKey, AuthorizationCode, Changes, ExceptionEffect, Find, Grant, IdentityLink,
        LimitException, Macaroon, OauthClient, Person, Quotas, Record, RecordKey, RecordKind,
        RefreshToken, Role, Scope, Scopes, TenantRecord, TenantTier, TokenFamily,
        audit::{Draft, Entry, Event, Log},
    },
};

use super::super::{Driver, agent, worker};
use crate::{
    Error,
    identity::{AuditFilter, Identity, Reads, RecordFilter, Snapshot},
};

/// The time at which samples are made.
const MADE: Timestamp = Timestamp::from_millis(1_767_610_000_000);
/// The time at which the samples that expire do so.
const EXPIRES: Timestamp = Timestamp::from_millis(1_767_700_000_000);

/// A driver of records and audit logs.
#[derive(Debug)]
pub struct IdentityDriver(Driver);

impl Deref for IdentityDriver {
    type Target = Driver;

    fn deref(&self) -> &Driver {
        &self.0
    }
}

impl DerefMut for IdentityDriver {
    fn deref_mut(&mut self) -> &mut Driver {
        &mut self.0
    }
}

impl IdentityDriver {
    /// Makes a driver of records from one of tasks.
    pub const fn new(driver: Driver) -> Self {
        Self(driver)
    }

    /// Returns the store's side of identity.
    pub fn identity(&self) -> &dyn Identity {
        self.store().identity()
    }

    /// Runs one decision.
    pub async fn try_change(
        &mut self,
        reads: Reads,
        mut decide: impl FnMut(Env, Snapshot) -> Changes + Send + 'static,
    ) -> Result<(), Error> {
        let decided = Arc::new(Mutex::new(Changes::default()));
        let decided = self.0.transact(reads, decided, move |env, snapshot| {
            Ok(Decision {
                changes: decide(env, snapshot),
                output: (),
            })
        });
        decided.await.map(Result::unwrap)
    }

    /// Writes changes.
    pub async fn change(&mut self, changes: Changes) {
        let changed = self.try_change(Reads::default(), move |_, _| changes.clone());
        changed.await.unwrap();
    }

    /// Writes records.
    pub async fn put(&mut self, put: impl IntoIterator<Item = Record>) {
        self.change(Changes {
            put: put.into_iter().collect(),
            ..Changes::default()
        })
        .await;
    }

    /// Removes records.
    pub async fn remove(&mut self, removed: impl IntoIterator<Item = RecordKey>) {
        self.change(Changes {
            removed: removed.into_iter().collect(),
            ..Changes::default()
        })
        .await;
    }

    /// Appends an entry of each event to the log of a tenant or of the server, at this moment.
    pub async fn record(&mut self, tenant: Option<TenantId>, events: &[Event]) {
        let events = events.to_vec();
        let changed = self.try_change(Reads::default(), move |mut env, _| Changes {
            audit: events
                .iter()
                .map(|event| Draft::new(&mut env.ids, env.now, tenant, *event))
                .collect(),
            ..Changes::default()
        });
        changed.await.unwrap();
    }

    /// Returns a record.
    pub async fn find(&self, find: Find) -> Option<Record> {
        let read = self.identity().record(find.clone()).await.unwrap();
        let reads = Reads {
            records: vec![find],
            ..Reads::default()
        };
        let shown = self.shown(reads).await.records.remove(0);
        assert_eq!(read, shown, "a reader and a decision see one record");
        read
    }

    /// Returns what a decision would be given.
    pub async fn shown(&self, reads: Reads) -> Snapshot {
        self.0.show(reads).await.1
    }

    /// Returns all records that match, read in pages of two.
    pub async fn listed(&self, filter: RecordFilter) -> Vec<Record> {
        let mut filter = RecordFilter { limit: 2, ..filter };
        let mut listed = Vec::new();
        loop {
            let page = self.identity().records(filter.clone()).await.unwrap();
            assert!(page.len() <= 2);
            let Some(last) = page.last() else {
                return listed;
            };
            filter.after = Some(last.key().id);
            listed.extend(page);
        }
    }

    /// Returns all entries that match, newest first, read in pages of three.
    pub async fn audited(&self, filter: AuditFilter) -> Vec<Entry> {
        let mut filter = AuditFilter { limit: 3, ..filter };
        let mut entries = Vec::new();
        loop {
            let page = self.identity().audit(filter.clone()).await.unwrap();
            assert!(page.entries.len() <= 3);
            entries.extend(page.entries);
            filter.before = page.next;
            if page.next.is_none() {
                return entries;
            }
        }
    }

    /// Returns the log of a tenant or of the server.
    pub async fn log(&self, tenant: Option<TenantId>) -> Log {
        self.identity().audit_log(tenant).await.unwrap()
    }
}

/// Makes the id of the `n`th sample.
fn id(n: u8) -> RecordId {
    let mut bytes = [0x70; 16];
    bytes[15] = n;
    RecordId::from_bytes(bytes)
}

fn principal(n: u8) -> PrincipalKey {
    match n % 2 {
        0 => agent("alice").key(),
        _ => worker("bob/ünï").key(),
    }
}

/// Makes a tenant.
pub fn tenant_record(tenant: TenantId, name: &str) -> Record {
    Record::Tenant(TenantRecord {
        id: tenant,
        name: name.to_owned(),
        tier: TenantTier::Paid,
        own_quotas: Quotas::of_tier(TenantTier::Free),
        suspended_at: None,
        created_at: MADE,
        exception: Some(LimitException {
            effect: ExceptionEffect::Throttle(Quotas::of_tier(TenantTier::Free)),
            reason: "too \"much\"\n".to_owned(),
            since: MADE,
            until: MADE.plus_millis(1_000),
            approved_by: principal(0),
        }),
    })
}

/// Makes the `n`th API key, of a worker if `n` is odd.
pub fn api_key(tenant: TenantId, n: u8) -> ApiKey {
    ApiKey {
        id: id(n),
        lookup_id: format!("lookup{n:06}"),
        tenant,
        principal: principal(n),
        role: Role::Admin,
        scopes: None,
        label: n.is_multiple_of(3).then(|| "for \"people\"\n".to_owned()),
        hash: "$argon2id$v=19$m=65536,t=2,p=1$c2FsdA$aGFzaA".to_owned(),
        check: n.is_multiple_of(2).then(|| format!("{n:016x}")),
        created_at: MADE,
        expires_at: None,
        last_used_at: None,
        revoked_at: None,
        replaced_by: None,
    }
}

/// Makes the `n`th macaroon. It expires.
pub fn macaroon(tenant: TenantId, n: u8) -> Record {
    Record::Macaroon(Macaroon {
        id: id(n),
        tenant,
        principal: principal(n),
        role: Role::Worker,
        root_key: "2026-01".to_owned(),
        created_at: MADE,
        expires_at: EXPIRES.plus_millis(i64::from(n)),
        revoked_at: None,
    })
}

/// Makes the `n`th leave to enter.
pub fn link(tenant: TenantId, n: u8, person: Person) -> Record {
    Record::IdentityLink(IdentityLink {
        id: id(n),
        tenant,
        provider: "acme".to_owned(),
        person,
        principal: principal(n),
        role: Role::Agent,
        scopes: Some(Scopes::of(&[Scope::TasksRead, Scope::HostUse])),
        password_hash: None,
        created_at: MADE,
    })
}

fn grant(n: u8) -> Grant {
    Grant {
        client: id(200),
        identity: id(201),
        principal: principal(n),
        role: Role::Agent,
        scopes: Scopes::of(&[Scope::TasksRead]),
        resource: None,
    }
}

/// Makes the `n`th code.
pub fn code(tenant: TenantId, n: u8) -> Record {
    Record::AuthorizationCode(AuthorizationCode {
        id: id(n),
        tenant,
        hash: format!("code{n}"),
        grant: grant(n),
        redirect_uri: "https://client.example/callback".to_owned(),
        code_challenge: "challenge".to_owned(),
        created_at: MADE,
        expires_at: EXPIRES,
        family: None,
    })
}

/// Makes the `n`th client, a family of tokens and the family's refresh token.
pub fn family(tenant: TenantId, n: u8) -> [Record; 3] {
    let client = OauthClient {
        id: id(n),
        tenant,
        name: "a client".to_owned(),
        redirect_uris: vec!["https://client.example/callback".to_owned()],
        scopes: Scopes::of(&[Scope::TasksRead, Scope::TasksWrite]),
        secret_hash: None,
        created_at: MADE,
        expires_at: None,
        document: None,
    };
    let family = TokenFamily {
        id: id(n),
        tenant,
        grant: grant(n),
        created_at: MADE,
        expires_at: EXPIRES,
        revoked_at: None,
    };
    let token = RefreshToken {
        id: id(n),
        tenant,
        hash: format!("refresh{n}"),
        family: id(n),
        created_at: MADE,
        expires_at: EXPIRES,
        used_at: None,
    };
    [
        Record::OauthClient(client),
        Record::TokenFamily(family),
        Record::RefreshToken(token),
    ]
}

/// Makes an entry that says everything that one can say.
pub fn draft(env: &mut Env, tenant: Option<TenantId>, event: Event) -> Draft {
    let address = std::net::IpAddr::from([127, 0, 0, 1]);
    Draft::new(&mut env.ids, env.now, tenant, event)
        .by(&agent("alice").key())
        .from_request(Some(address), Some("curl/8\r\nfake: line"), Some("corr-1"))
        .because("a \"reason\"\u{202e}")
        .with(&[("key_id", "1"), ("label", "\\n\n")])
}

/// Names a record of any tenant by its key.
pub(super) const fn by_id(key: RecordKey) -> Find {
    Find::id(key.kind, key.id)
}

/// Chooses every record of a kind.
pub(super) const fn every(kind: RecordKind) -> RecordFilter {
    RecordFilter {
        kind,
        owner: crate::identity::Owner::Anyone,
        after: None,
        limit: 0,
    }
}
