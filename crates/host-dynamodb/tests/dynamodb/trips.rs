//! How many requests an operation takes.

use asyncgate_core::{
    TenantId, Timestamp,
    admission::{Asks, Increment, NonceCheck, Revocation, Together},
};
use asyncgate_host_dynamodb::DynamoHost;
use asyncgate_store::{
    admission::Host,
    conformance::{bucket, increment, limit, nonce, subject, window},
};
use serde_json::json;

use crate::{
    emulators::{Emulator, Kind, host},
    tap::Tap,
};

const TENANT: TenantId = TenantId::from_bytes([7; 16]);
const NOW: Timestamp = Timestamp::from_millis(1_731_690_000_000);

struct Setup {
    emulator: Emulator,
    tap: Tap,
    table: String,
    host: DynamoHost,
}

impl Setup {
    async fn new(kind: Kind) -> Option<Self> {
        let emulator = Emulator::start(kind).await?;
        let table = emulator.table().await;
        let tap = Tap::start(emulator.port).await;
        Some(Self {
            host: host(tap.port, &table),
            emulator,
            tap,
            table,
        })
    }

    /// Another instance on the same table, whose requests are noted too.
    fn other(&self) -> DynamoHost {
        host(self.tap.port, &self.table)
    }

    async fn trips(&self, host: &DynamoHost, asks: Asks) -> (bool, Vec<String>) {
        self.tap.noted();
        let verdicts = host.admit(TENANT, NOW, asks).await.unwrap();
        (verdicts.passed(), self.tap.noted())
    }

    /// Asks, and compares whether it passed and what that took.
    async fn expect(&self, asks: &Asks, passed: bool, trips: &[&str]) {
        let told = self.trips(&self.host, asks.clone()).await;
        let trips = trips.iter().map(ToString::to_string).collect();
        assert_eq!(told, (passed, trips), "{asks:?}");
    }
}

fn nonces(texts: &[&str]) -> Asks {
    let nonces: Vec<NonceCheck> = texts.iter().map(|text| nonce(text, 60)).collect();
    Asks {
        nonces,
        ..Asks::default()
    }
}

fn count(increment: Increment) -> Asks {
    Asks {
        counters: vec![increment],
        ..Asks::default()
    }
}

fn bucket_of_two() -> Asks {
    Asks {
        limits: vec![limit(&bucket(2, 1, false), "k", 1)],
        ..Asks::default()
    }
}

#[tokio::test]
async fn a_nonce_is_one_trip_and_a_replay_is_too_where_the_row_is_told() {
    for kind in [Kind::Dynalite, Kind::Moto] {
        let Some(setup) = Setup::new(kind).await else {
            continue;
        };
        let one = nonces(&["a"]);
        setup.expect(&one, true, &["PutItem"]).await;
        let replay: &[&str] = match kind {
            Kind::Dynalite => &["PutItem", "GetItem"],
            Kind::Moto => &["PutItem"],
        };
        setup.expect(&one, false, replay).await;
        let peek = Asks { peek: true, ..one };
        setup.expect(&peek, false, &["GetItem"]).await;
        setup.expect(&Asks::default(), true, &[]).await;
    }
}

#[tokio::test]
async fn a_counter_is_one_trip() {
    for kind in [Kind::Dynalite, Kind::Moto] {
        let Some(setup) = Setup::new(kind).await else {
            continue;
        };
        setup
            .expect(&count(increment(1)), true, &["UpdateItem"])
            .await;
        setup
            .expect(&count(increment(1)), false, &["UpdateItem"])
            .await;
        let peek = Asks {
            peek: true,
            ..count(increment(9))
        };
        setup.expect(&peek, true, &["GetItem"]).await;
        let items = setup.emulator.items(&setup.table).await;
        assert_eq!(items.len(), 1);
        assert_eq!(items[0]["count"], json!({ "N": "2" }));
        let until = NOW.as_millis() / 60_000 * 60 + 120;
        assert_eq!(items[0]["until"], json!({ "N": format!("{until}000") }));
        let ttl = until + 3_600;
        assert_eq!(items[0]["ttl"], json!({ "N": ttl.to_string() }));
    }
}

#[tokio::test]
async fn a_limit_is_one_trip_while_nobody_else_writes_it() {
    for kind in [Kind::Dynalite, Kind::Moto] {
        let Some(setup) = Setup::new(kind).await else {
            continue;
        };
        setup.expect(&bucket_of_two(), true, &["PutItem"]).await;
        let (passed, trips) = setup.trips(&setup.other(), bucket_of_two()).await;
        assert!(passed);
        let found_out: &[&str] = match kind {
            Kind::Dynalite => &["PutItem", "GetItem", "PutItem"],
            Kind::Moto => &["PutItem", "PutItem"],
        };
        assert_eq!(trips, found_out);
        // The first one believes that there is one left.
        let found_out = &found_out[..found_out.len() - 1];
        setup.expect(&bucket_of_two(), false, found_out).await;
    }
}

#[tokio::test]
async fn several_rows_are_one_transaction() {
    let Some(setup) = Setup::new(Kind::Moto).await else {
        return;
    };
    let write = "TransactWriteItems";
    let both = |text: &str| Asks {
        limits: vec![limit(&window(9), "k", 1)],
        ..nonces(&[text])
    };
    setup.expect(&both("a"), true, &[write]).await;
    setup.expect(&both("b"), true, &[write]).await;
    // A replay writes nothing, so it is read at one moment.
    let read = "TransactGetItems";
    setup.expect(&both("b"), false, &[write, read]).await;
    setup.expect(&nonces(&["c", "d"]), true, &[write]).await;
    // One of them is known: the other is written after all.
    setup
        .expect(&nonces(&["c", "e"]), false, &[write, write])
        .await;
    setup.expect(&nonces(&["e"]), false, &["PutItem"]).await;
    let together = Asks {
        together: Together::All,
        ..nonces(&["e", "f"])
    };
    setup.expect(&together, false, &[write, read]).await;
    setup.expect(&nonces(&["f"]), true, &["PutItem"]).await;
}

#[tokio::test]
async fn revocations_are_one_trip() {
    let Some(setup) = Setup::new(Kind::Dynalite).await else {
        return;
    };
    let (host, tap) = (&setup.host, &setup.tap);
    let revocation = |number| Revocation {
        subject: subject(number),
        reason: None,
        revoked_at: NOW,
    };
    assert!(host.revoke(TENANT, revocation(1)).await.unwrap().1);
    assert_eq!(tap.noted(), ["PutItem"]);
    assert!(!host.revoke(TENANT, revocation(1)).await.unwrap().1);
    assert_eq!(tap.noted(), ["PutItem", "GetItem"]);
    host.revoked(TENANT, vec![subject(1)]).await.unwrap();
    assert_eq!(tap.noted(), ["GetItem"]);
    let many: Vec<_> = (0..150).map(subject).chain([subject(1)]).collect();
    let found = host.revoked(TENANT, many).await.unwrap();
    assert_eq!(tap.noted(), ["BatchGetItem"; 2]);
    let found: Vec<bool> = found.iter().map(Option::is_some).collect();
    assert!((0..151).all(|n| found[n] == (n == 1 || n == 150)));
    host.revoke(TENANT, revocation(2)).await.unwrap();
    tap.noted();
    assert_eq!(host.revocations(TENANT, None, 9).await.unwrap().len(), 2);
    assert_eq!(tap.noted(), ["Query"]);
    assert!(host.revocations(TENANT, None, 0).await.unwrap().is_empty());
    assert!(tap.noted().is_empty());
    assert!(host.unrevoke(TENANT, NOW, subject(1)).await.unwrap());
    assert_eq!(tap.noted(), ["DeleteItem"]);
    host.ping().await.unwrap();
    assert_eq!(tap.noted(), ["GetItem"]);
}
