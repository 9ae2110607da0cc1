//! Stored API keys: who they let in, and when they end.

use std::sync::Arc;

use asyncgate_api::Code;
use asyncgate_auth::Settings;
use asyncgate_auth::fakes::settings;
use asyncgate_core::identity::{
    ApiKey, DEFAULT_TENANT, Find, Record, RecordKind, Role, Scope, Scopes,
};
use asyncgate_core::{Principal, PrincipalKind};
use asyncgate_engine::CredentialKind;
use asyncgate_engine::fakes::START_MS;

use crate::world::{TENANT, World, guess, millis};

const UNAUTHORIZED: Option<Code> = Some(Code::Unauthorized);

#[tokio::test]
async fn the_first_start_makes_a_key_that_later_starts_know() {
    let world = World::new().await;
    let fresh = world.begin().await.unwrap();
    let caller = world.check(fresh.reveal()).await.unwrap();
    assert_eq!(caller.tenant, DEFAULT_TENANT);
    let admin = Principal::new(PrincipalKind::Service, "admin");
    assert_eq!(
        (caller.principal.clone(), caller.role),
        (admin, Role::Admin)
    );
    assert!(caller.runs_the_platform() && caller.acts_for_all());
    assert_eq!(caller.credential.kind, CredentialKind::ApiKey);

    let again = world.beside(Arc::clone(&world.files));
    assert!(again.begin().await.is_none());
    assert_eq!(again.check(fresh.reveal()).await.unwrap(), caller);
    let other = guess(fresh.reveal(), 1);
    for bad in ["", "aga_", "aga_x", other.as_str()] {
        assert_eq!(again.code(bad).await, UNAUTHORIZED, "{bad:?}");
    }
    assert_eq!(
        again.check_none().await.unwrap_err().code,
        Code::Unauthorized
    );
}

#[tokio::test]
async fn a_first_key_is_made_only_where_nobody_could_get_in_otherwise() {
    for settings in [
        Settings {
            shared_key: Some("a-shared-key-of-ours".to_owned()),
            ..settings()
        },
        Settings {
            insecure_dev: true,
            ..settings()
        },
    ] {
        let world = World::with(settings).await;
        assert!(world.begin().await.is_none());
    }
    // A tenant's admin does not count, and neither does a key that has ended.
    let world = World::new().await;
    world.key(Role::Admin, None).await;
    let platform = Some(Scopes::of(&[Scope::PlatformAdmin]));
    let end = Some(millis(START_MS + 1_000));
    world
        .key_of(DEFAULT_TENANT, Role::Admin, platform, end)
        .await;
    assert!(world.begin().await.is_none());
    world.at.clock.advance(1_000);
    let fresh = world.begin().await.unwrap();
    assert!(world.begin().await.is_none());
    let found = world.find(Find::key(&fresh.reveal()[4..16])).await;
    let Some(Record::ApiKey(key)) = found else {
        panic!("it is stored");
    };
    assert!(key.hash.starts_with("$argon2id$") && key.is_platform_admin());
    assert!(!format!("{key:?}").contains(&fresh.reveal()[16..]));
}

#[tokio::test]
async fn a_key_gives_what_its_record_says_and_no_more() {
    let world = World::new().await;
    let scopes = Scopes::of(&[Scope::TasksRead, Scope::HostUse, Scope::AdminWrite]);
    let end = Some(millis(START_MS + 60_000));
    let (secret, key) = world.key_of(TENANT, Role::Agent, Some(scopes), end).await;
    let caller = world.check(&secret).await.unwrap();
    assert_eq!(caller.tenant, TENANT);
    assert_eq!(caller.principal.key(), key.principal);
    assert_eq!(caller.role, Role::Agent);
    let held = Scopes::of(&[Scope::TasksRead, Scope::HostUse]);
    assert_eq!(caller.scopes, held, "what its role cannot have is left out");
    assert_eq!(caller.credential.id, Some(key.id));
    assert_eq!(caller.credential.expires_at, end);
    let (secret, _) = world.key(Role::Worker, None).await;
    let caller = world.check(&secret).await.unwrap();
    assert_eq!(caller.scopes, Role::Worker.default_scopes());
}

#[tokio::test]
async fn an_expiry_is_exact_whatever_is_remembered() {
    let world = World::new().await;
    let end = Some(millis(START_MS + 5_000));
    let (used, _) = world.key_of(TENANT, Role::Agent, None, end).await;
    let (unused, _) = world.key_of(TENANT, Role::Agent, None, end).await;
    assert_eq!(world.code(&used).await, None);
    world.at.clock.advance(4_999);
    assert_eq!(world.code(&used).await, None);
    world.at.clock.advance(1);
    assert_eq!(world.code(&used).await, UNAUTHORIZED);
    assert_eq!(world.code(&unused).await, UNAUTHORIZED);
    assert_eq!(world.metric("cap_cache_entries"), 0);
    let expired = "cap_cache_evictions_total{reason=\"expired\"}";
    assert_eq!(world.metric(expired), 1);
}

#[tokio::test]
async fn a_revocation_counts_at_once_here_and_soon_elsewhere() {
    let world = World::new().await;
    let elsewhere = world.beside(Arc::clone(&world.files));
    let (secret, key) = world.key(Role::Agent, None).await;
    assert_eq!(world.code(&secret).await, None);
    assert_eq!(elsewhere.code(&secret).await, None);
    world.at.clock.advance(10_000);
    world.revoke(&key).await;
    assert_eq!(world.code(&secret).await, UNAUTHORIZED);
    world.at.clock.advance(19_999);
    assert_eq!(
        elsewhere.code(&secret).await,
        None,
        "it was read 29,999 ms ago"
    );
    world.at.clock.advance(1);
    assert_eq!(elsewhere.code(&secret).await, UNAUTHORIZED);
    let revoked = "cap_cache_evictions_total{reason=\"revoked\"}";
    for server in [&world, &elsewhere] {
        assert_eq!(server.metric(revoked), 1);
        assert_eq!(server.metric("cap_cache_entries"), 0);
        assert_eq!(server.hashes(), 1, "a revoked key is not hashed again");
    }
}

#[tokio::test]
async fn a_key_is_proved_once_however_often_its_record_is_read() {
    let world = World::new().await;
    let (secret, key) = world.key(Role::Agent, None).await;
    for _ in 0..5 {
        assert_eq!(world.code(&secret).await, None);
        world.at.clock.advance(31_000);
    }
    // Other words about the key do not change who its bearer is.
    world
        .put(vec![Record::ApiKey(ApiKey {
            label: Some("another".to_owned()),
            last_used_at: Some(world.now()),
            ..key.clone()
        })])
        .await;
    assert_eq!(world.code(&secret).await, None);
    assert_eq!(world.hashes(), 1);
    assert_eq!(
        world.metric("cap_cache_evictions_total{reason=\"revoked\"}"),
        0
    );

    // Its replacement gives the old one an end, which counts at once and costs no hash.
    let end = Some(world.now().plus_millis(1_000));
    world
        .change(Record::ApiKey(ApiKey {
            expires_at: end,
            ..key.clone()
        }))
        .await;
    let caller = world.check(&secret).await.unwrap();
    assert_eq!(caller.credential.expires_at, end);
    assert_eq!(world.hashes(), 1);
    world.at.clock.advance(1_000);
    assert_eq!(world.code(&secret).await, UNAUTHORIZED);

    // Another role counts at the next look.
    let (secret, key) = world.key(Role::Agent, None).await;
    assert_eq!(world.check(&secret).await.unwrap().role, Role::Agent);
    let role = Role::Worker;
    world
        .put(vec![Record::ApiKey(ApiKey { role, ..key })])
        .await;
    world.at.clock.advance(30_000);
    assert_eq!(world.check(&secret).await.unwrap().role, Role::Worker);
}

#[tokio::test]
async fn a_key_that_is_removed_or_damaged_lets_nobody_in() {
    let world = World::new().await;
    let (secret, key) = world.key(Role::Agent, None).await;
    assert_eq!(world.code(&secret).await, None);
    for damaged in [
        ApiKey {
            hash: "no hash".to_owned(),
            ..key.clone()
        },
        ApiKey {
            check: Some("no check".to_owned()),
            ..key.clone()
        },
    ] {
        world.change(Record::ApiKey(damaged)).await;
        assert_eq!(world.code(&secret).await, UNAUTHORIZED);
    }
    world.change(Record::ApiKey(key)).await;
    assert_eq!(world.code(&secret).await, None);
}

#[tokio::test]
async fn a_time_to_live_of_nothing_reads_the_record_each_time() {
    let world = World::with(Settings {
        proof_ttl: std::time::Duration::ZERO,
        ..settings()
    })
    .await;
    let (secret, key) = world.key(Role::Agent, None).await;
    assert_eq!(world.code(&secret).await, None);
    assert_eq!(world.code(&secret).await, None);
    let revoked = Record::ApiKey(world.revoked(&key));
    world.put(vec![revoked]).await;
    world.at.clock.advance(1);
    assert_eq!(world.code(&secret).await, UNAUTHORIZED);
}

#[tokio::test]
async fn refusals_look_alike() {
    let world = World::new().await;
    let (good, _) = world.key(Role::Agent, None).await;
    let (revoked, key) = world.key(Role::Agent, None).await;
    world.revoke(&key).await;
    let end = Some(millis(START_MS));
    let (expired, _) = world.key_of(TENANT, Role::Agent, None, end).await;
    let unknown = format!("aga_{}", "x".repeat(52));
    let mut told = Vec::new();
    for bad in [
        "",
        "nonsense",
        "a.b.c",
        &unknown,
        &guess(&good, 1),
        &expired,
        &revoked,
    ] {
        let fault = world.check(bad).await.unwrap_err();
        told.push((fault.code, fault.message.clone(), fault.details.clone()));
    }
    told.dedup();
    assert_eq!(told.len(), 1, "{told:?}");
}

#[tokio::test]
async fn the_last_use_of_a_key_is_written_once_a_minute() {
    const MINUTE: i64 = 60_000;
    let world = World::new().await;
    let (secret, key) = world.key(Role::Agent, None).await;
    let (unused, other) = world.key(Role::Agent, None).await;
    assert_eq!(world.code(&guess(&unused, 1)).await, UNAUTHORIZED);
    world.at.auth.tend_once(MINUTE).await;
    assert_eq!(world.stored(&key).await.last_used_at, None);

    assert_eq!(world.code(&secret).await, None);
    assert_eq!(
        world.stored(&key).await.last_used_at,
        None,
        "not on the way"
    );
    world.at.auth.tend_once(MINUTE).await;
    let first = Some(millis(START_MS));
    assert_eq!(world.stored(&key).await.last_used_at, first);
    world.at.clock.advance(59_999);
    assert_eq!(world.code(&secret).await, None);
    world.at.auth.tend_once(MINUTE).await;
    assert_eq!(world.stored(&key).await.last_used_at, first);
    world.at.clock.advance(1_001);
    assert_eq!(world.code(&secret).await, None);
    world.at.auth.tend_once(MINUTE).await;
    let last = Some(millis(START_MS + 61_000));
    assert_eq!(world.stored(&key).await.last_used_at, last);
    assert_eq!(world.stored(&other).await.last_used_at, None);
    assert_eq!(world.hashes(), 1);

    // Another start knows it, and what happened to the key meanwhile stays.
    let again = world.beside(Arc::clone(&world.files));
    world.at.clock.advance(MINUTE);
    assert_eq!(again.code(&secret).await, None);
    again.revoke(&key).await;
    again.at.auth.tend_once(MINUTE).await;
    let stored = again.stored(&key).await;
    assert_eq!(stored.last_used_at, Some(millis(START_MS + 121_000)));
    assert!(stored.revoked_at.is_some());
    assert_eq!(stored.id, key.id);
    let kind = RecordKind::ApiKey;
    assert!(world.find(Find::id(kind, other.id)).await.is_some());
}
