//! The rights of a caller: by its role and scopes, and over the things of others.

use asyncgate_api::{Access, Code, PrincipalKind as Kind, Spec};
use asyncgate_core::{
    Principal, PrincipalKind, TenantId,
    identity::{self, Missing, Role, Scope, Scopes},
};
use asyncgate_store::Parties;

use crate::{Caller, Fault, input, view};

impl Caller {
    /// Returns true if the caller's credential may call an operation at all.
    pub fn may_call(&self, spec: &Spec) -> bool {
        self.authorise(spec.access).is_ok()
    }

    /// Refuses a caller whose credential may not call an operation at all. Returns the scopes by which it may, of
    /// which one is enough; none if every credential may.
    pub(crate) fn authorise(&self, access: Access) -> Result<Scopes, Fault> {
        let needed = match access {
            Access::Open | Access::Any => &[],
            Access::Needs(scopes) => scopes,
        };
        let needed = needed.iter().map(|scope| view::core_scope(*scope));
        identity::may(self.role, self.scopes, needed).map_err(|missing| {
            let message = match missing {
                Missing::Role(_) => "your role does not allow this operation",
                Missing::Scope(_) => "your credential does not have the scope for this operation",
            };
            self.forbidden(missing, message)
        })
    }

    /// Returns the principal that the call is about: the named one, or the caller's own.
    pub(crate) fn acting(&self, named: Named) -> Result<Principal, Fault> {
        let Named {
            kind,
            id,
            instance_id,
            default_kind,
            field,
            reading,
        } = named;
        let instance_id = instance_id
            .map(|id| input::name(&format!("{field}_instance_id"), id))
            .transpose()?
            .map(Into::into);
        let Some(id) = id else {
            if kind.is_some() {
                return Err(Fault::bad_request(format!("{field}_kind needs {field}_id")));
            }
            return Ok(Principal {
                instance_id: instance_id.or_else(|| self.principal.instance_id.clone()),
                ..self.principal.clone()
            });
        };
        let principal = Principal {
            kind: view::core_kind(kind.unwrap_or(default_kind)),
            id: input::name(&format!("{field}_id"), id)?.into(),
            instance_id,
        };
        if principal.kind == PrincipalKind::System && !reading {
            return Err(Fault::bad_request("nobody can act as the server itself"));
        }
        let oversees = match reading {
            true => self.sees_all(),
            false => self.acts_for_all(),
        };
        if !oversees && !principal.is(&self.principal) {
            let message = "only an admin may act for another principal";
            return Err(self.forbidden(self.missing_to_oversee(reading), message));
        }
        Ok(principal)
    }

    /// Refuses a caller that may not read a task. Its owner, its worker and an admin may.
    pub(crate) fn may_read(&self, parties: &Parties) -> Result<(), Fault> {
        let own = self.principal.key();
        let is_own = parties.owner == own || parties.worker.as_ref() == Some(&own);
        match is_own || self.sees_all() {
            true => Ok(()),
            false => Err(self.not_own(true)),
        }
    }

    /// Refuses a caller that may not act for `owner`.
    pub(crate) fn may_act_for(&self, owner: &Principal) -> Result<(), Fault> {
        match self.principal.is(owner) || self.acts_for_all() {
            true => Ok(()),
            false => Err(self.not_own(false)),
        }
    }

    /// Returns the tenant that a call is about: the caller's own, or one that it names and may look after.
    pub(crate) fn tenant_or_named(&self, named: Option<&str>) -> Result<TenantId, Fault> {
        let Some(named) = named else {
            return Ok(self.tenant);
        };
        let tenant: TenantId = input::id("tenant_id", named)?;
        if tenant == self.tenant || self.runs_the_platform() {
            return Ok(tenant);
        }
        let message = "only a platform admin may name another tenant";
        Err(self.forbidden(Missing::Scope(Scope::PlatformAdmin), message))
    }

    /// Adds what this caller lacks to a rule's refusal.
    pub(crate) fn explain(&self, fault: Fault) -> Fault {
        if fault.code == Code::Forbidden {
            return self.not_own(false);
        }
        fault
    }

    fn not_own(&self, reading: bool) -> Fault {
        let missing = self.missing_to_oversee(reading);
        self.forbidden(missing, "this belongs to another principal")
    }

    /// Returns what the caller lacks to read the things of others, or to act for them.
    const fn missing_to_oversee(&self, reading: bool) -> Missing {
        match (self.role, reading) {
            (Role::Admin, true) => Missing::Scope(Scope::AdminRead),
            (Role::Admin, false) => Missing::Scope(Scope::AdminWrite),
            (Role::Agent | Role::Worker | Role::System, _) => Missing::Role(Role::Admin),
        }
    }

    fn forbidden(&self, missing: Missing, message: &'static str) -> Fault {
        let fault = Fault::new(Code::Forbidden, message);
        let fault = match missing {
            Missing::Role(role) => fault.with("required_role", role.as_str()),
            Missing::Scope(scope) => fault.with("required_scope", scope.as_str()),
        };
        fault.with("your_role", self.role.as_str())
    }
}

/// A principal as an input names it.
#[derive(Debug)]
pub(crate) struct Named {
    kind: Option<Kind>,
    id: Option<String>,
    instance_id: Option<String>,
    default_kind: Kind,
    field: &'static str,
    /// True if the call only reads. Then it may even name the inbox of the server itself.
    reading: bool,
}

impl Named {
    /// Names a principal by `principal_kind`, `principal_id` and `principal_instance_id`.
    pub(crate) fn principal(
        kind: Option<Kind>,
        id: Option<String>,
        instance_id: Option<String>,
    ) -> Self {
        Self {
            kind,
            id,
            instance_id,
            default_kind: Kind::Agent,
            field: "principal",
            reading: false,
        }
    }

    /// Names a principal by `principal_kind` and `principal_id`, in a call that only reads.
    pub(crate) fn reader(kind: Option<Kind>, id: Option<String>) -> Self {
        Self {
            reading: true,
            ..Self::principal(kind, id, None)
        }
    }

    /// Names a principal by `worker_kind`, `worker_id` and `worker_instance_id`.
    pub(crate) fn worker(
        kind: Option<Kind>,
        id: Option<String>,
        instance_id: Option<String>,
    ) -> Self {
        Self {
            kind,
            id,
            instance_id,
            default_kind: Kind::Worker,
            field: "worker",
            reading: false,
        }
    }
}
