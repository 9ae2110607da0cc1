//! Quotas that do not depend on time.

use asyncgate_api::Code;
use asyncgate_core::identity::{QuotaName, TenantTier, audit::Event};
use serde_json::{Value, json};
use tokio::task::yield_now;

use crate::world::{ACME, World, platform, told};

#[tokio::test]
async fn a_tenant_has_as_many_active_tasks_as_its_quota_says() {
    let world = World::bounded(&[(QuotaName::ActiveTasks, 2)]).await;
    let keyed = json!({"type": "echo", "idempotency_key": "k"});
    world.call("create_task", keyed.clone()).await.unwrap();
    world.create().await.unwrap();
    let refused = world.create().await.unwrap_err();
    let expected = json!({
        "code": "QUOTA_EXCEEDED", "quota": "active_tasks", "limit": 2, "current": 2
    });
    assert_eq!(told(&refused), expected);
    assert_eq!(refused.code.http_status(), 429);
    let again = world.call("create_task", keyed).await.unwrap();
    assert_eq!(again["duplicate"], true);
    let entries = world.audited(Event::QuotaExceeded).await;
    assert_eq!(entries.len(), 1);
    let details: Value = serde_json::from_str(entries[0].said.details.text()).unwrap();
    assert_eq!(
        details,
        json!({"quota": "active_tasks", "limit": "2", "operation": "create_task"})
    );
}

#[tokio::test]
async fn a_payload_is_as_large_as_the_quota_says() {
    let world = World::bounded(&[(QuotaName::PayloadBytes, 10)]).await;
    let task = |payload: &str| json!({"type": "echo", "payload": payload});
    world.call("create_task", task("12345678")).await.unwrap();
    let refused = world.call("create_task", task("123456789")).await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.code, Code::TooLarge);
    assert_eq!(refused.details["limit"], 10);
}

#[tokio::test]
async fn claims_take_what_there_is_room_for_and_leases_are_as_long_as_allowed() {
    let quotas = [
        (QuotaName::ConcurrentLeases, 2),
        (QuotaName::LeaseTtlSecs, 60),
    ];
    let world = World::bounded(&quotas).await;
    for _ in 0..3 {
        world.create().await.unwrap();
    }
    let taken = world.claim(9).await;
    assert_eq!(taken.len(), 2);
    assert!(world.claim(9).await.is_empty());
    let until = taken[0]["expires_at"].as_str().unwrap().to_owned();
    let renew = json!({
        "task_id": taken[0]["task_id"], "lease_id": taken[0]["lease_id"], "worker_id": "w",
        "extend_by_seconds": 1_000
    });
    world.test.clock.advance(1_000);
    let renewed = world.call("renew_lease", renew).await.unwrap();
    let renewed = renewed["expires_at"].as_str().unwrap();
    assert_eq!(&until[17..19], "00", "{until}");
    assert_eq!(
        &renewed[17..19],
        "01",
        "a second later, not a thousand: {renewed}"
    );
    // An answer that is empty for this reason is recorded, too.
    assert_eq!(world.audited(Event::QuotaExceeded).await.len(), 1);
}

fn waiting(world: &World, types: &[&str]) -> tokio::task::JoinHandle<usize> {
    let world = world.clone();
    let input = json!({"worker_id": "w", "accept_types": types, "wait_seconds": 60});
    tokio::spawn(async move {
        let answer = world.call("lease_next", input).await.unwrap();
        answer["tasks"].as_array().unwrap().len()
    })
}

async fn settle() {
    for _ in 0..20 {
        yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_lacks_room_is_woken_by_the_end_of_another_lease() {
    let world = World::bounded(&[(QuotaName::ConcurrentLeases, 1)]).await;
    let first = world.create().await.unwrap();
    let held = world.claim(1).await;
    // Nothing is there for the first worker, which came before; its wake-up must reach the second.
    let idle = waiting(&world, &["other"]);
    settle().await;
    world.create().await.unwrap();
    let worker = waiting(&world, &["echo"]);
    settle().await;
    assert!(!worker.is_finished() && !idle.is_finished());
    let complete = json!({
        "task_id": first["task_id"], "lease_id": held[0]["lease_id"], "worker_id": "w"
    });
    world.call("complete", complete).await.unwrap();
    assert_eq!(worker.await.unwrap(), 1);
    assert!(!idle.is_finished());
    // There is no room for this one, until somebody cancels the other.
    world
        .call("create_task", json!({"type": "other"}))
        .await
        .unwrap();
    settle().await;
    assert!(!idle.is_finished());
    let listed = world
        .call("list_tasks", json!({"status": "leased"}))
        .await
        .unwrap();
    let task_id = &listed["tasks"][0]["task_id"];
    world
        .call("cancel_task", json!({"task_id": task_id}))
        .await
        .unwrap();
    assert_eq!(idle.await.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_lacks_room_is_woken_when_its_tenant_gets_more() {
    let world = World::bounded(&[(QuotaName::ConcurrentLeases, 0)]).await;
    world.create().await.unwrap();
    let worker = waiting(&world, &["echo"]);
    settle().await;
    assert!(!worker.is_finished());
    let begun = tokio::time::Instant::now();
    let more = json!({"tenant_id": ACME.to_string(), "quotas": {"concurrent_leases": 1}});
    let platform = platform();
    let changed = world.test.call_as(&platform, "change_tenant", &more);
    changed.await.unwrap();
    assert_eq!(worker.await.unwrap(), 1);
    assert!(begun.elapsed().as_secs() < 60, "it slept until its end");
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_lacks_room_is_answered_when_its_time_is_over() {
    let world = World::bounded(&[(QuotaName::ConcurrentLeases, 0)]).await;
    world.create().await.unwrap();
    assert_eq!(waiting(&world, &["echo"]).await.unwrap(), 0);
}

#[tokio::test]
async fn a_task_has_as_many_receipts_as_the_quota_says_and_can_end_all_the_same() {
    let world = World::bounded(&[(QuotaName::ReceiptsPerTask, 3)]).await;
    world.create().await.unwrap();
    let held = world.claim(1).await;
    let call = |more: Value| {
        let mut input = json!({
            "task_id": held[0]["task_id"], "lease_id": held[0]["lease_id"], "worker_id": "w"
        });
        let members = more.as_object().unwrap().clone();
        input.as_object_mut().unwrap().extend(members);
        input
    };
    let report = || call(json!({"progress": {"percent": 10}}));
    world.call("report_progress", report()).await.unwrap();
    let refused = world.call("report_progress", report()).await.unwrap_err();
    let expected = json!({
        "code": "QUOTA_EXCEEDED", "quota": "receipts_per_task", "limit": 3, "current": 3
    });
    assert_eq!(told(&refused), expected);
    let done = call(json!({"result": 1, "delivery_proof": {"at": "x"}}));
    world.call("complete", done).await.unwrap();
}

#[tokio::test]
async fn little_room_for_receipts_is_warned_of_and_none_stops_new_tasks() {
    let world = World::bounded(&[(QuotaName::ReceiptStorageBytes, 1_000)]).await;
    let warnings = async || {
        let answer = world.call("bootstrap", json!({})).await.unwrap();
        answer["warnings"].as_array().unwrap().clone()
    };
    world.create().await.unwrap();
    assert!(warnings().await.is_empty());
    while world.create().await.is_ok() {}
    let refused = world.create().await.unwrap_err();
    assert_eq!(refused.details["quota"], "receipt_storage_bytes");
    let warned = warnings().await;
    assert_eq!(warned[0]["quota"], "receipt_storage_bytes");
    assert_eq!(warned[0]["limit"], 1_000);
    assert_eq!(world.claim(1).await.len(), 1, "work goes on");
}

#[tokio::test]
async fn a_change_elsewhere_counts_within_half_a_minute() {
    let world = World::bounded(&[(QuotaName::ActiveTasks, 1)]).await;
    world.create().await.unwrap();
    assert!(world.create().await.is_err());
    world.tenant(ACME, TenantTier::Enterprise, &[]).await;
    assert!(world.create().await.is_err());
    world.test.clock.advance(30_000);
    world.create().await.unwrap();
}
