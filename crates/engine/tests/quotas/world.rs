//! A server with tenants of different means.

use asyncgate_core::{
    Decision, Env, Ids, Policy, Stamp, TenantId,
    identity::{
        Changes, Quota, QuotaName, Quotas, Record, TenantRecord, TenantTier,
        audit::{Entry, Event},
    },
};
use asyncgate_engine::{
    Caller, Clock as _, Fault, Principal, PrincipalKind, Role, Settings,
    fakes::{FakeClock, START_MS, TestEngine},
};
use asyncgate_store::{
    identity::{AuditFilter, Identity as _, Reads},
    transact,
};
use serde_json::{Value, json};

pub const ACME: TenantId = TenantId::from_bytes([1; 16]);
pub const OTHER: TenantId = TenantId::from_bytes([2; 16]);

/// A server, and what its tests do.
#[derive(Debug, Clone)]
pub struct World {
    pub test: TestEngine,
}

impl World {
    pub fn new() -> Self {
        Self::with(Settings::default())
    }

    pub fn with(settings: Settings) -> Self {
        Self {
            test: TestEngine::new(settings, FakeClock::at(START_MS)),
        }
    }

    /// Makes a world with a tenant that has these quotas and no others.
    pub async fn bounded(quotas: &[(QuotaName, u64)]) -> Self {
        let world = Self::new();
        world.tenant(ACME, TenantTier::Enterprise, quotas).await;
        world
    }

    /// Writes a tenant, as an admin would on another server: nobody here is told.
    pub async fn tenant(&self, id: TenantId, tier: TenantTier, quotas: &[(QuotaName, u64)]) {
        let own_quotas = quotas.iter().fold(Quotas::default(), |quotas, (name, n)| {
            quotas.with(*name, Quota::AtMost(*n))
        });
        let record = TenantRecord {
            id,
            name: id.to_string(),
            tier,
            own_quotas,
            ..TenantRecord::built_in()
        };
        let now = self.test.clock.now();
        let env = Env {
            now,
            ids: Ids::new(Stamp::of_millis(now.as_millis()), 1),
            instance: "test".into(),
            policy: Policy::default().into(),
            quotas: None,
        };
        let decide = move |_, _| {
            let changes = Changes {
                put: vec![Record::Tenant(record.clone())],
                ..Changes::default()
            };
            Ok(Decision {
                changes,
                output: (),
            })
        };
        let store = &*self.test.store;
        let written = transact(store, id, env, 0, Reads::default(), decide).await;
        written.unwrap().unwrap();
    }

    pub async fn call(&self, operation: &str, input: Value) -> Result<Value, Fault> {
        self.test.call_as(&admin(ACME), operation, &input).await
    }

    /// Calls an operation. Returns the headers of its answer, whatever that is.
    pub async fn headers(&self, caller: &Caller, operation: &str, input: Value) -> Headers {
        let answer = self.test.answer_to(caller, operation, &input).await;
        Headers(match answer {
            Ok(answer) => answer.headers,
            Err(fault) => fault.headers,
        })
    }

    pub async fn create(&self) -> Result<Value, Fault> {
        self.call("create_task", json!({"type": "echo"})).await
    }

    pub async fn claim(&self, max_tasks: u32) -> Vec<Value> {
        let input = json!({"worker_id": "w", "max_tasks": max_tasks});
        let claimed = self.call("lease_next", input).await.unwrap();
        claimed["tasks"].as_array().unwrap().clone()
    }

    /// Returns the entries of a tenant's audit log about an event, newest first.
    pub async fn audited(&self, event: Event) -> Vec<Entry> {
        self.test.engine.flush_audit().await.unwrap();
        let filter = AuditFilter {
            tenant: Some(ACME),
            event: Some(event),
            limit: 1_000,
            ..AuditFilter::default()
        };
        self.test.store.audit(filter).await.unwrap().entries
    }
}

/// Headers of an answer.
#[derive(Debug)]
pub struct Headers(Vec<(&'static str, String)>);

impl Headers {
    /// Returns the last header of a name, which is the one that counts.
    pub fn get(&self, name: &str) -> Option<&str> {
        let mut named = self.0.iter().rev().filter(|(known, _)| *known == name);
        named.next().map(|(_, text)| text.as_str())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

pub fn admin(tenant: TenantId) -> Caller {
    named(tenant, "ann", Role::Admin)
}

pub fn named(tenant: TenantId, id: &str, role: Role) -> Caller {
    Caller::new(tenant, Principal::new(PrincipalKind::Agent, id), role)
}

/// Somebody who runs the server, in a tenant of its own.
pub fn platform() -> Caller {
    named(OTHER, "root", Role::Admin).with_platform()
}

/// Returns what a fault tells programs.
pub fn told(fault: &Fault) -> Value {
    json!({
        "code": fault.code.as_str(),
        "quota": fault.details.get("quota"),
        "limit": fault.details.get("limit"),
        "current": fault.details.get("current"),
    })
}
