//! Instances with different clocks, and rows that have expired.

use asyncgate_core::{
    TenantId, Timestamp,
    admission::{Asks, NonceResult},
};
use asyncgate_store::{
    admission::Host,
    conformance::{bucket, delay, limit, nonce, window},
};

use crate::emulators::{Emulator, Kind, host};

const TENANT: TenantId = TenantId::from_bytes([7; 16]);
/// The beginning of a minute.
const NOW: Timestamp = Timestamp::from_millis(1_731_690_000_000);

#[tokio::test]
async fn a_bucket_does_not_fill_by_the_difference_of_two_clocks() {
    for kind in [Kind::Dynalite, Kind::Moto] {
        let Some(emulator) = Emulator::start(kind).await else {
            continue;
        };
        let table = emulator.table().await;
        let (ahead, behind) = (host(emulator.port, &table), host(emulator.port, &table));
        // The bucket refills one token a second, and the clocks are a second apart.
        let check = limit(&bucket(5, 60, false), "k", 1);
        let mut given = 0;
        for _ in 0..10 {
            let first = ahead.check_limit(TENANT, NOW, &check).await.unwrap();
            let earlier = NOW.plus_millis(-1_000);
            let second = behind.check_limit(TENANT, earlier, &check).await.unwrap();
            given += u32::from(first.allowed) + u32::from(second.allowed);
        }
        assert_eq!(given, 5);
    }
}

#[tokio::test]
async fn a_clock_that_is_behind_opens_no_window_again_beside_a_bucket() {
    let Some(emulator) = Emulator::start(Kind::Moto).await else {
        return;
    };
    let table = emulator.table().await;
    let (ahead, behind) = (host(emulator.port, &table), host(emulator.port, &table));
    let asks = || Asks {
        limits: vec![
            limit(&bucket(9, 1, false), "k", 1),
            limit(&window(9), "k", 1),
        ],
        ..Asks::default()
    };
    let first = ahead.admit(TENANT, NOW, asks()).await.unwrap();
    assert_eq!((first.now, first.limits[1].remaining), (NOW, 8));
    let earlier = NOW.plus_millis(-1);
    let second = behind.admit(TENANT, earlier, asks()).await.unwrap();
    assert_eq!((second.now, second.limits[1].remaining), (NOW, 7));
}

/// Expired items stay until DynamoDB removes them, but they no longer count.
#[tokio::test]
async fn expired_rows_count_as_gone() {
    for kind in [Kind::Dynalite, Kind::Moto] {
        let Some(emulator) = Emulator::start(kind).await else {
            continue;
        };
        let table = emulator.table().await;
        let host = host(emulator.port, &table);
        let asks = Asks {
            nonces: vec![nonce("n", 60)],
            ..Asks::default()
        };
        let first_seen = NOW.as_millis() / 1_000;
        let replay = |first_seen| NonceResult::Replay {
            first_seen: Some(first_seen),
        };
        for (millis, expected) in [
            (0, NonceResult::Accepted),
            (59_999, replay(first_seen)),
            (60_000, NonceResult::Accepted),
            (60_001, replay(first_seen + 60)),
        ] {
            let now = NOW.plus_millis(millis);
            let verdicts = host.admit(TENANT, now, asks.clone()).await.unwrap();
            assert_eq!(verdicts.nonces, [expected], "{millis}");
        }
        // A sequence of delays never expires, so its item has no ttl.
        let check = limit(&delay(1), "k", 1);
        host.check_limit(TENANT, NOW, &check).await.unwrap();
        let items = emulator.items(&table).await;
        let lasting = |item: &&serde_json::Value| item.get("ttl").is_none();
        assert_eq!(items.len(), 2);
        assert_eq!(items.iter().filter(lasting).count(), 1);
    }
}
