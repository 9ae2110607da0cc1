//! The number of requests that each question takes.

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
    proxy::Proxy,
};

const TENANT: TenantId = TenantId::from_bytes([7; 16]);
const NOW: Timestamp = Timestamp::from_millis(1_731_690_000_000);

struct Setup {
    emulator: Emulator,
    proxy: Proxy,
    table: String,
    host: DynamoHost,
}

impl Setup {
    async fn new(kind: Kind) -> Option<Self> {
        let emulator = Emulator::start(kind).await?;
        let table = emulator.table().await;
        let proxy = Proxy::start(emulator.port).await;
        Some(Self {
            host: host(proxy.port, &table),
            emulator,
            proxy,
            table,
        })
    }

    /// Returns another instance on the same table, behind the same proxy.
    fn other(&self) -> DynamoHost {
        host(self.proxy.port, &self.table)
    }

    async fn requests(&self, host: &DynamoHost, asks: Asks) -> (bool, Vec<String>) {
        self.proxy.operations();
        let verdicts = host.admit(TENANT, NOW, asks).await.unwrap();
        (verdicts.passed(), self.proxy.operations())
    }

    /// Asks, and compares the verdict and the requests that it took.
    async fn expect(&self, asks: &Asks, passed: bool, requests: &[&str]) {
        let answer = self.requests(&self.host, asks.clone()).await;
        let requests = requests.iter().map(ToString::to_string).collect();
        assert_eq!(answer, (passed, requests), "{asks:?}");
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
async fn a_nonce_is_one_request_and_so_is_a_replay_if_the_refusal_tells_the_row() {
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
async fn a_counter_is_one_request() {
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
async fn a_limit_is_one_request_while_nobody_else_writes_it() {
    for kind in [Kind::Dynalite, Kind::Moto] {
        let Some(setup) = Setup::new(kind).await else {
            continue;
        };
        setup.expect(&bucket_of_two(), true, &["PutItem"]).await;
        let (passed, requests) = setup.requests(&setup.other(), bucket_of_two()).await;
        assert!(passed);
        let expected: &[&str] = match kind {
            Kind::Dynalite => &["PutItem", "GetItem", "PutItem"],
            Kind::Moto => &["PutItem", "PutItem"],
        };
        assert_eq!(requests, expected);
        // The first instance assumes that one token is left.
        let expected = &expected[..expected.len() - 1];
        setup.expect(&bucket_of_two(), false, expected).await;
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
    // A replay writes nothing, so all rows are read at one moment.
    let read = "TransactGetItems";
    setup.expect(&both("b"), false, &[write, read]).await;
    setup.expect(&nonces(&["c", "d"]), true, &[write]).await;
    // One of them was used: the other is written all the same.
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
async fn revocations_are_one_request() {
    let Some(setup) = Setup::new(Kind::Dynalite).await else {
        return;
    };
    let (host, proxy) = (&setup.host, &setup.proxy);
    let revocation = |number| Revocation {
        subject: subject(number),
        reason: None,
        revoked_at: NOW,
    };
    assert!(host.revoke(TENANT, revocation(1)).await.unwrap().1);
    assert_eq!(proxy.operations(), ["PutItem"]);
    assert!(!host.revoke(TENANT, revocation(1)).await.unwrap().1);
    assert_eq!(proxy.operations(), ["PutItem", "GetItem"]);
    host.revoked(TENANT, vec![subject(1)]).await.unwrap();
    assert_eq!(proxy.operations(), ["GetItem"]);
    let many: Vec<_> = (0..150).map(subject).chain([subject(1)]).collect();
    let found = host.revoked(TENANT, many).await.unwrap();
    assert_eq!(proxy.operations(), ["BatchGetItem"; 2]);
    let found: Vec<bool> = found.iter().map(Option::is_some).collect();
    assert!((0..151).all(|n| found[n] == (n == 1 || n == 150)));
    host.revoke(TENANT, revocation(2)).await.unwrap();
    proxy.operations();
    assert_eq!(host.revocations(TENANT, None, 9).await.unwrap().len(), 2);
    assert_eq!(proxy.operations(), ["Query"]);
    assert!(host.revocations(TENANT, None, 0).await.unwrap().is_empty());
    assert!(proxy.operations().is_empty());
    assert!(host.unrevoke(TENANT, NOW, subject(1)).await.unwrap());
    assert_eq!(proxy.operations(), ["DeleteItem"]);
    host.ping().await.unwrap();
    assert_eq!(proxy.operations(), ["GetItem"]);
}
