//! Broken connections, silence and busy servers: what is sent again, and what is not.

use std::time::Duration;

use asyncgate_client::{
    Client, Kind, Retry,
    api::{
        AckReceiptInput, CheckLimitsInput, CheckNoncesInput, CheckRevocationsInput, Code,
        CompleteInput, Flag, IncrementCounterInput, LeaseNextInput, ListReceiptsInput,
        ListTasksInput, SubjectInput,
    },
};
use tokio::time::Instant;

use crate::{
    proxy::{BUSY, BUSY_FOR_AN_HOUR, BUSY_NOW, Fault, GARBAGE, NO_HOST, OVER, Proxy},
    server::{Gate, KEY, client, create, quick, task},
};

async fn broken() -> (Gate, Proxy, Client) {
    let gate = Gate::start().await;
    let proxy = Proxy::to(gate.addr).await;
    let client = client(proxy.addr);
    (gate, proxy, client)
}

async fn tasks(gate: &Gate) -> usize {
    let all = gate.client().list_tasks(&ListTasksInput::default()).await;
    all.expect("tasks").tasks.len()
}

#[tokio::test]
async fn a_create_that_is_sent_again_makes_one_task() {
    let (gate, proxy, client) = broken().await;
    for fault in [
        Fault::DropAfter,
        Fault::HalfAnswer,
        Fault::DropBefore,
        Fault::Answer(BUSY_NOW),
    ] {
        proxy.next("POST /v1/tasks", fault);
    }
    let created = client.create_task(&task("t", "1")).await.expect("a task");
    assert!(created.duplicate, "the first attempt had made it");
    assert_eq!(tasks(&gate).await, 1);
    let sent = proxy.seen("POST /v1/tasks");
    assert_eq!(sent.len(), 5);
    assert!(sent.iter().all(|request| *request == sent[0]), "{sent:?}");
    assert!(sent[0].contains("idempotency_key"));
}

#[tokio::test]
async fn without_a_key_a_create_is_not_repeated_once_it_may_be_done() {
    let (gate, proxy, _) = broken().await;
    let client = Client::builder(format!("http://{}", proxy.addr))
        .key(KEY)
        .retry(quick())
        .generate_idempotency_keys(false)
        .build()
        .expect("a client");
    proxy.next("POST", Fault::Answer(BUSY_NOW));
    proxy.next("POST", Fault::DropAfter);
    let error = client.create_task(&task("t", "1")).await;
    let error = error.expect_err("it is not known what became of it");
    assert_eq!(*error.kind(), Kind::Unreachable);
    assert_eq!(error.attempts(), 2);
    assert!(error.to_string().contains("may have been done"), "{error}");
    assert_eq!(tasks(&gate).await, 1);
}

#[tokio::test]
async fn what_would_leave_a_second_receipt_is_not_repeated() {
    let (gate, proxy, client) = broken().await;
    create(&client, "t", "1").await;
    let inbox = ListReceiptsInput {
        principal_id: Some("alice".to_owned()),
        ..Default::default()
    };
    let inbox = client.list_receipts(&inbox).await.expect("an inbox");
    proxy.next("/ack", Fault::DropAfter);
    let ack = AckReceiptInput {
        receipt_id: inbox.receipts[0].receipt_id.clone(),
        principal_id: Some("alice".to_owned()),
        ..Default::default()
    };
    client.ack_receipt(&ack).await.expect_err("a lost answer");
    assert_eq!(gate.count("receipt.acknowledged").await, 1);
}

#[tokio::test]
async fn what_may_be_used_up_is_not_sent_again() {
    let (_gate, proxy, client) = broken().await;
    let nonce = CheckNoncesInput {
        namespace: Some("01".repeat(32)),
        nonce: Some("AQID".to_owned()),
        ttl_secs: Some(60),
        checks: None,
    };
    proxy.next("/nonces/check", Fault::Answer(NO_HOST));
    let error = client.check_nonces(&nonce).await;
    let error = error.expect_err("it may be used");
    assert_eq!(error.code(), Some(Code::HostUnavailable));
    assert_eq!(error.attempts(), 1);

    // A limit that can be overdrawn charges what it refuses.
    let limit = CheckLimitsInput {
        policy: Some("client".to_owned()),
        key: Some("k".to_owned()),
        enforce: Some(Flag(true)),
        ..Default::default()
    };
    proxy.next("/limits/check", Fault::Answer(OVER));
    let error = client.check_limits(&limit).await.expect_err("over it");
    assert_eq!(error.code(), Some(Code::RateLimit));
    assert_eq!(error.attempts(), 1);
    let allowed = client.check_limits(&limit).await.expect("a verdict");
    assert_eq!(allowed.remaining, Some(99), "nothing else was charged");
}

#[tokio::test]
async fn what_a_limit_or_its_host_kept_from_being_done_is_sent_again() {
    let (_gate, proxy, client) = broken().await;
    // It was refused before anything was counted.
    proxy.next("/increment", Fault::Answer(OVER));
    let count = IncrementCounterInput {
        namespace: "01".repeat(32),
        window_secs: 60,
        limit: 9,
        by: None,
    };
    let counted = client.increment_counter(&count).await.expect("a count");
    assert_eq!(counted.count, 1);
    // A call that reads, or that has a key, can be done twice.
    proxy.next("/revocations/check", Fault::Answer(NO_HOST));
    let asked = CheckRevocationsInput {
        subject: Some(SubjectInput {
            kind: "holder_key".to_owned(),
            key: Some("02".repeat(32)),
            ..Default::default()
        }),
        subjects: None,
    };
    let checked = client.check_revocations(&asked).await.expect("a verdict");
    assert_eq!(checked.result.as_deref(), Some("valid"));
    proxy.next("POST /v1/tasks", Fault::Answer(NO_HOST));
    create(&client, "t", "1").await;
}

#[tokio::test]
async fn a_lost_answer_to_complete_is_asked_for_again() {
    let (gate, proxy, client) = broken().await;
    create(&client, "t", "1").await;
    let claim = LeaseNextInput {
        worker_id: Some("w".to_owned()),
        ..Default::default()
    };
    let leased = client.lease_next(&claim).await.expect("a claim").tasks;
    proxy.next("/complete", Fault::DropAfter);
    let complete = CompleteInput {
        task_id: leased[0].task_id.clone(),
        lease_id: leased[0].lease_id.clone(),
        worker_id: Some("w".to_owned()),
        ..Default::default()
    };
    let done = client.complete(&complete).await.expect("completed");
    assert!(done.duplicate);
    assert_eq!(gate.count("task.completed").await, 1);
}

#[tokio::test]
async fn a_lost_claim_is_repeated_and_its_lease_runs_out() {
    let (gate, proxy, client) = broken().await;
    create(&client, "t", "1").await;
    proxy.next("/claim", Fault::DropAfter);
    let claim = LeaseNextInput {
        worker_id: Some("w".to_owned()),
        lease_ttl_seconds: Some(1),
        ..Default::default()
    };
    let none = client.lease_next(&claim).await.expect("a claim");
    assert!(none.tasks.is_empty(), "the lost claim has it");
    gate.advance(Duration::from_secs(10)).await;
    gate.advance(Duration::from_secs(10)).await;
    let again = client.lease_next(&claim).await.expect("a claim").tasks;
    assert_eq!((again.len(), again[0].attempt), (1, 0));
}

#[tokio::test]
async fn retry_after_is_waited_for_or_given_up_on() {
    let (_gate, proxy, client) = broken().await;
    proxy.next("/v1/config", Fault::Answer(BUSY));
    let start = Instant::now();
    client.get_config().await.expect("an answer at last");
    assert!(start.elapsed() >= Duration::from_secs(1));

    proxy.next("/v1/config", Fault::Answer(BUSY_FOR_AN_HOUR));
    let start = Instant::now();
    let error = client.get_config().await.expect_err("busy");
    assert_eq!(error.code(), Some(Code::Unavailable));
    assert_eq!(error.corr_id(), Some("proxied"));
    assert_eq!(error.attempts(), 1);
    assert!(start.elapsed() < quick().total);
}

#[tokio::test]
async fn attempts_are_bounded() {
    let (_gate, proxy, client) = broken().await;
    for _ in 0..10 {
        proxy.next("/v1/config", Fault::Answer(BUSY_NOW));
    }
    let error = client.get_config().await.expect_err("busy");
    assert_eq!(error.attempts(), 5);
    assert!(
        error
            .to_string()
            .ends_with("not now (UNAVAILABLE) (tried 5 times)"),
        "{error}"
    );
    assert_eq!(proxy.seen("/v1/config").len(), 5);
}

#[tokio::test]
async fn silence_is_a_timeout_and_is_asked_again() {
    let (_gate, proxy, _) = broken().await;
    let client = |timeout| {
        Client::builder(format!("http://{}", proxy.addr))
            .key(KEY)
            .timeout(timeout)
            .retry(Retry {
                attempts: 2,
                ..quick()
            })
            .build()
            .expect("a client")
    };
    proxy.next("/v1/config", Fault::Silence);
    let client_that_waits = client(Duration::from_secs(3));
    let answer = client_that_waits.get_config().await;
    answer.expect("an answer at last");
    proxy.next("/v1/config", Fault::Silence);
    proxy.next("/v1/config", Fault::Silence);
    let hasty = client(Duration::from_millis(100));
    let error = hasty.get_config().await.expect_err("silence");
    assert_eq!(*error.kind(), Kind::Timeout);
}

#[tokio::test]
async fn what_is_no_gate_is_told_apart() {
    let (_gate, proxy, client) = broken().await;
    for (answer, said) in [
        (GARBAGE, "is not an HTTP server"),
        (
            "HTTP/1.1 404 Not Found\r\ncontent-length: 6\r\n\r\n<html>",
            "answers 404 Not Found as no AsyncGate does",
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n<html>",
            "the answer cannot be read",
        ),
    ] {
        proxy.next("/v1/config", Fault::Answer(answer));
        let error = client.get_config().await.expect_err("no gate");
        assert_eq!(*error.kind(), Kind::Protocol, "{error}");
        assert!(error.to_string().contains(said), "{error}");
    }
}
