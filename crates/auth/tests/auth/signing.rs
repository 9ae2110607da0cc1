//! The keys of access tokens: made once, kept, and replaced without losing the tokens of the old ones.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use asyncgate_api::Code;
use asyncgate_auth::fakes::{SIGNING_KEYS, TestAuth, settings};
use asyncgate_auth::{Files, MemoryFiles, ServerKeyring, Settings};
use asyncgate_credentials::jwt::{self, Claims};
use asyncgate_engine::{Keyring as _, NewTokenKey};

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

/// Makes keys until there is another one than that which signs: the fixture has only two.
async fn another_key(keyring: &ServerKeyring) -> NewTokenKey {
    let current = keyring.signing_keys().current().await.unwrap();
    loop {
        let key = keyring.new_token_key().await.unwrap();
        if key.kid != current.verifying_key().kid() {
            return key;
        }
    }
}

fn kid(token: &str) -> String {
    token.split('.').next().unwrap().to_owned()
}

#[tokio::test]
async fn after_a_rotation_old_tokens_stay_valid_while_they_can_live() {
    let world = World::with(without_key()).await;
    let old = sign(&world).await;
    let former = world.at.keyring.signing_keys().now().unwrap();
    let key = another_key(&world.at.keyring).await;
    let retired = world.at.keyring.sign_with(key).await.unwrap().unwrap();
    assert_eq!(retired.kid, former.verifying_key().kid());
    assert_eq!(
        retired.accepted_until,
        world.now().plus_millis(91 * 86_400_000)
    );
    let new = sign(&world).await;
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

/// Files that go bad after some more have been written, as in a crash or on a full disk.
#[derive(Default)]
struct Dying {
    files: MemoryFiles,
    writes_left: AtomicUsize,
}

impl Files for Dying {
    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        self.files.read(name)
    }

    fn replace(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let left = self
            .writes_left
            .fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1));
        left.map_err(|_| io::ErrorKind::StorageFull)?;
        self.files.replace(name, content)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.files.rename(from, to)
    }

    fn place(&self, name: &str) -> String {
        self.files.place(name)
    }
}

#[tokio::test]
async fn a_rotation_that_breaks_off_anywhere_leaves_a_key_that_signs_and_all_tokens_valid() {
    for writes in 0..=2 {
        let files = Arc::new(Dying::default());
        files.writes_left.store(10, Relaxed);
        let world = World::with(without_key()).await;
        let world = world.beside(Arc::<Dying>::clone(&files));
        let old = sign(&world).await;
        let key = another_key(&world.at.keyring).await;
        files.writes_left.store(writes, Relaxed);
        let rotated = world.at.keyring.sign_with(key).await;
        assert_eq!(rotated.is_ok(), writes == 2, "{writes}");
        // The server goes on with what it has.
        let next = sign(&world).await;
        assert_eq!(kid(&old) == kid(&next), writes < 2, "{writes}");
        files.writes_left.store(10, Relaxed);
        let again = world.beside(Arc::<Dying>::clone(&files));
        let last = sign(&again).await;
        for token in [&old, &next, &last] {
            assert_eq!(again.code(token).await, None, "{writes}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn rotations_at_the_same_time_as_each_other_and_as_signing_lose_no_token() {
    let world = World::with(without_key()).await;
    let mut tokens = vec![sign(&world).await];
    let rotating = (0..8).map(|_| {
        let keyring = Arc::clone(&world.at.keyring);
        tokio::spawn(async move {
            let key = keyring.new_token_key().await.unwrap();
            keyring.sign_with(key).await.unwrap();
        })
    });
    let rotating: Vec<_> = rotating.collect();
    for rotation in rotating {
        let token = world.at.keyring.sign(&long_lived(&world)).unwrap();
        assert_eq!(world.code(&token).await, None);
        tokens.push(token);
        rotation.await.unwrap();
    }
    tokens.push(sign(&world).await);
    let again = world.beside(Arc::clone(&world.files));
    let current = |world: &World| world.at.keyring.signing_keys().now().unwrap();
    assert_eq!(
        current(&again).verifying_key().kid(),
        current(&world).verifying_key().kid(),
        "the file has the key that signs"
    );
    for token in &tokens {
        assert_eq!(again.code(token).await, None);
    }
}

#[tokio::test]
async fn a_key_of_the_settings_is_replaced_by_the_settings_only() {
    let world = World::new().await;
    let old = sign(&world).await;
    let refused = world.at.keyring.new_token_key().await.unwrap_err();
    assert_eq!(refused.code, Code::Conflict);
    assert!(refused.message.contains("private_key_path"), "{refused:?}");
    let late = NewTokenKey {
        kid: String::new(),
        der: SIGNING_KEYS[1].to_vec(),
    };
    assert!(world.at.keyring.sign_with(late).await.is_err());
    let other = Settings {
        signing_key: Some(SIGNING_KEYS[1].to_vec()),
        ..settings()
    };
    world.at.keyring.reload(&other);
    let new = sign(&world).await;
    assert_ne!(kid(&old), kid(&new));
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
async fn a_reload_takes_the_key_that_stands_in_the_data_directory() {
    let world = World::with(without_key()).await;
    let old = sign(&world).await;
    let key = another_key(&world.at.keyring).await;
    world.files.replace("token.key", &key.der).unwrap();
    world.at.keyring.reload(&without_key());
    let new = sign(&world).await;
    assert_ne!(kid(&old), kid(&new));
    world.files.replace("token.key", b"damaged").unwrap();
    world.at.keyring.reload(&without_key());
    assert_eq!(kid(&sign(&world).await), kid(&new), "it stays as it was");
    for token in [&old, &new] {
        assert_eq!(world.code(token).await, None);
    }
}

#[tokio::test]
async fn a_key_of_the_settings_that_goes_makes_room_for_one_of_the_server() {
    let world = World::new().await;
    let old = sign(&world).await;
    world.at.keyring.reload(&without_key());
    // A thread makes it meanwhile.
    while world.files.read("token.key").unwrap().is_none() {
        tokio::task::yield_now().await;
    }
    assert_eq!(world.code(&old).await, None);
    let key = world.at.keyring.new_token_key().await.unwrap();
    world.at.keyring.sign_with(key).await.unwrap();
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
