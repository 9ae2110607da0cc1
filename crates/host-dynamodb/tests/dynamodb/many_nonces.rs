//! More nonces than one transaction takes, and several callers with many nonces.

use asyncgate_core::{
    TenantId, Timestamp,
    admission::{Asks, NonceResult, Together},
};
use asyncgate_host_dynamodb::DynamoHost;
use asyncgate_store::{
    Error,
    admission::Host,
    conformance::{free_port, nonce},
};
use futures_util::future::join;
use serde_json::json;

use crate::{
    emulators::{Emulator, Kind, host},
    proxy::Proxy,
};

const TENANT: TenantId = TenantId::from_bytes([7; 16]);
const NOW: Timestamp = Timestamp::from_millis(1_731_690_000_000);
const TABLE: &str = "gate";
const WRITE: &str = "TransactWriteItems";

async fn proxied() -> Option<(Emulator, Proxy, DynamoHost)> {
    let emulator = Emulator::start(Kind::Moto).await?;
    emulator.make(TABLE).await;
    let proxy = Proxy::start(emulator.port).await;
    let host = host(proxy.port, TABLE);
    Some((emulator, proxy, host))
}

/// Returns a host whose requests are held back until all of them have come, and then answered as if they were
/// done. There is no emulator behind the proxy.
async fn held(requests: usize) -> (Proxy, DynamoHost) {
    let proxy = Proxy::start(free_port()).await;
    proxy.hold();
    for _ in 0..requests {
        proxy.answer(200, &json!({}));
    }
    let host = host(proxy.port, TABLE);
    (proxy, host)
}

async fn release(proxy: &Proxy, requests: usize) {
    proxy.until(requests).await;
    proxy.release();
}

fn nonces(numbers: impl Iterator<Item = usize>) -> Asks {
    let nonces = numbers.map(|number| nonce(&number.to_string(), 600));
    Asks {
        nonces: nonces.collect(),
        ..Asks::default()
    }
}

async fn accepted(host: &DynamoHost, asks: Asks) -> Result<Vec<bool>, Error> {
    let verdicts = host.admit(TENANT, NOW, asks).await?;
    let accepted = |result: &NonceResult| *result == NonceResult::Accepted;
    Ok(verdicts.nonces.iter().map(accepted).collect())
}

/// None of the transactions waits for another.
#[tokio::test]
async fn a_thousand_are_ten_transactions_at_once() {
    let (proxy, host) = held(10).await;
    let thousand = accepted(&host, nonces(0..1_000));
    let (told, ()) = join(thousand, release(&proxy, 10)).await;
    assert_eq!(told, Ok(vec![true; 1_000]));
    assert_eq!(proxy.operations(), [WRITE; 10]);
}

#[tokio::test]
async fn of_equal_nonces_the_first_is_used_however_far_they_are_apart() {
    let Some((emulator, proxy, host)) = proxied().await else {
        return;
    };
    let told = accepted(&host, nonces((0..102).chain([0, 101, 0]))).await;
    let expected: Vec<bool> = (0..105).map(|place| place < 102).collect();
    assert_eq!(told, Ok(expected));
    assert_eq!(proxy.operations(), [WRITE; 2]);
    assert_eq!(emulator.items(TABLE).await.len(), 102);
}

/// After an error some of the nonces may have been used.
#[tokio::test]
async fn a_transaction_that_fails_stops_no_other() {
    let Some((emulator, proxy, host)) = proxied().await else {
        return;
    };
    let kind = "com.amazonaws.dynamodb.v20120810#ThrottlingException";
    proxy.answer(400, &json!({ "__type": kind, "message": "slow" }));
    let told = accepted(&host, nonces(0..102)).await;
    assert!(
        matches!(&told, Err(Error::Unavailable(text)) if text.contains("slow")),
        "{told:?}"
    );
    assert_eq!(proxy.operations(), [WRITE; 2]);
    let used = emulator.items(TABLE).await.len();
    assert!(used == 2 || used == 100, "{used}");
}

#[tokio::test]
async fn more_nonces_that_belong_together_than_one_transaction_takes_are_refused() {
    let Some((_emulator, proxy, host)) = proxied().await else {
        return;
    };
    let together = Asks {
        together: Together::All,
        ..nonces(0..101)
    };
    let refused = accepted(&host, together).await;
    assert!(
        matches!(&refused, Err(Error::Unavailable(text)) if text.contains("at most 100 rows")),
        "{refused:?}"
    );
    assert!(proxy.operations().is_empty());
}

/// Among two hundred rows some share a lock.
#[tokio::test]
async fn callers_with_many_nonces_do_not_wait_for_each_other() {
    let (proxy, host) = held(2).await;
    let first = accepted(&host, nonces(0..100));
    let second = accepted(&host, nonces(100..200));
    let (told, ()) = join(join(first, second), release(&proxy, 2)).await;
    assert_eq!(told, (Ok(vec![true; 100]), Ok(vec![true; 100])));
    assert_eq!(proxy.operations(), [WRITE; 2]);
}
