//! The actors: three tenants with the same names in each, so that a mix-up of tenants would show.

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
    /// The caller that its credential stands for.
    pub caller: Arc<Caller>,
    /// Its capabilities as a worker.
    pub offers: &'static [&'static str],
}

/// Returns the id of a tenant.
pub const fn tenant_id(tenant: usize) -> TenantId {
    TenantId::from_bytes([tenant as u8 + 1; 16])
}

/// Returns the number of a tenant.
pub const fn tenant_number(id: TenantId) -> usize {
    id.as_bytes()[0] as usize - 1
}

/// Returns the number of a tenant, unless it is another than these.
pub fn number_of(id: TenantId) -> Option<usize> {
    (0..TENANTS).find(|number| tenant_id(*number) == id)
}

/// Returns every actor, in the order of their numbers in schedules.
pub fn cast() -> Vec<Actor> {
    (0..TENANTS).flat_map(of_tenant).collect()
}

fn of_tenant(tenant: usize) -> Vec<Actor> {
    let actor = |name: &str, kind, role, offers| Actor {
        tenant,
        caller: Arc::new(Caller::new(
            tenant_id(tenant),
            Principal::new(kind, name),
            role,
        )),
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
