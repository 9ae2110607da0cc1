//! The same for admission: one random history of questions on both stores, compared answer by answer,
//! and what is kept at the end, over restarts of the one that has a file.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use asyncgate_core::{
    TenantId, Timestamp,
    admission::{Asks, Increment, LimitCheck, NonceCheck, Revocation, Rule, Together},
};
use asyncgate_store::{
    Store,
    conformance::{bucket, delay, subject, window},
    memory::MemoryStore,
};
use proptest::prelude::*;

use crate::{TENANTS, config, open};

#[derive(Debug, Clone)]
pub enum Step {
    Wait(i64),
    Reopen,
    Ask(u8, Asks),
    Short(u8, LimitCheck),
    Revoke(u8, u8),
    Unrevoke(u8, u8),
}

struct Pair {
    memory: Arc<dyn Store>,
    sqlite: Arc<dyn Store>,
    open: fn(&Path) -> Arc<dyn Store>,
    path: PathBuf,
    now: Timestamp,
}

fn tenant(number: u8) -> TenantId {
    TenantId::from_bytes([number % TENANTS; 16])
}

impl Pair {
    fn new(path: PathBuf, open: fn(&Path) -> Arc<dyn Store>) -> Self {
        Self {
            memory: Arc::new(MemoryStore::new()),
            sqlite: open(&path),
            open,
            path,
            now: Timestamp::from_millis(1_767_610_800_000),
        }
    }

    async fn step(&mut self, step: Step) {
        let now = self.now;
        match step {
            Step::Wait(millis) => self.now = now.plus_millis(millis),
            Step::Reopen => {
                self.sqlite = Arc::new(MemoryStore::new());
                self.sqlite = (self.open)(&self.path);
            }
            Step::Ask(of, asks) => {
                let expected = self.memory.admission().admit(tenant(of), now, asks.clone());
                let found = self.sqlite.admission().admit(tenant(of), now, asks);
                assert_eq!(found.await, expected.await);
            }
            Step::Short(of, check) => {
                let expected = self.memory.admission().check_limit(tenant(of), now, &check);
                let found = self.sqlite.admission().check_limit(tenant(of), now, &check);
                assert_eq!(found.await, expected.await);
            }
            Step::Revoke(of, number) => {
                let revocation = Revocation {
                    subject: subject(number),
                    reason: (number % 2 == 0).then(|| now.to_string()),
                    revoked_at: now,
                };
                let expected = self.memory.admission();
                let expected = expected.revoke(tenant(of), revocation.clone());
                let found = self.sqlite.admission().revoke(tenant(of), revocation);
                assert_eq!(found.await, expected.await);
            }
            Step::Unrevoke(of, number) => {
                let subject = subject(number);
                let expected = self.memory.admission().unrevoke(tenant(of), now, subject);
                let found = self.sqlite.admission().unrevoke(tenant(of), now, subject);
                assert_eq!(found.await, expected.await);
            }
        }
    }

    async fn compare(&self) {
        for of in 0..TENANTS {
            let list = |store: &Arc<dyn Store>| {
                let store = Arc::clone(store);
                async move { store.admission().revocations(tenant(of), None, 1_000).await }
            };
            assert_eq!(list(&self.sqlite).await, list(&self.memory).await);
        }
    }
}

fn nonce() -> impl Strategy<Value = NonceCheck> {
    (0..2_u8, 0..6_u8, 1..30_u64).prop_map(|(space, text, ttl_secs)| NonceCheck {
        namespace: [space; 32],
        nonce: vec![text],
        ttl_secs,
    })
}

fn increment() -> impl Strategy<Value = Increment> {
    let by = prop_oneof![4 => 0..3_u64, 1 => Just(u64::MAX)];
    (0..2_u8, 1..20_u64, 0..5_u64, by).prop_map(|(space, window_secs, limit, by)| Increment {
        namespace: [space; 32],
        window_secs,
        limit,
        by,
    })
}

fn check() -> impl Strategy<Value = LimitCheck> {
    let rules: [Rule; 5] = [
        bucket(5, 20, false),
        bucket(5, 20, true),
        bucket(3, 1, true),
        window(4),
        delay(7),
    ];
    let cost = prop_oneof![6 => Just(1_i64), 3 => -2..7_i64, 1 => Just(i64::MAX)];
    (0..rules.len(), 0..3_u8, cost, prop::bool::weighted(0.1)).prop_map(
        move |(rule, key, cost, shadow)| {
            let cost = match rules[rule] {
                Rule::Delay(_) => cost.clamp(0, 1),
                Rule::Bucket(_) | Rule::Window(_) => cost,
            };
            LimitCheck {
                policy: rule.to_string().into(),
                key: key.to_string(),
                rule: rules[rule].clone(),
                cost,
                shadow,
            }
        },
    )
}

fn asks() -> impl Strategy<Value = Asks> {
    use prop::collection::vec;
    let together = prop_oneof![Just(Together::Each), Just(Together::All)];
    (
        vec(increment(), 0..3),
        vec(check(), 0..4),
        vec(nonce(), 0..4),
        together,
        prop::bool::weighted(0.2),
    )
        .prop_map(|(counters, limits, nonces, together, peek)| Asks {
            counters,
            limits,
            nonces,
            together,
            peek,
        })
}

pub fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..15_000_i64).prop_map(Step::Wait),
        1 => Just(Step::Reopen),
        8 => (any::<u8>(), asks()).prop_map(|(of, asks)| Step::Ask(of, asks)),
        4 => (any::<u8>(), check()).prop_map(|(of, check)| Step::Short(of, check)),
        1 => (any::<u8>(), 0..4_u8).prop_map(|(of, number)| Step::Revoke(of, number)),
        1 => (any::<u8>(), 0..4_u8).prop_map(|(of, number)| Step::Unrevoke(of, number)),
    ]
}

/// Takes the steps on both stores and compares them.
pub fn compare(open: fn(&Path) -> Arc<dyn Store>, steps: Vec<Step>) {
    let dir = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut pair = Pair::new(dir.path().join("a.db"), open);
        for step in steps {
            pair.step(step).await;
        }
        pair.compare().await;
    });
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn the_store_decides_as_memory_does(steps in prop::collection::vec(step(), 1..100)) {
        compare(open, steps);
    }
}
