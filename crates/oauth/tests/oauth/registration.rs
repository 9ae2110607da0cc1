//! Clients that register themselves.

use asyncgate_core::identity::{IdentityLink, Role};
use asyncgate_engine::Remote;
use axum::{body::Body, http::Request};
use serde_json::{Value, json};

use super::{
    browser::Answer,
    world::{
        DAY_MS, LOOPBACK, PASSWORD, REDIRECT, Setup, World, authorize, local, log_in,
        sent_to_client,
    },
};

async fn register(world: &World, metadata: &Value) -> Answer {
    let request = Request::post("/oauth/register").header("content-type", "application/json");
    let request = request.body(Body::from(metadata.to_string())).unwrap();
    world.browser().send(request).await
}

fn metadata(redirect: &str) -> Value {
    json!({
        "client_name": "An MCP client",
        "redirect_uris": [redirect],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
        "scope": "tasks:read tasks:write admin:write unheard_of",
        "software_id": "ignored",
    })
}

#[tokio::test]
async fn a_client_registers_itself_and_gets_what_no_admin_must_look_at() {
    let world = World::new().await;
    world
        .let_in(IdentityLink {
            role: Role::Admin,
            ..local("root")
        })
        .await;
    let answer = register(&world, &metadata(REDIRECT)).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    let client = answer.json();
    assert_eq!(client["scope"], "tasks:read tasks:write");
    assert_eq!(client["token_endpoint_auth_method"], "none");
    assert_eq!(client["redirect_uris"], json!([REDIRECT]));
    assert!(client["client_secret"].is_null());
    let refused = world
        .browser()
        .get(&authorize(&client, &[("scope", "admin:write")]))
        .await;
    assert_eq!(sent_to_client(&refused)["error"], "invalid_scope");
    let mut browser = world.browser();
    let page = browser.get(&authorize(&client, &[])).await;
    let answer = log_in(&mut browser, &page, "root", PASSWORD).await;
    let code = sent_to_client(&answer)["code"].clone();
    let tokens = world.exchange(&client, &code, &[]).await.json();
    assert_eq!(tokens["scope"], "tasks:read tasks:write");
    let listed = world.admin("list_oauth_clients", json!({})).await.unwrap();
    assert_eq!(listed["clients"][0]["dynamic"], true);
}

#[tokio::test]
async fn a_client_without_wishes_has_a_secret_and_the_scopes_of_strangers() {
    let world = World::new().await;
    let least = json!({"redirect_uris": [LOOPBACK]});
    let client = register(&world, &least).await.json();
    assert_eq!(client["token_endpoint_auth_method"], "client_secret_basic");
    assert!(
        client["client_secret"]
            .as_str()
            .unwrap()
            .starts_with("ags_")
    );
    assert_eq!(client["client_secret_expires_at"], 0);
    let scope = client["scope"].as_str().unwrap();
    assert!(scope.contains("tasks:lease") && !scope.contains("admin"));
}

#[tokio::test]
async fn what_cannot_be_registered_is_named_as_the_standard_does() {
    let world = World::new().await;
    for (name, value, error) in [
        ("redirect_uris", json!([]), "invalid_redirect_uri"),
        (
            "redirect_uris",
            json!(["http://a.example"]),
            "invalid_redirect_uri",
        ),
        (
            "redirect_uris",
            json!(["myapp:/cb"]),
            "invalid_redirect_uri",
        ),
        ("redirect_uris", json!("x"), "invalid_client_metadata"),
        ("client_name", json!("a\u{0}b"), "invalid_client_metadata"),
        ("scope", json!("admin:write"), "invalid_client_metadata"),
        (
            "token_endpoint_auth_method",
            json!("private_key_jwt"),
            "invalid_client_metadata",
        ),
        (
            "grant_types",
            json!(["implicit"]),
            "invalid_client_metadata",
        ),
        (
            "response_types",
            json!(["token"]),
            "invalid_client_metadata",
        ),
    ] {
        let mut metadata = metadata(REDIRECT);
        metadata[name] = value.clone();
        // Each from an address of its own, or the limit would answer first.
        world.clock.advance(61_000);
        let answer = register(&world, &metadata).await;
        assert_eq!(answer.status, 400, "{name}={value}");
        assert_eq!(answer.error(), error, "{name}={value}");
    }
}

#[tokio::test]
async fn strangers_register_few_clients_which_are_forgotten() {
    let world = World::new().await;
    let from = async |address: [u8; 4]| {
        let remote = Remote::Network((address, 4_000).into());
        let metadata = metadata(LOOPBACK);
        remote.scope(register(&world, &metadata)).await
    };
    let mut clients = Vec::new();
    for _ in 0..10 {
        clients.push(from([192, 0, 2, 1]).await.json());
    }
    let refused = from([192, 0, 2, 1]).await;
    assert_eq!(refused.status, 429);
    assert_ne!(refused.header("retry-after"), "");
    assert_eq!(from([192, 0, 2, 2]).await.status, 201);
    world.clock.advance(DAY_MS);
    let path = authorize(&clients[0], &[("redirect_uri", LOOPBACK)]);
    let gone = world.browser().get(&path).await;
    assert_eq!(
        (gone.status.as_u16(), gone.error()),
        (400, "invalid_request".to_owned())
    );
    let listed = world.admin("list_oauth_clients", json!({})).await.unwrap();
    assert_eq!(listed["clients"], json!([]));
}

#[tokio::test]
async fn registration_can_be_switched_off() {
    let world = World::with(Setup {
        dynamic_registration: false,
        ..Setup::default()
    });
    let answer = register(&world, &metadata(REDIRECT)).await;
    assert_eq!(answer.status, 404);
    let metadata = world
        .browser()
        .get("/.well-known/oauth-authorization-server")
        .await;
    assert!(metadata.json().get("registration_endpoint").is_none());
}

#[tokio::test]
async fn a_tenant_that_is_not_there_takes_no_clients() {
    let world = World::with(Setup {
        registration_tenant: "nobody".to_owned(),
        ..Setup::default()
    });
    let answer = register(&world, &metadata(REDIRECT)).await;
    assert_eq!(
        (answer.status.as_u16(), answer.error()),
        (403, "access_denied".to_owned())
    );
}
