//! Many callers of several instances at once get answers that they could also have got one after the other.

use std::{collections::BTreeSet, sync::Arc};

use asyncgate_core::{
    TenantId, Timestamp,
    admission::{Asks, Verdicts},
};
use asyncgate_host_dynamodb::DynamoHost;
use asyncgate_store::{
    admission::Host,
    conformance::{bucket, increment, limit, nonce, window},
};
use futures_util::future::join_all;

use crate::emulators::{Emulator, Kind, host};

const TENANT: TenantId = TenantId::from_bytes([7; 16]);
const NOW: Timestamp = Timestamp::from_millis(1_731_690_000_000);
const CALLERS: usize = 64;
const INSTANCES: usize = 4;

/// Several instances that share a table.
struct Instances(Vec<Arc<DynamoHost>>);

impl Instances {
    async fn new(emulator: &Emulator) -> Self {
        let table = emulator.table().await;
        let host = |_| Arc::new(host(emulator.port, &table));
        Self((0..INSTANCES).map(host).collect())
    }

    /// Asks the same question of all instances at once.
    async fn ask(&self, asks: &Asks) -> Vec<Verdicts> {
        let calls = self.0.iter().cycle().take(CALLERS).map(|host| {
            let (host, asks) = (Arc::clone(host), asks.clone());
            tokio::spawn(async move { host.admit(TENANT, NOW, asks).await.unwrap() })
        });
        let answers = join_all(calls).await;
        answers.into_iter().map(Result::unwrap).collect()
    }
}

fn passed(answers: &[Verdicts]) -> usize {
    answers.iter().filter(|verdicts| verdicts.passed()).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_callers_who_use_one_nonce_one_may() {
    for kind in [Kind::Dynalite, Kind::Moto] {
        let Some(emulator) = Emulator::start(kind).await else {
            continue;
        };
        let instances = Instances::new(&emulator).await;
        for round in 0..8 {
            let asks = Asks {
                nonces: vec![nonce(&round.to_string(), 600)],
                ..Asks::default()
            };
            assert_eq!(passed(&instances.ask(&asks).await), 1);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn counts_are_all_different_and_none_is_missing() {
    for kind in [Kind::Dynalite, Kind::Moto] {
        let Some(emulator) = Emulator::start(kind).await else {
            continue;
        };
        let asks = Asks {
            counters: vec![increment(40)],
            ..Asks::default()
        };
        let answers = Instances::new(&emulator).await.ask(&asks).await;
        let counts: BTreeSet<u64> = answers.iter().map(|it| it.counters[0].count).collect();
        assert_eq!(counts, (1..=CALLERS as u64).collect());
        assert_eq!(passed(&answers), 40);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_gives_what_it_holds_and_each_token_once() {
    for kind in [Kind::Dynalite, Kind::Moto] {
        let Some(emulator) = Emulator::start(kind).await else {
            continue;
        };
        let asks = Asks {
            limits: vec![limit(&bucket(40, 1, false), "k", 1)],
            ..Asks::default()
        };
        let answers = Instances::new(&emulator).await.ask(&asks).await;
        assert_eq!(passed(&answers), 40);
        let given = answers.iter().filter(|verdicts| verdicts.passed());
        let left: BTreeSet<u64> = given.map(|it| it.limits[0].remaining).collect();
        assert_eq!(left, (0..40).collect());
    }
}

/// One caller uses both nonces of the pair; never does one caller use the first and another the second.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_asked_together_is_decided_together() {
    let Some(emulator) = Emulator::start(Kind::Moto).await else {
        return;
    };
    let instances = Instances::new(&emulator).await;
    let pair = Asks {
        nonces: vec![nonce("a", 600), nonce("b", 600)],
        ..Asks::default()
    };
    let answers = instances.ask(&pair).await;
    assert_eq!(passed(&answers), 1);
    let agree = |verdicts: &Verdicts| {
        let used =
            |n: usize| verdicts.nonces[n] == asyncgate_core::admission::NonceResult::Accepted;
        used(0) == used(1)
    };
    assert!(answers.iter().all(agree));
    let both = Asks {
        limits: vec![
            limit(&bucket(40, 1, false), "k", 1),
            limit(&window(64), "k", 1),
        ],
        ..Asks::default()
    };
    assert_eq!(passed(&instances.ask(&both).await), 40);
    let look = Asks {
        limits: vec![limit(&window(64), "k", 0)],
        ..Asks::default()
    };
    let verdicts = instances.0[0].admit(TENANT, NOW, look).await.unwrap();
    assert_eq!(verdicts.limits[0].remaining, 24);
}
