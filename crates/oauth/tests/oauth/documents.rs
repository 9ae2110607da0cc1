//! The documents by which clients find their way.

use asyncgate_oauth::PATHS;
use serde_json::json;

use super::{
    browser::BASE,
    keyring::keys,
    world::{Setup, World},
};

#[tokio::test]
async fn the_server_describes_itself() {
    let world = World::new().await;
    let answer = world
        .browser()
        .get("/.well-known/oauth-authorization-server")
        .await;
    assert_eq!(answer.header("cache-control"), "public, max-age=300");
    let metadata = answer.json();
    assert_eq!(metadata["issuer"], BASE);
    for (name, path) in [
        ("authorization_endpoint", "/oauth/authorize"),
        ("token_endpoint", "/oauth/token"),
        ("revocation_endpoint", "/oauth/revoke"),
        ("registration_endpoint", "/oauth/register"),
        ("jwks_uri", "/oauth/jwks"),
    ] {
        assert_eq!(metadata[name], format!("{BASE}{path}"));
        assert!(PATHS.contains(&path));
    }
    assert_eq!(metadata["client_id_metadata_document_supported"], true);
    assert_eq!(metadata["response_types_supported"], json!(["code"]));
    assert_eq!(
        metadata["code_challenge_methods_supported"],
        json!(["S256"])
    );
    assert_eq!(
        metadata["authorization_response_iss_parameter_supported"],
        true
    );
    assert_eq!(
        metadata["grant_types_supported"],
        json!(["authorization_code", "refresh_token"])
    );
}

#[tokio::test]
async fn resources_name_their_authorization_server() {
    let world = World::with(Setup {
        public_url: Some("https://gate.example".to_owned()),
        ..Setup::default()
    });
    for (suffix, resource) in [
        ("", "https://gate.example"),
        ("/mcp", "https://gate.example/mcp"),
    ] {
        let path = format!("/.well-known/oauth-protected-resource{suffix}");
        let metadata = world.browser().get(&path).await.json();
        assert_eq!(metadata["resource"], resource);
        assert_eq!(
            metadata["authorization_servers"],
            json!(["https://gate.example"])
        );
        let scopes = metadata["scopes_supported"].as_array().unwrap();
        assert!(scopes.contains(&json!("tasks:read")));
        assert!(
            !scopes
                .iter()
                .any(|scope| scope.as_str().unwrap().contains("admin"))
        );
    }
}

#[tokio::test]
async fn keys_are_published_in_two_places() {
    let world = World::new().await;
    for path in ["/oauth/jwks", "/.well-known/jwks.json"] {
        let answer = world.browser().get(path).await;
        assert_eq!(answer.json(), keys().to_jwks());
        assert!(answer.header("x-corr-id").len() > 8);
    }
}
