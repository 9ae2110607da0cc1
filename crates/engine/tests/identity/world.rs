//! A server with two tenants and their admins.

use asyncgate_api::Code;
use asyncgate_core::identity::DEFAULT_TENANT;
use asyncgate_engine::{
    Caller, Credential, CredentialKind, Fault, Principal, PrincipalKind, Role, TenantId,
    fakes::TestEngine,
};
use serde_json::{Value, json};

/// The server.
pub struct World {
    pub test: TestEngine,
    /// The admin of the whole server, in the default tenant.
    pub root: Caller,
    /// The admin of the tenant `acme`.
    pub admin: Caller,
    /// The admin of the tenant `other`.
    pub other: Caller,
}

/// Returns a caller of a tenant.
pub fn caller(tenant: TenantId, role: Role) -> Caller {
    let credential = Credential::of_kind(CredentialKind::ApiKey);
    let name = Principal::new(PrincipalKind::Human, role.as_str());
    Caller {
        credential,
        ..Caller::new(tenant, name, role)
    }
}

impl World {
    pub async fn new() -> Self {
        let test = TestEngine::default();
        let root = caller(DEFAULT_TENANT, Role::Admin).with_platform();
        let mut tenants = Vec::new();
        for name in ["acme", "other"] {
            let wish = json!({ "name": name });
            let made = test.call_as(&root, "create_tenant", &wish);
            let id: TenantId = text(&made.await.unwrap()["tenant_id"]).parse().unwrap();
            tenants.push(caller(id, Role::Admin));
        }
        let [admin, other] = tenants.try_into().unwrap();
        Self {
            test,
            root,
            admin,
            other,
        }
    }

    /// Calls an operation.
    pub async fn call(&self, caller: &Caller, operation: &str, input: Value) -> Value {
        let done = self.test.call_as(caller, operation, &input).await;
        done.unwrap_or_else(|fault| panic!("{operation} {input}: {fault:?}"))
    }

    /// Calls an operation that is refused.
    pub async fn refused(&self, caller: &Caller, operation: &str, input: Value) -> Fault {
        let done = self.test.call_as(caller, operation, &input).await;
        done.expect_err(&format!("{operation} {input}"))
    }

    /// Calls an operation that is refused with a code.
    pub async fn refuses(&self, caller: &Caller, operation: &str, input: Value, code: Code) {
        let shown = input.to_string();
        let fault = self.refused(caller, operation, input).await;
        assert_eq!(fault.code, code, "{operation} {shown}: {fault:?}");
    }

    /// Makes a worker's key in the caller's tenant.
    pub async fn key(&self, caller: &Caller) -> Value {
        self.call(caller, "create_key", worker_key()).await
    }

    /// Returns the events of the caller's audit log, the newest first.
    pub async fn events(&self, caller: &Caller) -> Vec<String> {
        let entries = self.entries(caller, json!({})).await;
        entries.iter().map(|entry| text(&entry["event"])).collect()
    }

    /// Returns entries of an audit log, those that wait included.
    pub async fn entries(&self, caller: &Caller, filter: Value) -> Vec<Value> {
        self.test.engine.flush_audit().await.unwrap();
        let found = self.call(caller, "list_audit", filter).await;
        found["entries"].as_array().unwrap().clone()
    }
}

/// Returns the wish for a worker's key.
pub fn worker_key() -> Value {
    json!({"principal": {"kind": "worker", "id": "w1"}, "role": "worker"})
}

pub fn text(value: &Value) -> String {
    value
        .as_str()
        .unwrap_or_else(|| panic!("{value} is no text"))
        .to_owned()
}
