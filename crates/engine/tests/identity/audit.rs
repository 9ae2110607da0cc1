use asyncgate_api::Code;
use asyncgate_engine::{Role, fakes::START_MS};
use serde_json::{Value, json};

use crate::world::{World, caller, text, worker_key};

const DAY_MS: i64 = 86_400_000;

#[tokio::test]
async fn the_log_is_read_newest_first_with_filters_and_pages() {
    let world = World::new().await;
    let key = world.key(&world.admin).await;
    world.test.clock.advance(60_000);
    world.key(&world.admin).await;
    let revoke = json!({"key_id": key["key_id"]});
    world.call(&world.admin, "revoke_key", revoke).await;
    let all = [
        "key_revoked",
        "key_created",
        "key_created",
        "tenant_created",
    ];
    assert_eq!(world.events(&world.admin).await, all);
    for (filter, expected) in [
        (json!({"event": "key_created"}), 2),
        (json!({"principal_id": "admin", "event": "key_revoked"}), 1),
        (json!({"principal_id": "nobody"}), 0),
        (json!({"since": "2026-01-05T11:01:00Z"}), 2),
        (json!({"until": "2026-01-05T11:00:59Z"}), 2),
        (json!({"severity": "info"}), 4),
        (json!({"severity": "critical"}), 0),
    ] {
        let found = world.entries(&world.admin, filter.clone()).await;
        assert_eq!(found.len(), expected, "{filter}");
    }
    let page = world
        .call(&world.admin, "list_audit", json!({"limit": 3}))
        .await;
    let rest = json!({"limit": 3, "cursor": page["next_cursor"]});
    let rest = world.call(&world.admin, "list_audit", rest).await;
    assert_eq!(rest["entries"].as_array().unwrap().len(), 1);
    assert_eq!(rest["next_cursor"], json!(null));
    for wrong in [
        json!({"event": "party"}),
        json!({"severity": "mild"}),
        json!({"since": "yesterday"}),
        json!({"cursor": "x"}),
        json!({"tenant_id": "acme"}),
    ] {
        world
            .refuses(&world.admin, "list_audit", wrong, Code::BadRequest)
            .await;
    }
}

#[tokio::test]
async fn the_server_has_a_log_of_its_own_for_platform_admins() {
    let world = World::new().await;
    let none = json!({"tenant_id": "none"});
    assert_eq!(
        world.entries(&world.root, none.clone()).await,
        [] as [Value; 0]
    );
    world
        .refuses(&world.admin, "list_audit", none, Code::Forbidden)
        .await;
    let theirs = json!({"tenant_id": world.admin.tenant.to_string()});
    let theirs = world.entries(&world.root, theirs).await;
    let events: Vec<_> = theirs.iter().map(|entry| text(&entry["event"])).collect();
    assert_eq!(events, ["authz_failure", "tenant_created"]);
}

#[tokio::test]
async fn to_name_another_tenant_is_an_alarm() {
    let world = World::new().await;
    let mut wish = worker_key();
    wish["tenant_id"] = json!(world.other.tenant.to_string());
    let fault = world
        .refused(&world.admin, "create_key", wish.clone())
        .await;
    assert_eq!(fault.code, Code::Forbidden);
    assert_eq!(fault.details["your_role"], "admin");
    // Whether the tenant exists is not told.
    wish["tenant_id"] = json!("01920000-0000-7000-8000-000000000000");
    let nowhere = world.refused(&world.admin, "create_key", wish).await;
    assert_eq!(
        (fault.message, fault.details),
        (nowhere.message, nowhere.details)
    );
    let critical = json!({"severity": "critical"});
    let own = world.entries(&world.admin, critical).await;
    assert_eq!(own.len(), 1);
    assert_eq!(own[0]["event"], "authz_failure");
    assert_eq!(own[0]["details"]["operation"], "create_key");
    let servers = world
        .entries(&world.root, json!({"tenant_id": "none"}))
        .await;
    assert_eq!(servers[0]["severity"], "critical");
    assert_eq!(
        servers[0]["details"]["tenant_id"],
        world.admin.tenant.to_string()
    );
    // The tenant that was named learns nothing.
    assert_eq!(world.events(&world.other).await, ["tenant_created"]);
}

#[tokio::test]
async fn refusals_for_lack_of_rights_are_recorded_once_a_minute() {
    let world = World::new().await;
    let worker = caller(world.admin.tenant, Role::Worker);
    let task = json!({"type": "t"});
    for _ in 0..50 {
        world
            .refuses(&worker, "create_task", task.clone(), Code::Forbidden)
            .await;
    }
    let failures = json!({"event": "authz_failure"});
    let found = world.entries(&world.admin, failures.clone()).await;
    assert_eq!(found.len(), 1);
    assert_eq!(found[0]["severity"], "warning");
    assert_eq!(
        (&found[0]["principal_kind"], &found[0]["principal_id"]),
        (&json!("human"), &json!("worker"))
    );
    let details = &found[0]["details"];
    assert_eq!(
        (&details["operation"], &details["required_role"]),
        (&json!("create_task"), &json!("agent"))
    );
    world.test.clock.advance(61_000);
    world
        .refuses(&worker, "create_task", task, Code::Forbidden)
        .await;
    let found = world.entries(&world.admin, failures).await;
    assert_eq!(found.len(), 3);
    let repeated = found
        .iter()
        .find_map(|entry| entry["details"]["repeated"].as_str());
    assert_eq!(repeated, Some("49"));
}

#[tokio::test]
async fn admission_tells_what_was_changed() {
    let world = World::new().await;
    let tier = json!({"client": "10.0.0.1", "tier": "throttled", "reason": "too\nfast"});
    world.call(&world.admin, "set_tier", tier).await;
    let hash = "ab".repeat(32);
    let subject = json!({"kind": "holder_key", "hash": hash});
    world
        .call(&world.admin, "host_revoke", json!({ "subject": subject }))
        .await;
    world.call(&world.admin, "host_unrevoke", subject).await;
    world.call(&world.admin, "read_ledger", json!({})).await;
    let events = world.events(&world.admin).await;
    assert_eq!(
        events[..4],
        [
            "data_exported",
            "revocation_removed",
            "revocation_added",
            "tier_changed"
        ]
    );
    let entry = &world
        .entries(&world.admin, json!({"event": "tier_changed"}))
        .await[0];
    assert_eq!(entry["reason"], "too\\u{a}fast");
    assert_eq!(
        entry["details"],
        json!({"client": "10.0.0.1", "tier": "throttled"})
    );
}

#[tokio::test]
async fn entries_are_forgotten_when_they_are_old_enough() {
    let world = World::new().await;
    // More than one step of the retention.
    for _ in 0..300 {
        world.key(&world.admin).await;
    }
    world.test.clock.set(START_MS + 60 * DAY_MS);
    let late = world.key(&world.admin).await;
    world.test.engine.forget_now().await.unwrap();
    let counted = async || {
        let mut filter = json!({"limit": 200});
        let mut count = 0;
        loop {
            let page = world.call(&world.admin, "list_audit", filter.clone()).await;
            count += page["entries"].as_array().unwrap().len();
            if page["next_cursor"].is_null() {
                return count;
            }
            filter["cursor"] = page["next_cursor"].clone();
        }
    };
    assert_eq!(counted().await, 302);
    world.test.clock.set(START_MS + 91 * DAY_MS);
    world.test.engine.forget_now().await.unwrap();
    assert_eq!(counted().await, 1);
    let left = world.entries(&world.admin, json!({})).await;
    assert_eq!(text(&left[0]["details"]["key_id"]), text(&late["key_id"]));
}

#[tokio::test]
async fn records_whose_time_is_over_are_forgotten() {
    let world = World::new().await;
    let wish =
        json!({"principal": {"kind": "agent", "id": "a"}, "caveats": [], "expires_in_secs": 60});
    let made = world.call(&world.admin, "create_macaroon", wish).await;
    let id = json!({"macaroon_id": made["macaroon_id"]});
    world.test.clock.advance(61_000);
    world.test.engine.forget_now().await.unwrap();
    world
        .refuses(&world.admin, "revoke_macaroon", id, Code::NotFound)
        .await;
}

#[tokio::test]
async fn whoami_says_who_is_asking() {
    let world = World::new().await;
    let answer = world.call(&world.root, "whoami", json!({})).await;
    assert_eq!(answer["tenant_id"], world.root.tenant.to_string());
    assert_eq!(answer["principal"], json!({"kind": "human", "id": "admin"}));
    assert_eq!(
        (&answer["role"], &answer["credential"]),
        (&json!("admin"), &json!("api_key"))
    );
    assert!(
        answer["scopes"]
            .as_array()
            .unwrap()
            .contains(&json!("platform:admin"))
    );
    assert_eq!(
        (&answer["expires_at"], &answer["caveats"]),
        (&json!(null), &json!([]))
    );
    let worker = caller(world.admin.tenant, Role::Worker);
    assert_eq!(
        world.call(&worker, "whoami", json!({})).await["role"],
        "worker"
    );
}
