//! Faults: DynamoDB is gone, stuck, throttling or contended, or the server is not DynamoDB at all.

use std::{net::Ipv4Addr, sync::Arc};

use asyncgate_admission::Load;
use asyncgate_core::{
    TenantId, Timestamp,
    admission::{Asks, NonceCheck},
};
use asyncgate_host_dynamodb::DynamoHost;
use asyncgate_store::{
    Error,
    admission::Host,
    conformance::{limit, nonce, subject, window},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use asyncgate_store::conformance::PATIENCE;

use crate::{
    emulators::{Emulator, Kind, hasty_host, host},
    proxy::Proxy,
};

const TENANT: TenantId = TenantId::from_bytes([7; 16]);
const NOW: Timestamp = Timestamp::from_millis(1_731_690_000_000);
const TABLE: &str = "gate";

fn one(nonce: NonceCheck) -> Asks {
    Asks {
        nonces: vec![nonce],
        ..Asks::default()
    }
}

async fn is_new(host: &DynamoHost, text: &str) -> Result<bool, Error> {
    let verdicts = host.admit(TENANT, NOW, one(nonce(text, 600))).await?;
    Ok(verdicts.passed())
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_and_started_again_under_load() {
    let Some(mut emulator) = Emulator::start(Kind::Dynalite).await else {
        return;
    };
    emulator.make(TABLE).await;
    let load = Load::start(Arc::new(host(emulator.port, TABLE)), 8);
    for _ in 0..2 {
        load.until(true).await;
        emulator.kill();
        load.until(false).await;
        emulator.restart().await;
        emulator.make(TABLE).await;
    }
    load.until(true).await;
    load.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn paused_and_resumed_under_load() {
    let Some(emulator) = Emulator::start(Kind::Dynalite).await else {
        return;
    };
    emulator.make(TABLE).await;
    let load = Load::start(Arc::new(host(emulator.port, TABLE)), 8);
    for _ in 0..2 {
        load.until(true).await;
        emulator.program().pause();
        load.until(false).await;
        emulator.program().resume();
    }
    load.until(true).await;
    load.end();
}

#[tokio::test]
async fn a_call_ends_even_without_a_guard() {
    let Some(mut emulator) = Emulator::start(Kind::Dynalite).await else {
        return;
    };
    emulator.make(TABLE).await;
    let host = hasty_host(emulator.port, TABLE);
    emulator.program().pause();
    let stuck = tokio::time::timeout(PATIENCE, is_new(&host, "a")).await;
    assert!(
        matches!(&stuck, Ok(Err(Error::Unavailable(text))) if text.contains("no answer")),
        "{stuck:?}"
    );
    emulator.program().resume();
    assert_eq!(is_new(&host, "b").await, Ok(true));
    emulator.kill();
    let gone = is_new(&host, "c").await;
    assert!(
        matches!(&gone, Err(Error::Unavailable(text)) if text.contains("127.0.0.1")),
        "{gone:?}"
    );
}

/// Returns a host behind a proxy that can answer in the place of the emulator.
async fn proxied(kind: Kind) -> Option<(Emulator, Proxy, DynamoHost)> {
    let emulator = Emulator::start(kind).await?;
    emulator.make(TABLE).await;
    let proxy = Proxy::start(emulator.port).await;
    let host = host(proxy.port, TABLE);
    Some((emulator, proxy, host))
}

fn refusal(kind: &str) -> Value {
    let kind = format!("com.amazonaws.dynamodb.v20120810#{kind}");
    json!({ "__type": kind, "message": "Words of the server" })
}

#[tokio::test]
async fn throttling_is_an_error_and_is_not_tried_again() {
    let Some((_emulator, proxy, host)) = proxied(Kind::Dynalite).await else {
        return;
    };
    for (status, kind) in [
        (400, "ProvisionedThroughputExceededException"),
        (400, "ThrottlingException"),
        (400, "RequestLimitExceeded"),
        (500, "InternalServerError"),
    ] {
        proxy.answer(status, &refusal(kind));
        let throttled = is_new(&host, kind).await;
        assert!(
            matches!(&throttled, Err(Error::Unavailable(text)) if text.contains(kind)),
            "{throttled:?}"
        );
        assert_eq!(proxy.operations(), ["PutItem"]);
        assert_eq!(is_new(&host, kind).await, Ok(true));
        proxy.operations();
    }
    let reasons = json!([{ "Code": "None" }, { "Code": "ThrottlingError", "Message": "m" }]);
    let mut cancelled = refusal("TransactionCanceledException");
    cancelled["CancellationReasons"] = reasons;
    proxy.answer(400, &cancelled);
    let asks = Asks {
        nonces: vec![nonce("x", 60), nonce("y", 60)],
        ..Asks::default()
    };
    let throttled = host.admit(TENANT, NOW, asks).await;
    assert!(
        matches!(&throttled, Err(Error::Unavailable(text)) if text.contains("ThrottlingError")),
        "{throttled:?}"
    );
    for answer in [json!("no object"), json!({})] {
        proxy.answer(502, &answer);
        assert!(matches!(host.ping().await, Err(Error::Unavailable(_))));
    }
}

/// A conflict with other writers leads to another attempt, but not for ever.
#[tokio::test]
async fn conflicts_are_tried_again_and_end() {
    let Some((_emulator, proxy, host)) = proxied(Kind::Moto).await else {
        return;
    };
    let both = Asks {
        limits: vec![limit(&window(9), "k", 1)],
        ..one(nonce("a", 60))
    };
    let conflict = json!({ "Code": "TransactionConflict" });
    let mut cancelled = refusal("TransactionCanceledException");
    cancelled["CancellationReasons"] = json!([conflict, conflict]);
    // The answers to the write, the read, and the second write.
    for _ in 0..3 {
        proxy.answer(400, &cancelled);
    }
    let verdicts = host.admit(TENANT, NOW, both.clone()).await.unwrap();
    assert!(verdicts.passed());
    assert_eq!(verdicts.limits[0].remaining, 8);
    let (write, read) = ("TransactWriteItems", "TransactGetItems");
    assert_eq!(proxy.operations(), [write, read, write, read, write]);
    proxy.answer(400, &refusal("TransactionConflictException"));
    assert_eq!(is_new(&host, "b").await, Ok(true));
    for _ in 0..200 {
        proxy.answer(400, &cancelled);
    }
    let never = host.admit(TENANT, NOW, both).await;
    assert_eq!(never, Err(Error::Conflict));
}

/// A row that is not written must still be as assumed.
#[tokio::test]
async fn rows_that_were_only_read_are_part_of_the_condition() {
    let Some((_emulator, proxy, host)) = proxied(Kind::Moto).await else {
        return;
    };
    // The proxy says that one nonce is used, which is not true when the other is written.
    let until = NOW.plus_millis(60_000).as_millis().to_string();
    let item = json!({ "first_seen": { "N": "1" }, "until": { "N": until } });
    let mut cancelled = refusal("TransactionCanceledException");
    cancelled["CancellationReasons"] = json!([
        { "Code": "ConditionalCheckFailed", "Item": item },
        { "Code": "None" },
    ]);
    proxy.answer(400, &cancelled);
    let asks = Asks {
        nonces: vec![nonce("a", 60), nonce("b", 60)],
        ..Asks::default()
    };
    assert!(host.admit(TENANT, NOW, asks).await.unwrap().passed());
    let (write, read) = ("TransactWriteItems", "TransactGetItems");
    assert_eq!(proxy.operations(), [write, write, read, write]);
}

#[tokio::test]
async fn keys_that_a_batch_left_out_are_asked_for_again_but_not_for_ever() {
    let Some((_emulator, proxy, host)) = proxied(Kind::Dynalite).await else {
        return;
    };
    let key = json!({ "pk": { "S": "p" }, "sk": { "S": "s" } });
    let left = json!({ "Responses": { TABLE: [] }, "UnprocessedKeys": {
        TABLE: { "Keys": [key], "ConsistentRead": true },
    } });
    let subjects = || vec![subject(1), subject(2)];
    proxy.answer(200, &left);
    assert_eq!(host.revoked(TENANT, subjects()).await, Ok(vec![None, None]));
    assert_eq!(proxy.operations().len(), 2);
    for _ in 0..50 {
        proxy.answer(200, &left);
    }
    let refused = host.revoked(TENANT, subjects()).await;
    assert!(matches!(refused, Err(Error::Unavailable(_))), "{refused:?}");
}

#[tokio::test]
async fn rows_that_cannot_be_read_are_an_error_and_stay() {
    for kind in [Kind::Dynalite, Kind::Moto] {
        let Some((emulator, _proxy, host)) = proxied(kind).await else {
            continue;
        };
        assert_eq!(is_new(&host, "n").await, Ok(true));
        let mut item = emulator.items(TABLE).await.remove(0);
        item.as_object_mut().unwrap().remove("until");
        let input = json!({ "TableName": TABLE, "Item": item });
        emulator.ask("PutItem", &input).await;
        let told = is_new(&host, "n").await;
        assert!(matches!(told, Err(Error::Corrupt(_))), "{told:?}");
        assert_eq!(emulator.items(TABLE).await, [item]);
    }
}

#[tokio::test]
async fn a_missing_table_is_an_error() {
    let Some(emulator) = Emulator::start(Kind::Dynalite).await else {
        return;
    };
    let error = host(emulator.port, "absent").ping().await.unwrap_err();
    let error = error.to_string();
    assert!(error.contains("ResourceNotFoundException"), "{error}");
}

#[tokio::test]
async fn a_server_that_is_not_dynamodb_is_an_error() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let answers: [&[u8]; 4] = [
            b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n<html>",
            b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",
            b"-ERR what is this?\r\n",
            b"",
        ];
        for answer in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            // A request is small, so one read takes all of it.
            assert!(stream.read(&mut [0; 4_096]).await.unwrap() > 0);
            stream.write_all(answer).await.unwrap();
        }
    });
    let host = host(port, TABLE);
    let corrupt = host.ping().await;
    assert!(matches!(corrupt, Err(Error::Corrupt(_))), "{corrupt:?}");
    for _ in 0..3 {
        let told = host.ping().await;
        assert!(matches!(told, Err(Error::Unavailable(_))), "{told:?}");
    }
}
