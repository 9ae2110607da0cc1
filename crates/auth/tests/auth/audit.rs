//! What the audit logs are told of credentials.

use asyncgate_auth::Settings;
use asyncgate_auth::fakes::settings;
use asyncgate_core::identity::audit::Event;
use asyncgate_core::identity::{DEFAULT_TENANT, Role};

use crate::world::{TENANT, World, guess, principal, tenant};

#[tokio::test]
async fn a_credential_has_one_entry_when_it_is_proved() {
    let world = World::new().await;
    let (secret, key) = world.key(Role::Agent, None).await;
    let (macaroon, minted) = world.macaroon(&[], 600_000).await;
    let token = world.token(&world.claims());
    for _ in 0..3 {
        for credential in [&secret, &macaroon, &token] {
            world.check(credential).await.unwrap();
        }
        world.at.clock.advance(10_000);
    }
    let entries = world.entries(Some(TENANT), Event::AuthSuccess).await;
    assert_eq!(entries.len(), 3, "{entries:?}");
    let ids = [Some(key.id), Some(minted.id), None];
    let kinds = ["api_key", "macaroon", "jwt"];
    for (entry, (kind, id)) in entries.iter().zip(kinds.iter().zip(ids)) {
        let said = &entry.said;
        assert_eq!(said.principal, Some(principal("alice")));
        assert_eq!(said.ip, Some([10, 0, 0, 1].into()));
        assert_eq!(said.user_agent.as_deref(), Some("tester/1"));
        assert_eq!(said.corr_id.as_deref(), Some("c-1"));
        let details: serde_json::Value = serde_json::from_str(said.details.text()).unwrap();
        assert_eq!(details["credential"], *kind);
        let id = id.map(|id| id.to_string());
        assert_eq!(details["credential_id"].as_str(), id.as_deref());
    }
    // When its record is read again it is the same proof.
    world.at.clock.advance(60_000);
    world.check(&secret).await.unwrap();
    let entries = world.entries(Some(TENANT), Event::AuthSuccess).await;
    assert_eq!(entries.len(), 3);
    // What nobody has used for long has to be proved again.
    world.at.clock.advance(4_000_000);
    world.at.auth.tend_once(0).await;
    world.check(&secret).await.unwrap();
    let entries = world.entries(Some(TENANT), Event::AuthSuccess).await;
    assert_eq!(entries.len(), 4);
}

#[tokio::test]
async fn a_refused_client_has_one_entry_a_minute_in_the_right_log() {
    let world = World::new().await;
    let (secret, key) = world.key(Role::Agent, None).await;
    for n in 0..50 {
        world.code(&guess(&secret, n)).await;
        world.code(&format!("nonsense-{n}")).await;
    }
    world.check_none().await.unwrap_err();
    let of_tenant = world.entries(Some(TENANT), Event::AuthFailure).await;
    let of_server = world.entries(None, Event::AuthFailure).await;
    assert_eq!((of_tenant.len(), of_server.len()), (1, 2));
    let said = &of_tenant[0].said;
    assert_eq!(said.principal, Some(principal("alice")));
    assert_eq!(
        said.reason.as_deref(),
        Some("the secret of the key is wrong")
    );
    assert_eq!(said.ip, Some([10, 0, 0, 1].into()));
    let said = &of_server[0].said;
    assert_eq!(
        (&said.principal, said.user_agent.as_deref()),
        (&None, Some("tester/1"))
    );
    assert_eq!(
        of_server[1].said.reason.as_deref(),
        Some("there is no credential")
    );

    world.at.clock.advance(60_000);
    world.revoke(&key).await;
    world.code(&secret).await;
    let of_tenant = world.entries(Some(TENANT), Event::AuthFailure).await;
    assert_eq!(of_tenant.len(), 2);
    let said = &of_tenant[1].said;
    assert_eq!(said.reason.as_deref(), Some("it was revoked"));
    let details = said.details.text();
    assert!(details.contains("\"49\""), "{details}");

    world.change(tenant(TENANT, Some(world.now()))).await;
    world.at.clock.advance(60_000);
    let (suspended, _) = world.key(Role::Agent, None).await;
    world.code(&suspended).await;
    let of_tenant = world.entries(Some(TENANT), Event::AuthFailure).await;
    let reason = of_tenant[2].said.reason.as_deref();
    assert_eq!(reason, Some("the tenant is suspended"));
    let successes = world.entries(Some(TENANT), Event::AuthSuccess).await;
    assert!(successes.is_empty(), "{successes:?}");
}

#[tokio::test]
async fn no_entry_holds_a_credential() {
    let shared_key = "a-shared-key-of-ours".to_owned();
    let world = World::with(Settings {
        shared_key: Some(shared_key.clone()),
        ..settings()
    })
    .await;
    let (key, _) = world.key(Role::Agent, None).await;
    let (macaroon, _) = world.macaroon(&["op = send"], 60_000).await;
    let token = world.token(&world.claims());
    let shown = [shared_key, key.clone(), macaroon, token];
    for credential in &shown {
        world.check(credential).await.unwrap();
        world.code(&format!("{credential}x")).await;
    }
    world.code(&guess(&key, 7)).await;
    let mut all = String::new();
    for log in [None, Some(TENANT), Some(DEFAULT_TENANT)] {
        for event in [Event::AuthSuccess, Event::AuthFailure] {
            for entry in world.entries(log, event).await {
                all += &format!("{entry:?} {}\n", entry.said.details.text());
            }
        }
    }
    assert!(all.contains("shared_key") && all.contains("jwt"), "{all}");
    for credential in &shown {
        for part in credential.split('.') {
            assert!(!all.contains(part), "{part} in {all}");
        }
    }
    assert!(!all.contains(&key[16..]) && !all.contains(&guess(&key, 7)[16..]));
}
