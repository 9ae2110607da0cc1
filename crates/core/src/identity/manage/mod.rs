//! The management of records: who may change them, what may be given away, and what the audit log says of it.
//!
//! Invariants: nobody but a platform admin touches another tenant; nobody gives away a right that it does not
//! have; a change and the entries that tell of it are one set of changes; what changes nothing leaves no entry.

pub mod clients;
pub mod incident;
pub mod keys;
pub mod macaroons;
pub mod people;
pub mod tenants;
pub mod token_key;

use std::net::IpAddr;

use super::{
    Changes, Find, Record, RecordKey, RecordKind, Rejection, Role, Scope, Scopes, TenantRecord,
    audit::{Draft, Event},
};
use crate::{Decision, Env, PrincipalKey, PrincipalKind, RecordId, TenantId};

/// The outcome of a rule here.
pub type Managed<T> = Result<Decision<T, Changes>, Rejection>;

/// Whoever manages records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actor {
    /// Its tenant.
    pub tenant: TenantId,
    /// The principal that it acts as.
    pub principal: PrincipalKey,
    /// The scopes that it really has.
    pub scopes: Scopes,
    /// True if its credential has conditions that a credential which it makes would not have.
    pub narrowed: bool,
    /// Where its request came from.
    pub origin: Origin,
}

/// Where a request came from, as far as the audit log tells.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Origin {
    /// The address.
    pub ip: Option<IpAddr>,
    /// The program that says it sent the request.
    pub user_agent: Option<String>,
    /// The name of the request.
    pub corr_id: Option<String>,
}

/// What a new credential lets its bearer do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rights {
    /// The principal that the bearer acts as.
    pub principal: PrincipalKey,
    /// The role of the bearer.
    pub role: Role,
    /// The scopes that were named; absent if they are those of the role.
    pub scopes: Option<Scopes>,
}

impl Actor {
    /// Returns true if it may manage tenants, and act in any of them.
    pub const fn is_platform_admin(&self) -> bool {
        self.scopes.contains(Scope::PlatformAdmin)
    }

    /// Refuses whoever does not look after the whole server.
    fn must_be_platform_admin(&self) -> Result<(), Rejection> {
        match self.is_platform_admin() {
            true => Ok(()),
            false => Err(Rejection::Beyond(Scope::PlatformAdmin)),
        }
    }

    /// Returns the tenant that a request is about: its own, or the one that it names.
    pub fn target(&self, named: Option<TenantId>) -> Result<TenantId, Rejection> {
        let target = named.unwrap_or(self.tenant);
        if target == self.tenant || self.is_platform_admin() {
            return Ok(target);
        }
        Err(Rejection::AnotherTenant)
    }

    /// Names a record that a request is about. Whoever may not act in other tenants finds nothing there, as if
    /// there were no such record.
    pub fn find(
        &self,
        named: Option<TenantId>,
        kind: RecordKind,
        id: RecordId,
    ) -> Result<Find, Rejection> {
        let own = (!self.is_platform_admin()).then_some(self.tenant);
        let within = match named {
            Some(_) => Some(self.target(named)?),
            None => own,
        };
        let key = RecordKey { kind, id };
        Ok(Find::Id { key, within })
    }

    /// Takes the record that was found, unless it is another tenant's and not for this actor to see.
    fn sees<'a>(&self, found: Option<&'a Record>) -> Result<&'a Record, Rejection> {
        let record = found.ok_or(Rejection::NotFound)?;
        match self.target(Some(record.tenant())) {
            Ok(_) => Ok(record),
            Err(_) => Err(Rejection::NotFound),
        }
    }

    /// Refuses to give away more than it has.
    pub fn may_give(&self, rights: &Rights) -> Result<(), Rejection> {
        if rights.principal.kind == PrincipalKind::System {
            return Err(Rejection::ServerItself);
        }
        if self.narrowed {
            return Err(Rejection::Narrowed);
        }
        self.must_have(rights.role, rights.scopes)
    }

    /// Refuses unless it has everything that a credential with this role and these scopes gives.
    fn must_have(&self, role: Role, scopes: Option<Scopes>) -> Result<(), Rejection> {
        // Who manages tenants decides what their admins may do, so it gives every right.
        let has = |scope: &Scope| self.is_platform_admin() || self.scopes.cover(*scope);
        let mut given = role.effective_scopes(scopes).iter();
        match given.find(|scope| !has(scope)) {
            Some(missing) => Err(Rejection::Beyond(missing)),
            None => Ok(()),
        }
    }

    /// Returns the entries that tell of an act in `tenant`: one in that tenant's log and, if the actor is of
    /// another tenant, one in the log of its own, so that both know.
    fn tell(
        &self,
        env: &mut Env,
        tenant: TenantId,
        event: Event,
        details: &[(&str, &str)],
    ) -> Vec<Draft> {
        if tenant == self.tenant {
            return vec![self.draft(env, Some(tenant), event).with(details)];
        }
        let (own, other) = (self.tenant.to_string(), tenant.to_string());
        let from = [details, &[("actor_tenant_id", own.as_str())]].concat();
        let to = [details, &[("target_tenant_id", other.as_str())]].concat();
        vec![
            self.draft(env, Some(tenant), event).with(&from),
            self.draft(env, Some(self.tenant), event).with(&to),
        ]
    }

    /// Begins an entry about something that it did, in the log of a tenant or of the server.
    fn draft(&self, env: &mut Env, log: Option<TenantId>, event: Event) -> Draft {
        let Origin {
            ip,
            user_agent,
            corr_id,
        } = &self.origin;
        Draft::new(&mut env.ids, env.now, log, event)
            .by(&self.principal)
            .from_request(*ip, user_agent.as_deref(), corr_id.as_deref())
    }
}

/// Takes the tenant that a request names.
fn the_tenant(found: Option<&Record>) -> Result<&TenantRecord, Rejection> {
    match found {
        Some(Record::Tenant(tenant)) => Ok(tenant),
        Some(_) | None => Err(Rejection::NotFound),
    }
}

/// Refuses a name that another record has.
fn must_be_free(found: Option<&Record>) -> Result<(), Rejection> {
    match found {
        Some(_) => Err(Rejection::NameTaken),
        None => Ok(()),
    }
}

/// Makes a decision that writes records with the entries that tell of them.
fn decided<T>(output: T, put: Vec<Record>, audit: Vec<Draft>) -> Decision<T, Changes> {
    Decision {
        output,
        changes: Changes {
            put,
            audit,
            ..Changes::default()
        },
    }
}

/// Makes a decision that writes nothing.
fn unchanged<T>(output: T) -> Decision<T, Changes> {
    decided(output, Vec::new(), Vec::new())
}
