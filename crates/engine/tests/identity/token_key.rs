use asyncgate_api::Code;
use serde_json::{Value, json};

use crate::world::{World, text};

#[tokio::test]
async fn a_platform_admin_has_tokens_signed_with_another_key() {
    let world = World::new().await;
    let rotate = async || world.call(&world.root, "rotate_token_key", json!({})).await;
    let first = rotate().await;
    assert_eq!(first["replaces"], Value::Null);
    let second = rotate().await;
    assert_eq!(second["replaces"], first["kid"]);
    assert_eq!(world.test.keyring.token_key(), Some(text(&second["kid"])));
    for tenant in [json!("none"), json!(world.root.tenant.to_string())] {
        let filter = json!({"tenant_id": tenant, "event": "key_rotated"});
        let entries = world.entries(&world.root, filter).await;
        let kids: Vec<_> = entries.iter().map(|it| &it["details"]["kid"]).collect();
        assert_eq!(kids, [&second["kid"], &first["kid"]]);
        assert_eq!(entries[0]["details"]["key"], "token_key");
    }
}

#[tokio::test]
async fn nobody_else_does() {
    let world = World::new().await;
    world
        .refuses(&world.admin, "rotate_token_key", json!({}), Code::Forbidden)
        .await;
    assert_eq!(world.test.keyring.token_key(), None);
}
