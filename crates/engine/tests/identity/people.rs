use asyncgate_api::Code;
use asyncgate_core::identity::{Find, Record};
use asyncgate_store::Store as _;
use serde_json::{Value, json};

use crate::world::{World, text};

fn wish(more: Value) -> Value {
    let mut wish =
        json!({"provider": "google", "principal": {"kind": "human", "id": "ada"}, "role": "agent"});
    for (name, value) in more.as_object().unwrap() {
        wish[name] = value.clone();
    }
    wish
}

#[tokio::test]
async fn a_person_is_let_in_once_and_sent_away() {
    let world = World::new().await;
    let input = wish(json!({"email": "Ada@example.com"}));
    let added = world.call(&world.admin, "add_identity", input).await;
    assert_eq!(
        (&added["email"], &added["subject"]),
        (&json!("Ada@example.com"), &json!(null))
    );
    let same = wish(json!({"email": "ada@EXAMPLE.com"}));
    world
        .refuses(&world.admin, "add_identity", same.clone(), Code::Conflict)
        .await;
    // The same person may enter another tenant.
    world.call(&world.other, "add_identity", same).await;
    let id = json!({"identity_id": added["identity_id"]});
    assert_eq!(
        world.call(&world.admin, "get_identity", id.clone()).await,
        added
    );
    let listed = world.call(&world.admin, "list_identities", json!({})).await;
    assert_eq!(listed["identities"], json!([added]));
    for operation in ["get_identity", "remove_identity"] {
        world
            .refuses(&world.other, operation, id.clone(), Code::NotFound)
            .await;
    }
    let removed = world
        .call(&world.admin, "remove_identity", id.clone())
        .await;
    assert_eq!(removed["tokens_revoked"], 0);
    world
        .refuses(&world.admin, "remove_identity", id, Code::NotFound)
        .await;
    let events = world.events(&world.admin).await;
    assert_eq!(events[..2], ["identity_removed", "identity_added"]);
}

#[tokio::test]
async fn a_password_is_hashed_and_not_shown() {
    let world = World::new().await;
    let input = wish(json!({"provider": "local", "subject": "ada", "password": "correct horse"}));
    let added = world.call(&world.admin, "add_identity", input).await;
    assert!(!added.to_string().contains("horse"));
    let id = text(&added["identity_id"]).parse().unwrap();
    let find = Find::id(asyncgate_core::identity::RecordKind::IdentityLink, id);
    let found = world.test.store.identity().record(find).await.unwrap();
    let Some(Record::IdentityLink(link)) = found else {
        panic!("it is stored");
    };
    assert_eq!(link.password_hash.as_deref(), Some("hash of correct horse"));
    let log = json!(world.entries(&world.admin, json!({})).await).to_string();
    assert!(!log.contains("horse"));
}

#[tokio::test]
async fn bad_wishes_are_refused() {
    let world = World::new().await;
    for input in [
        wish(json!({})),
        wish(json!({"subject": "a", "email": "a@b"})),
        wish(json!({"email": "nobody"})),
        wish(json!({"email": "a@b@c"})),
        wish(json!({"subject": "a", "password": "correct horse"})),
        wish(json!({"provider": "local", "subject": "a"})),
        wish(json!({"provider": "local", "subject": "a", "password": "short"})),
        wish(json!({"provider": "local", "email": "a@b", "password": "correct horse"})),
        wish(json!({"subject": "a", "role": "system"})),
    ] {
        world
            .refuses(&world.admin, "add_identity", input, Code::BadRequest)
            .await;
    }
    let above = wish(json!({"subject": "a", "role": "admin", "scopes": ["platform:admin"]}));
    world
        .refuses(&world.admin, "add_identity", above, Code::Forbidden)
        .await;
}
