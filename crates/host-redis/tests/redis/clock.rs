//! The server's clock counts, and rows are removed after they have expired.

use asyncgate_core::{
    TenantId, Timestamp,
    admission::{Asks, Increment, NonceResult, Verdicts},
};
use asyncgate_host_redis::RedisHost;
use asyncgate_store::{
    admission::Host,
    conformance::{bucket, delay, increment, limit, nonce, window},
};

use asyncgate_store::conformance::eventually;

use crate::servers::{Server, available, connected};

const TENANT: TenantId = TenantId::from_bytes([7; 16]);

async fn ask(host: &RedisHost, now: Timestamp, asks: Asks) -> Verdicts {
    host.admit(TENANT, now, asks).await.unwrap()
}

async fn use_nonce(host: &RedisHost, now: Timestamp, ttl_secs: u64) -> (Timestamp, NonceResult) {
    let asks = Asks {
        nonces: vec![nonce("n", ttl_secs)],
        ..Asks::default()
    };
    let verdicts = ask(host, now, asks).await;
    (verdicts.now, verdicts.nonces[0])
}

#[tokio::test]
async fn the_callers_clocks_do_not_count() {
    if !available() {
        return;
    }
    let server = Server::start(&[]).await;
    let host = connected(RedisHost::new(server.address()).unwrap()).await;
    let (first, result) = use_nonce(&host, Timestamp::from_millis(i64::MAX), 60).await;
    assert_eq!(result, NonceResult::Accepted);
    let (second, result) = use_nonce(&host, Timestamp::from_millis(0), 60).await;
    let first_seen = Some(first.as_millis() / 1_000);
    assert_eq!(result, NonceResult::Replay { first_seen });
    assert!(first <= second && second.millis_since(first) < 60_000);
}

#[tokio::test]
async fn rows_are_removed_after_they_have_expired() {
    if !available() {
        return;
    }
    let server = Server::start(&[]).await;
    let host = connected(RedisHost::new(server.address()).unwrap()).await;
    let now = Timestamp::default();
    let first = use_nonce(&host, now, 1).await.0;
    eventually("the nonce is new again", async || {
        let (second, result) = use_nonce(&host, now, 1).await;
        let over = second.millis_since(first) >= 1_000;
        assert_eq!(result == NonceResult::Accepted, over);
        over
    })
    .await;
    let second_long = Increment {
        window_secs: 1,
        ..increment(9)
    };
    let asks = Asks {
        counters: vec![second_long],
        limits: vec![limit(&bucket(9, 600, false), "k", 1)],
        ..Asks::default()
    };
    assert!(ask(&host, now, asks).await.passed());
    eventually("nothing is left", async || {
        server.command(&["DBSIZE"]).await.unwrap().starts_with(":0")
    })
    .await;
    // A sequence of delays never expires.
    let asks = Asks {
        limits: vec![limit(&delay(1), "k", 1), limit(&window(5), "k", 0)],
        ..Asks::default()
    };
    assert!(ask(&host, now, asks).await.passed());
    let keys = server.command(&["RANDOMKEY"]).await.unwrap();
    let key = keys.lines().nth(1).unwrap();
    assert!(
        key.contains(":{07070707070707070707070707070707}:rl:"),
        "{key}"
    );
    let ttl = server.command(&["PTTL", key]).await.unwrap();
    assert!(ttl.starts_with(":-1"), "{ttl}");
}

#[tokio::test]
async fn a_clock_that_goes_back_does_not_reopen_a_window() {
    if !available() {
        return;
    }
    let server = Server::start(&[]).await;
    let host = connected(RedisHost::simulated(server.address()).unwrap()).await;
    let count = async |now| {
        let asks = Asks {
            counters: vec![increment(9)],
            ..Asks::default()
        };
        let verdicts = ask(&host, Timestamp::from_millis(now), asks).await;
        (verdicts.now.as_millis(), verdicts.counters[0].count)
    };
    assert_eq!(count(60_000_000).await, (60_000_000, 1));
    assert_eq!(count(59_999_999).await, (60_000_000, 2));
    assert_eq!(count(60_000_001).await, (60_000_001, 3));
}
