//! The rights of a caller: by its role, and over the things of others.

use asyncgate_api::{Access, Code, PrincipalKind as Kind, Spec};
use asyncgate_core::{Principal, PrincipalKind};
use asyncgate_store::Parties;

use crate::{Caller, Fault, Role, input, view};

impl Caller {
    /// Returns true if the caller's role may call an operation at all.
    pub fn may_call(&self, spec: &Spec) -> bool {
        self.authorise(spec.access).is_ok()
    }

    /// Refuses a caller whose role may not call an operation at all.
    pub(crate) fn authorise(&self, access: Access) -> Result<(), Fault> {
        let (allowed, required) = match (access, self.role) {
            (_, Role::Admin) | (Access::Open | Access::Any, _) => (true, Role::Admin),
            (Access::Agent, role) => (role == Role::Agent, Role::Agent),
            (Access::Worker, role) => (role == Role::Worker, Role::Worker),
            (Access::AgentOrWorker, _) => (true, Role::Agent),
            (Access::Host | Access::HostAdmin | Access::Admin, _) => (false, Role::Admin),
        };
        if allowed {
            return Ok(());
        }
        Err(self.forbidden(required, "your role does not allow this operation"))
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
        if self.role != Role::Admin && !principal.is(&self.principal) {
            return Err(self.forbidden(Role::Admin, "only an admin may act for another principal"));
        }
        Ok(principal)
    }

    /// Refuses a caller that may not read a task. Its owner, its worker and an admin may.
    pub(crate) fn may_read(&self, parties: &Parties) -> Result<(), Fault> {
        let own = self.principal.key();
        self.must(parties.owner == own || parties.worker.as_ref() == Some(&own))
    }

    /// Refuses a caller that may not act for `owner`.
    pub(crate) fn may_act_for(&self, owner: &Principal) -> Result<(), Fault> {
        self.must(self.principal.is(owner))
    }

    /// Refuses a caller that is no admin, unless the thing is its own.
    fn must(&self, is_own: bool) -> Result<(), Fault> {
        if is_own || self.role == Role::Admin {
            return Ok(());
        }
        Err(self.forbidden(Role::Admin, "this belongs to another principal"))
    }

    /// Adds the role that this caller would need to a rule's refusal.
    pub(crate) fn explain(&self, fault: Fault) -> Fault {
        if fault.code == Code::Forbidden {
            return self.forbidden(Role::Admin, "this belongs to another principal");
        }
        fault
    }

    fn forbidden(&self, required: Role, message: &'static str) -> Fault {
        Fault::new(Code::Forbidden, message)
            .with("required_role", required.as_str())
            .with("your_role", self.role.as_str())
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
