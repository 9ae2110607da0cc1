//! The operations of identity, one file for each sort of record, and what they share: who acts, in which tenant,
//! and how records are listed.

mod audit;
mod clients;
mod incident;
mod keys;
mod macaroons;
mod people;
mod tenants;
mod token_key;
mod whoami;

use asyncgate_api as api;
use asyncgate_core::{
    Env, PrincipalKey, RecordId, TenantId, Timestamp,
    identity::{
        Find, Record, RecordKind, Role, Scopes,
        manage::{Actor, Managed, Origin, Rights},
    },
};
use asyncgate_credentials::Caveat;
use asyncgate_store::identity::{Owner, Reads, RecordFilter, Snapshot};

use super::{Execute, Executed};
use crate::{Caller, CorrId, Engine, Fault, Remote, UserAgent, input, view};

impl Engine {
    /// Returns the caller as somebody who manages records.
    fn actor(caller: &Caller) -> Actor {
        let caveats = caller.credential.caveats.as_deref();
        let narrowed = caveats.is_some_and(|caveats| caveats.list.iter().any(narrows));
        Actor {
            tenant: caller.tenant,
            principal: caller.principal.key(),
            scopes: caller.scopes,
            narrowed,
            origin: Origin {
                ip: Remote::current().and_then(Remote::ip),
                user_agent: UserAgent::current().map(|said| said.as_ref().to_owned()),
                corr_id: CorrId::current().map(|id| id.text.as_ref().to_owned()),
            },
        }
    }

    /// Returns the tenant that a call is about: the named one, which must exist, or the caller's own.
    async fn named_tenant(&self, caller: &Caller, named: Option<&str>) -> Result<TenantId, Fault> {
        let named = named.map(|text| input::id("tenant_id", text)).transpose()?;
        let tenant = target(caller, named)?;
        if named.is_some() && tenant != caller.tenant {
            let found = self.store.identity().record(Find::tenant(tenant)).await?;
            found.ok_or_else(unknown)?;
        }
        Ok(tenant)
    }

    /// Runs a rule about records.
    async fn manage<T: Send + 'static>(
        &self,
        caller: &Caller,
        reads: Reads,
        mut rule: impl FnMut(&mut Env, &Snapshot) -> Managed<T> + Send + 'static,
    ) -> Result<T, Fault> {
        let decide = move |mut env: Env, snapshot: Snapshot| rule(&mut env, &snapshot);
        let done = self.transact(caller.tenant, 0, reads, decide).await;
        done.map_err(|fault| caller.told(fault))
    }

    /// Forgets what this server remembers of records that changed.
    fn forget(&self, records: impl IntoIterator<Item = Record>) -> Result<(), Fault> {
        let keyring = self.keyring()?;
        for record in records {
            keyring.forget(record.key());
        }
        Ok(())
    }

    /// Returns a page of records, and the cursor of the next.
    async fn page_of(
        &self,
        kind: RecordKind,
        owner: Owner,
        (limit, cursor): (Option<u32>, Option<&str>),
    ) -> Result<(Vec<Record>, Option<String>), Fault> {
        let limit = self.page_size(limit)?;
        let after: Option<RecordId> = cursor.map(|text| input::id("cursor", text)).transpose()?;
        let filter = RecordFilter {
            kind,
            owner,
            after,
            limit: limit + 1,
        };
        let mut found = self.store.identity().records(filter).await?;
        let more = found.len() > limit;
        found.truncate(limit);
        let last = found.last().map(|record| record.key().id.to_string());
        Ok((found, last.filter(|_| more)))
    }
}

impl Caller {
    /// Adds the caller's role to a refusal of its rights.
    fn told(&self, fault: Fault) -> Fault {
        if fault.code != api::Code::Forbidden {
            return fault;
        }
        fault.with("your_role", self.role.as_str())
    }
}

/// Returns the tenant that a call is about. To name another than one's own without the right to is an attempt to
/// cross the line between tenants, and operators are told.
fn target(caller: &Caller, named: Option<TenantId>) -> Result<TenantId, Fault> {
    let target = Engine::actor(caller).target(named);
    target.map_err(|rejection| caller.told(Fault::from(rejection).alarm()))
}

/// Returns true if a condition would not bind a credential that its bearer makes.
fn narrows(caveat: &Caveat) -> bool {
    match caveat {
        // The call would not have come so far in another tenant or as another principal, and every credential
        // that is made ends by itself or can be revoked.
        Caveat::Before(_) | Caveat::Tenant(_) | Caveat::Principal(_) => false,
        Caveat::Op(_)
        | Caveat::Topic { .. }
        | Caveat::TopicClass(_)
        | Caveat::Quota { .. }
        | Caveat::Scope(_)
        | Caveat::ThirdParty(_)
        | Caveat::Unknown(_) => true,
    }
}

/// Makes the fault for a record that is not there, or not for this caller to see.
fn unknown() -> Fault {
    asyncgate_core::identity::Rejection::NotFound.into()
}

/// Reads what a new credential is to let its bearer do.
fn rights(
    principal: api::PrincipalName,
    role: &str,
    scopes: Option<Vec<api::Scope>>,
) -> Result<Rights, Fault> {
    let wrong = |_| Fault::bad_request("role must be agent, worker or admin").with("field", "role");
    let role: Role = role.parse().map_err(wrong)?;
    let scopes = scopes.map(|scopes| scopes.into_iter().map(view::core_scope).collect());
    Ok(Rights {
        principal: principal_key(principal)?,
        role,
        scopes,
    })
}

/// Reads a principal.
fn principal_key(principal: api::PrincipalName) -> Result<PrincipalKey, Fault> {
    Ok(PrincipalKey {
        kind: view::core_kind(principal.kind),
        id: input::name("principal.id", principal.id)?.into(),
    })
}

/// Reads a time.
fn time(field: &str, text: &str) -> Result<Timestamp, Fault> {
    text.parse()
        .map_err(|error| Fault::bad_request(format!("{field} is {error}")).with("field", field))
}

/// Returns the scopes of a credential that count, as the wire has them.
fn effective(role: Role, scopes: Option<Scopes>) -> Vec<api::Scope> {
    view::scopes(role.effective_scopes(scopes))
}

/// Declares records to load.
fn reading(records: Vec<Find>) -> Reads {
    Reads {
        records,
        ..Reads::default()
    }
}
