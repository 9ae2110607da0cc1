//! Admission in the in-memory store: its memory is bounded, and it forgets no limit that is in force.

use std::sync::Arc;

use asyncgate_core::{Timestamp, admission::Asks};
use asyncgate_store::{
    Error,
    admission::{Admission, Host},
    conformance::{HostDriver, bucket, limit, nonce},
    memory::MemoryStore,
};

#[tokio::test]
async fn a_full_store_takes_nothing_new_and_forgets_nothing_that_matters() {
    let store = Arc::new(MemoryStore::with_admission_rows(100));
    let mut driver = HostDriver::new(Arc::clone(&store) as Arc<dyn Host>);
    for n in 0..100 {
        assert!(driver.use_nonce(nonce(&n.to_string(), 60)).await);
    }
    let more = |driver: &HostDriver| {
        let nonces = vec![nonce("0", 60), nonce("more", 60)];
        let asks = Asks {
            nonces,
            ..Asks::default()
        };
        store.admit(driver.tenant, driver.now, asks)
    };
    assert!(matches!(more(&driver).await, Err(Error::Unavailable(_))));
    let rule = bucket(10, 1, false);
    let check = limit(&rule, "k", 1);
    let taken = store.check_limit(driver.tenant, driver.now, &check).await;
    assert!(matches!(taken, Err(Error::Unavailable(_))));
    // Questions about known rows are still answered, and so are those that need no row.
    assert!(!driver.use_nonce(nonce("0", 60)).await);
    assert_eq!(driver.limit(&limit(&rule, "k", 0)).await.remaining, 10);
    assert_eq!(store.rows().await.unwrap(), 100);
    // Once the time of the rows is over, each call makes a little room.
    driver.wait_ms(120_000);
    for _ in 0..30 {
        driver.limit(&limit(&rule, "k", 0)).await;
    }
    assert!(more(&driver).await.unwrap().passed());
}

/// Many callers come once each: a bucket that is full again is not kept.
#[tokio::test]
async fn many_keys_that_come_once_do_not_pile_up() {
    let store = Arc::new(MemoryStore::new());
    let mut driver = HostDriver::new(Arc::clone(&store) as Arc<dyn Host>);
    let rule = bucket(100, 600, true);
    let start = driver.now;
    let mut most = 0;
    // Ten calls a millisecond; a token is back after 100 ms, and a slot is 256 ms wide.
    for n in 0..60_000_u32 {
        driver.now = Timestamp::from_millis(start.as_millis() + i64::from(n / 10));
        let key = n.to_string();
        assert!(driver.limit(&limit(&rule, &key, 1)).await.allowed);
        if n % 1_000 == 0 {
            most = most.max(store.rows().await.unwrap());
        }
    }
    assert!(most < 10_000, "{most} rows at once");
}

/// A key that is used all the time keeps its row, however often old rows are cleared.
#[tokio::test]
async fn a_busy_key_is_never_forgotten() {
    let mut driver = HostDriver::new(Arc::new(MemoryStore::new()));
    let rule = bucket(10, 60, false);
    let mut given = 0;
    for n in 0..10_000 {
        driver.wait_ms(10);
        given += u32::from(driver.limit(&limit(&rule, "busy", 1)).await.allowed);
        driver.limit(&limit(&rule, &n.to_string(), 1)).await;
    }
    // The bucket held ten, and got one a second between the first call and the last, 99.99 seconds later.
    assert_eq!(given, 10 + 99);
}
