//! The way from a client's request to tokens that are refreshed and revoked.

use asyncgate_core::identity::{DEFAULT_TENANT, Role, Scope, Scopes, audit::Event};
use asyncgate_engine::fakes::START_MS;
use serde_json::json;

use super::{
    browser::BASE,
    keyring::read,
    world::{DAY_MS, PASSWORD, World, authorize, local, log_in, sent_to_client},
};

#[tokio::test]
async fn a_person_logs_in_and_the_client_acts_for_them() {
    let world = World::new().await;
    let client = world.client(false).await;
    assert!(client["client_secret"].is_null());
    let mut browser = world.browser();
    let page = browser.get(&authorize(&client, &[])).await;
    assert_eq!(page.status, 200);
    assert!(page.body.contains("My &lt;Agent&gt;"), "{}", page.body);
    assert!(
        page.body.contains("https://client.example<"),
        "{}",
        page.body
    );
    assert!(!page.body.contains("<script"));

    let answer = log_in(&mut browser, &page, "ada", PASSWORD).await;
    assert_eq!(answer.status, 303);
    let code = sent_to_client(&answer)["code"].clone();
    assert!(browser.cookies.is_empty(), "the login is forgotten");

    let answer = world.exchange(&client, &code, &[]).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.header("cache-control"), "no-store");
    let tokens = answer.json();
    assert_eq!(tokens["token_type"], "Bearer");
    assert_eq!(tokens["expires_in"], 30 * 86_400);
    assert_eq!(tokens["scope"], "tasks:read tasks:write");

    let claims = read(tokens["access_token"].as_str().unwrap(), world.now()).unwrap();
    assert_eq!(claims.subject, local("ada").id.to_string());
    assert_eq!(claims.tenant, DEFAULT_TENANT);
    assert_eq!(&*claims.principal.id, "ada");
    assert_eq!(claims.role, Some(Role::Agent));
    assert_eq!(
        claims.scopes,
        Some(Scopes::of(&[Scope::TasksRead, Scope::TasksWrite]))
    );
    assert_eq!(claims.audience, ["asyncgate-api"]);
    assert_eq!(claims.issued_at, START_MS / 1_000);
    assert_eq!(claims.expires_at, START_MS / 1_000 + 30 * 86_400);
    assert_eq!(claims.client_id.as_deref(), client["client_id"].as_str());
    assert!(claims.token_id.is_some());
    let family = world.family(claims.family.as_ref().unwrap()).await;
    assert_eq!(family.revoked_at, None);

    world.clock.advance(20 * DAY_MS);
    let refresh = tokens["refresh_token"].as_str().unwrap();
    let again = world.refresh(&client, refresh, &[]).await;
    assert_eq!(again.status, 200, "{again:?}");
    let renewed = again.json();
    assert_ne!(renewed["refresh_token"], tokens["refresh_token"]);
    let newer = read(renewed["access_token"].as_str().unwrap(), world.now()).unwrap();
    assert_eq!(newer.family, claims.family);
    assert_ne!(newer.token_id, claims.token_id);

    let form = [
        ("client_id", client["client_id"].as_str().unwrap()),
        ("token", renewed["refresh_token"].as_str().unwrap()),
    ];
    let revoked = world.browser().post("/oauth/revoke", &form).await;
    assert_eq!((revoked.status.as_u16(), revoked.body.as_str()), (200, ""));
    let family = world.family(claims.family.as_ref().unwrap()).await;
    assert_eq!(family.revoked_at, Some(world.now()));
    let refused = world
        .refresh(&client, renewed["refresh_token"].as_str().unwrap(), &[])
        .await;
    assert_eq!(
        (refused.status.as_u16(), refused.error()),
        (400, "invalid_grant".to_owned())
    );
    assert_eq!(
        world.events().await,
        [
            Event::ClientRegistered,
            Event::AuthSuccess,
            Event::TokenIssued,
            Event::TokenRefreshed,
            Event::TokenRevoked,
            Event::AuthFailure,
        ]
    );
}

#[tokio::test]
async fn a_token_is_for_the_resource_that_was_asked_for() {
    let world = World::new().await;
    let client = world.client(false).await;
    let mcp = format!("{BASE}/mcp");
    let mut browser = world.browser();
    let path = authorize(&client, &[("resource", &mcp)]);
    let page = browser.get(&path).await;
    let answer = log_in(&mut browser, &page, "ada", PASSWORD).await;
    let code = sent_to_client(&answer)["code"].clone();
    let other = world.exchange(&client, &code, &[("resource", BASE)]).await;
    assert_eq!(other.error(), "invalid_target");
    let foreign = [("resource", "https://elsewhere.example")];
    let foreign = world.exchange(&client, &code, &foreign).await;
    assert_eq!(foreign.error(), "invalid_target");
    let tokens = world.exchange(&client, &code, &[("resource", &mcp)]).await;
    let tokens = tokens.json();
    let claims = read(tokens["access_token"].as_str().unwrap(), world.now()).unwrap();
    assert_eq!(claims.audience, ["asyncgate-api", mcp.as_str()]);
    let refresh = tokens["refresh_token"].as_str().unwrap();
    let renewed = world.refresh(&client, refresh, &[]).await.json();
    let claims = read(renewed["access_token"].as_str().unwrap(), world.now()).unwrap();
    assert_eq!(claims.audience, ["asyncgate-api", mcp.as_str()]);
}

#[tokio::test]
async fn a_confidential_client_shows_its_secret_in_a_header_or_in_the_form() {
    use axum::{body::Body, http::Request};
    use base64::{Engine as _, prelude::BASE64_STANDARD};

    let world = World::new().await;
    let client = world.client(true).await;
    let secret = client["client_secret"].as_str().unwrap();
    let code = world.code(&client).await;
    for wrong in ["", "wrong", &secret[1..]] {
        let refused = world
            .exchange(&client, &code, &[("client_secret", wrong)])
            .await;
        assert_eq!(
            (refused.status.as_u16(), refused.error()),
            (401, "invalid_client".to_owned())
        );
        assert_eq!(
            refused.header("www-authenticate"),
            "Basic realm=\"asyncgate\""
        );
    }
    let good = world
        .exchange(&client, &code, &[("client_secret", secret)])
        .await;
    let refresh = good.json()["refresh_token"].as_str().unwrap().to_owned();
    let basic = format!("{}:{secret}", client["client_id"].as_str().unwrap());
    let request = Request::post("/oauth/token")
        .header(
            "content-type",
            "application/x-www-form-urlencoded; charset=utf-8",
        )
        .header(
            "authorization",
            format!("Basic {}", BASE64_STANDARD.encode(basic)),
        );
    let form = format!("grant_type=refresh_token&refresh_token={refresh}");
    let request = request.body(Body::from(form)).unwrap();
    let renewed = world.browser().send(request).await;
    assert_eq!(renewed.status, 200, "{renewed:?}");
}

#[tokio::test]
async fn an_access_token_can_be_revoked_as_well_and_what_is_none_is_no_error() {
    let world = World::new().await;
    let client = world.client(false).await;
    let tokens = world.tokens(&client).await;
    let id = client["client_id"].as_str().unwrap();
    let access = tokens["access_token"].as_str().unwrap();
    let claims = read(access, world.now()).unwrap();
    let family = claims.family.unwrap();
    for nothing in ["nothing", "a.b.c", "agr_x"] {
        let form = [("client_id", id), ("token", nothing)];
        let answer = world.browser().post("/oauth/revoke", &form).await;
        assert_eq!(answer.status, 200, "{nothing}");
    }
    let other = world.client(false).await;
    let other_id = other["client_id"].as_str().unwrap();
    let form = [("client_id", other_id), ("token", access)];
    let refused = world.browser().post("/oauth/revoke", &form).await;
    assert_eq!(refused.error(), "invalid_grant");
    assert_eq!(world.family(&family).await.revoked_at, None);
    let form = [
        ("client_id", id),
        ("token", access),
        ("token_type_hint", "access_token"),
    ];
    let answer = world.browser().post("/oauth/revoke", &form).await;
    assert_eq!(answer.status, 200);
    assert!(world.family(&family).await.revoked_at.is_some());
    let forgotten = world.keyring.forgotten.lock().unwrap().clone();
    assert!(forgotten.iter().any(|key| key.id.to_string() == family));
    let missing = world
        .browser()
        .post("/oauth/revoke", &[("client_id", id)])
        .await;
    assert_eq!(missing.error(), "invalid_request");
}

#[tokio::test]
async fn no_secret_is_stored_or_audited() {
    let world = World::new().await;
    let client = world.client(true).await;
    let secret = client["client_secret"].as_str().unwrap().to_owned();
    let code = world.code(&client).await;
    let proof = [("client_secret", secret.as_str())];
    let tokens = world.exchange(&client, &code, &proof).await.json();
    let refresh = tokens["refresh_token"].as_str().unwrap().to_owned();
    world.refresh(&client, &refresh, &proof).await;
    world.refresh(&client, &refresh, &proof).await;
    world
        .exchange(&client, &code, &[("client_secret", "wrong")])
        .await;
    let mut browser = world.browser();
    let page = browser.get(&authorize(&client, &[])).await;
    log_in(&mut browser, &page, "ada", "a wrong password").await;

    let mut text = String::new();
    for tenant in [Some(DEFAULT_TENANT), None] {
        for entry in world.audited(tenant).await {
            text.push_str(&format!("{entry:?} {}\n", entry.said.details.text()));
        }
    }
    for kind in asyncgate_core::identity::RecordKind::ALL {
        use asyncgate_store::{Store as _, identity::RecordFilter};
        let filter = RecordFilter::of_tenant(kind, DEFAULT_TENANT, 1_000);
        for record in world.store.identity().records(filter).await.unwrap() {
            text.push_str(&record.to_text().unwrap());
        }
    }
    assert!(text.contains("TokenReuseDetected") && text.contains("refresh_token"));
    for secret in [
        secret.as_str(),
        &code,
        &refresh,
        tokens["access_token"].as_str().unwrap(),
        PASSWORD,
        "a wrong password",
    ] {
        // The beginning is the same for all of a kind.
        assert!(!text.contains(&secret[4..]), "{secret}");
    }
    assert!(json!(text).to_string().len() > 1_000);
}
