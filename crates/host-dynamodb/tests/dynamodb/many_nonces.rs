//! More nonces than one step takes, and several callers with many.

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
    tap::Tap,
};

const TENANT: TenantId = TenantId::from_bytes([7; 16]);
const NOW: Timestamp = Timestamp::from_millis(1_731_690_000_000);
const TABLE: &str = "gate";
const WRITE: &str = "TransactWriteItems";

async fn tapped() -> Option<(Emulator, Tap, DynamoHost)> {
    let emulator = Emulator::start(Kind::Moto).await?;
    emulator.make(TABLE).await;
    let tap = Tap::start(emulator.port).await;
    let host = host(tap.port, TABLE);
    Some((emulator, tap, host))
}

/// A host whose first requests are held back until all of them are there, and then answered as if they were
/// done. There is nobody behind it.
async fn held(requests: usize) -> (Tap, DynamoHost) {
    let tap = Tap::start(free_port()).await;
    tap.hold();
    for _ in 0..requests {
        tap.answer(200, &json!({}));
    }
    let host = host(tap.port, TABLE);
    (tap, host)
}

async fn release(tap: &Tap, requests: usize) {
    tap.until(requests).await;
    tap.release();
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

/// None of the steps waits for another.
#[tokio::test]
async fn a_thousand_are_ten_steps_at_once() {
    let (tap, host) = held(10).await;
    let thousand = accepted(&host, nonces(0..1_000));
    let (told, ()) = join(thousand, release(&tap, 10)).await;
    assert_eq!(told, Ok(vec![true; 1_000]));
    assert_eq!(tap.noted(), [WRITE; 10]);
}

#[tokio::test]
async fn of_equal_ones_the_first_is_used_however_far_they_are_apart() {
    let Some((emulator, tap, host)) = tapped().await else {
        return;
    };
    let told = accepted(&host, nonces((0..102).chain([0, 101, 0]))).await;
    let expected: Vec<bool> = (0..105).map(|place| place < 102).collect();
    assert_eq!(told, Ok(expected));
    assert_eq!(tap.noted(), [WRITE; 2]);
    assert_eq!(emulator.items(TABLE).await.len(), 102);
}

/// So after an error some may have been used.
#[tokio::test]
async fn a_step_that_fails_stops_no_other() {
    let Some((emulator, tap, host)) = tapped().await else {
        return;
    };
    let kind = "com.amazonaws.dynamodb.v20120810#ThrottlingException";
    tap.answer(400, &json!({ "__type": kind, "message": "slow" }));
    let told = accepted(&host, nonces(0..102)).await;
    assert!(
        matches!(&told, Err(Error::Unavailable(text)) if text.contains("slow")),
        "{told:?}"
    );
    assert_eq!(tap.noted(), [WRITE; 2]);
    let used = emulator.items(TABLE).await.len();
    assert!(used == 2 || used == 100, "{used}");
}

#[tokio::test]
async fn more_that_belong_together_than_one_step_takes_are_refused() {
    let Some((_emulator, tap, host)) = tapped().await else {
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
    assert!(tap.noted().is_empty());
}

/// Two hundred names are so many that some share a seat.
#[tokio::test]
async fn callers_with_many_do_not_wait_for_each_other() {
    let (tap, host) = held(2).await;
    let first = accepted(&host, nonces(0..100));
    let second = accepted(&host, nonces(100..200));
    let (told, ()) = join(join(first, second), release(&tap, 2)).await;
    assert_eq!(told, (Ok(vec![true; 100]), Ok(vec![true; 100])));
    assert_eq!(tap.noted(), [WRITE; 2]);
}
