//! What is remembered of credentials, and for how long.

use asyncgate_core::identity::{self, Record, Role};
use asyncgate_credentials::macaroon::Macaroon;

use crate::world::World;

#[tokio::test]
async fn what_nobody_uses_is_forgotten_and_can_be_proved_again() {
    let world = World::new().await;
    let (busy, _) = world.key(Role::Agent, None).await;
    let (idle, _) = world.key(Role::Agent, None).await;
    for key in [&busy, &idle] {
        assert_eq!(world.code(key).await, None);
    }
    assert_eq!(world.metric("cap_cache_entries"), 2);
    for _ in 0..7 {
        world.at.clock.advance(600_000);
        assert_eq!(world.code(&busy).await, None);
        world.at.auth.tend_once(60_000).await;
    }
    assert_eq!(world.metric("cap_cache_entries"), 1);
    let unused = "cap_cache_evictions_total{reason=\"unused\"}";
    assert_eq!(world.metric(unused), 1);
    assert_eq!(world.hashes(), 2);
    assert_eq!(world.code(&idle).await, None);
    assert_eq!(world.hashes(), 3);
}

/// Whoever has a macaroon can make any number of others of it. They share what is known of its record.
#[tokio::test]
async fn derived_macaroons_are_each_remembered_and_end_together() {
    let world = World::new().await;
    let (text, record) = world.macaroon(&[], 86_400_000).await;
    let macaroon = Macaroon::decode(&text).unwrap();
    let derived = (0..50).map(|n| {
        let caveat = format!("quota ops = {n}");
        macaroon.clone().attenuate(&caveat).unwrap().encode()
    });
    let derived: Vec<String> = derived.collect();
    for text in &derived {
        assert_eq!(world.code(text).await, None);
    }
    assert_eq!(world.metric("cap_cache_entries"), 50);
    let revoked_at = Some(world.now());
    let revoked = identity::Macaroon {
        revoked_at,
        ..record
    };
    world.change(Record::Macaroon(revoked)).await;
    assert!(world.check(&derived[0]).await.is_err());
    world.at.auth.tend_once(60_000).await;
    assert_eq!(world.metric("cap_cache_entries"), 0);
}

#[tokio::test]
async fn expired_and_revoked_credentials_leave_the_memory_by_themselves() {
    let world = World::new().await;
    let (macaroon, _) = world.macaroon(&[], 5_000).await;
    let (secret, key) = world.key(Role::Agent, None).await;
    assert_eq!(world.code(&macaroon).await, None);
    assert_eq!(world.code(&secret).await, None);
    world.at.clock.advance(5_000);
    world.at.auth.tend_once(60_000).await;
    assert_eq!(world.metric("cap_cache_entries"), 1);
    world.revoke(&key).await;
    assert!(world.check(&secret).await.is_err());
    assert_eq!(world.metric("cap_cache_entries"), 0);
}
