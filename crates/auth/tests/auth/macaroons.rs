//! Macaroons: who they let in, what narrows them, and everything that can be wrong with one.

use std::sync::Arc;

use asyncgate_api::Code;
use asyncgate_core::identity::{Macaroon as Minted, Record, Role};
use asyncgate_credentials::macaroon::{Macaroon, RootKey, mint};
use asyncgate_credentials::{Caveat, QuotaUnit};
use asyncgate_engine::fakes::START_MS;
use asyncgate_engine::{CredentialKind, Keyring as _};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};

use crate::world::{TENANT, World, millis, new_id};

const REFUSED: Option<Code> = Some(Code::ECapAuth);

#[tokio::test]
async fn a_macaroon_gives_its_role_and_its_conditions() {
    let world = World::new().await;
    let (macaroon, record) = world
        .macaroon(
            &["op = send,recv", "quota ops = 5", "x marks the spot"],
            60_000,
        )
        .await;
    let caller = world.check(&macaroon).await.unwrap();
    assert_eq!((caller.tenant, caller.role), (TENANT, Role::Agent));
    assert_eq!(caller.principal.key(), record.principal);
    assert_eq!(caller.scopes, Role::Agent.default_scopes());
    let credential = caller.credential;
    assert_eq!(credential.kind, CredentialKind::Macaroon);
    assert_eq!(credential.id, Some(record.id));
    assert_eq!(credential.expires_at, Some(record.expires_at));
    let caveats = credential.caveats.unwrap();
    // A condition that nobody understands is kept: it denies every call, but not the macaroon.
    let [Caveat::Op(_), Caveat::Quota { .. }, Caveat::Unknown(_)] = caveats.list.as_slice() else {
        panic!("{caveats:?}");
    };
    let [(QuotaUnit::Ops, 5, _)] = caveats.quotas.as_slice() else {
        panic!("{caveats:?}");
    };
}

#[tokio::test]
async fn those_that_are_derived_share_the_quota_and_the_end_of_the_first() {
    let world = World::new().await;
    let (text, record) = world.macaroon(&["quota ops = 5"], 60_000).await;
    let derive = |caveat: &str| {
        let macaroon = Macaroon::decode(&text).unwrap();
        macaroon.attenuate(caveat).unwrap().encode()
    };
    let one = world.check(&derive("op = send")).await.unwrap();
    let two = world.check(&derive("topic = t")).await.unwrap();
    let first = world.check(&text).await.unwrap();
    let quotas = |caller: &asyncgate_engine::Caller| {
        let caveats = caller.credential.caveats.clone().unwrap();
        caveats.quotas.clone()
    };
    assert_eq!(quotas(&one), quotas(&first));
    assert_eq!(quotas(&two), quotas(&first));

    let revoked = Record::Macaroon(Minted {
        revoked_at: Some(world.now()),
        ..record
    });
    world.change(revoked).await;
    for text in [
        &text,
        &derive("op = send"),
        &derive("topic = t"),
        &derive("op = recv"),
    ] {
        assert_eq!(world.code(text).await, REFUSED);
    }
}

#[tokio::test]
async fn the_earliest_end_counts_and_is_exact() {
    let world = World::new().await;
    let (text, record) = world.macaroon(&[], 60_000).await;
    let end = |ms: i64| {
        let caveat = format!("time < {}", millis(START_MS + ms));
        let macaroon = Macaroon::decode(&text).unwrap();
        macaroon.attenuate(&caveat).unwrap().encode()
    };
    let (earlier, later) = (end(5_000), end(600_000));
    let caller = world.check(&earlier).await.unwrap();
    assert_eq!(caller.credential.expires_at, Some(millis(START_MS + 5_000)));
    let caller = world.check(&later).await.unwrap();
    assert_eq!(caller.credential.expires_at, Some(record.expires_at));
    world.at.clock.advance(4_999);
    assert_eq!(world.code(&earlier).await, None);
    world.at.clock.advance(1);
    assert_eq!(world.code(&earlier).await, REFUSED);
    world.at.clock.advance(54_999);
    assert_eq!(world.code(&later).await, None);
    world.at.clock.advance(1);
    assert_eq!(world.code(&later).await, REFUSED);
    assert_eq!(world.code(&text).await, REFUSED);
}

#[tokio::test]
async fn a_revocation_elsewhere_counts_within_the_time_to_live() {
    let world = World::new().await;
    let elsewhere = world.beside(Arc::clone(&world.files));
    let (text, record) = world.macaroon(&[], 600_000).await;
    assert_eq!(elsewhere.code(&text).await, None);
    let revoked = Record::Macaroon(Minted {
        revoked_at: Some(world.now()),
        ..record
    });
    world.change(revoked).await;
    assert_eq!(world.code(&text).await, REFUSED);
    world.at.clock.advance(29_999);
    assert_eq!(elsewhere.code(&text).await, None);
    world.at.clock.advance(1);
    assert_eq!(elsewhere.code(&text).await, REFUSED);
}

/// Writes a macaroon with one field after the other, as the second version of the format has them.
fn packed(fields: &[(u8, &[u8])], caveats: &[&[u8]], signature: &[u8]) -> String {
    let mut bytes = vec![2];
    let field = |bytes: &mut Vec<u8>, kind: u8, data: &[u8]| {
        bytes.push(kind);
        bytes.push(u8::try_from(data.len()).unwrap());
        bytes.extend(data);
    };
    for (kind, data) in fields {
        field(&mut bytes, *kind, data);
    }
    bytes.push(0);
    for caveat in caveats {
        field(&mut bytes, 2, caveat);
        bytes.push(0);
    }
    bytes.push(0);
    field(&mut bytes, 6, signature);
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

#[tokio::test]
async fn widened_truncated_and_foreign_macaroons_are_refused() {
    let world = World::new().await;
    let (text, _) = world.macaroon(&["op = send", "topic = t"], 60_000).await;
    let macaroon = Macaroon::decode(&text).unwrap();
    let bytes = macaroon.to_bytes();
    let signature = &bytes[bytes.len() - 32..];
    let identifier = macaroon.identifier();
    let parts = [(1, &b"asyncgate"[..]), (2, identifier)];
    let rebuilt = packed(&parts, &[b"op = send", b"topic = t"], signature);
    assert_eq!(rebuilt, text);
    let unknown = world.at.keyring.macaroon(new_id(), &[]).unwrap();
    let foreign = mint(
        &RootKey::derive(&[1; 32]),
        std::str::from_utf8(identifier).unwrap(),
        &[],
    );
    let other_name = mint(&RootKey::derive(&[1; 32]), "agm1.00000000.x", &[]);
    for (bad, what) in [
        (
            packed(&parts, &[b"op = send"], signature),
            "a condition less",
        ),
        (packed(&parts, &[], signature), "no condition"),
        (
            packed(&parts, &[b"op = recv", b"topic = t"], signature),
            "another condition",
        ),
        (
            packed(&parts, &[b"topic = t", b"op = send"], signature),
            "another order",
        ),
        (
            packed(&parts, &[b"op = send", b"topic = t"], &[0; 32]),
            "another signature",
        ),
        (text[..text.len() - 4].to_owned(), "cut off"),
        (text[..10].to_owned(), "the beginning"),
        (unknown.secret.reveal().to_owned(), "no record"),
        (foreign.unwrap().encode(), "another key"),
        (other_name.unwrap().encode(), "another name"),
        ("AgEJ".to_owned(), "too short"),
        ("MDAxY2xv".to_owned(), "the first version, broken"),
        (format!("Ag{}", "A".repeat(30_000)), "too large"),
    ] {
        assert_eq!(world.code(&bad).await, REFUSED, "{what}");
    }
    // The location is not signed, so that it may be any.
    let moved = macaroon.clone().at("elsewhere").unwrap().encode();
    assert_eq!(world.code(&moved).await, None);
    assert_eq!(world.code(&text).await, None);
}

#[tokio::test]
async fn the_first_version_of_the_format_is_taken() {
    let world = World::new().await;
    let (text, _) = world.macaroon(&["op = send"], 60_000).await;
    let macaroon = Macaroon::decode(&text).unwrap();
    let bytes = macaroon.to_bytes();
    let signature = &bytes[bytes.len() - 32..];
    let packet = |key: &str, value: &[u8]| {
        let length = 4 + key.len() + 1 + value.len() + 1;
        let mut packet = format!("{length:04x}{key} ").into_bytes();
        packet.extend(value);
        packet.push(b'\n');
        packet
    };
    let packets = [
        packet("location", b"asyncgate"),
        packet("identifier", macaroon.identifier()),
        packet("cid", b"op = send"),
        packet("signature", signature),
    ];
    let first = BASE64_URL_SAFE_NO_PAD.encode(packets.concat());
    assert_eq!(world.code(&first).await, None);
}

#[tokio::test]
async fn another_secret_makes_other_macaroons() {
    let world = World::new().await;
    let (text, _) = world.macaroon(&[], 60_000).await;
    let same = world.beside(Arc::clone(&world.files));
    assert_eq!(same.code(&text).await, None, "it is kept in a file");
    let other = world.beside(Arc::new(asyncgate_auth::MemoryFiles::default()));
    assert_eq!(other.code(&text).await, REFUSED);
}
