//! Exceptions: limits that are lifted or made stricter for a time.

use asyncgate_api::Code;
use asyncgate_core::identity::{QuotaName, audit::Event};
use serde_json::{Value, json};

use crate::world::{ACME, World, admin, platform};

const TOMORROW: &str = "2026-01-06T11:00:00Z";

async fn limited() -> World {
    World::bounded(&[(QuotaName::ApiCallsPerHour, 1)]).await
}

/// Returns true if the tenant may call now.
async fn may_call(world: &World) -> bool {
    world.call("list_tasks", json!({})).await.is_ok()
}

#[tokio::test]
async fn a_bypass_lifts_the_hourly_limits_until_its_end_and_is_recorded() {
    let world = limited().await;
    assert!(may_call(&world).await && !may_call(&world).await);
    let input = json!({"tenant_id": ACME.to_string(), "reason": "clause 3.2", "until": TOMORROW});
    let granted = world
        .test
        .call_as(&platform(), "grant_bypass", &input)
        .await;
    let granted = granted.unwrap();
    assert_eq!(granted["kind"], "bypass");
    assert_eq!(granted["approved_by"], "agent/root");
    for _ in 0..5 {
        assert!(may_call(&world).await);
    }
    let headers = world.headers(&admin(ACME), "list_tasks", json!({})).await;
    assert!(headers.is_empty());
    let usage = world.call("get_usage", json!({})).await.unwrap();
    assert_eq!(usage["quotas"]["api_calls_per_hour"], -1);
    assert_eq!(usage["exception"]["reason"], "clause 3.2");
    let entries = world.audited(Event::RateLimitBypassGranted).await;
    assert_eq!(entries.len(), 1);
    let said = &entries[0].said;
    assert_eq!(said.reason.as_deref(), Some("clause 3.2"));
    let details: Value = serde_json::from_str(said.details.text()).unwrap();
    assert_eq!(details["approved_by"], "agent/root");
    assert_eq!(details["expires_at"], granted["until"]);
    // It ends by itself.
    world.test.clock.advance(24 * 3_600_000);
    assert!(may_call(&world).await && !may_call(&world).await);
    let named = json!({"tenant_id": ACME.to_string()});
    let usage = world.test.call_as(&platform(), "get_usage", &named).await;
    assert_eq!(usage.unwrap()["exception"], Value::Null);
}

#[tokio::test]
async fn a_throttle_counts_at_once_and_can_be_ended() {
    let world = World::bounded(&[]).await;
    for _ in 0..3 {
        assert!(may_call(&world).await);
    }
    let tenant_id = ACME.to_string();
    let input = json!({
        "tenant_id": tenant_id, "reason": "abuse", "until": TOMORROW,
        "quotas": {"api_calls_per_hour": 2, "concurrent_leases": 0}
    });
    let throttled = world
        .test
        .call_as(&platform(), "throttle_tenant", &input)
        .await;
    assert_eq!(throttled.unwrap()["quotas"]["api_calls_per_hour"], 2);
    assert!(may_call(&world).await && may_call(&world).await && !may_call(&world).await);
    assert_eq!(world.audited(Event::TenantChanged).await.len(), 1);
    let end = |operation| {
        let (world, input) = (world.clone(), json!({"tenant_id": tenant_id}));
        async move {
            world
                .test
                .call_as(&platform(), operation, &input)
                .await
                .unwrap()
        }
    };
    assert_eq!(end("end_bypass").await["ended"], false);
    assert!(!may_call(&world).await);
    assert_eq!(end("end_throttle").await["ended"], true);
    assert_eq!(end("end_throttle").await["ended"], false);
    for _ in 0..3 {
        assert!(may_call(&world).await);
    }
    assert_eq!(world.audited(Event::TenantChanged).await.len(), 2);
}

#[tokio::test]
async fn only_those_who_run_the_server_make_exceptions() {
    let world = limited().await;
    let good = json!({"tenant_id": ACME.to_string(), "reason": "me", "until": TOMORROW});
    let refused = world.call("grant_bypass", good.clone()).await.unwrap_err();
    assert_eq!(refused.code, Code::Forbidden);
    assert_eq!(refused.details["required_scope"], "platform:admin");
    for (field, value, code) in [
        ("tenant_id", json!("x"), Code::BadRequest),
        (
            "tenant_id",
            json!("01890000-0000-7000-8000-000000000000"),
            Code::NotFound,
        ),
        ("reason", json!(""), Code::BadRequest),
        ("until", json!("2020-01-01T00:00:00Z"), Code::BadRequest),
        ("until", json!("soon"), Code::BadRequest),
    ] {
        let mut input = good.clone();
        input[field] = value;
        let refused = world
            .test
            .call_as(&platform(), "grant_bypass", &input)
            .await;
        assert_eq!(refused.unwrap_err().code, code, "{field}");
    }
    for (quota, value) in [("api_calls_per_hour", 0), ("active_tasks", -1)] {
        let mut input = good.clone();
        input["quotas"] = json!({quota: value});
        let refused = world
            .test
            .call_as(&platform(), "throttle_tenant", &input)
            .await;
        assert_eq!(refused.unwrap_err().code, Code::BadRequest, "{quota}");
    }
}
