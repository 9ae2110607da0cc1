//! Every operation, and errors that a person can act on.

use std::time::Duration;

use asyncgate_client::{
    Client, Kind, Retry,
    api::{
        AckReceiptInput, BootstrapInput, CancelTaskInput, Code, CompleteInput, CreateResult,
        CreateTasksInput, FailInput, Failing, FinishItem, FinishResult, FinishTasksInput,
        GetReceiptInput, LeaseItem, LeaseNextInput, LeasedTask, ListLedgerInput,
        ListOpenObligationsInput, ListReceiptsInput, ListTasksInput, ReadLedgerInput,
        ReleaseLeaseInput, RenewLeaseInput, RenewLeasesInput, RenewResult, ReportProgressInput,
        StartTaskInput, Success, TaskStatus,
    },
};
use asyncgate_engine::registry;
use serde_json::value::{RawValue, to_raw_value};

use crate::{
    proxy::Proxy,
    server::{Gate, KEY, client, create, now, task},
};

async fn lease(client: &Client) -> LeasedTask {
    let input = LeaseNextInput {
        worker_id: Some("w".to_owned()),
        ..Default::default()
    };
    let mut tasks = client.lease_next(&input).await.expect("a claim").tasks;
    tasks.pop().expect("a task")
}

fn w() -> Option<String> {
    Some("w".to_owned())
}

fn alice() -> Option<String> {
    Some("alice".to_owned())
}

#[tokio::test]
async fn every_operation_can_be_called() {
    let gate = Gate::start().await;
    let proxy = Proxy::to(gate.addr).await;
    let client = client(proxy.addr);
    assert_eq!(client.health().await.expect("health").service, "AsyncGate");
    assert_eq!(
        client.get_config().await.expect("config").max_list_limit,
        200
    );

    let payload = r#"{ "b": 1.10, "a": 12345678901234567890123, "a": "\u0000" }"#;
    let id = create(&client, "t", payload).await;
    let leased = lease(&client).await;
    assert_eq!(leased.task_id, id);
    assert_eq!(leased.payload.get(), payload);
    let (task_id, lease_id) = (leased.task_id, leased.lease_id);

    let renewed = client
        .renew_lease(&RenewLeaseInput {
            task_id: task_id.clone(),
            lease_id: lease_id.clone(),
            worker_id: w(),
            ..Default::default()
        })
        .await;
    assert!(renewed.expect("renewed").ok);
    let release = ReleaseLeaseInput {
        task_id: task_id.clone(),
        lease_id,
        worker_id: w(),
        ..Default::default()
    };
    assert!(client.release_lease(&release).await.expect("released").ok);

    let lease_id = lease(&client).await.lease_id;
    let start = StartTaskInput {
        task_id: task_id.clone(),
        lease_id: lease_id.clone(),
        worker_id: w(),
        ..Default::default()
    };
    assert!(client.start_task(&start).await.expect("started").ok);
    let progress = ReportProgressInput {
        task_id: task_id.clone(),
        lease_id: lease_id.clone(),
        progress: to_raw_value(&None::<()>).expect("null"),
        worker_id: w(),
        ..Default::default()
    };
    assert!(client.report_progress(&progress).await.expect("told").ok);
    let result = r#"{"z":1, "y":[]}"#;
    let complete = CompleteInput {
        task_id: task_id.clone(),
        lease_id,
        result: Some(RawValue::from_string(result.to_owned()).expect("JSON")),
        worker_id: w(),
        ..Default::default()
    };
    assert!(
        !client
            .complete(&complete)
            .await
            .expect("completed")
            .duplicate
    );
    let record = now(&client, &task_id).await;
    assert_eq!(record.status, TaskStatus::Succeeded);
    assert_eq!(
        record
            .result
            .and_then(|r| r.result)
            .expect("a result")
            .get(),
        result
    );

    let owed = ListOpenObligationsInput {
        principal_id: alice(),
        ..Default::default()
    };
    let owed = client.list_open_obligations(&owed).await.expect("owed");
    assert_eq!(owed.open_obligations.len(), 1);
    let inbox = ListReceiptsInput {
        principal_id: alice(),
        ..Default::default()
    };
    let inbox = client.list_receipts(&inbox).await.expect("an inbox");
    let receipt_id = inbox.receipts[0].receipt_id.clone();
    let one = GetReceiptInput {
        receipt_id: receipt_id.clone(),
        ..Default::default()
    };
    assert_eq!(
        client
            .get_receipt(&one)
            .await
            .expect("a receipt")
            .receipt_id,
        receipt_id
    );
    let ack = AckReceiptInput {
        receipt_id,
        principal_id: alice(),
        ..Default::default()
    };
    assert!(client.ack_receipt(&ack).await.expect("acknowledged").ok);
    let ledger = ListLedgerInput {
        task_id: Some(task_id),
        ..Default::default()
    };
    let ledger = client.list_ledger(&ledger).await.expect("a ledger");
    assert!(ledger.receipts.len() > 4);
    let begin = BootstrapInput {
        principal_id: alice(),
        ..Default::default()
    };
    let begun = client.bootstrap(&begin).await.expect("an inbox");
    assert!(!begun.attention.inbox_receipts.is_empty());

    let other = create(&client, "t", "null").await;
    let fail = FailInput {
        task_id: other.clone(),
        lease_id: lease(&client).await.lease_id,
        worker_id: w(),
        ..Default::default()
    };
    assert!(!client.fail(&fail).await.expect("failed").requeued);
    let third = create(&client, "t", "null").await;
    let cancel = CancelTaskInput {
        task_id: third,
        ..Default::default()
    };
    let canceled = client.cancel_task(&cancel).await.expect("cancelled");
    assert_eq!(canceled.status, TaskStatus::Canceled);
    let tasks = client.list_tasks(&ListTasksInput::default()).await;
    assert_eq!(tasks.expect("tasks").tasks.len(), 3);
    let page = client.read_ledger(&ReadLedgerInput::default()).await;
    let head = client.get_ledger_head().await.expect("a head");
    assert_eq!(
        page.expect("a page").receipts.len() as u64,
        head.seq,
        "the ledger fits on a page"
    );

    call_batches(&client).await;
    crate::mailbox::call_everything(&client).await;
    crate::admission::call_everything(&client).await;
    crate::identity::call_everything(&client).await;

    // A new operation of the server is demanded here.
    for entry in registry() {
        let (method, path) = (entry.spec.method.as_str(), entry.spec.path);
        let is_call = |seen: &String| {
            let target = seen.split([' ', '?']).nth(1).unwrap_or_default();
            let same = |(part, value): (&str, &str)| match part.strip_prefix('{') {
                Some("kind}" | "client}") => !value.is_empty(),
                Some(_) => matches!(value.len(), 26 | 36 | 64),
                None => part == value,
            };
            target.split('/').count() == path.split('/').count()
                && path.split('/').zip(target.split('/')).all(same)
        };
        let calls = proxy.seen(method);
        let name = entry.spec.name;
        assert!(calls.iter().any(is_call), "{name} was not called");
    }
}

async fn call_batches(client: &Client) {
    let tasks = CreateTasksInput {
        tasks: vec![task("t", "1"), task("", "2")].into(),
    };
    let created = client.create_tasks(&tasks).await.expect("answers").results;
    let [CreateResult::Created(_), CreateResult::Refused(refusal)] = created.as_slice() else {
        panic!("{created:?}");
    };
    assert_eq!(refusal.code, Code::BadRequest);
    let leased = lease(client).await;
    let (task_id, lease_id) = (leased.task_id, leased.lease_id);
    let item = LeaseItem {
        task_id: task_id.clone(),
        lease_id: lease_id.clone(),
    };
    let renew = RenewLeasesInput {
        leases: vec![item].into(),
        worker_id: w(),
        ..Default::default()
    };
    let renewed = client.renew_leases(&renew).await.expect("answers").results;
    assert!(matches!(renewed.as_slice(), [RenewResult::Renewed(_)]));
    let item = FinishItem {
        task_id,
        lease_id,
        complete: Some(Success::default()),
        fail: None,
    };
    let failed = FinishItem {
        complete: None,
        fail: Some(Failing::default()),
        ..item.clone()
    };
    let finish = FinishTasksInput {
        items: vec![item, failed].into(),
        worker_id: w(),
        ..Default::default()
    };
    let finished = client.finish_tasks(&finish).await.expect("answers").results;
    let [
        FinishResult::Completed(done),
        FinishResult::Refused(refusal),
    ] = finished.as_slice()
    else {
        panic!("{finished:?}");
    };
    assert!(done.ok && refusal.code == Code::LeaseInvalidOrExpired);
}

#[tokio::test]
async fn a_refusal_says_why_and_where_to_look() {
    let gate = Gate::start().await;
    let wrong = Client::new(format!("http://{}", gate.addr), "wrong").expect("a client");
    let error = wrong.get_config().await.expect_err("no such key");
    assert_eq!(error.code(), Some(Code::Unauthorized));
    assert_eq!(
        error.to_string(),
        "get_config: no such key (UNAUTHORIZED); check the key"
    );
    assert_eq!(error.corr_id().map(str::len), Some(36));
    assert_eq!(error.attempts(), 1);
    assert!(!error.needs_key(), "it has one");
    let none = Client::builder(format!("http://{}", gate.addr)).build();
    let error = none.expect("a client").get_config().await;
    let error = error.expect_err("no key");
    assert!(error.needs_key(), "{error}");
    assert!(error.to_string().ends_with("no key was sent"), "{error}");

    let mut input = task("t", "1");
    input.idempotency_key = Some("k".to_owned());
    gate.client().create_task(&input).await.expect("a task");
    input.payload = Some(RawValue::from_string("2".to_owned()).expect("JSON"));
    let error = gate.client().create_task(&input).await;
    let error = error.expect_err("another payload");
    assert_eq!(error.code(), Some(Code::IdempotencyConflict));
    assert!(error.refusal().is_some() && !error.is_transient());
}

#[tokio::test]
async fn nobody_there_is_told_apart() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let free = listener.local_addr().expect("an address");
    drop(listener);
    for (address, said) in [
        (
            format!("http://{free}"),
            format!("nothing listens at http://{free} (connection refused)"),
        ),
        (
            "http://no-such-host.invalid".to_owned(),
            "the host is unknown".to_owned(),
        ),
    ] {
        let client = Client::builder(&address)
            .key(KEY)
            .retry(Retry::NONE)
            .build()
            .expect("a client");
        let error = client.health().await.expect_err("nobody there");
        assert_eq!(*error.kind(), Kind::Unreachable, "{error}");
        assert!(error.to_string().contains(&said), "{error}");
        assert!(error.is_transient());
    }
}

#[tokio::test]
async fn a_wait_is_not_cut_short_by_the_timeout() {
    let gate = Gate::start().await;
    let client = Client::builder(format!("http://{}", gate.addr))
        .key(KEY)
        .timeout(Duration::from_secs(2))
        .retry(Retry::NONE)
        .build()
        .expect("a client");
    let input = LeaseNextInput {
        worker_id: Some("w".to_owned()),
        wait_seconds: Some(3),
        ..Default::default()
    };
    let none = client.lease_next(&input).await.expect("an answer");
    assert!(none.tasks.is_empty());
}
