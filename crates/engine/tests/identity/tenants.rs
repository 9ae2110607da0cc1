use asyncgate_api::Code;
use serde_json::json;

use crate::world::{World, text};

#[tokio::test]
async fn a_tenant_has_a_name_of_its_own_and_the_quotas_of_its_tier() {
    let world = World::new().await;
    let input = json!({"name": "trial", "tier": "paid", "quotas": {"active_tasks": 5, "tasks_per_hour": -1}});
    let made = world
        .call(&world.root, "create_tenant", input.clone())
        .await;
    assert_eq!(
        (&made["tier"], &made["suspended"]),
        (&json!("paid"), &json!(false))
    );
    assert_eq!(made["quotas"]["active_tasks"], 5);
    assert_eq!(made["quotas"]["tasks_per_hour"], -1);
    assert_eq!(made["quotas"]["concurrent_leases"], 100);
    world
        .refuses(&world.root, "create_tenant", input, Code::Conflict)
        .await;
    let log = json!({"tenant_id": made["tenant_id"]});
    let entries = world.entries(&world.root, log).await;
    assert_eq!(entries[0]["event"], "tenant_created");
    let details = &entries[0]["details"];
    assert_eq!(details["actor_tenant_id"], world.root.tenant.to_string());
}

#[tokio::test]
async fn only_a_platform_admin_manages_tenants() {
    let world = World::new().await;
    let own = json!({"tenant_id": world.admin.tenant.to_string()});
    let found = world.call(&world.admin, "get_tenant", own.clone()).await;
    assert_eq!(found["name"], "acme");
    let theirs = json!({"tenant_id": world.other.tenant.to_string()});
    for (operation, input) in [
        ("create_tenant", json!({"name": "mine"})),
        ("list_tenants", json!({})),
        ("change_tenant", own),
        ("get_tenant", theirs.clone()),
        (
            "get_tenant",
            json!({"tenant_id": "01920000-0000-7000-8000-000000000000"}),
        ),
    ] {
        world
            .refuses(&world.admin, operation, input, Code::Forbidden)
            .await;
    }
    world.call(&world.root, "get_tenant", theirs).await;
    let listed = world.call(&world.root, "list_tenants", json!({})).await;
    let names: Vec<_> = listed["tenants"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| text(&it["name"]))
        .collect();
    assert_eq!(names, ["default", "acme", "other"]);
}

#[tokio::test]
async fn a_change_leaves_what_it_does_not_name() {
    let world = World::new().await;
    let id = world.admin.tenant.to_string();
    let change = async |mut input: serde_json::Value| {
        input["tenant_id"] = json!(id);
        world.call(&world.root, "change_tenant", input).await
    };
    let changed = change(json!({"quotas": {"active_tasks": 3, "lease_ttl_secs": 60}})).await;
    assert_eq!(changed["quotas"]["active_tasks"], 3);
    let changed = change(json!({"tier": "enterprise", "quotas": {"lease_ttl_secs": null}})).await;
    assert_eq!(changed["quotas"]["active_tasks"], 3);
    assert_eq!(changed["quotas"]["lease_ttl_secs"], -1);
    assert_eq!(changed["quotas"]["api_calls_per_hour"], -1);
    world.test.keyring.take_forgotten();
    let changed = change(json!({"suspended": true})).await;
    assert_eq!(
        (&changed["suspended"], &changed["tier"]),
        (&json!(true), &json!("enterprise"))
    );
    assert_eq!(world.test.keyring.take_forgotten().len(), 1);
    let before = world.events(&world.admin).await.len();
    change(json!({"suspended": true})).await;
    assert_eq!(world.events(&world.admin).await.len(), before);
    assert_eq!(
        change(json!({"suspended": false})).await["suspended"],
        false
    );
}

#[tokio::test]
async fn bad_changes_are_refused() {
    let world = World::new().await;
    let id = world.admin.tenant.to_string();
    for (input, code) in [
        (json!({"tenant_id": id, "tier": "gold"}), Code::BadRequest),
        (
            json!({"tenant_id": id, "quotas": {"tasks": 5}}),
            Code::BadRequest,
        ),
        (
            json!({"tenant_id": id, "quotas": {"active_tasks": -2}}),
            Code::BadRequest,
        ),
        (
            json!({"tenant_id": id, "quotas": {"payload_bytes": 0}}),
            Code::BadRequest,
        ),
        (
            json!({"tenant_id": "01920000-0000-7000-8000-000000000000"}),
            Code::NotFound,
        ),
        (
            json!({"tenant_id": world.root.tenant.to_string(), "suspended": true}),
            Code::Conflict,
        ),
    ] {
        world
            .refuses(&world.root, "change_tenant", input, code)
            .await;
    }
    for name in ["", "none", "a\nb", "01920000-0000-7000-8000-000000000000"] {
        let input = json!({ "name": name });
        world
            .refuses(&world.root, "create_tenant", input, Code::BadRequest)
            .await;
    }
}
