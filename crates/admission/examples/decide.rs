//! Measures decisions about token buckets in memory: the rate of one core, or the memory of the keys.
//!
//!     cargo run --release -p asyncgate-admission --example decide -- rate SECONDS
//!     cargo run --release -p asyncgate-admission --example decide -- keys COUNT

#![expect(clippy::print_stdout, reason = "the figures are the point")]
#![expect(clippy::unwrap_used, reason = "a program for those who measure")]

use std::{fs, sync::Arc, time::Duration};

use asyncgate_admission::{FailureMode, Guard, Host, Settings};
use asyncgate_core::{
    TenantId, Timestamp,
    admission::{Bucket, LimitCheck, MILLIONTHS, Rule},
};
use asyncgate_store::{Stopwatch, memory::MemoryStore};

const TENANT: TenantId = TenantId::from_bytes([1; 16]);
/// As many keys as a busy server meets within seconds; their rows do not fit the nearest caches.
const KEYS: usize = 10_000;
/// Decisions between two looks at the clock.
const ROUND: usize = 100_000;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = words.get(1).and_then(|word| word.parse().ok());
    match (words.first().map(String::as_str), number) {
        (Some("rate"), Some(seconds)) => rate(Duration::from_secs(seconds)).await,
        (Some("keys"), Some(count)) => keys(usize::try_from(count).unwrap()).await,
        _ => println!("decide rate SECONDS | decide keys COUNT"),
    }
}

/// Builds a check of a bucket that takes minutes to fill.
fn check(key: usize, capacity: u64) -> LimitCheck {
    let per_minute = capacity.div_ceil(10) * MILLIONTHS;
    LimitCheck {
        policy: "bench".into(),
        key: format!("client-{key}"),
        rule: Rule::Bucket(Bucket::per_minute(capacity, per_minute).unwrap()),
        cost: 1,
        shadow: false,
    }
}

fn at(millis: usize) -> Timestamp {
    Timestamp::from_millis(1_700_000_000_000 + i64::try_from(millis).unwrap())
}

/// Prints decisions per second, by the backend alone and with the guard before it.
async fn rate(length: Duration) {
    let checks: Vec<LimitCheck> = (0..KEYS).map(|key| check(key, 1_000_000)).collect();
    let host = Arc::new(MemoryStore::default());
    let guard = Guard::new(host.clone(), Settings::default());
    let (mut rates, mut done) = ([0.0; 2], 0);
    for (guarded, rate) in [false, true].into_iter().zip(&mut rates) {
        let watch = Stopwatch::start();
        let mut count = 0;
        while watch.elapsed() < length {
            for check in checks.iter().cycle().take(ROUND) {
                // The time moves on by a millisecond now and then, as it does for a server.
                let now = at(done / 1_000);
                let allowed = if guarded {
                    let answered = guard.check_limit(TENANT, now, check).await;
                    answered.unwrap().answer.allowed
                } else {
                    host.check_limit(TENANT, now, check).await.unwrap().allowed
                };
                assert!(allowed, "the buckets are large enough");
                done += 1;
            }
            count += ROUND;
        }
        *rate = count as f64 / watch.elapsed().as_secs_f64();
    }
    let [host, guard] = rates;
    println!("{host:.0} {guard:.0}");
}

/// Fills the backend with keys until it has no room, and checks that every limit still holds. Prints the
/// bytes of a key, the bytes of the process, and the number of further keys that found no room.
async fn keys(count: usize) {
    let host = Arc::new(MemoryStore::with_admission_rows(count));
    let closed = Settings {
        counters: FailureMode::Closed,
        ..Settings::default()
    };
    let guard = Guard::new(host.clone(), closed);
    let before = resident();
    // Each key has one token, and gets it back after a minute.
    let ask = async |key| host.check_limit(TENANT, at(0), &check(key, 1)).await;
    for key in 0..count {
        assert!(ask(key).await.unwrap().allowed, "a first call passes");
    }
    let used = resident().saturating_sub(before);
    let mut without_room = 0;
    for key in count..count + count / 100 {
        let asked = guard.check_limit(TENANT, at(1), &check(key, 1)).await;
        without_room += usize::from(asked.is_err());
    }
    for key in (0..count).step_by(97) {
        let again = ask(key).await.unwrap();
        assert!(!again.allowed, "key {key} was let off its limit");
    }
    println!("{} {} {without_room}", used / count, resident());
}

/// Returns the bytes of memory that the process holds.
fn resident() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib: usize = line
        .unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap();
    kib * 1_024
}
