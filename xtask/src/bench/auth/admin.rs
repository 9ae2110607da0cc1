//! The admin's side of a measurement: makes tenants and credentials.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::bench::caller::Caller;
use crate::bench::load::http::Head;
use crate::bench::server::Server;

/// The principal of every credential; the tasks of the workloads belong to it.
pub const PRINCIPAL: &str = "bench";

/// A connection of the platform's admin, who has the shared key.
pub struct Admin {
    caller: Caller,
    head: Head,
}

impl Admin {
    pub fn connect(server: &Server) -> Result<Self> {
        Ok(Self {
            caller: Caller::connect(server.addr)?,
            head: server.head(),
        })
    }

    /// Makes something, and returns what the server says of it.
    pub fn make(&mut self, path: &str, body: &Value) -> Result<Value> {
        self.caller.send(&self.head.post(path, &body.to_string()))?;
        let answer = self.caller.answer(201);
        let answer = answer.with_context(|| format!("POST {path}"))?;
        Ok(serde_json::from_slice(&answer)?)
    }

    /// Makes a tenant, and returns its id.
    pub fn tenant(&mut self, name: &str) -> Result<String> {
        let body = json!({ "name": name, "tier": "enterprise" });
        text(&self.make("/v1/admin/tenants", &body)?, "tenant_id")
    }

    /// Makes a key of the default tenant, or of another one.
    pub fn key(&mut self, tenant: Option<&str>) -> Result<String> {
        let mut body = json!({ "principal": principal(), "role": "agent" });
        if let Some(tenant) = tenant {
            body["tenant_id"] = json!(tenant);
        }
        text(&self.make("/v1/admin/keys", &body)?, "key")
    }

    /// Makes a macaroon with these caveats and the one about time that the server adds.
    pub fn macaroon(&mut self, caveats: &[&str]) -> Result<String> {
        let body = json!({ "principal": principal(), "role": "agent", "caveats": caveats });
        text(&self.make("/v1/admin/macaroons", &body)?, "macaroon")
    }
}

pub fn principal() -> Value {
    json!({ "kind": "agent", "id": PRINCIPAL })
}

pub fn text(answer: &Value, name: &str) -> Result<String> {
    let text = answer[name].as_str();
    let text = text.with_context(|| format!("the answer has no {name}"))?;
    Ok(text.to_owned())
}
