//! The stored record of an API key: the caller behind it, and an Argon2id hash of it.

use argon2::Argon2;
use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher as _, PasswordVerifier as _};
use asyncgate_core::{Principal, PrincipalKind, TenantId};
use asyncgate_engine::{Caller, Role};
use serde::{Deserialize, Serialize};

use super::Error;
use super::token::{Token, lookup_id};
use crate::clock::fill_random;

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
        let mut salt = [0; 16];
        fill_random(&mut salt)?;
        let hash: PasswordHash = Argon2::default()
            .hash_password_with_salt(token.reveal().as_bytes(), &salt)
            .map_err(|e| Error::Hash(e.to_string()))?;
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
            hash: hash.to_string(),
            created_at,
        })
    }

    /// Returns the caller behind the key. A record that somebody edited wrongly is an error.
    pub fn caller(&self) -> Result<Caller, Error> {
        let broken = |what: &str| Error::Record {
            id: self.id.clone(),
            problem: format!("{what} is not valid"),
        };
        let tenant: TenantId = self.tenant_id.parse().map_err(|_| broken("tenant_id"))?;
        let kind: PrincipalKind = self
            .principal
            .kind
            .parse()
            .map_err(|_| broken("principal.kind"))?;
        PasswordHash::new(&self.hash).map_err(|_| broken("hash"))?;
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

    /// Returns true if `credential` is this key. Slow by design: keep it off the async threads.
    pub fn verify(&self, credential: &str) -> bool {
        PasswordHash::new(&self.hash).is_ok_and(|hash| {
            Argon2::default()
                .verify_password(credential.as_bytes(), &hash)
                .is_ok()
        })
    }
}
