//! Keys of two tenants on one server: that of its first start, and one of a tenant that the first makes.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::bench::caller::Caller;
use crate::bench::load::http::Head;
use crate::bench::server::Server;
use crate::bench::{Bench, open_folder};

/// The keys of a server.
#[derive(Clone, Debug)]
pub struct Keys {
    /// The key of the tenant whose calls are measured.
    pub quiet: String,
    /// The key of the tenant that attacks.
    pub loud: String,
}

impl Keys {
    /// Starts a server on a folder without data, and makes the keys.
    pub fn server(bench: &Bench, settings: &[(&str, &str)]) -> Result<(Server, Self)> {
        let folder = open_folder(bench.scratch.path())?;
        let server = Server::start_in(&bench.binary, folder, settings)?;
        let said = server.said()?;
        let quiet = said
            .split_whitespace()
            .find(|word| word.starts_with("aga_"))
            .with_context(|| format!("the server showed no key: {said}"))?
            .to_owned();
        // Without quotas, because what is measured is how the server shares itself out, not how it refuses.
        let tenant = json!({"name": "loud", "tier": "enterprise"});
        let tenant = made(&server, &quiet, "/v1/admin/tenants", &tenant)?;
        let key = json!({
            "tenant_id": tenant["tenant_id"],
            "principal": {"kind": "service", "id": "admin"},
            "role": "admin",
        });
        let loud = made(&server, &quiet, "/v1/admin/keys", &key)?;
        let loud = loud["key"].as_str().context("an answer without a key")?;
        let loud = loud.to_owned();
        let keys = Self { quiet, loud };
        keys.prove(&server)?;
        Ok((server, keys))
    }

    /// Uses each key once. The first use takes long on purpose, and only few may wait for theirs at the same time.
    pub fn prove(&self, server: &Server) -> Result<()> {
        for key in [&self.quiet, &self.loud] {
            let head = Head::new(&server.addr.to_string(), key);
            let mut caller = Caller::connect(server.addr)?;
            caller.send(&head.get("/v1/tasks?limit=1"))?;
            caller.answer(200).context("the first use of a key")?;
        }
        Ok(())
    }
}

fn made(server: &Server, key: &str, path: &str, input: &Value) -> Result<Value> {
    let head = Head::new(&server.addr.to_string(), key);
    let mut caller = Caller::connect(server.addr)?;
    caller.send(&head.post(path, &input.to_string()))?;
    let answer = caller.answer(201).with_context(|| path.to_owned())?;
    Ok(serde_json::from_slice(&answer)?)
}
