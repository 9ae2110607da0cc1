//! The token route with everything that can be wrong.

use asyncgate_core::identity::{
    Changes, Find, Record, RecordKey, RecordKind, TenantRecord, audit::Event,
};
use axum::{body::Body, http::Request};

use super::{
    keyring::read,
    world::{DAY_MS, LOOPBACK, VERIFIER, World, local},
};

#[tokio::test]
async fn a_code_that_comes_again_ends_what_came_of_it() {
    let world = World::new().await;
    let client = world.client(false).await;
    let code = world.code(&client).await;
    let tokens = world.exchange(&client, &code, &[]).await.json();
    let family = read(tokens["access_token"].as_str().unwrap(), world.now());
    let family = family.unwrap().family.unwrap();
    let again = world.exchange(&client, &code, &[]).await;
    assert_eq!(
        (again.status.as_u16(), again.error()),
        (400, "invalid_grant".to_owned())
    );
    assert!(world.family(&family).await.revoked_at.is_some());
    let forgotten = world.keyring.forgotten.lock().unwrap().clone();
    assert!(forgotten.contains(&RecordKey {
        kind: RecordKind::TokenFamily,
        id: family.parse().unwrap(),
    }));
    let refresh = tokens["refresh_token"].as_str().unwrap();
    assert_eq!(
        world.refresh(&client, refresh, &[]).await.error(),
        "invalid_grant"
    );
    assert!(world.events().await.contains(&Event::TokenReuseDetected));
}

#[tokio::test]
async fn a_refresh_token_that_comes_again_ends_its_family() {
    let world = World::new().await;
    let client = world.client(false).await;
    let tokens = world.tokens(&client).await;
    let first = tokens["refresh_token"].as_str().unwrap();
    let second = world.refresh(&client, first, &[]).await.json();
    let second = second["refresh_token"].as_str().unwrap();
    assert_eq!(
        world.refresh(&client, first, &[]).await.error(),
        "invalid_grant"
    );
    assert_eq!(
        world.refresh(&client, second, &[]).await.error(),
        "invalid_grant"
    );
    assert!(world.events().await.contains(&Event::TokenReuseDetected));
}

#[tokio::test]
async fn two_exchanges_at_once_give_tokens_once() {
    let world = World::new().await;
    let client = world.client(false).await;
    let code = world.code(&client).await;
    let (one, two) = tokio::join!(
        world.exchange(&client, &code, &[]),
        world.exchange(&client, &code, &[]),
    );
    let mut statuses = [one.status.as_u16(), two.status.as_u16()];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 400]);
}

#[tokio::test]
async fn a_code_is_good_for_a_minute_with_all_that_belongs_to_it() {
    let world = World::new().await;
    let client = world.client(false).await;
    let other = world.client(false).await;
    let other_id = other["client_id"].as_str().unwrap();
    let code = world.code(&client).await;
    let long = "a".repeat(129);
    for (name, value, status, error) in [
        (
            "code_verifier",
            "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXX",
            400,
            "invalid_grant",
        ),
        ("code_verifier", "short", 400, "invalid_grant"),
        ("code_verifier", long.as_str(), 400, "invalid_grant"),
        ("code_verifier", "", 400, "invalid_request"),
        ("redirect_uri", LOOPBACK, 400, "invalid_grant"),
        ("redirect_uri", "https://evil.example", 400, "invalid_grant"),
        ("redirect_uri", "", 400, "invalid_request"),
        ("client_id", other_id, 400, "invalid_grant"),
        (
            "client_id",
            "019a2f6e-0000-7000-8000-000000000001",
            401,
            "invalid_client",
        ),
        (
            "client_id",
            "'; drop table clients; --",
            401,
            "invalid_client",
        ),
        ("client_id", "", 401, "invalid_client"),
        ("code", "agc_unknown", 400, "invalid_grant"),
        ("code", "", 400, "invalid_request"),
        ("grant_type", "password", 400, "unsupported_grant_type"),
        (
            "grant_type",
            "client_credentials",
            400,
            "unsupported_grant_type",
        ),
        ("grant_type", "", 400, "invalid_request"),
        ("resource", "https://evil.example", 400, "invalid_target"),
    ] {
        let answer = world.exchange(&client, &code, &[(name, value)]).await;
        let got = (answer.status.as_u16(), answer.error());
        assert_eq!(got, (status, error.to_owned()), "{name}={value}");
    }
    // All refusals of the code itself sound the same.
    let wrong = world
        .exchange(&client, &code, &[("redirect_uri", LOOPBACK)])
        .await;
    let unknown = world.exchange(&client, "agc_unknown", &[]).await;
    assert_eq!(wrong.json()["message"], unknown.json()["message"]);
    world.clock.advance(59_999);
    assert_eq!(world.exchange(&client, &code, &[]).await.status, 200);
    let late = world.code(&client).await;
    world.clock.advance(60_000);
    assert_eq!(
        world.exchange(&client, &late, &[]).await.error(),
        "invalid_grant"
    );
}

#[tokio::test]
async fn a_refresh_can_ask_for_less_but_not_for_more() {
    let world = World::new().await;
    let client = world.client(false).await;
    let tokens = world.tokens(&client).await;
    let refresh = tokens["refresh_token"].as_str().unwrap();
    let more = [("scope", "tasks:read admin:write")];
    let refused = world.refresh(&client, refresh, &more).await;
    assert_eq!(refused.error(), "invalid_scope");
    let less = world
        .refresh(&client, refresh, &[("scope", "tasks:read")])
        .await;
    assert_eq!(less.json()["scope"], "tasks:read");
}

#[tokio::test]
async fn tokens_end_with_the_person_the_client_and_the_tenant() {
    let world = World::new().await;
    let client = world.client(false).await;
    let refreshed = async |world: &World, token: &str| {
        let answer = world.refresh(&client, token, &[]).await;
        answer.json()
    };
    let tokens = world.tokens(&client).await;
    let refresh = tokens["refresh_token"].as_str().unwrap();

    let tenant = world.find(Find::tenant_named("default")).await.unwrap();
    let tenant = tenant.into_tenant().unwrap();
    let suspended = TenantRecord {
        suspended_at: Some(world.now()),
        ..tenant.clone()
    };
    world.put(vec![Record::Tenant(suspended)]).await;
    assert_eq!(refreshed(&world, refresh).await["error"], "invalid_grant");
    world.put(vec![Record::Tenant(tenant)]).await;
    let renewed = refreshed(&world, refresh).await;
    let refresh = renewed["refresh_token"].as_str().unwrap();

    let person = Record::IdentityLink(local("ada"));
    world
        .change(Changes {
            removed: vec![person.key()],
            ..Changes::default()
        })
        .await;
    assert_eq!(refreshed(&world, refresh).await["error"], "invalid_grant");
    world.put(vec![person]).await;
    let renewed = refreshed(&world, refresh).await;
    let refresh = renewed["refresh_token"].as_str().unwrap();

    world.clock.advance(90 * DAY_MS);
    assert_eq!(refreshed(&world, refresh).await["error"], "invalid_grant");
}

#[tokio::test]
async fn what_is_no_form_or_says_something_twice_is_refused() {
    let world = World::new().await;
    let client = world.client(false).await;
    let code = world.code(&client).await;
    let id = client["client_id"].as_str().unwrap();
    let twice = [
        ("grant_type", "authorization_code"),
        ("code", code.as_str()),
        ("code", code.as_str()),
        ("client_id", id),
        ("code_verifier", VERIFIER),
        ("redirect_uri", super::world::REDIRECT),
    ];
    let answer = world.browser().post("/oauth/token", &twice).await;
    assert_eq!(answer.error(), "invalid_request");
    let json = Request::post("/oauth/token").header("content-type", "application/json");
    let json = json.body(Body::from("{}")).unwrap();
    assert_eq!(world.browser().send(json).await.error(), "invalid_request");
    let bytes =
        Request::post("/oauth/token").header("content-type", "application/x-www-form-urlencoded");
    let bytes = bytes
        .body(Body::from("grant_type=%ff&client_id=x"))
        .unwrap();
    let answer = world.browser().send(bytes).await;
    assert_eq!(answer.error(), "unsupported_grant_type");
    let large =
        Request::post("/oauth/token").header("content-type", "application/x-www-form-urlencoded");
    let large = large.body(Body::from(vec![b'a'; 100_000])).unwrap();
    assert_eq!(world.browser().send(large).await.status, 413);
}
