//! What goes on for longer than a call ends with its credential.

use std::sync::Arc;
use std::time::Duration;

use asyncgate_auth::Settings;
use asyncgate_auth::fakes::settings;
use asyncgate_core::identity::{Macaroon, Record, Role, TokenFamily};
use asyncgate_credentials::jwt::Claims;
use asyncgate_engine::fakes::START_MS;
use asyncgate_engine::{Authenticator as _, RequestContext};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::world::{TENANT, World, millis, request, tenant};

/// Opens something that goes on until its credential ends, and returns when that is.
async fn open(world: &World, credential: &str) -> JoinHandle<Instant> {
    world.check(credential).await.unwrap();
    let ended = world.at.auth.until_ended(&request(1, credential));
    tokio::spawn(async move {
        ended.await;
        Instant::now()
    })
}

/// Returns after how many milliseconds it ended.
async fn ended(opened: JoinHandle<Instant>, since: Instant) -> u128 {
    let end = timeout(Duration::from_secs(3_600), opened).await;
    end.unwrap().unwrap().duration_since(since).as_millis()
}

#[tokio::test(start_paused = true)]
async fn a_revocation_here_ends_it_at_once() {
    let world = World::running().await;
    let (secret, key) = world.key(Role::Agent, None).await;
    let (other, _) = world.key(Role::Agent, None).await;
    let (opened, beside) = (open(&world, &secret).await, open(&world, &other).await);
    sleep(Duration::from_secs(7)).await;
    let began = Instant::now();
    world.revoke(&key).await;
    assert_eq!(ended(opened, began).await, 0);
    sleep(Duration::from_secs(600)).await;
    assert!(!beside.is_finished(), "the other key is good");
    beside.abort();
}

#[tokio::test(start_paused = true)]
async fn a_revocation_elsewhere_ends_it_within_the_time_to_live() {
    let world = World::running().await;
    let elsewhere = world.beside(Arc::clone(&world.files));
    let (secret, key) = world.key(Role::Agent, None).await;
    let opened = open(&world, &secret).await;
    sleep(Duration::from_secs(100)).await;
    let began = Instant::now();
    elsewhere.revoke(&key).await;
    let after = ended(opened, began).await;
    assert!((1..=30_000).contains(&after), "{after}");
}

/// Somebody else's calls keep the record fresh, which must not keep the stream from learning of its end.
#[tokio::test(start_paused = true)]
async fn calls_beside_it_do_not_make_it_live_longer() {
    let world = World::running().await;
    let elsewhere = world.beside(Arc::clone(&world.files));
    let (secret, key) = world.key(Role::Agent, None).await;
    world.check(&secret).await.unwrap();
    sleep(Duration::from_secs(29)).await;
    let opened = open(&world, &secret).await;
    let began = Instant::now();
    elsewhere.revoke(&key).await;
    let after = ended(opened, began).await;
    assert!(after <= 30_000, "{after}");
}

#[tokio::test(start_paused = true)]
async fn every_kind_ends_at_its_expiry_to_the_millisecond() {
    let world = World::running().await;
    let began = Instant::now();
    let end = Some(millis(START_MS + 45_678));
    let (key, _) = world.key_of(TENANT, Role::Agent, None, end).await;
    let (macaroon, _) = world.macaroon(&[], 45_678).await;
    let token = world.token(&Claims {
        expires_at: START_MS / 1_000 + 46,
        ..world.claims()
    });
    let mut opened = Vec::new();
    for credential in [key, macaroon, token] {
        opened.push(open(&world, &credential).await);
    }
    for (opened, end) in opened.into_iter().zip([45_678, 45_678, 46_000]) {
        assert_eq!(ended(opened, began).await, end);
    }
}

#[tokio::test(start_paused = true)]
async fn a_family_a_macaroon_and_a_tenant_that_end_end_what_stands_on_them() {
    let world = World::running().await;
    let family = world.family().await;
    let token = world.token(&Claims {
        expires_at: START_MS / 1_000 + 86_400,
        family: Some(family.id.to_string()),
        ..world.claims()
    });
    let opened = open(&world, &token).await;
    sleep(Duration::from_secs(1)).await;
    let began = Instant::now();
    let revoked_at = Some(world.now());
    world
        .change(Record::TokenFamily(TokenFamily {
            revoked_at,
            ..family
        }))
        .await;
    assert_eq!(ended(opened, began).await, 0);

    let (macaroon, record) = world.macaroon(&[], 86_400_000).await;
    let opened = open(&world, &macaroon).await;
    sleep(Duration::from_secs(1)).await;
    let began = Instant::now();
    world
        .change(Record::Macaroon(Macaroon {
            revoked_at,
            ..record
        }))
        .await;
    assert_eq!(ended(opened, began).await, 0);

    let (key, _) = world.key(Role::Admin, None).await;
    let opened = open(&world, &key).await;
    sleep(Duration::from_secs(1)).await;
    let began = Instant::now();
    world.change(tenant(TENANT, Some(world.now()))).await;
    assert_eq!(ended(opened, began).await, 0);
}

/// A claim, a receive and a look at a task that wait go on for as long as their credential, and no longer.
#[tokio::test(start_paused = true)]
async fn waits_end_with_their_credential() {
    let world = Arc::new(World::running().await);
    let (secret, key) = world.key(Role::Admin, None).await;
    let caller = world.check(&secret).await.unwrap();
    let task = json!({"type": "t", "payload": {}, "delay_seconds": 3_600});
    let task = world.run(&caller, "create_task", &task).await.unwrap();
    let began = Instant::now();
    let waits = [
        ("lease_next", json!({"worker_id": "w", "wait_seconds": 60})),
        ("mailbox_recv", json!({"topic": "t", "wait_seconds": 60})),
        (
            "get_task",
            json!({"task_id": task["task_id"], "wait_seconds": 60}),
        ),
    ];
    let waits = waits.map(|(operation, input)| {
        let (world, caller) = (Arc::clone(&world), caller.clone());
        tokio::spawn(async move {
            let answer = world.run(&caller, operation, &input).await;
            (answer, Instant::now())
        })
    });
    sleep(Duration::from_secs(7)).await;
    assert!(!waits.iter().any(JoinHandle::is_finished), "they wait");
    world.revoke(&key).await;
    for wait in waits {
        let (answer, end) = wait.await.unwrap();
        answer.unwrap();
        assert_eq!(end.duration_since(began).as_secs(), 7);
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_that_gets_an_end_ends_then() {
    let world = World::running().await;
    let (secret, key) = world.key(Role::Agent, None).await;
    let opened = open(&world, &secret).await;
    sleep(Duration::from_secs(1)).await;
    let began = Instant::now();
    let expires_at = Some(world.now().plus_millis(12_345));
    world
        .change(Record::ApiKey(asyncgate_core::identity::ApiKey {
            expires_at,
            ..key
        }))
        .await;
    assert_eq!(ended(opened, began).await, 12_345);
    assert_eq!(world.hashes(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_shared_key_and_no_key_never_end() {
    let shared = World::with(Settings {
        shared_key: Some("a-shared-key-of-ours".to_owned()),
        ..settings()
    })
    .await;
    let dev = World::with(Settings {
        insecure_dev: true,
        ..settings()
    })
    .await;
    let endless = [
        shared
            .at
            .auth
            .until_ended(&request(1, "a-shared-key-of-ours")),
        dev.at.auth.until_ended(&request(1, "whatever")),
        dev.at.auth.until_ended(&RequestContext::default()),
    ];
    for one in endless {
        assert!(timeout(Duration::from_secs(3_600), one).await.is_err());
    }
}
