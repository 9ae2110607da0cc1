//! Lists whose answers are looked for in pieces, and the bound on classes of tasks.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

use std::sync::Arc;

use asyncgate_api::Code;
use asyncgate_core::Policy;
use asyncgate_engine::{
    Caller, Engine, Fault, Principal, PrincipalKind, Role, Settings, Source, TenantId,
    fakes::{Counter, FakeClock},
    registry,
};
use asyncgate_store::memory::MemoryStore;
use serde_json::{Value, json};

struct World(Engine);

impl World {
    fn new(policy: Policy) -> Self {
        let settings = Settings {
            policy: Arc::new(policy),
            ..Settings::default()
        };
        Self(Engine::new(
            Arc::new(MemoryStore::new()),
            Arc::new(FakeClock::at(1_767_610_800_000)),
            Arc::new(Counter::default()),
            settings,
        ))
    }

    async fn try_call(&self, operation: &str, input: Value) -> Result<Value, Fault> {
        self.call_in(1, operation, input).await
    }

    async fn call_in(&self, tenant: u8, operation: &str, input: Value) -> Result<Value, Fault> {
        let mut entries = registry().iter();
        let entry = entries.find(|entry| entry.spec.name == operation).unwrap();
        let admin = Principal::new(PrincipalKind::Service, "admin");
        let caller = Caller::new(TenantId::from_bytes([tenant; 16]), admin, Role::Admin);
        let input = input.to_string();
        let answer = (entry.call)(&self.0, &caller, Source::Json(input.as_bytes())).await?;
        Ok(serde_json::from_slice(&answer.json).unwrap())
    }

    async fn call(&self, operation: &str, input: Value) -> Value {
        self.try_call(operation, input).await.unwrap()
    }

    /// Leases the one task that is ready. Returns the fields that name the lease.
    async fn lease(&self) -> (Value, Value) {
        let claimed = self.call("lease_next", json!({ "worker_id": "w" })).await;
        let task = &claimed["tasks"][0];
        (task["task_id"].clone(), task["lease_id"].clone())
    }

    async fn report(&self, (task_id, lease_id): &(Value, Value), n: usize) {
        let input = json!({
            "worker_id": "w", "task_id": task_id, "lease_id": lease_id, "progress": n
        });
        self.call("report_progress", input).await;
    }

    /// Returns every receipt under a lease, and the number of pages.
    async fn under(&self, lease_id: &Value, limit: usize) -> (Vec<Value>, usize) {
        let (mut found, mut pages) = (Vec::new(), 0);
        let mut input = json!({ "lease_id": lease_id, "limit": limit });
        loop {
            let page = self.call("list_ledger", input.clone()).await;
            let receipts = page["receipts"].as_array().unwrap();
            assert!(receipts.len() <= limit);
            found.extend(receipts.iter().cloned());
            pages += 1;
            if page["next_cursor"].is_null() {
                return (found, pages);
            }
            input["since_receipt_id"] = page["next_cursor"].clone();
        }
    }
}

/// The receipts under a lease are found among those of its task. A page looks at as many as it may return, so
/// that what other leases left behind costs the caller pages, never the server a long look.
#[tokio::test]
async fn the_receipts_under_a_lease_come_in_bounded_pieces() {
    let world = World::new(Policy::default());
    world.call("create_task", json!({ "type": "a" })).await;
    let first = world.lease().await;
    world.report(&first, 0).await;
    let back = json!({ "worker_id": "w", "task_id": first.0, "lease_id": first.1 });
    world.call("release_lease", back).await;
    let second = world.lease().await;
    assert_eq!(second.0, first.0, "the same task again");
    for n in 1..=20 {
        world.report(&second, n).await;
    }
    for (lease, least) in [(&first, 2), (&second, 21)] {
        let (all, pages) = world.under(&lease.1, 200).await;
        assert!(all.len() >= least, "{all:?}");
        assert!(all.iter().all(|receipt| receipt["lease_id"] == lease.1));
        assert_eq!(all[0]["receipt_type"], "task.accepted");
        assert_eq!(pages, 1);
        let (pieces, pages) = world.under(&lease.1, 5).await;
        assert_eq!(pieces, all);
        assert!(pages >= 5, "{pages} pages");
    }
    // An id that names the place of something else, or nothing, finds nothing; nor does another tenant.
    for lease in [&first.0, &json!("01890000-0000-7000-8000-000000000001")] {
        assert!(world.under(lease, 5).await.0.is_empty(), "{lease}");
    }
    let input = json!({ "lease_id": first.1 });
    let other = world.call_in(2, "list_ledger", input).await.unwrap();
    assert_eq!(other["receipts"], json!([]));
}

/// Receipts have up to 64 KiB each, and a caller may ask for many of them.
#[tokio::test]
async fn a_page_of_receipts_is_bounded_in_bytes() {
    let world = World::new(Policy::default());
    world.call("create_task", json!({ "type": "a" })).await;
    let lease = world.lease().await;
    let large = "x".repeat(60_000);
    for _ in 0..150 {
        let input = json!({
            "worker_id": "w", "task_id": lease.0, "lease_id": lease.1, "progress": large
        });
        world.call("report_progress", input).await;
    }
    let mut input = json!({ "task_id": lease.0, "limit": 200 });
    let (mut read, mut pages) = (0, 0);
    loop {
        let page = world.call("list_ledger", input.clone()).await;
        assert!(page.to_string().len() < 3 << 20);
        read += page["receipts"].as_array().unwrap().len();
        pages += 1;
        input["since_receipt_id"] = page["next_cursor"].clone();
        if page["next_cursor"].is_null() {
            break;
        }
    }
    // The assignment, the acceptance and the reports.
    assert_eq!(read, 152);
    assert!(pages > 1);
}

#[tokio::test]
async fn a_tenant_with_too_many_classes_of_tasks_is_told_so() {
    let world = World::new(Policy {
        max_task_classes: 1,
        ..Policy::default()
    });
    let a = world.call("create_task", json!({ "type": "a" })).await;
    world.call("create_task", json!({ "type": "a" })).await;
    let refused = world.try_call("create_task", json!({ "type": "b" })).await;
    let fault = refused.unwrap_err();
    assert_eq!(
        (fault.code, fault.code.http_status()),
        (Code::QuotaExceeded, 429)
    );
    assert!(fault.message.contains("required capabilities"), "{fault:?}");
    let needy = json!({ "type": "a", "requirements": { "capabilities": ["gpu"] } });
    assert!(world.try_call("create_task", needy).await.is_err());
    let listed = world.call("list_tasks", json!({})).await;
    assert_eq!(listed["tasks"].as_array().unwrap().len(), 2);
    // The cursor of a list must name a task.
    let nowhere = json!({ "cursor": "01890000-0000-7000-8000-000000000001" });
    let fault = world.try_call("list_tasks", nowhere).await.unwrap_err();
    assert_eq!(fault.code, Code::BadRequest);
    let rest = json!({ "cursor": listed["tasks"][0]["task_id"] });
    let rest = world.call("list_tasks", rest).await;
    assert_eq!(rest["tasks"][0]["task_id"], a["task_id"]);
    // Another tenant has classes of its own.
    let other = world
        .call_in(2, "create_task", json!({ "type": "b" }))
        .await;
    other.unwrap();
}
