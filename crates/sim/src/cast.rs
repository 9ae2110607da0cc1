//! Who takes part: three tenants with the same names in each, so that a mix-up would show.

use std::sync::Arc;

use asyncgate_core::{Principal, PrincipalKind, TenantId};
use asyncgate_engine::{Caller, Role};

/// The number of tenants.
pub const TENANTS: usize = 3;
const OFFERS: [&[&str]; 3] = [&[], &["gpu"], &["db", "gpu", "net"]];

/// A client with its credential.
#[derive(Debug, Clone)]
pub struct Actor {
    /// Its tenant's number.
    pub tenant: usize,
    /// What its credential became.
    pub caller: Arc<Caller>,
    /// What it offers as a worker.
    pub offers: &'static [&'static str],
}

/// The id of a tenant.
pub const fn tenant_id(tenant: usize) -> TenantId {
    TenantId::from_bytes([tenant as u8 + 1; 16])
}

/// The number of a tenant.
pub const fn tenant_number(id: TenantId) -> usize {
    id.as_bytes()[0] as usize - 1
}

/// Every actor, in the order that schedules number them.
pub fn cast() -> Vec<Actor> {
    (0..TENANTS).flat_map(of_tenant).collect()
}

fn of_tenant(tenant: usize) -> Vec<Actor> {
    let actor = |name: &str, kind, role, offers| Actor {
        tenant,
        caller: Arc::new(Caller {
            tenant: tenant_id(tenant),
            principal: Principal::new(kind, name),
            role,
        }),
        offers,
    };
    let worker = |name, offers| actor(name, PrincipalKind::Worker, Role::Worker, offers);
    vec![
        actor("a0", PrincipalKind::Agent, Role::Agent, &[]),
        actor("a1", PrincipalKind::Human, Role::Agent, &[]),
        worker("w0", OFFERS[0]),
        worker("w1", OFFERS[1]),
        worker("w2", OFFERS[2]),
        actor("admin", PrincipalKind::Service, Role::Admin, OFFERS[2]),
    ]
}
