//! Callers of one process who ask about one limit at the same time share a batch.

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
    proxy::Proxy,
};

const TENANT: TenantId = TenantId::from_bytes([7; 16]);
const NOW: Timestamp = Timestamp::from_millis(1_731_690_000_000);
const TABLE: &str = "gate";
const CALLERS: usize = 200;

async fn proxied(kind: Kind) -> Option<(Emulator, Proxy, Arc<DynamoHost>)> {
    let emulator = Emulator::start(kind).await?;
    emulator.make(TABLE).await;
    let proxy = Proxy::start(emulator.port).await;
    let host = Arc::new(host(proxy.port, TABLE));
    Some((emulator, proxy, host))
}

fn token_of(capacity: u64) -> LimitCheck {
    limit(&bucket(capacity, 1, false), "k", 1)
}

/// Starts a call that cannot be answered yet; the test awaits its answer later.
fn asking<T>(call: impl Future<Output = T>) -> std::pin::Pin<Box<impl Future<Output = T>>> {
    let mut call = Box::pin(call);
    assert!(
        call.as_mut().now_or_never().is_none(),
        "there is no answer yet"
    );
    call
}

async fn left(host: &DynamoHost) -> Result<u64, Error> {
    let limited = host.check_limit(TENANT, NOW, &token_of(1_000)).await?;
    assert!(limited.allowed);
    Ok(limited.remaining)
}

/// DynamoDB answers all of them, and a failure mode answers nobody.
#[tokio::test]
async fn a_flood_is_decided_in_two_batches_and_the_limit_holds() {
    for kind in [Kind::Dynalite, Kind::Moto] {
        let Some((_emulator, proxy, host)) = proxied(kind).await else {
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
        // All others come while the first request is under way.
        proxy.hold();
        let first = call();
        proxy.until(1).await;
        let others: Vec<_> = (1..CALLERS).map(|_| call()).collect();
        proxy.release();
        let told = join_all([first].into_iter().chain(others)).await;
        let told: Vec<_> = told.into_iter().map(by_host).collect();
        // They are decided in the order of arrival.
        let expected: Vec<_> = (1..=CALLERS as u64)
            .map(|number| (number <= 50, 50_u64.saturating_sub(number)))
            .collect();
        assert_eq!(told, expected);
        assert_eq!(proxy.operations(), ["PutItem"; 2]);
        // Callers who change nothing share a read.
        let others: Vec<_> = (0..CALLERS).map(|_| call()).collect();
        let told = join_all(others).await;
        assert!(told.into_iter().all(|told| by_host(told) == (false, 0)));
        assert_eq!(proxy.operations(), ["GetItem"]);
        assert_eq!(guard.health().await.counters.circuit, Circuit::Closed);
    }
}

#[tokio::test]
async fn a_caller_who_has_gone_before_the_batch_is_decided_is_not_counted() {
    let Some((_emulator, proxy, host)) = proxied(Kind::Dynalite).await else {
        return;
    };
    proxy.hold();
    let first = asking(left(&host));
    proxy.until(1).await;
    let others: Vec<_> = (0..CALLERS).map(|_| asking(left(&host))).collect();
    let stay: Vec<_> = others.into_iter().step_by(2).collect();
    proxy.release();
    assert_eq!(first.await, Ok(999));
    let told = join_all(stay).await;
    let expected: Vec<_> = (1..=CALLERS as u64 / 2).map(|n| Ok(999 - n)).collect();
    assert_eq!(told, expected);
    assert_eq!(proxy.operations(), ["PutItem"; 2]);
    // When all callers have gone, there is no request.
    drop(
        (0..CALLERS)
            .map(|_| asking(left(&host)))
            .collect::<Vec<_>>(),
    );
    tokio::task::yield_now().await;
    assert_eq!(left(&host).await, Ok(898));
    assert_eq!(proxy.operations(), ["PutItem"]);
}

#[tokio::test]
async fn a_batch_goes_on_without_its_first_caller() {
    let Some((_emulator, proxy, host)) = proxied(Kind::Dynalite).await else {
        return;
    };
    proxy.hold();
    let (first, second) = (asking(left(&host)), asking(left(&host)));
    proxy.until(1).await;
    drop(first);
    proxy.release();
    // The request that was under way counted the first caller.
    assert_eq!(second.await, Ok(998));
    assert_eq!(left(&host).await, Ok(997));
    assert_eq!(proxy.operations(), ["PutItem"; 2]);
}

#[tokio::test]
async fn all_are_decided_again_when_another_instance_was_faster() {
    for kind in [Kind::Dynalite, Kind::Moto] {
        let Some((emulator, proxy, here)) = proxied(kind).await else {
            continue;
        };
        assert_eq!(left(&here).await, Ok(999));
        let other = host(emulator.port, TABLE);
        assert_eq!(left(&other).await, Ok(998));
        proxy.operations();
        let calls: Vec<_> = (0..CALLERS).map(|_| asking(left(&here))).collect();
        let expected: Vec<_> = (1..=CALLERS as u64).map(|n| Ok(998 - n)).collect();
        assert_eq!(join_all(calls).await, expected);
        let requests: &[&str] = match kind {
            Kind::Dynalite => &["PutItem", "GetItem", "PutItem"],
            Kind::Moto => &["PutItem", "PutItem"],
        };
        assert_eq!(proxy.operations(), requests);
    }
}

#[tokio::test]
async fn a_batch_that_fails_fails_for_all_and_counts_nobody() {
    let Some((_emulator, proxy, host)) = proxied(Kind::Dynalite).await else {
        return;
    };
    let kind = "com.amazonaws.dynamodb.v20120810#ThrottlingException";
    proxy.answer(400, &json!({ "__type": kind, "message": "slow" }));
    let calls: Vec<_> = (0..CALLERS).map(|_| asking(left(&host))).collect();
    for told in join_all(calls).await {
        assert!(matches!(told, Err(Error::Unavailable(text)) if text.contains("slow")));
    }
    assert_eq!(left(&host).await, Ok(999));
    assert_eq!(proxy.operations(), ["PutItem"; 2]);
}
