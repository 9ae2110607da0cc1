//! Quotas by the hour: buckets, headers, refusals.

use std::sync::Arc;

use asyncgate_api::Code;
use asyncgate_core::identity::{Quota, QuotaName, Quotas, TenantTier, audit::Event};
use asyncgate_engine::{Role, Settings, TenantSettings, with_rate_headers};
use serde_json::json;

use crate::world::{ACME, OTHER, World, admin, named};

#[tokio::test]
async fn a_tenant_makes_as_many_calls_in_an_hour_as_its_tier_allows() {
    let world = World::bounded(&[(QuotaName::ApiCallsPerHour, 100)]).await;
    let (ann, list) = (admin(ACME), || json!({}));
    for left in (0..100).rev() {
        let headers = world.headers(&ann, "list_tasks", list()).await;
        assert_eq!(
            headers.get("x-ratelimit-remaining"),
            Some(&*left.to_string())
        );
        assert_eq!(headers.get("x-ratelimit-limit"), Some("100"));
        let bucket = format!("tenant:{ACME}:api_calls");
        assert_eq!(headers.get("x-ratelimit-bucket"), Some(&*bucket));
        let policy = "\"api_calls_per_hour\";q=100;w=3600";
        assert_eq!(headers.get("ratelimit-policy"), Some(policy));
    }
    let refused = world.call("list_tasks", list()).await.unwrap_err();
    assert_eq!(refused.code, Code::RateLimit);
    for (name, value) in [
        ("error", json!("rate_limit_exceeded")),
        ("retry_after", json!(36)),
        ("limit", json!(100)),
        ("window", json!("1h")),
        ("quota", json!("api_calls_per_hour")),
    ] {
        assert_eq!(refused.details[name], value, "{name}");
    }
    assert_eq!(refused.retry_after_seconds, Some(36));
    // Another tenant has calls of its own; and one comes back every 36 seconds.
    let other = world.headers(&admin(OTHER), "list_tasks", list()).await;
    assert!(other.is_empty(), "{other:?}");
    world.test.clock.advance(36_000);
    world.call("list_tasks", list()).await.unwrap();
    assert!(world.call("list_tasks", list()).await.is_err());
    let entries = world.audited(Event::RateLimitExceeded).await;
    assert_eq!(entries.len(), 1, "one for each minute");
}

#[tokio::test]
async fn the_tightest_bucket_is_told_and_all_policies() {
    let world = World::bounded(&[
        (QuotaName::ApiCallsPerHour, 100),
        (QuotaName::PrincipalApiCallsPerHour, 10),
        (QuotaName::TasksPerHour, 3),
    ])
    .await;
    let (ann, bob) = (admin(ACME), named(ACME, "bob", Role::Admin));
    let task = || json!({"type": "echo"});
    let bucket =
        |headers: &crate::world::Headers| headers.get("x-ratelimit-bucket").unwrap().to_owned();
    let created = world.headers(&ann, "create_task", task()).await;
    assert_eq!(bucket(&created), format!("tenant:{ACME}:tasks"));
    let all = "\"api_calls_per_hour\";q=100;w=3600, \"principal_api_calls_per_hour\";q=10;w=3600, \
               \"tasks_per_hour\";q=3;w=3600";
    assert_eq!(created.get("ratelimit-policy"), Some(all));
    assert_eq!(
        created.get("ratelimit"),
        Some("\"tasks_per_hour\";r=2;t=1200")
    );
    let listed = world.headers(&ann, "list_tasks", json!({})).await;
    assert_eq!(bucket(&listed), "principal:agent/ann:api_calls");
    for _ in 0..2 {
        world.create().await.unwrap();
    }
    let refused = world.create().await.unwrap_err();
    assert_eq!(refused.details["quota"], "tasks_per_hour");
    // A refused call was charged to none of its buckets, and others go on.
    let listed = world.headers(&ann, "list_tasks", json!({})).await;
    assert_eq!(listed.get("x-ratelimit-remaining"), Some("5"));
    let of_bob = world.headers(&bob, "list_tasks", json!({})).await;
    assert_eq!(of_bob.get("x-ratelimit-remaining"), Some("9"));
}

#[tokio::test]
async fn a_batch_of_tasks_costs_as_many_as_it_brings() {
    let world = World::bounded(&[
        (QuotaName::ApiCallsPerHour, 100),
        (QuotaName::TasksPerHour, 5),
    ])
    .await;
    let batch = |count: usize| json!({ "tasks": vec![json!({ "type": "echo" }); count] });
    world.call("create_tasks", batch(3)).await.unwrap();
    let refused = world.call("create_tasks", batch(3)).await.unwrap_err();
    assert_eq!(refused.code, Code::RateLimit);
    assert_eq!(refused.details["quota"], "tasks_per_hour");
    // No wait helps a batch that is larger than the whole quota.
    let refused = world.call("create_tasks", batch(6)).await.unwrap_err();
    assert_eq!(refused.code, Code::LimitExceeded);
    let ann = named(ACME, "ann", Role::Admin);
    let made = world.headers(&ann, "create_tasks", batch(2)).await;
    assert_eq!(made.get("x-ratelimit-remaining"), Some("0"));
    assert!(world.create().await.is_err());
}

#[tokio::test]
async fn every_answer_to_a_limited_tenant_has_headers() {
    let world = World::bounded(&[(QuotaName::ApiCallsPerHour, 100)]).await;
    let worker = named(ACME, "w", Role::Worker);
    for (caller, operation, input) in [
        // Not allowed, not read, not found, done.
        (&worker, "create_task", json!({"type": "echo"})),
        (&admin(ACME), "create_task", json!({"typ": 1})),
        (
            &admin(ACME),
            "get_task",
            json!({"task_id": "01890000-0000-7000-8000-000000040001"}),
        ),
        (
            &admin(ACME),
            "mailbox_send",
            json!({"topic": "t", "idem_key": "k"}),
        ),
        (&admin(ACME), "get_config", json!({})),
    ] {
        let headers = world.headers(caller, operation, input).await;
        assert_eq!(headers.get("x-ratelimit-limit"), Some("100"), "{operation}");
    }
    // A facade whose request made no call asks for them.
    let (_, noted) = with_rate_headers(world.test.engine.note_limits(&worker)).await;
    assert!(
        noted
            .iter()
            .any(|(name, _)| *name == "x-ratelimit-remaining")
    );
    let called = world.call("list_tasks", json!({}));
    let (_, noted) = with_rate_headers(called).await;
    let left = noted
        .iter()
        .find(|(name, _)| *name == "x-ratelimit-remaining");
    // Four calls were charged before: the one that was not allowed cost nothing.
    assert_eq!(left.unwrap().1, "95");
    let unlimited = named(OTHER, "w", Role::Worker);
    let (_, noted) = with_rate_headers(world.test.engine.note_limits(&unlimited)).await;
    assert!(noted.is_empty());
}

#[tokio::test]
async fn the_settings_give_tiers_their_quotas_and_can_be_changed() {
    let settings = |limits_rates, calls| {
        let mut tenants = TenantSettings {
            limits_rates,
            ..TenantSettings::default()
        };
        tenants.tiers[TenantTier::Free as usize] =
            Quotas::default().with(QuotaName::ApiCallsPerHour, Quota::AtMost(calls));
        Settings {
            tenants: Arc::new(tenants),
            ..Settings::default()
        }
    };
    let world = World::with(settings(true, 2));
    world.tenant(ACME, TenantTier::Free, &[]).await;
    let ann = admin(ACME);
    let limit = async || {
        let headers = world.headers(&ann, "list_tasks", json!({})).await;
        headers.get("x-ratelimit-limit").map(str::to_owned)
    };
    assert_eq!(limit().await.as_deref(), Some("2"));
    world.test.engine.reload(settings(true, 50));
    assert_eq!(limit().await.as_deref(), Some("50"));
    world.test.engine.reload(settings(false, 50));
    assert_eq!(limit().await, None);
    world.tenant(ACME, TenantTier::Enterprise, &[]).await;
    world.test.engine.reload(settings(true, 50));
    world.test.clock.advance(30_000);
    assert_eq!(limit().await, None);
}

#[tokio::test]
async fn the_mailbox_has_its_own_code_for_a_tenant_that_called_too_often() {
    let world = World::bounded(&[(QuotaName::ApiCallsPerHour, 1)]).await;
    world.call("list_tasks", json!({})).await.unwrap();
    let refused = world.call("mailbox_topics", json!({})).await.unwrap_err();
    assert_eq!(refused.code, Code::ESaturated);
    assert_eq!(refused.details["error"], "rate_limit_exceeded");
    assert_eq!(world.audited(Event::RateLimitExceeded).await.len(), 1);
}
