//! Callers of one process who ask about one limit at the same time.

use std::sync::Arc;

use asyncgate_admission::{Answered, Circuit, Guard, Settings, Source};
use asyncgate_core::{
    TenantId, Timestamp,
    admission::{LimitCheck, Limited},
};
use asyncgate_host_dynamodb::DynamoHost;
use asyncgate_store::{
    Error,
    admission::Host,
    conformance::{PATIENCE, bucket, limit},
};
use futures_util::{FutureExt, future::join_all};
use serde_json::json;

use crate::{
    emulators::{Emulator, Kind, host},
    tap::Tap,
};

const TENANT: TenantId = TenantId::from_bytes([7; 16]);
const NOW: Timestamp = Timestamp::from_millis(1_731_690_000_000);
const TABLE: &str = "gate";
const CALLERS: usize = 200;

async fn tapped(kind: Kind) -> Option<(Emulator, Tap, Arc<DynamoHost>)> {
    let emulator = Emulator::start(kind).await?;
    emulator.make(TABLE).await;
    let tap = Tap::start(emulator.port).await;
    let host = Arc::new(host(tap.port, TABLE));
    Some((emulator, tap, host))
}

fn token_of(capacity: u64) -> LimitCheck {
    limit(&bucket(capacity, 1, false), "k", 1)
}

/// Lets somebody ask, and wait: the answer is taken later.
fn asking<T>(call: impl Future<Output = T>) -> std::pin::Pin<Box<impl Future<Output = T>>> {
    let mut call = Box::pin(call);
    assert!(
        call.as_mut().now_or_never().is_none(),
        "nobody can know yet"
    );
    call
}

async fn left(host: &DynamoHost) -> Result<u64, Error> {
    let limited = host.check_limit(TENANT, NOW, &token_of(1_000)).await?;
    assert!(limited.allowed);
    Ok(limited.remaining)
}

/// All of them are answered by DynamoDB, and nobody by a failure mode.
#[tokio::test]
async fn a_flood_is_decided_in_two_steps_and_the_limit_holds() {
    for kind in [Kind::Dynalite, Kind::Moto] {
        let Some((_emulator, tap, host)) = tapped(kind).await else {
            continue;
        };
        let settings = Settings {
            timeout: PATIENCE,
            ..Settings::default()
        };
        let guard = Guard::new(host, settings);
        let check = token_of(50);
        let call = || asking(guard.check_limit(TENANT, NOW, &check));
        let by_host = |told: Result<Answered<Limited>, _>| {
            let told = told.unwrap();
            assert_eq!(told.provenance.source, Source::Store);
            (told.answer.allowed, told.answer.remaining)
        };
        // While the first is on its way, all others come.
        tap.hold();
        let first = call();
        tap.until(1).await;
        let others: Vec<_> = (1..CALLERS).map(|_| call()).collect();
        tap.release();
        let told = join_all([first].into_iter().chain(others)).await;
        let told: Vec<_> = told.into_iter().map(by_host).collect();
        // In the order in which they came.
        let expected: Vec<_> = (1..=CALLERS as u64)
            .map(|number| (number <= 50, 50_u64.saturating_sub(number)))
            .collect();
        assert_eq!(told, expected);
        assert_eq!(tap.noted(), ["PutItem"; 2]);
        // Those who change nothing share a read.
        let others: Vec<_> = (0..CALLERS).map(|_| call()).collect();
        let told = join_all(others).await;
        assert!(told.into_iter().all(|told| by_host(told) == (false, 0)));
        assert_eq!(tap.noted(), ["GetItem"]);
        assert_eq!(guard.health().await.counters.circuit, Circuit::Closed);
    }
}

#[tokio::test]
async fn who_has_gone_before_the_step_is_not_counted() {
    let Some((_emulator, tap, host)) = tapped(Kind::Dynalite).await else {
        return;
    };
    tap.hold();
    let first = asking(left(&host));
    tap.until(1).await;
    let others: Vec<_> = (0..CALLERS).map(|_| asking(left(&host))).collect();
    let stay: Vec<_> = others.into_iter().step_by(2).collect();
    tap.release();
    assert_eq!(first.await, Ok(999));
    let told = join_all(stay).await;
    let expected: Vec<_> = (1..=CALLERS as u64 / 2).map(|n| Ok(999 - n)).collect();
    assert_eq!(told, expected);
    assert_eq!(tap.noted(), ["PutItem"; 2]);
    // Of those who have all gone, nothing is asked.
    drop(
        (0..CALLERS)
            .map(|_| asking(left(&host)))
            .collect::<Vec<_>>(),
    );
    tokio::task::yield_now().await;
    assert_eq!(left(&host).await, Ok(898));
    assert_eq!(tap.noted(), ["PutItem"]);
}

#[tokio::test]
async fn a_step_goes_on_without_who_began_it() {
    let Some((_emulator, tap, host)) = tapped(Kind::Dynalite).await else {
        return;
    };
    tap.hold();
    let (first, second) = (asking(left(&host)), asking(left(&host)));
    tap.until(1).await;
    drop(first);
    tap.release();
    // It was on its way with the first, so that one counts.
    assert_eq!(second.await, Ok(998));
    assert_eq!(left(&host).await, Ok(997));
    assert_eq!(tap.noted(), ["PutItem"; 2]);
}

#[tokio::test]
async fn all_are_decided_again_when_another_instance_was_faster() {
    for kind in [Kind::Dynalite, Kind::Moto] {
        let Some((emulator, tap, here)) = tapped(kind).await else {
            continue;
        };
        assert_eq!(left(&here).await, Ok(999));
        let other = host(emulator.port, TABLE);
        assert_eq!(left(&other).await, Ok(998));
        tap.noted();
        let calls: Vec<_> = (0..CALLERS).map(|_| asking(left(&here))).collect();
        let expected: Vec<_> = (1..=CALLERS as u64).map(|n| Ok(998 - n)).collect();
        assert_eq!(join_all(calls).await, expected);
        let found_out: &[&str] = match kind {
            Kind::Dynalite => &["PutItem", "GetItem", "PutItem"],
            Kind::Moto => &["PutItem", "PutItem"],
        };
        assert_eq!(tap.noted(), found_out);
    }
}

#[tokio::test]
async fn a_step_that_fails_is_told_to_all_and_counts_nobody() {
    let Some((_emulator, tap, host)) = tapped(Kind::Dynalite).await else {
        return;
    };
    let kind = "com.amazonaws.dynamodb.v20120810#ThrottlingException";
    tap.answer(400, &json!({ "__type": kind, "message": "slow" }));
    let calls: Vec<_> = (0..CALLERS).map(|_| asking(left(&host))).collect();
    for told in join_all(calls).await {
        assert!(matches!(told, Err(Error::Unavailable(text)) if text.contains("slow")));
    }
    assert_eq!(left(&host).await, Ok(999));
    assert_eq!(tap.noted(), ["PutItem"; 2]);
}
