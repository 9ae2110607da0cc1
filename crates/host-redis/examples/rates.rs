//! Measures decisions by Redis, with many callers at once.
//!
//!     cargo run --release -p asyncgate-host-redis --example rates -- ADDRESS CALLERS SECONDS
//!
//! Prints rates per second: bucket checks, nonces one by one, nonces a hundred at a time.

#![expect(clippy::print_stdout, reason = "it prints the figures")]
#![expect(clippy::unwrap_used, reason = "a program for those who measure")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use asyncgate_core::{
    TenantId, Timestamp,
    admission::{Asks, Bucket, LimitCheck, MILLIONTHS, NonceCheck, Rule},
};
use asyncgate_host_redis::RedisHost;
use asyncgate_store::{Stopwatch, admission::Host};

const TENANT: TenantId = TenantId::from_bytes([1; 16]);
/// The number of buckets, which are asked in turn.
const KEYS: u64 = 10_000;
const BATCH: u64 = 100;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [address, callers, seconds] = words.as_slice() else {
        println!("rates ADDRESS CALLERS SECONDS");
        return;
    };
    let host = Arc::new(RedisHost::new(address.parse().unwrap()).unwrap());
    while host.ping().await.is_err() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let run = Run {
        host,
        callers: callers.parse().unwrap(),
        length: Duration::from_secs(seconds.parse().unwrap()),
        next: Arc::default(),
    };
    let buckets = run.rate(one_bucket).await;
    let nonces = run.rate(|number| new_nonces(number, 1)).await;
    let batches = run.rate(|number| new_nonces(number, BATCH)).await;
    println!("{buckets:.0} {nonces:.0} {:.0}", batches * BATCH as f64);
}

struct Run {
    host: Arc<RedisHost>,
    callers: usize,
    length: Duration,
    /// The number of the next question. No number is used twice.
    next: Arc<AtomicU64>,
}

impl Run {
    /// Returns the answered questions per second. Each caller asks its next question when it has an answer.
    async fn rate(&self, asks: fn(u64) -> Asks) -> f64 {
        let watch = Stopwatch::start();
        let length = self.length;
        let callers = (0..self.callers).map(|_| {
            let (host, next) = (Arc::clone(&self.host), Arc::clone(&self.next));
            tokio::spawn(async move {
                let mut answered = 0_u64;
                while watch.elapsed() < length {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let answer = host.admit(TENANT, Timestamp::default(), asks(number)).await;
                    assert!(answer.unwrap().passed(), "nothing is refused here");
                    answered += 1;
                }
                answered
            })
        });
        let mut answered = 0;
        for caller in callers.collect::<Vec<_>>() {
            answered += caller.await.unwrap();
        }
        answered as f64 / watch.elapsed().as_secs_f64()
    }
}

/// Checks a bucket that is never empty.
fn one_bucket(number: u64) -> Asks {
    let bucket = Bucket::per_minute(1_000_000_000, 1_000_000 * MILLIONTHS);
    let check = LimitCheck {
        policy: "bench".into(),
        key: format!("client-{:05}", number % KEYS),
        rule: Rule::Bucket(bucket.unwrap()),
        cost: 1,
        shadow: false,
    };
    Asks {
        limits: vec![check],
        ..Asks::default()
    }
}

/// Uses so many new nonces.
fn new_nonces(number: u64, count: u64) -> Asks {
    let nonce = |n: u64| NonceCheck {
        namespace: [7; 32],
        nonce: (number * BATCH + n).to_be_bytes().to_vec(),
        ttl_secs: 60,
    };
    Asks {
        nonces: (0..count).map(nonce).collect(),
        ..Asks::default()
    }
}
