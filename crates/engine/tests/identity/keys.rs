use asyncgate_api::Code;
use asyncgate_core::identity::{RecordKey, RecordKind};
use asyncgate_credentials::Caveat;
use asyncgate_engine::{Caller, Caveats, Credential, CredentialKind, Role};
use serde_json::json;

use crate::world::{World, caller, text, worker_key};

const NOBODY: &str = "01920000-0000-7000-8000-000000000000";

#[tokio::test]
async fn a_key_is_shown_once() {
    let world = World::new().await;
    let mut wish = worker_key();
    wish["label"] = json!("a laptop");
    wish["expires_in_secs"] = json!(60);
    let made = world.call(&world.admin, "create_key", wish).await;
    assert!(text(&made["key"]).starts_with("aga_"));
    assert_eq!(made["tenant_id"], world.admin.tenant.to_string());
    assert_eq!(made["principal"], json!({"kind": "worker", "id": "w1"}));
    let defaults = json!([
        "tasks:lease",
        "receipts:read",
        "mailbox:send",
        "mailbox:recv"
    ]);
    assert_eq!(
        (&made["role"], &made["scopes"]),
        (&json!("worker"), &defaults)
    );

    let listed = world.call(&world.admin, "list_keys", json!({})).await;
    let listed = &listed["keys"][0];
    assert_eq!(listed["key_id"], made["key_id"]);
    assert_eq!(listed["label"], "a laptop");
    assert_eq!(listed["expires_at"], made["expires_at"]);
    for secret in [text(&made["key"]), "hash of".to_owned(), "check".to_owned()] {
        assert!(!listed.to_string().contains(&secret), "{listed}");
    }
    assert_eq!(world.events(&world.admin).await[0], "key_created");
    let log = world.entries(&world.admin, json!({})).await;
    assert!(!json!(log).to_string().contains("aga_"));
}

#[tokio::test]
async fn scopes_outside_of_the_role_are_taken_and_give_nothing() {
    let world = World::new().await;
    let mut wish = worker_key();
    wish["scopes"] = json!(["tasks:lease", "host:use", "platform:admin", "admin:write"]);
    let made = world.call(&world.admin, "create_key", wish).await;
    assert_eq!(made["scopes"], json!(["tasks:lease", "host:use"]));
}

#[tokio::test]
async fn nobody_gives_away_what_it_does_not_have() {
    let world = World::new().await;
    let wish = json!({
        "principal": {"kind": "human", "id": "eve"},
        "role": "admin",
        "scopes": ["admin:write", "platform:admin"],
    });
    let fault = world
        .refused(&world.admin, "create_key", wish.clone())
        .await;
    assert_eq!(fault.code, Code::Forbidden);
    assert_eq!(fault.details["required_scope"], "platform:admin");
    assert_eq!(fault.details["your_role"], "admin");
    let made = world.call(&world.root, "create_key", wish).await;
    // An admin of the same tenant cannot get at that key by rotating it, nor take it away.
    let lesser = caller(world.root.tenant, Role::Admin);
    let key = json!({"key_id": made["key_id"]});
    for operation in ["rotate_key", "revoke_key"] {
        let refused = world.refused(&lesser, operation, key.clone()).await;
        assert_eq!(refused.code, Code::Forbidden, "{operation}");
    }
    world.call(&world.root, "rotate_key", key).await;
}

#[tokio::test]
async fn a_narrowed_macaroon_makes_nothing_that_is_not() {
    let world = World::new().await;
    let with = |list: Vec<Caveat>| {
        let caveats = Caveats {
            list,
            quotas: Vec::new(),
            ..Caveats::default()
        };
        let credential = Credential {
            caveats: Some(caveats.into()),
            ..Credential::of_kind(CredentialKind::Macaroon)
        };
        Caller {
            credential,
            ..world.admin.clone()
        }
    };
    let end = Caveat::parse("time < 2027-01-01T00:00:00Z");
    let narrowed = with(vec![end.clone(), Caveat::parse("op = create_key")]);
    world
        .refuses(&narrowed, "create_key", worker_key(), Code::ECapScope)
        .await;
    world
        .call(&with(vec![end]), "create_key", worker_key())
        .await;
}

#[tokio::test]
async fn bad_wishes_are_refused() {
    let world = World::new().await;
    let with = |field: &str, value: serde_json::Value| {
        let mut wish = worker_key();
        wish[field] = value;
        wish
    };
    for wish in [
        with("role", json!("system")),
        with("role", json!("boss")),
        with("principal", json!({"kind": "system", "id": "asyncgate"})),
        with("principal", json!({"kind": "worker", "id": ""})),
        with("principal", json!({"kind": "worker", "id": "a\nb"})),
        with("scopes", json!(["tasks:everything"])),
        with("expires_in_secs", json!(0)),
        with("expires_at", json!("2000-01-01T00:00:00Z")),
        with("expires_at", json!("tomorrow")),
        with("label", json!("")),
        with("tenant_id", json!("acme")),
        with("colour", json!("blue")),
    ] {
        world
            .refuses(&world.admin, "create_key", wish, Code::BadRequest)
            .await;
    }
    let mut both = with("expires_in_secs", json!(5));
    both["expires_at"] = json!("2100-01-01T00:00:00Z");
    world
        .refuses(&world.admin, "create_key", both, Code::BadRequest)
        .await;
    let worker = caller(world.admin.tenant, Role::Worker);
    world
        .refuses(&worker, "create_key", worker_key(), Code::Forbidden)
        .await;
    let unknown = with("tenant_id", json!(NOBODY));
    world
        .refuses(&world.root, "create_key", unknown, Code::NotFound)
        .await;
}

#[tokio::test]
async fn a_rotated_key_ends_after_the_overlap() {
    let world = World::new().await;
    let old = world.key(&world.admin).await;
    let input = json!({"key_id": old["key_id"], "overlap_secs": 60});
    let new = world.call(&world.admin, "rotate_key", input.clone()).await;
    assert_eq!(new["replaces"], old["key_id"]);
    assert_eq!(new["old_expires_at"], "2026-01-05T11:01:00.000Z");
    assert_ne!(new["key"], old["key"]);
    assert_eq!(new["scopes"], old["scopes"]);
    let forgotten = world.test.keyring.take_forgotten();
    let key = RecordKey {
        kind: RecordKind::ApiKey,
        id: text(&old["key_id"]).parse().unwrap(),
    };
    assert_eq!(forgotten, [key]);
    world
        .refuses(&world.admin, "rotate_key", input, Code::Conflict)
        .await;
    let listed = world.call(&world.admin, "list_keys", json!({})).await;
    assert_eq!(listed["keys"][0]["replaced_by"], new["key_id"]);
    assert_eq!(listed["keys"][1]["replaced_by"], json!(null));
}

#[tokio::test]
async fn revoking_is_idempotent_and_counts_at_once() {
    let world = World::new().await;
    let made = world.key(&world.admin).await;
    let key = json!({"key_id": made["key_id"]});
    let first = world.call(&world.admin, "revoke_key", key.clone()).await;
    assert_eq!(world.test.keyring.take_forgotten().len(), 1);
    world.test.clock.advance(5_000);
    let again = world.call(&world.admin, "revoke_key", key).await;
    assert_eq!(first, again);
    let events = world.events(&world.admin).await;
    let revoked = events.iter().filter(|event| *event == "key_revoked");
    assert_eq!(revoked.count(), 1);
}

#[tokio::test]
async fn the_last_key_of_a_platform_admin_cannot_be_revoked() {
    let world = World::new().await;
    let wish = json!({
        "principal": {"kind": "human", "id": "root"},
        "role": "admin",
        "scopes": ["admin:write", "platform:admin"],
    });
    let first = world.call(&world.root, "create_key", wish.clone()).await;
    let revoke = json!({"key_id": first["key_id"]});
    world
        .refuses(&world.root, "revoke_key", revoke.clone(), Code::Conflict)
        .await;
    world.call(&world.root, "create_key", wish).await;
    world.call(&world.root, "revoke_key", revoke).await;
}

#[tokio::test]
async fn another_tenants_key_is_like_one_that_does_not_exist() {
    let world = World::new().await;
    let theirs = world.key(&world.other).await;
    for operation in ["rotate_key", "revoke_key"] {
        let there = json!({"key_id": theirs["key_id"]});
        let there = world.refused(&world.admin, operation, there).await;
        let nowhere = json!({ "key_id": NOBODY });
        let nowhere = world.refused(&world.admin, operation, nowhere).await;
        assert_eq!(there.code, Code::NotFound, "{operation}");
        assert_eq!(there.message, nowhere.message);
        assert_eq!(there.details, nowhere.details);
    }
    let listed = world.call(&world.admin, "list_keys", json!({})).await;
    assert_eq!(listed["keys"], json!([]));
    // A platform admin finds it, whether it names the tenant or not.
    let named = json!({"key_id": theirs["key_id"], "tenant_id": world.other.tenant.to_string()});
    world.call(&world.root, "rotate_key", named).await;
    let unnamed = json!({"key_id": theirs["key_id"]});
    world.call(&world.root, "revoke_key", unnamed).await;
    let elsewhere =
        json!({"key_id": theirs["key_id"], "tenant_id": world.admin.tenant.to_string()});
    world
        .refuses(&world.root, "revoke_key", elsewhere, Code::NotFound)
        .await;
}

#[tokio::test]
async fn keys_are_listed_page_by_page() {
    let world = World::new().await;
    let mut made = Vec::new();
    for _ in 0..5 {
        made.push(world.key(&world.admin).await["key_id"].clone());
        world.key(&world.other).await;
    }
    let mut found = Vec::new();
    let mut input = json!({"limit": 2});
    loop {
        let page = world.call(&world.admin, "list_keys", input.clone()).await;
        let keys = page["keys"].as_array().unwrap();
        assert!(keys.len() <= 2);
        found.extend(keys.iter().map(|key| key["key_id"].clone()));
        if page["next_cursor"].is_null() {
            break;
        }
        input["cursor"] = page["next_cursor"].clone();
    }
    assert_eq!(found, made);
    let named = json!({"tenant_id": world.other.tenant.to_string()});
    let listed = world.call(&world.root, "list_keys", named).await;
    assert_eq!(listed["keys"].as_array().unwrap().len(), 5);
}
