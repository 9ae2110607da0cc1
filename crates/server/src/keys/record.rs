//! The stored record of an API key: the caller behind it, and an Argon2id hash of it.

use asyncgate_core::{Principal, PrincipalKind, TenantId};
use asyncgate_engine::{Caller, Role};
use serde::{Deserialize, Serialize};

use super::Error;
use super::token::{Token, lookup_id};
use super::verify::{self, Check, Secret};

/// One key as it stands in the key file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// The public part of the key, by which this record is found.
    pub id: String,
    /// The tenant of its bearer.
    pub tenant_id: String,
    /// The principal that its bearer acts as.
    pub principal: StoredPrincipal,
    /// The role of its bearer.
    pub role: StoredRole,
    /// The Argon2id hash of the whole key, in PHC form.
    pub hash: String,
    /// The check of the key, by which a wrong one is refused without Argon2id. Older records have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check: Option<String>,
    /// The time at which it was made, in RFC 3339.
    pub created_at: String,
}

/// A principal as it stands in the key file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredPrincipal {
    pub kind: String,
    pub id: String,
}

/// A role as it stands in the key file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoredRole {
    Agent,
    Worker,
    Admin,
}

impl Record {
    /// Makes the record of a new key for `caller`. Takes tens of milliseconds: Argon2id is meant to be slow.
    pub fn for_token(token: &Token, caller: &Caller, created_at: String) -> Result<Self, Error> {
        Ok(Self {
            id: lookup_id(token.reveal()).unwrap_or_default().to_owned(),
            tenant_id: caller.tenant.to_string(),
            principal: StoredPrincipal {
                kind: caller.principal.kind.as_str().to_owned(),
                id: caller.principal.id.as_ref().to_owned(),
            },
            role: match caller.role {
                Role::Agent => StoredRole::Agent,
                Role::Worker => StoredRole::Worker,
                Role::Admin => StoredRole::Admin,
            },
            hash: verify::hash(token.reveal())?,
            check: Some(Check::of(token.reveal()).to_string()),
            created_at,
        })
    }

    /// Returns the caller behind the key. A record that somebody edited wrongly is an error.
    pub fn caller(&self) -> Result<Caller, Error> {
        let tenant: TenantId = self
            .tenant_id
            .parse()
            .map_err(|_| self.broken("tenant_id"))?;
        let kind: PrincipalKind = self
            .principal
            .kind
            .parse()
            .map_err(|_| self.broken("principal.kind"))?;
        Ok(Caller {
            tenant,
            principal: Principal::new(kind, self.principal.id.clone()),
            role: match self.role {
                StoredRole::Agent => Role::Agent,
                StoredRole::Worker => Role::Worker,
                StoredRole::Admin => Role::Admin,
            },
        })
    }

    /// Returns what proves the key. A record that somebody edited wrongly is an error.
    pub fn secret(&self) -> Result<Secret, Error> {
        let check = match &self.check {
            Some(text) => Some(Check::parse(text).ok_or_else(|| self.broken("check"))?),
            None => None,
        };
        let secret = Secret::new(self.id.clone(), self.hash.clone(), check);
        secret.ok_or_else(|| self.broken("hash"))
    }

    fn broken(&self, what: &str) -> Error {
        Error::Record {
            id: self.id.clone(),
            problem: format!("{what} is not valid"),
        }
    }
}
