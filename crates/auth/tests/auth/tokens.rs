//! Access tokens: who they let in, and everything that can be wrong with one.

use std::sync::Arc;

use asyncgate_api::Code;
use asyncgate_auth::Settings;
use asyncgate_auth::fakes::{SIGNING_KEYS, settings};
use asyncgate_core::identity::{Record, Role, Scope, Scopes, TokenFamily};
use asyncgate_core::{PrincipalKey, PrincipalKind, TenantId};
use asyncgate_credentials::jwt::{self, Claims, SigningKey};
use asyncgate_engine::CredentialKind;
use asyncgate_engine::fakes::START_MS;
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use crate::world::{TENANT, World, millis, new_id};

const WRONG: Option<Code> = Some(Code::Unauthorized);

#[tokio::test]
async fn a_token_gives_what_its_claims_say_and_no_more() {
    let world = World::new().await;
    let caller = world.check(&world.token(&world.claims())).await.unwrap();
    assert_eq!(caller.tenant, TENANT);
    assert_eq!(caller.principal.key(), world.claims().principal);
    assert_eq!(caller.role, Role::Agent);
    assert_eq!(caller.scopes, Role::Agent.default_scopes());
    assert_eq!(caller.credential.kind, CredentialKind::Jwt);
    assert_eq!(caller.credential.id, None);
    let end = Some(millis(START_MS + 60_000));
    assert_eq!(caller.credential.expires_at, end);

    let worker = world.token(&Claims {
        principal: PrincipalKey {
            kind: PrincipalKind::Worker,
            id: "w".into(),
        },
        scopes: Some(Scopes::of(&[Scope::TasksLease, Scope::TasksWrite])),
        ..world.claims()
    });
    let caller = world.check(&worker).await.unwrap();
    assert_eq!(caller.role, Role::Worker, "its kind's");
    assert_eq!(caller.scopes, Scopes::of(&[Scope::TasksLease]));
}

#[tokio::test]
async fn a_token_ends_at_its_second_whatever_is_remembered() {
    let world = World::new().await;
    let token = world.token(&world.claims());
    assert_eq!(world.code(&token).await, None);
    world.at.clock.advance(59_999);
    assert_eq!(world.code(&token).await, None);
    world.at.clock.advance(1);
    assert_eq!(world.code(&token).await, WRONG);
    assert_eq!(world.code(&token).await, WRONG);
}

/// Returns a token with another header, with the signature that it had.
fn with_header(token: &str, header: &Value) -> String {
    let (_, rest) = token.split_once('.').unwrap();
    let header = BASE64_URL_SAFE_NO_PAD.encode(header.to_string());
    format!("{header}.{rest}")
}

#[tokio::test]
async fn tampered_and_foreign_tokens_are_refused() {
    let world = World::new().await;
    let claims = world.claims();
    let good = world.token(&claims);
    let foreign = SigningKey::from_der(SIGNING_KEYS[1]).unwrap();
    let kid = SigningKey::from_der(SIGNING_KEYS[0]).unwrap();
    let kid = kid.verifying_key().kid().to_owned();
    let foreign = jwt::sign(&foreign, &claims).unwrap();
    let parts: Vec<&str> = good.split('.').collect();
    let admin = Claims {
        role: Some(Role::Admin),
        ..claims.clone()
    };
    let admin = world.token(&admin);
    let swapped = format!(
        "{}.{}.{}",
        parts[0],
        admin.split('.').nth(1).unwrap(),
        parts[2]
    );
    let last = if parts[1].ends_with('A') { "B" } else { "A" };
    let flipped = format!(
        "{}.{}{last}.{}",
        parts[0],
        &parts[1][..parts[1].len() - 1],
        parts[2]
    );
    for (bad, what) in [
        (with_header(&good, &json!({"alg": "none"})), "alg none"),
        (
            format!(
                "{}..",
                with_header(&good, &json!({"alg": "none"}))
                    .split('.')
                    .next()
                    .unwrap()
            ),
            "nothing signed",
        ),
        (
            with_header(&good, &json!({"alg": "HS256", "kid": kid})),
            "another algorithm",
        ),
        (with_header(&good, &json!({"alg": "RS256"})), "no kid"),
        (
            with_header(&good, &json!({"alg": "RS256", "kid": "x"})),
            "wrong kid",
        ),
        (
            with_header(&foreign, &json!({"alg": "RS256", "kid": kid})),
            "signed by another",
        ),
        (foreign.clone(), "another server's"),
        (swapped, "other claims"),
        (flipped, "a changed letter"),
        (good[..good.len() - 2].to_owned(), "cut off"),
        (format!("{}.{}.", parts[0], parts[1]), "no signature"),
        (format!("{good}{}", "x".repeat(9_000)), "too large"),
        ("..".to_owned(), "nothing"),
    ] {
        assert_eq!(world.code(&bad).await, WRONG, "{what}");
    }
    assert_eq!(world.code(&good).await, None);
}

#[tokio::test]
async fn claims_that_do_not_hold_are_refused() {
    let world = World::new().await;
    let claims = world.claims();
    let second = START_MS / 1_000;
    for (bad, what) in [
        (
            Claims {
                issuer: "other".to_owned(),
                ..claims.clone()
            },
            "issuer",
        ),
        (
            Claims {
                audience: vec!["other".to_owned()],
                ..claims.clone()
            },
            "audience",
        ),
        (
            Claims {
                expires_at: second,
                ..claims.clone()
            },
            "expired",
        ),
        (
            Claims {
                not_before: Some(second + 1),
                ..claims.clone()
            },
            "not yet",
        ),
        (
            Claims {
                tenant: TenantId::from_bytes([9; 16]),
                ..claims.clone()
            },
            "tenant",
        ),
        (
            Claims {
                family: Some(new_id().to_string()),
                ..claims.clone()
            },
            "family",
        ),
        (
            Claims {
                family: Some("x".to_owned()),
                ..claims.clone()
            },
            "no family",
        ),
    ] {
        assert_eq!(world.code(&world.token(&bad)).await, WRONG, "{what}");
    }
    let both = Claims {
        audience: vec!["https://x".to_owned(), "asyncgate-api".to_owned()],
        not_before: Some(second),
        ..claims
    };
    assert_eq!(world.code(&world.token(&both)).await, None);
}

fn revoked(world: &World, family: &TokenFamily) -> Record {
    Record::TokenFamily(TokenFamily {
        revoked_at: Some(world.now()),
        ..family.clone()
    })
}

#[tokio::test]
async fn tokens_end_with_their_family() {
    let world = World::new().await;
    let elsewhere = world.beside(Arc::clone(&world.files));
    let family = world.family().await;
    let token = |n: i64| {
        world.token(&Claims {
            family: Some(family.id.to_string()),
            expires_at: START_MS / 1_000 + 600 + n,
            ..world.claims()
        })
    };
    let (one, two) = (token(1), token(2));
    for token in [&one, &two] {
        let caller = world.check(token).await.unwrap();
        assert_eq!(caller.credential.id, Some(family.id));
        assert_eq!(elsewhere.code(token).await, None);
    }
    world.change(revoked(&world, &family)).await;
    for token in [&one, &two] {
        assert_eq!(world.code(token).await, WRONG);
        assert_eq!(elsewhere.code(token).await, None);
    }
    world.at.clock.advance(30_000);
    for token in [&one, &two, &token(3)] {
        assert_eq!(elsewhere.code(token).await, WRONG);
    }
}

#[tokio::test]
async fn a_family_of_another_tenant_is_none() {
    let world = World::new().await;
    let family = world.family().await;
    let other = TenantId::from_bytes([8; 16]);
    world.put_tenant(other, None).await;
    let claims = Claims {
        family: Some(family.id.to_string()),
        ..world.claims()
    };
    let stolen = world.token(&Claims {
        tenant: other,
        ..claims.clone()
    });
    assert_eq!(world.code(&stolen).await, WRONG);
    assert_eq!(world.code(&world.token(&claims)).await, None);
    assert_eq!(world.code(&stolen).await, WRONG, "also once it is known");
}

#[tokio::test]
async fn issuer_and_audience_are_those_of_the_settings() {
    let world = World::with(Settings {
        issuer: "us".to_owned(),
        audience: "them".to_owned(),
        ..settings()
    })
    .await;
    assert_eq!(world.code(&world.token(&world.claims())).await, WRONG);
    let claims = Claims {
        issuer: "us".to_owned(),
        audience: vec!["them".to_owned()],
        ..world.claims()
    };
    assert_eq!(world.code(&world.token(&claims)).await, None);
}
