//! Clients, as admins look after them.

use asyncgate_core::{
    PrincipalKind, TenantId,
    identity::{DEFAULT_TENANT, Record, TenantRecord, audit::Event},
};
use asyncgate_engine::{Caller, Principal, Role};
use serde_json::{Value, json};

use super::{
    keyring::read,
    world::{LOOPBACK, REDIRECT, World, admin},
};

#[tokio::test]
async fn a_client_is_registered_shown_and_removed() {
    let world = World::new().await;
    let made = world.client(true).await;
    assert!(made["client_secret"].as_str().unwrap().starts_with("ags_"));
    assert_eq!(made["redirect_uris"], json!([REDIRECT, LOOPBACK]));
    let id = json!({"client_id": made["client_id"]});
    let shown = world.admin("get_oauth_client", id.clone()).await.unwrap();
    assert_eq!(shown["client_name"], "My <Agent>");
    assert_eq!(shown["confidential"], true);
    assert_eq!(shown["dynamic"], false);
    assert!(shown.get("client_secret").is_none());
    let tokens = {
        let code = world.code(&made).await;
        let secret = made["client_secret"].as_str().unwrap();
        let answer = world
            .exchange(&made, &code, &[("client_secret", secret)])
            .await;
        answer.json()
    };
    let claims = read(tokens["access_token"].as_str().unwrap(), world.now()).unwrap();
    let removed = world
        .admin("remove_oauth_client", id.clone())
        .await
        .unwrap();
    assert_eq!(removed["tokens_revoked"], 1);
    assert!(
        world
            .family(&claims.family.unwrap())
            .await
            .revoked_at
            .is_some()
    );
    for operation in ["get_oauth_client", "remove_oauth_client"] {
        let gone = world.admin(operation, id.clone()).await;
        assert_eq!(gone, Err("NOT_FOUND".to_owned()));
    }
    let secret = made["client_secret"].as_str().unwrap();
    let refresh = tokens["refresh_token"].as_str().unwrap();
    let refused = world
        .refresh(&made, refresh, &[("client_secret", secret)])
        .await;
    assert_eq!(
        (refused.status.as_u16(), refused.error()),
        (401, "invalid_client".to_owned())
    );
    let events = world.events().await;
    assert_eq!(events.first(), Some(&Event::ClientRegistered));
    for event in [Event::ClientRemoved, Event::TokenRevoked] {
        assert!(events.contains(&event), "{events:?}");
    }
}

#[tokio::test]
async fn clients_are_listed_page_by_page() {
    let world = World::new().await;
    for _ in 0..5 {
        world.client(false).await;
    }
    let (mut ids, mut cursor) = (Vec::new(), Value::Null);
    loop {
        let input = json!({"limit": 2, "cursor": cursor});
        let page = world.admin("list_oauth_clients", input).await.unwrap();
        let clients = page["clients"].as_array().unwrap();
        assert!(clients.len() <= 2);
        ids.extend(clients.iter().map(|client| client["client_id"].to_string()));
        cursor = page["next_cursor"].clone();
        if cursor.is_null() {
            break;
        }
    }
    ids.dedup();
    assert_eq!(ids.len(), 5);
}

#[tokio::test]
async fn bad_clients_are_refused() {
    let world = World::new().await;
    let good = json!({"client_name": "x", "redirect_uris": [REDIRECT], "scopes": ["tasks:read"]});
    for (name, value) in [
        ("client_name", json!("")),
        ("client_name", json!("a\nb")),
        ("redirect_uris", json!([])),
        ("redirect_uris", json!(["http://client.example/cb"])),
        ("redirect_uris", json!(["https://client.example/cb#x"])),
        ("redirect_uris", json!(["javascript:alert(1)"])),
        ("scopes", json!([])),
        ("scopes", json!(["nonsense"])),
        ("unknown", json!(1)),
        ("tenant_id", json!("nobody")),
    ] {
        let mut input = good.clone();
        input[name] = value.clone();
        let refused = world.admin("create_oauth_client", input).await;
        assert_eq!(refused, Err("BAD_REQUEST".to_owned()), "{name}={value}");
    }
    assert!(world.admin("create_oauth_client", good).await.is_ok());
}

#[tokio::test]
async fn clients_of_another_tenant_are_not_there() {
    let world = World::new().await;
    let client = world.client(false).await;
    let other = TenantId::from_bytes([8; 16]);
    let record = TenantRecord {
        id: other,
        name: "other".to_owned(),
        ..TenantRecord::built_in()
    };
    world.put(vec![Record::Tenant(record)]).await;
    let (stranger, platform) = (admin(other), admin(other).with_platform());
    let id = json!({"client_id": client["client_id"]});
    for operation in ["get_oauth_client", "remove_oauth_client"] {
        let unseen = world.call(&stranger, operation, id.clone()).await;
        assert_eq!(unseen, Err("NOT_FOUND".to_owned()));
        let mut named = id.clone();
        named["tenant_id"] = json!(DEFAULT_TENANT.to_string());
        let crossing = world.call(&stranger, operation, named).await;
        assert_eq!(crossing, Err("FORBIDDEN".to_owned()));
    }
    let listed = world.call(&stranger, "list_oauth_clients", json!({})).await;
    assert_eq!(listed.unwrap()["clients"], json!([]));
    let seen = world.call(&platform, "get_oauth_client", id.clone()).await;
    assert_eq!(seen.unwrap()["tenant_id"], DEFAULT_TENANT.to_string());
    let named = json!({"tenant_id": DEFAULT_TENANT.to_string()});
    let listed = world.call(&platform, "list_oauth_clients", named).await;
    assert_eq!(listed.unwrap()["clients"].as_array().unwrap().len(), 1);
    let nowhere = json!({"tenant_id": TenantId::from_bytes([5; 16]).to_string()});
    let unknown = world.call(&platform, "list_oauth_clients", nowhere).await;
    assert_eq!(unknown, Err("NOT_FOUND".to_owned()));
}

#[tokio::test]
async fn only_admins_look_after_clients() {
    let world = World::new().await;
    for role in [Role::Agent, Role::Worker] {
        let principal = Principal::new(PrincipalKind::Agent, "ann");
        let caller = Caller::new(DEFAULT_TENANT, principal, role);
        for (operation, input) in [
            ("list_oauth_clients", json!({})),
            ("get_oauth_client", json!({"client_id": "x"})),
            ("remove_oauth_client", json!({"client_id": "x"})),
            ("create_oauth_client", json!({})),
        ] {
            let refused = world.call(&caller, operation, input).await;
            assert_eq!(refused, Err("FORBIDDEN".to_owned()), "{operation}");
        }
    }
}
