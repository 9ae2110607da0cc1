//! The key file of older versions, `keys.json` in the data directory. It is taken over once and then set aside.

use asyncgate_core::identity::{ApiKey, DEFAULT_TENANT, Role, Scope, Scopes};
use asyncgate_core::{PrincipalKey, PrincipalKind, RecordId, Timestamp};
use serde::Deserialize;

use crate::files::Files;
use crate::hash;
use crate::open::Error;
use crate::verify::Check;

const NAME: &str = "keys.json";
const SET_ASIDE: &str = "keys.json.imported";
const VERSION: u32 = 1;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    version: u32,
    keys: Vec<OldKey>,
}

/// One key as it stands in the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OldKey {
    id: String,
    tenant_id: String,
    principal: OldPrincipal,
    role: OldRole,
    hash: String,
    /// Records from before there were checks have none.
    #[serde(default)]
    check: Option<String>,
    created_at: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OldPrincipal {
    kind: String,
    id: String,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "snake_case")]
enum OldRole {
    Agent,
    Worker,
    Admin,
}

/// Reads the keys of the file; nothing if there is none.
pub(crate) fn read(files: &dyn Files) -> Result<Option<Vec<OldKey>>, Error> {
    let place = files.place(NAME);
    let failed = |reason| Error::file("read", &place, &reason);
    let Some(text) = files.read(NAME).map_err(failed)? else {
        return Ok(None);
    };
    let damaged = |problem: String| Error::Damaged {
        place: place.clone(),
        problem,
    };
    let content: Content =
        serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
    if content.version != VERSION {
        let problem = format!("version {} is not {VERSION}", content.version);
        return Err(damaged(problem));
    }
    Ok(Some(content.keys))
}

/// Gives the file another name, so that it is not read again.
pub(crate) fn set_aside(files: &dyn Files) -> Result<(), Error> {
    let renamed = files.rename(NAME, SET_ASIDE);
    renamed.map_err(|reason| Error::file("rename", &files.place(NAME), &reason))
}

impl OldKey {
    /// Returns the record of the key. A key that somebody edited wrongly is an error.
    pub(crate) fn record(&self, files: &dyn Files, id: RecordId) -> Result<ApiKey, Error> {
        let broken = |what: &str| Error::Damaged {
            place: files.place(NAME),
            problem: format!("{what} of key {} is not valid", self.id),
        };
        let tenant = self.tenant_id.parse().map_err(|_| broken("tenant_id"))?;
        let kind: PrincipalKind = self
            .principal
            .kind
            .parse()
            .map_err(|_| broken("principal.kind"))?;
        let created_at: Timestamp = self.created_at.parse().map_err(|_| broken("created_at"))?;
        if !hash::is_hash(&self.hash) {
            return Err(broken("hash"));
        }
        if self
            .check
            .as_deref()
            .is_some_and(|it| Check::parse(it).is_none())
        {
            return Err(broken("check"));
        }
        let role = match self.role {
            OldRole::Agent => Role::Agent,
            OldRole::Worker => Role::Worker,
            OldRole::Admin => Role::Admin,
        };
        // Older servers had one sort of admin, and whoever had the key of the default tenant's ran the server.
        let ran_the_server = tenant == DEFAULT_TENANT && role == Role::Admin;
        Ok(ApiKey {
            id,
            lookup_id: self.id.clone(),
            tenant,
            principal: PrincipalKey {
                kind,
                id: self.principal.id.as_str().into(),
            },
            role,
            scopes: ran_the_server.then(platform_scopes),
            label: None,
            hash: self.hash.clone(),
            check: self.check.clone(),
            created_at,
            expires_at: None,
            last_used_at: None,
            revoked_at: None,
            replaced_by: None,
        })
    }
}

/// Returns all scopes of an admin who manages tenants.
pub(crate) fn platform_scopes() -> Scopes {
    let platform = Scopes::of(&[Scope::PlatformAdmin]);
    Role::Admin.default_scopes().or(platform)
}
