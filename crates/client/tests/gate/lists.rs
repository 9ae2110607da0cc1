//! Lists as streams: complete, in order, and ended by the first error.

use asyncgate_client::{
    Kind,
    api::{
        ListLedgerInput, ListOpenObligationsInput, ListReceiptsInput, ListTasksInput,
        ReadLedgerInput,
    },
};
use futures_util::{StreamExt, TryStreamExt};

use crate::{
    proxy::{Fault, GARBAGE, Proxy},
    server::{Gate, client, create},
};

fn alice() -> Option<String> {
    Some("alice".to_owned())
}

#[tokio::test]
async fn streams_give_every_item_once_and_in_order() {
    let gate = Gate::start().await;
    let client = gate.client();
    let mut created = Vec::new();
    for n in 0..23 {
        let task_type = if n % 5 == 0 { "rare" } else { "often" };
        created.push(create(&client, task_type, &n.to_string()).await);
    }
    for limit in [1, 5, 23, 24] {
        let limit = Some(limit);
        let all = client.tasks(ListTasksInput {
            limit,
            ..Default::default()
        });
        let mut tasks: Vec<String> = all
            .map_ok(|task| task.task_id)
            .try_collect()
            .await
            .expect("tasks");
        tasks.reverse();
        assert_eq!(tasks, created);

        let owed = client.open_obligations(ListOpenObligationsInput {
            principal_id: alice(),
            limit,
            ..Default::default()
        });
        let owed: Vec<String> = owed
            .map_ok(|receipt| receipt.task_id.expect("a task"))
            .try_collect()
            .await
            .expect("obligations");
        assert_eq!(owed, created);

        let inbox = client.receipts(ListReceiptsInput {
            principal_id: alice(),
            limit,
            ..Default::default()
        });
        let inbox: Vec<u64> = inbox
            .map_ok(|receipt| receipt.seq)
            .try_collect()
            .await
            .expect("an inbox");
        assert_eq!(inbox.len(), 23);
        assert!(inbox.is_sorted());

        let ledger = client.ledger(ListLedgerInput {
            receipt_type: Some("task.assigned".to_owned()),
            limit,
            ..Default::default()
        });
        assert_eq!(ledger.count().await, 23);

        let whole = client.whole_ledger(ReadLedgerInput {
            limit,
            ..Default::default()
        });
        let whole: Vec<u64> = whole
            .map_ok(|receipt| receipt.seq)
            .try_collect()
            .await
            .expect("a ledger");
        assert!((1..).zip(&whole).all(|(place, seq)| place == *seq));
        assert_eq!(whole.len(), gate.ledger().await.len());
    }
    let rare = client.tasks(ListTasksInput {
        limit: Some(2),
        task_type: Some("rare".to_owned()),
        ..Default::default()
    });
    assert_eq!(rare.count().await, 5);
}

#[tokio::test]
async fn a_stream_ends_with_its_first_error() {
    let gate = Gate::start().await;
    let proxy = Proxy::to(gate.addr).await;
    let client = client(proxy.addr);
    for n in 0..3 {
        create(&client, "t", &n.to_string()).await;
    }
    let mut tasks = client.tasks(ListTasksInput {
        limit: Some(2),
        ..Default::default()
    });
    assert!(tasks.next().await.expect("a task").is_ok());
    assert!(tasks.next().await.expect("a task").is_ok());
    proxy.next("GET /v1/tasks", Fault::Answer(GARBAGE));
    let error = tasks.next().await.expect("an item").expect_err("garbage");
    assert_eq!(*error.kind(), Kind::Protocol);
    assert!(tasks.next().await.is_none());
}
