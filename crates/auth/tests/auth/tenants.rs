//! Suspended tenants, and tenants that do not exist.

use std::sync::Arc;

use asyncgate_api::Code;
use asyncgate_core::TenantId;
use asyncgate_core::identity::audit::Event;
use asyncgate_core::identity::{DEFAULT_TENANT, Record, Role, TenantRecord, TenantTier};

use crate::world::{TENANT, World, tenant};

const SUSPENDED: Option<Code> = Some(Code::TenantSuspended);

#[tokio::test]
async fn every_credential_of_a_suspended_tenant_is_refused_at_once_here_and_soon_elsewhere() {
    let world = World::new().await;
    let elsewhere = world.beside(Arc::clone(&world.files));
    let (key, _) = world.key(Role::Admin, None).await;
    let (macaroon, _) = world.macaroon(&[], 600_000).await;
    let mut claims = world.claims();
    claims.expires_at += 600;
    let token = world.token(&claims);
    let all = [key, macaroon, token];
    for credential in &all {
        assert_eq!(world.code(credential).await, None);
        assert_eq!(elsewhere.code(credential).await, None);
    }
    world.change(tenant(TENANT, Some(world.now()))).await;
    let fresh = world.key(Role::Agent, None).await.0;
    for credential in all.iter().chain([&fresh]) {
        let fault = world.check(credential).await.unwrap_err();
        assert_eq!(Some(fault.code), SUSPENDED);
        assert_eq!(fault.code.http_status(), 403);
    }
    world.at.clock.advance(29_999);
    assert_eq!(elsewhere.code(&all[0]).await, None);
    world.at.clock.advance(1);
    for credential in &all {
        assert_eq!(elsewhere.code(credential).await, SUSPENDED);
    }
    // They are good again when it is over, without another hash.
    world.change(tenant(TENANT, None)).await;
    for credential in &all {
        assert_eq!(world.code(credential).await, None);
    }
    assert_eq!(world.hashes(), 2);
}

#[tokio::test]
async fn a_wrong_key_does_not_learn_that_its_tenant_is_suspended() {
    let world = World::new().await;
    let (key, _) = world.key(Role::Agent, None).await;
    world.change(tenant(TENANT, Some(world.now()))).await;
    let wrong = crate::world::guess(&key, 1);
    assert_eq!(world.code(&wrong).await, Some(Code::Unauthorized));
}

#[tokio::test]
async fn whoever_runs_the_platform_can_end_the_suspension_of_its_own_tenant() {
    let world = World::new().await;
    let admin = world.begin().await.unwrap();
    let (other, _) = world.key_of(DEFAULT_TENANT, Role::Admin, None, None).await;
    let suspended = TenantRecord {
        suspended_at: Some(world.now()),
        ..TenantRecord::built_in()
    };
    world.change(Record::Tenant(suspended)).await;
    assert_eq!(world.code(admin.reveal()).await, None);
    assert_eq!(world.code(&other).await, SUSPENDED);
}

#[tokio::test]
async fn a_credential_without_a_tenant_is_none() {
    let world = World::new().await;
    let gone = TenantId::from_bytes([9; 16]);
    let (key, _) = world.key_of(gone, Role::Agent, None, None).await;
    assert_eq!(world.code(&key).await, Some(Code::Unauthorized));
    // It is good as soon as the tenant is there.
    world.change(tenant(gone, None)).await;
    assert_eq!(world.code(&key).await, None);
}

#[tokio::test]
async fn other_changes_of_a_tenant_do_not_concern_its_credentials() {
    let world = World::new().await;
    let (key, _) = world.key(Role::Agent, None).await;
    assert_eq!(world.code(&key).await, None);
    let Record::Tenant(record) = tenant(TENANT, None) else {
        panic!("it is a tenant");
    };
    world
        .change(Record::Tenant(TenantRecord {
            name: "another".to_owned(),
            tier: TenantTier::Free,
            ..record
        }))
        .await;
    assert_eq!(world.code(&key).await, None);
    assert_eq!(
        world.metric("cap_cache_evictions_total{reason=\"revoked\"}"),
        0
    );
    let entries = world.entries(Some(TENANT), Event::AuthSuccess).await;
    assert_eq!(entries.len(), 1);
}
