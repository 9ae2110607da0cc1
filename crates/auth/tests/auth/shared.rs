//! The shared key, and the mode without credentials.

use asyncgate_api::Code;
use asyncgate_auth::fakes::settings;
use asyncgate_auth::{Settings, platform_admin};
use asyncgate_core::identity::{Role, Scope};
use asyncgate_engine::CredentialKind;

use crate::world::World;

const KEY: &str = "a-shared-key-of-ours";
const WRONG: Option<Code> = Some(Code::Unauthorized);
const LOCKED: Option<Code> = Some(Code::RateLimit);

async fn shared() -> World {
    World::with(Settings {
        shared_key: Some(KEY.to_owned()),
        ..settings()
    })
    .await
}

#[tokio::test]
async fn the_shared_key_is_the_platform_admin_and_nothing_else_is() {
    let world = shared().await;
    let caller = world.check(KEY).await.unwrap();
    assert_eq!(caller, platform_admin());
    assert_eq!(caller.credential.kind, CredentialKind::SharedKey);
    assert!(caller.scopes.contains(Scope::PlatformAdmin));
    for bad in ["", "a-shared-key-of-our", "a-shared-key-of-ours "] {
        assert_eq!(world.code(bad).await, WRONG, "{bad:?}");
    }
    assert!(world.check_none().await.is_err());
    let shown = format!("{:?} {:?}", world.at.auth, world.settings);
    assert!(!shown.contains(KEY), "{shown}");
}

#[tokio::test]
async fn other_kinds_work_beside_it() {
    let world = shared().await;
    let (secret, _) = world.key(Role::Worker, None).await;
    let (macaroon, _) = world.macaroon(&[], 60_000).await;
    let token = world.token(&world.claims());
    for (credential, kind) in [
        (KEY, CredentialKind::SharedKey),
        (&secret, CredentialKind::ApiKey),
        (&macaroon, CredentialKind::Macaroon),
        (&token, CredentialKind::Jwt),
    ] {
        let caller = world.check(credential).await.unwrap();
        assert_eq!(caller.credential.kind, kind);
    }
}

/// A shared key may look like any other credential.
#[tokio::test]
async fn a_shared_key_of_any_form_is_known() {
    for key in ["aga_tooshort", "a.b.c", "AgENotAMacaroon", "MDAxNotOne"] {
        let world = World::with(Settings {
            shared_key: Some(key.to_owned()),
            ..settings()
        })
        .await;
        assert_eq!(world.check(key).await.unwrap(), platform_admin());
    }
}

#[tokio::test]
async fn many_different_wrong_keys_lock_an_address_out() {
    let world = shared().await;
    // They may pretend to be anything.
    let forms = ["guess-", "aga_", "a.b.", "Ag", "MD"];
    for n in 0..20 {
        let guess = format!("{}{n}", forms[n % forms.len()]);
        let code = world.code(&guess).await;
        assert!(code == WRONG || code == Some(Code::ECapAuth), "{guess}");
    }
    assert_eq!(world.code("guess-20").await, LOCKED);
    let fault = world.check(KEY).await.unwrap_err();
    assert_eq!(fault.code, Code::RateLimit, "even the right one");
    assert!(
        fault
            .retry_after_seconds
            .is_some_and(|secs| (1..=61).contains(&secs))
    );
    // Other addresses, and other kinds of credentials, pass.
    assert_eq!(world.code_from(2, KEY).await, None);
    let (secret, _) = world.key(Role::Agent, None).await;
    assert_eq!(world.code(&secret).await, None);
    world.at.clock.advance(60_000);
    assert_eq!(world.code(KEY).await, None);
}

#[tokio::test]
async fn who_has_shown_the_right_key_is_not_kept_out_by_a_neighbour() {
    let world = shared().await;
    assert_eq!(world.code(KEY).await, None);
    for n in 0..100 {
        let code = world.code(&format!("guess-{n}")).await;
        assert_eq!(code, if n < 20 { WRONG } else { LOCKED });
        assert_eq!(world.code(KEY).await, None);
    }
}

#[tokio::test]
async fn a_program_with_an_old_key_is_no_guesser() {
    let world = shared().await;
    for _ in 0..1_000 {
        assert_eq!(world.code("the-key-of-last-year").await, WRONG);
    }
    assert_eq!(world.code(KEY).await, None);
}

#[tokio::test]
async fn insecure_dev_lets_everybody_in_and_knows_who_shows_a_good_credential() {
    let world = World::with(Settings {
        insecure_dev: true,
        ..settings()
    })
    .await;
    for caller in [
        world.check_none().await.unwrap(),
        world.check("whatever").await.unwrap(),
        world
            .check(&format!("aga_{}", "x".repeat(52)))
            .await
            .unwrap(),
    ] {
        assert_eq!(caller.credential.kind, CredentialKind::Dev);
        assert_eq!(caller.principal, platform_admin().principal);
        assert!(caller.runs_the_platform());
    }
    let (secret, _) = world.key(Role::Worker, None).await;
    assert_eq!(world.check(&secret).await.unwrap().role, Role::Worker);
}
