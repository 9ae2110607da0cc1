//! Keys of two tenants. The server makes keys for its default tenant only, so two servers make one each, and the
//! record of one is moved to another tenant.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::bench::caller::Caller;
use crate::bench::load::http::Head;
use crate::bench::server::{DATA, Server};
use crate::bench::{Bench, open_folder};

const FILE: &str = "keys.json";
const ANOTHER_TENANT: &str = "00000000-0000-7000-8000-000000000002";

/// The keys, and the file with their records.
#[derive(Clone, Debug)]
pub struct Keys {
    /// The key of the tenant whose calls are measured.
    pub quiet: String,
    /// The key of the tenant that attacks.
    pub loud: String,
    file: Value,
}

impl Keys {
    pub fn make(bench: &Bench) -> Result<Self> {
        let (quiet, mut file) = made(bench)?;
        let (loud, mut other) = made(bench)?;
        let records = |file: &mut Value| file["keys"].as_array_mut().map(std::mem::take);
        let mut others = records(&mut other).context("a key file without keys")?;
        for record in &mut others {
            record["tenant_id"] = json!(ANOTHER_TENANT);
        }
        let mut all = records(&mut file).context("a key file without keys")?;
        all.append(&mut others);
        file["keys"] = Value::Array(all);
        Ok(Self { quiet, loud, file })
    }

    /// Starts a server that knows both keys, on a folder without other data.
    pub fn server(&self, bench: &Bench, settings: &[(&str, &str)]) -> Result<Server> {
        let folder = open_folder(bench.scratch.path())?;
        self.write(&folder)?;
        let server = Server::start_in(&bench.binary, folder, settings)?;
        self.prove(&server)?;
        Ok(server)
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

    fn write(&self, folder: &TempDir) -> Result<()> {
        let data = folder.path().join(DATA);
        fs::create_dir(&data)?;
        fs::set_permissions(&data, fs::Permissions::from_mode(0o700))?;
        let path = data.join(FILE);
        fs::write(&path, self.file.to_string())?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        Ok(())
    }
}

/// Lets a server make its first key. Returns the key and the file with its record.
fn made(bench: &Bench) -> Result<(String, Value)> {
    let folder = open_folder(bench.scratch.path())?;
    let server = Server::start_in(&bench.binary, folder, &[])?;
    let said = server.said()?;
    let key = said
        .split_whitespace()
        .find(|word| word.starts_with("aga_"))
        .with_context(|| format!("the server showed no key: {said}"))?;
    Ok((key.to_owned(), read(server.data_dir())?))
}

fn read(data: &Path) -> Result<Value> {
    let text = fs::read(data.join(FILE)).context("the server made no key file")?;
    Ok(serde_json::from_slice(&text)?)
}
