use asyncgate_api::Code;
use asyncgate_engine::{Caller, Credential, CredentialKind};
use serde_json::{Value, json};

use crate::world::{World, text, worker_key};

fn using(caller: &Caller, key: &Value) -> Caller {
    let credential = Credential {
        id: text(&key["key_id"]).parse().ok(),
        ..Credential::of_kind(CredentialKind::ApiKey)
    };
    Caller {
        credential,
        ..caller.clone()
    }
}

async fn live(world: &World, caller: &Caller) -> Vec<Value> {
    let listed = world.call(caller, "list_keys", json!({"limit": 200})).await;
    let keys = listed["keys"].as_array().unwrap().iter();
    keys.filter(|key| key["revoked_at"].is_null())
        .cloned()
        .collect()
}

#[tokio::test]
async fn all_credentials_of_a_tenant_end_but_the_one_in_use() {
    let world = World::new().await;
    let own = world.key(&world.admin).await;
    // More than one step.
    for _ in 0..120 {
        world.key(&world.admin).await;
    }
    world.key(&world.other).await;
    let macaroon = json!({"principal": {"kind": "agent", "id": "a"}, "caveats": []});
    world.call(&world.admin, "create_macaroon", macaroon).await;
    world.test.keyring.take_forgotten();
    let admin = using(&world.admin, &own);
    let mut events = world.test.engine.events().subscribe(world.admin.tenant);
    let ended = world
        .call(&admin, "revoke_all_credentials", json!({}))
        .await;
    assert_eq!(
        (&ended["keys"], &ended["macaroons"]),
        (&json!(120), &json!(1))
    );
    let kept = json!([{"key_id": own["key_id"], "reason": "own"}]);
    assert_eq!(ended["kept"], kept);
    assert_eq!(world.test.keyring.take_forgotten().len(), 121);
    assert_eq!(live(&world, &world.admin).await.len(), 1);
    assert_eq!(live(&world, &world.other).await.len(), 1);
    let (_, told) = events.next().await.unwrap();
    assert_eq!(
        (told.topic, &told.body["keys"]),
        ("identity.incident", &json!(120))
    );
    let again = world
        .call(&admin, "revoke_all_credentials", json!({}))
        .await;
    assert_eq!((&again["keys"], &again["kept"]), (&json!(0), &kept));
}

#[tokio::test]
async fn those_of_one_principal_end_alone() {
    let world = World::new().await;
    world.key(&world.admin).await;
    let mut wish = worker_key();
    wish["principal"]["id"] = json!("w2");
    let stays = world.call(&world.admin, "create_key", wish).await;
    let input = json!({"principal": {"kind": "worker", "id": "w1"}});
    let ended = world
        .call(&world.admin, "revoke_all_credentials", input)
        .await;
    assert_eq!(ended["keys"], 1);
    let left = live(&world, &world.admin).await;
    assert_eq!(left.len(), 1);
    assert_eq!(left[0]["key_id"], stays["key_id"]);
}

#[tokio::test]
async fn a_forced_rotation_gives_keys_an_end() {
    let world = World::new().await;
    let key = world.key(&world.admin).await;
    let input = json!({"overlap_secs": 3600, "tenant_id": world.admin.tenant.to_string()});
    let ended = world.call(&world.root, "rotate_all_keys", input).await;
    assert_eq!((&ended["keys"], &ended["kept"]), (&json!(1), &json!([])));
    let listed = world.call(&world.admin, "list_keys", json!({})).await;
    assert_eq!(listed["keys"][0]["key_id"], key["key_id"]);
    assert_eq!(listed["keys"][0]["expires_at"], ended["expires_at"]);
    assert_eq!(ended["expires_at"], "2026-01-05T12:00:00.000Z");
    assert_eq!(world.events(&world.admin).await[0], "key_rotated");
}

#[tokio::test]
async fn one_platform_admin_is_left() {
    let world = World::new().await;
    let wish = json!({
        "principal": {"kind": "human", "id": "root"},
        "role": "admin",
        "scopes": ["admin:write", "platform:admin"],
    });
    let mut made = Vec::new();
    for _ in 0..3 {
        made.push(world.call(&world.root, "create_key", wish.clone()).await);
    }
    let ended = world
        .call(&world.root, "revoke_all_credentials", json!({}))
        .await;
    assert_eq!(ended["keys"], 2);
    let kept = json!([{"key_id": made[2]["key_id"], "reason": "last_platform_admin"}]);
    assert_eq!(ended["kept"], kept);
}

#[tokio::test]
async fn nobody_ends_the_credentials_of_another_tenant() {
    let world = World::new().await;
    let theirs = json!({"tenant_id": world.other.tenant.to_string()});
    for operation in ["revoke_all_credentials", "rotate_all_keys"] {
        world
            .refuses(&world.admin, operation, theirs.clone(), Code::Forbidden)
            .await;
    }
}
