//! Usage: counted live, and metered from time to time.

use asyncgate_api::Code;
use asyncgate_core::identity::{QuotaName, TenantTier};
use asyncgate_engine::{
    Clock as _, MeteringSettings, Settings,
    fakes::{FakeClock, START_MS, TestEngine},
};
use asyncgate_store::{
    Store as _,
    outbox::{DispatchFilter, Outbox as _},
};
use serde_json::{Value, json};

use crate::world::{ACME, OTHER, World, platform};

async fn usage(world: &World) -> Value {
    world.call("get_usage", json!({})).await.unwrap()["usage"].clone()
}

#[tokio::test]
async fn usage_is_counted_live() {
    let world = World::bounded(&[(QuotaName::ActiveTasks, 9)]).await;
    for _ in 0..3 {
        world.create().await.unwrap();
    }
    world.claim(2).await;
    world.test.clock.advance(10_000);
    let seen = usage(&world).await;
    assert_eq!(seen["active_tasks"], 3);
    assert_eq!(seen["concurrent_leases"], 2);
    assert_eq!(seen["tasks_created"], 3);
    assert_eq!(seen["lease_seconds"], 20);
    // Three tasks, a claim, and this call.
    assert_eq!(seen["api_calls"], 5);
    assert!(seen["receipt_storage_bytes"].as_u64().unwrap() > 1_000);
    let whole = world.call("get_usage", json!({})).await.unwrap();
    assert_eq!(whole["tenant_id"], ACME.to_string());
    assert_eq!(whole["quotas"]["active_tasks"], 9);
    assert_eq!(whole["quotas"]["lease_ttl_secs"], -1);
}

#[tokio::test]
async fn another_tenants_usage_is_for_those_who_run_the_server() {
    let world = World::bounded(&[]).await;
    world.tenant(OTHER, TenantTier::Free, &[]).await;
    for operation in ["get_usage", "list_usage_events"] {
        let named = json!({"tenant_id": OTHER.to_string()});
        let refused = world.call(operation, named).await.unwrap_err();
        assert_eq!(refused.code, Code::Forbidden);
        let own = json!({"tenant_id": ACME.to_string()});
        world.call(operation, own.clone()).await.unwrap();
        world
            .test
            .call_as(&platform(), operation, &own)
            .await
            .unwrap();
        let nobody = json!({"tenant_id": "01890000-0000-7000-8000-000000000000"});
        let refused = world.test.call_as(&platform(), operation, &nobody).await;
        assert_eq!(refused.unwrap_err().code, Code::NotFound);
    }
}

#[tokio::test]
async fn what_tenants_used_becomes_events_that_add_up() {
    let world = World::bounded(&[]).await;
    world.tenant(OTHER, TenantTier::Enterprise, &[]).await;
    for round in 0..3 {
        for _ in 0..=round {
            world.create().await.unwrap();
        }
        world.test.clock.advance(300_000);
        world.test.engine.meter_changed().await;
        // Nothing was used since, and the other tenant used nothing at all.
        world.test.engine.meter_changed().await;
    }
    let listed = |input: Value| {
        let world = world.clone();
        async move { world.call("list_usage_events", input).await.unwrap() }
    };
    let page = listed(json!({"limit": 2})).await;
    let events = page["events"].as_array().unwrap();
    assert_eq!(events.len(), 2);
    assert_eq!(events[0]["used"]["tasks_created"], 3);
    assert_eq!(events[0]["total"]["tasks_created"], 6);
    assert_eq!(events[0]["total"]["api_calls"], 6);
    assert!(events[0]["used"]["receipt_byte_seconds"].as_u64().unwrap() > 0);
    assert_eq!(events[0]["since"], events[1]["until"]);
    let rest = listed(json!({"cursor": page["next_cursor"]})).await;
    assert_eq!(rest["events"][0]["seq"], 1);
    assert_eq!(rest["events"][0]["since"], Value::Null);
    assert_eq!(rest["next_cursor"], Value::Null);
    let other = world.test.store.usage_events(OTHER, None, 9).await.unwrap();
    assert_eq!(other, []);
    let wrong = world
        .call("list_usage_events", json!({"cursor": "x"}))
        .await;
    assert_eq!(wrong.unwrap_err().code, Code::BadRequest);
}

#[tokio::test]
async fn calls_are_known_after_a_restart_once_they_were_metered() {
    let world = World::bounded(&[]).await;
    world.create().await.unwrap();
    world.test.engine.meter_changed().await;
    assert_eq!(usage(&world).await["api_calls"], 2);
    let TestEngine { store, clock, .. } = world.test.clone();
    let again = World {
        test: TestEngine::over(store, clock, Settings::default()),
    };
    // The call of usage was not metered, and this is the first after the restart.
    assert_eq!(usage(&again).await["api_calls"], 2);
}

#[tokio::test(start_paused = true)]
async fn tenants_are_metered_every_few_minutes_and_once_more_at_the_end() {
    let settings = Settings {
        metering: MeteringSettings {
            bills: true,
            ..MeteringSettings::default()
        },
        ..Settings::default()
    };
    let world = World {
        test: TestEngine::new(settings, FakeClock::running_from(START_MS)),
    };
    world.tenant(ACME, TenantTier::Enterprise, &[]).await;
    let engine = world.test.engine.clone();
    let metering = tokio::spawn(async move { engine.meter_tenants().await });
    world.create().await.unwrap();
    let events = async || {
        let found = world.test.store.usage_events(ACME, None, 9).await;
        found.unwrap().len()
    };
    tokio::time::sleep(std::time::Duration::from_secs(299)).await;
    assert_eq!(events().await, 0);
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    assert_eq!(events().await, 1);
    tokio::time::sleep(std::time::Duration::from_secs(3_000)).await;
    assert_eq!(events().await, 1, "nothing was used");
    world.create().await.unwrap();
    world.test.engine.drain();
    metering.await.unwrap();
    assert_eq!(events().await, 2);
    let pending = DispatchFilter {
        dead: false,
        after: 0,
        limit: 9,
    };
    let sent = world.test.store.dispatches(pending).await.unwrap();
    assert_eq!(sent.len(), 2);
    let body: Value = serde_json::from_slice(&sent[0].sent.body).unwrap();
    assert_eq!(body["tenant_id"], ACME.to_string());
    assert!(body["usage_event_id"].is_string());
    assert_eq!(sent[0].sent.destination, "billing");
    assert!(world.test.clock.now().as_millis() > START_MS);
}

/// A server that was killed has not metered everything: what was written then is found at the next start.
#[tokio::test(start_paused = true)]
async fn what_was_used_before_a_crash_is_metered_after_it() {
    let world = World::bounded(&[]).await;
    world.create().await.unwrap();
    let TestEngine { store, .. } = world.test.clone();
    let clock = std::sync::Arc::new(FakeClock::running_from(START_MS));
    let again = TestEngine::over(store, clock, Settings::default());
    let engine = again.engine.clone();
    let metering = tokio::spawn(async move { engine.meter_tenants().await });
    tokio::time::sleep(std::time::Duration::from_secs(301)).await;
    let events = again.store.usage_events(ACME, None, 9).await.unwrap();
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].used.tasks_created, 1);
    metering.abort();
}
