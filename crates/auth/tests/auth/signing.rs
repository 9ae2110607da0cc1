//! The keys of access tokens: made once, kept, and replaced without losing the tokens of the old ones.

use std::sync::Arc;

use asyncgate_api::Code;
use asyncgate_auth::fakes::{SIGNING_KEYS, TestAuth, settings};
use asyncgate_auth::{Files, MemoryFiles, Settings};
use asyncgate_credentials::jwt::{self, Claims};
use asyncgate_engine::Keyring as _;

use crate::world::World;

/// Settings without a key, so that one is made.
fn without_key() -> Settings {
    Settings {
        signing_key: None,
        ..settings()
    }
}

fn long_lived(world: &World) -> Claims {
    Claims {
        expires_at: world.now().as_millis() / 1_000 + 100 * 86_400,
        ..world.claims()
    }
}

async fn sign(world: &World) -> String {
    let key = world.at.keyring.signing_keys().current().await.unwrap();
    jwt::sign(&key, &long_lived(world)).unwrap()
}

fn published(world: &World) -> usize {
    let set = world.at.keyring.public_keys();
    set["keys"].as_array().unwrap().len()
}

#[tokio::test]
async fn a_key_is_made_aside_and_later_starts_know_it() {
    let world = World::with(without_key()).await;
    let token = sign(&world).await;
    assert_eq!(world.code(&token).await, None);
    assert!(world.files.read("token.key").unwrap().is_some());
    assert_eq!(published(&world), 1);
    let again = world.beside(Arc::clone(&world.files));
    assert_eq!(again.code(&token).await, None, "at once");
    assert_eq!(
        again.at.keyring.public_keys(),
        world.at.keyring.public_keys()
    );
}

#[tokio::test]
async fn after_a_rotation_old_tokens_stay_valid_while_they_can_live() {
    let world = World::with(without_key()).await;
    let old = sign(&world).await;
    let keys = Arc::clone(world.at.keyring.signing_keys());
    tokio::task::spawn_blocking(move || keys.rotate())
        .await
        .unwrap()
        .unwrap();
    let new = sign(&world).await;
    let kid = |token: &str| token.split('.').next().unwrap().to_owned();
    assert_ne!(kid(&old), kid(&new));
    assert_eq!(published(&world), 2);
    let again = world.beside(Arc::clone(&world.files));
    for server in [&world, &again] {
        assert_eq!(server.code(&old).await, None);
        assert_eq!(server.code(&new).await, None);
    }
    // No token is older than this, so the key can go.
    world.at.clock.advance(91 * 86_400_000);
    let later = world.beside(Arc::clone(&world.files));
    assert_eq!(published(&later), 1);
    assert_eq!(later.code(&old).await, Some(Code::Unauthorized));
    assert_eq!(later.code(&new).await, None);
}

#[tokio::test]
async fn a_key_of_the_settings_is_replaced_by_the_settings_only() {
    let world = World::new().await;
    let old = sign(&world).await;
    assert!(world.at.keyring.signing_keys().rotate().is_err());
    let other = Settings {
        signing_key: Some(SIGNING_KEYS[1].to_vec()),
        ..settings()
    };
    world.at.keyring.reload(&other);
    let new = sign(&world).await;
    assert_eq!(published(&world), 2);
    let broken = Settings {
        signing_key: Some(b"no key".to_vec()),
        ..settings()
    };
    world.at.keyring.reload(&broken);
    for token in [&old, &new] {
        assert_eq!(world.code(token).await, None);
    }
    assert!(world.files.read("token.key").unwrap().is_none());
}

#[tokio::test]
async fn a_damaged_key_is_told_and_not_replaced() {
    let world = World::new().await;
    for (name, content) in [
        ("token.key", "damaged"),
        ("token-keys.json", "{}"),
        ("token-keys.json", r#"{"version":9,"keys":[]}"#),
    ] {
        let files = Arc::new(MemoryFiles::default());
        files.replace("token.key", SIGNING_KEYS[0]).unwrap();
        files.replace(name, content.as_bytes()).unwrap();
        let opened = asyncgate_auth::ServerKeyring::open(
            Arc::<asyncgate_store::memory::MemoryStore>::default(),
            Arc::<asyncgate_engine::fakes::FakeClock>::clone(&world.at.clock),
            Arc::<MemoryFiles>::clone(&files),
            asyncgate_auth::fakes::machine(),
            &without_key(),
        );
        let message = opened.unwrap_err().to_string();
        assert!(message.contains(name), "{message}");
        assert_eq!(files.read(name).unwrap().unwrap(), content.as_bytes());
    }
}

#[tokio::test]
async fn a_server_without_a_key_signs_nothing_and_still_lets_others_in() {
    let mut machine = asyncgate_auth::fakes::machine();
    machine.make_signing_key = || Err(asyncgate_credentials::jwt::NoKey);
    let world = World::new().await;
    let keyring = asyncgate_auth::ServerKeyring::open(
        Arc::<asyncgate_store::memory::MemoryStore>::clone(&world.at.store),
        Arc::<asyncgate_engine::fakes::FakeClock>::clone(&world.at.clock),
        Arc::new(MemoryFiles::default()),
        machine,
        &without_key(),
    );
    let keyring = keyring.unwrap();
    assert!(keyring.signing_keys().current().await.is_err());
    let fault = keyring.sign(&world.claims()).unwrap_err();
    assert_eq!(fault.code, Code::Unavailable);
    let _: &TestAuth = &world.at;
}
