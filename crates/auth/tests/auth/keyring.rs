//! The secrets that the server makes.

use std::sync::Arc;

use asyncgate_auth::{MemoryFiles, lookup_id};
use asyncgate_credentials::macaroon::Macaroon;
use asyncgate_engine::{Keyring as _, NewSecret};

use crate::world::{World, new_id};

#[tokio::test]
async fn keys_are_new_each_time_and_only_hashes_of_them_can_be_kept() {
    let world = World::new().await;
    let one = world.at.keyring.api_key().await.unwrap();
    let two = world.at.keyring.api_key().await.unwrap();
    assert_ne!(one.secret, two.secret);
    let text = one.secret.reveal();
    assert!(text.starts_with("aga_") && text.len() >= 44);
    assert_eq!(lookup_id(text), Some(one.lookup_id.as_str()));
    assert!(one.hash.starts_with("$argon2id$v=19$m=16,t=1,p=1$"));
    assert_eq!(one.check.len(), 16);
    let shown = format!("{one:?}");
    assert!(!shown.contains(&text[16..]), "{shown}");
}

#[tokio::test]
async fn a_macaroon_is_of_the_second_version_and_names_its_record() {
    let world = World::new().await;
    let id = new_id();
    let caveats = ["op = send".to_owned()];
    let minted = world.at.keyring.macaroon(id, &caveats).unwrap();
    let macaroon = Macaroon::decode(minted.secret.reveal()).unwrap();
    assert_eq!(macaroon.to_bytes()[0], 2);
    assert_eq!(macaroon.location(), Some(&b"asyncgate"[..]));
    assert_eq!(macaroon.identifier(), minted.identifier.as_bytes());
    assert!(minted.identifier.is_ascii());
    assert!(minted.identifier.contains(&id.to_string()));
    assert!(minted.identifier.contains(&minted.root_key));
    let too_long = ["x".repeat(5_000)];
    assert!(world.at.keyring.macaroon(id, &too_long).is_err());
}

#[tokio::test]
async fn secrets_cannot_be_guessed_and_their_hashes_are_slow() {
    let world = World::new().await;
    let keyring = &world.at.keyring;
    let (one, two) = (keyring.secret().unwrap(), keyring.secret().unwrap());
    assert_ne!(one, two);
    assert!(one.reveal().len() >= 40);
    let hash = keyring.hash(one.clone()).await.unwrap();
    assert!(hash.starts_with("$argon2id$"), "{hash}");
    assert!(keyring.has_hash(one.clone(), hash.clone()).await.unwrap());
    assert!(!keyring.has_hash(two, hash).await.unwrap());
    assert!(!keyring.has_hash(one, "x".to_owned()).await.unwrap());
    assert!(!format!("{:?}", NewSecret::new("secret".to_owned())).contains("secret"));
}

#[tokio::test]
async fn codes_of_messages_follow_from_the_secret_that_instances_share() {
    let world = World::new().await;
    let same = world.beside(Arc::clone(&world.files));
    let other = world.beside(Arc::new(MemoryFiles::default()));
    let code = |world: &World, message: &[u8]| world.at.keyring.mac(message);
    assert_eq!(code(&world, b"a"), code(&same, b"a"));
    assert_ne!(code(&world, b"a"), code(&world, b"b"));
    assert_ne!(code(&world, b"a"), code(&other, b"a"));
}

#[tokio::test]
async fn a_token_can_be_read_while_it_is_valid() {
    let world = World::new().await;
    let claims = world.claims();
    let token = world.token(&claims);
    assert_eq!(world.at.keyring.read_token(&token), Some(claims));
    assert_eq!(world.at.keyring.read_token(&token[1..]), None);
    world.at.clock.advance(60_000);
    assert_eq!(world.at.keyring.read_token(&token), None);
}
