//! Answers that nobody reads: a tenant holds its share of memory, and no more.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

use std::sync::{Arc, Weak};

use asyncgate_api::Code;
use asyncgate_engine::{
    Answer, Fault, Role, Settings, Source,
    fakes::{FakeClock, START_MS, TestEngine, caller},
    registry,
};
use bytes::Bytes;
use serde_json::json;

async fn call(world: &TestEngine, operation: &str, input: &str) -> Result<Answer, Fault> {
    let found = registry().iter().find(|it| it.spec.name == operation);
    let source = Source::Json(input.as_bytes());
    (found.unwrap().call)(&world.engine, &caller(Role::Admin), source).await
}

#[tokio::test]
async fn pages_that_nobody_reads_are_refused_beyond_a_share_and_nothing_else_is() {
    let mut settings = Settings::default();
    settings.bodies.budget_bytes = 400_000;
    let world = TestEngine::new(settings, FakeClock::at(START_MS));
    let create = json!({"type": "t", "payload": "x".repeat(50_000), "principal_id": "a"});
    call(&world, "create_task", &create.to_string())
        .await
        .unwrap();

    let mut unread = Vec::new();
    let refusal = loop {
        match call(&world, "list_tasks", "{}").await {
            Ok(answer) => unread.push(answer),
            Err(fault) => break fault,
        }
    };
    assert_eq!(refusal.code, Code::RateLimit);
    assert_eq!(refusal.retry_after_seconds, Some(1));
    assert!((4..8).contains(&unread.len()), "{}", unread.len());

    // Whatever was done is told: only what can be asked for again is refused.
    call(&world, "create_task", &create.to_string())
        .await
        .unwrap();
    let claim = json!({"worker_id": "w", "max_tasks": 2}).to_string();
    let claimed = call(&world, "lease_next", &claim).await.unwrap();
    assert!(claimed.json.len() > 100_000);
    drop(claimed);

    unread.clear();
    assert_eq!(world.engine.budget().taken(), 0);
    call(&world, "list_tasks", "{}").await.unwrap();
}

/// A body that was read holds no memory while its call waits.
#[tokio::test(start_paused = true)]
async fn a_body_is_gone_when_it_was_read() {
    let world = TestEngine::new(Settings::default(), FakeClock::at(START_MS));
    let input = json!({"worker_id": "w", "wait_seconds": 5}).to_string();
    let (body, watched) = watched(input.into_bytes());
    let found = registry().iter().find(|it| it.spec.name == "lease_next");
    let claimer = caller(Role::Admin);
    let mut claim = (found.unwrap().call)(&world.engine, &claimer, Source::Body(body));
    let waits = futures_util::future::poll_immediate(&mut claim).await;
    assert!(waits.is_none(), "there is nothing to claim");
    assert!(watched.upgrade().is_none(), "its body is still there");
}

/// Returns bytes, and a way to see whether they are still somewhere.
fn watched(bytes: Vec<u8>) -> (Bytes, Weak<Vec<u8>>) {
    struct Owner(Arc<Vec<u8>>);
    impl AsRef<[u8]> for Owner {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    let bytes = Arc::new(bytes);
    let watched = Arc::downgrade(&bytes);
    (Bytes::from_owner(Owner(bytes)), watched)
}
