//! `/domain/*` over HTTP, from the routes to the store.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

use std::sync::Arc;

use asyncgate_domains::{
    Compat, Evaluator, Kind, Limiter, Poprf, Request as DomainRequest, Rules, SecretKey,
    signing_hash,
};
use asyncgate_engine::{
    Domains, Engine, Settings,
    fakes::{Counter, FakeClock},
};
use asyncgate_rest::domain_router;
use asyncgate_store::{Store, memory::MemoryStore};
use asyncgate_store_sqlite::{Options, SqliteStore};
use axum::{
    Router,
    body::Body,
    http::{Request, Response, StatusCode},
};
use http_body_util::BodyExt;
use k256::ecdsa::SigningKey;
use rusqlite::Connection;
use serde_json::{Value, json};
use tower::ServiceExt;

const START: i64 = 1_700_000_000;

struct World {
    router: Router,
    clock: Arc<FakeClock>,
}

impl World {
    fn new(evaluator: Box<dyn Evaluator>, enabled: bool) -> Self {
        Self::over(Arc::new(MemoryStore::new()), evaluator, enabled)
    }

    fn over(store: Arc<dyn Store>, evaluator: Box<dyn Evaluator>, enabled: bool) -> Self {
        let clock = Arc::new(FakeClock::at(START * 1_000 + 999));
        let domains = Domains {
            rules: Rules {
                compat: Compat::Odis,
                evaluator,
                version: "1.2.3",
            },
            enabled,
            client_policy: None,
        };
        let settings = Settings {
            domains: Arc::new(domains),
            ..Settings::default()
        };
        let entropy = Arc::new(Counter::default());
        let engine = Engine::new(store, clock.clone(), entropy, settings);
        Self {
            router: domain_router(Arc::new(engine)),
            clock,
        }
    }

    /// Asserts that nobody has used the domain of [`signed`].
    async fn assert_unused(&self) {
        let (_, body) = self
            .post(Kind::QuotaStatus, &signed(Kind::QuotaStatus, 0))
            .await;
        let unused = json!({"timer": 0, "counter": 0, "disabled": false, "now": START});
        assert_eq!(body["status"], unused);
    }

    async fn send(&self, request: Request<Body>) -> (Response<()>, Value) {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let json = serde_json::from_slice(&body).unwrap_or(Value::Null);
        (Response::from_parts(parts, ()), json)
    }

    async fn post(&self, kind: Kind, body: &Value) -> (Response<()>, Value) {
        self.send(request(kind, body)).await
    }
}

fn limiter() -> World {
    World::new(Box::new(Limiter), true)
}

fn request(kind: Kind, body: &Value) -> Request<Body> {
    let path = match kind {
        Kind::Sign => "/domain/sign",
        Kind::QuotaStatus => "/domain/quotaStatus",
        Kind::Disable => "/domain/disable",
    };
    let body = Body::from(body.to_string());
    Request::post(path).body(body).unwrap()
}

/// A request about a domain of two attempts, a minute's wait and one more, signed by its holder.
fn signed(kind: Kind, nonce: u64) -> Value {
    signed_message(kind, nonce, "<blinded message>")
}

fn signed_message(kind: Kind, nonce: u64, message: &str) -> Value {
    let stages = [(0, None, Some(2), None), (60, None, Some(1), None)];
    signed_stages(kind, nonce, message, &stages)
}

/// A stage: delay, resetTimer, batchSize, repetitions.
type Stage = (u64, Option<bool>, Option<u64>, Option<u64>);

fn none(zero: Value) -> Value {
    json!({"defined": false, "value": zero})
}

fn some(value: Value) -> Value {
    json!({"defined": true, "value": value})
}

fn stage((delay, reset, batch, repetitions): &Stage) -> Value {
    let number = |given: &Option<u64>| match given {
        Some(given) => some(json!(given)),
        None => none(json!(0)),
    };
    let reset = match reset {
        Some(reset) => some(json!(reset)),
        None => none(json!(false)),
    };
    json!({"delay": delay, "resetTimer": reset, "batchSize": number(batch), "repetitions": number(repetitions)})
}

fn signed_stages(kind: Kind, nonce: u64, message: &str, stages: &[Stage]) -> Value {
    let stages: Vec<Value> = stages.iter().map(stage).collect();
    let mut body = json!({
        "type": kind.tag(),
        "domain": {
            "name": "ODIS Sequential Delay Domain",
            "version": "1",
            "stages": stages,
            "address": some(json!("0xe8a78b476AE1403b7fD39b662545AE608Aced7c7")),
            "salt": none(json!("")),
        },
        "options": {"signature": none(json!("")), "nonce": some(json!(nonce))},
        "sessionID": none(json!("")),
        "blindedMessage": message,
        "an extra field": [1, 2, 3],
    });
    let parsed = DomainRequest::parse(
        kind,
        "ODIS Sequential Delay Domain",
        body.to_string().as_bytes(),
    );
    let mut secret = [0; 32];
    secret[28..].copy_from_slice(&0xdead_beef_u32.to_be_bytes());
    let key = SigningKey::from_slice(&secret).unwrap();
    let hash = signing_hash(&parsed.unwrap()).unwrap();
    let (signature, id) = key.sign_prehash_recoverable(&hash);
    let bytes: String = signature
        .to_bytes()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    body["options"]["signature"] = some(json!(format!("0x{bytes}{:02x}", 27 + id.to_byte())));
    body
}

#[tokio::test]
async fn a_domain_is_used_looked_at_and_disabled() {
    let world = limiter();
    let (response, body) = world.post(Kind::Sign, &signed(Kind::Sign, 0)).await;
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(
        body,
        json!({"success": true, "version": "1.2.3", "status": {"timer": START, "counter": 1, "disabled": false, "now": START}})
    );
    assert!(response.headers().contains_key("x-corr-id"));
    assert_eq!(response.headers()["content-type"], "application/json");

    let (_, body) = world.post(Kind::Sign, &signed(Kind::Sign, 1)).await;
    assert_eq!(body["status"]["counter"], 2);
    world.clock.advance(20_000);
    let (response, body) = world.post(Kind::Sign, &signed(Kind::Sign, 2)).await;
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(response.headers()["retry-after"], "40");
    assert_eq!(body["success"], false);
    assert_eq!(
        body["error"],
        "CELO_ODIS_WARN_03 QUOTA Requester exceeded service query quota"
    );
    assert_eq!(
        body["status"],
        json!({"timer": START, "counter": 2, "disabled": false, "now": START + 20})
    );

    for _ in 0..2 {
        let (response, body) = world.post(Kind::Disable, &signed(Kind::Disable, 0)).await;
        assert_eq!(
            (response.status(), &body["status"]["disabled"]),
            (StatusCode::OK, &json!(true))
        );
    }
    let (response, body) = world
        .post(Kind::QuotaStatus, &signed(Kind::QuotaStatus, 0))
        .await;
    assert_eq!(
        (response.status(), &body["status"]["disabled"]),
        (StatusCode::OK, &json!(true))
    );
    let (response, _) = world.post(Kind::Sign, &signed(Kind::Sign, 2)).await;
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(
        !response.headers().contains_key("retry-after"),
        "no wait helps"
    );
}

#[tokio::test]
async fn what_is_refused_changes_nothing() {
    let world = limiter();
    let mut stranger = signed(Kind::Sign, 0);
    stranger["options"]["nonce"]["value"] = json!(1);
    let large = json!({"padding": "x".repeat(300 << 10)});
    for (body, status, word) in [
        (json!({}), 400, "WARN_01"),
        (json!([]), 400, "WARN_01"),
        (stranger, 401, "WARN_02"),
        (large, 413, "WARN_01"),
    ] {
        let (response, body) = world.post(Kind::Sign, &body).await;
        assert_eq!(response.status().as_u16(), status);
        assert!(body["error"].as_str().unwrap().contains(word), "{body}");
        assert_eq!(
            (&body["success"], body.get("status")),
            (&json!(false), None)
        );
    }
    for version in ["x", "-1", "1.5", "\u{e9}"] {
        let mut request = request(Kind::Sign, &signed(Kind::Sign, 0));
        let value = axum::http::HeaderValue::from_bytes(version.as_bytes()).unwrap();
        request.headers_mut().insert("odis-key-version", value);
        let (response, body) = world.send(request).await;
        assert_eq!(response.status(), StatusCode::BAD_REQUEST);
        assert!(
            body["error"].as_str().unwrap().contains("WARN_12"),
            "{body}"
        );
    }
    world.assert_unused().await;
}

#[tokio::test]
async fn a_request_is_served_once_however_often_it_is_sent() {
    let world = limiter();
    let body = signed(Kind::Sign, 0);
    let sent = (0..64).map(|_| world.post(Kind::Sign, &body));
    let answers = futures_util::future::join_all(sent).await;
    let served = answers
        .iter()
        .filter(|(response, _)| response.status() == StatusCode::OK);
    assert_eq!(served.count(), 1);
    let replays = answers
        .iter()
        .filter(|(response, _)| response.status() == StatusCode::UNAUTHORIZED);
    assert_eq!(replays.count(), 63);
}

#[tokio::test]
async fn a_store_that_is_out_of_reach_serves_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("domains.db");
    let store = Arc::new(SqliteStore::open(&file, &Options::default()).unwrap());
    let world = World::over(store, Box::new(Limiter), true);
    let database = Connection::open(&file).unwrap();
    let rename = |from: &str, to: &str| {
        let renamed = database.execute_batch(&format!("ALTER TABLE {from} RENAME TO {to}"));
        renamed.unwrap();
    };
    rename("domain", "planted");
    for (kind, word) in [
        (Kind::Sign, "CELO_ODIS_ERR_01"),
        (Kind::Disable, "CELO_ODIS_ERR_01"),
        (Kind::QuotaStatus, "CELO_ODIS_ERR_03"),
    ] {
        let (response, body) = world.post(kind, &signed(kind, 0)).await;
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        let text = body["error"].as_str().unwrap();
        assert!(
            text.starts_with(word) && !text.contains("no such table"),
            "{text}"
        );
    }
    rename("planted", "domain");
    let (response, _) = world.post(Kind::Sign, &signed(Kind::Sign, 0)).await;
    assert_eq!(response.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_server_that_serves_no_domains_says_so() {
    let world = World::new(Box::new(Limiter), false);
    let (response, body) = world.post(Kind::Sign, &signed(Kind::Sign, 0)).await;
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(
        body["error"],
        "CELO_ODIS_WARN_13 BAD_INPUT API is unavailable"
    );
}

#[tokio::test]
async fn an_evaluator_answers_with_the_key_that_was_asked_for() {
    let key = |info: &[u8]| SecretKey::derive(&[7; 32], info).unwrap();
    let poprf = || Box::new(Poprf::new(vec![(1, key(b"a")), (2, key(b"b"))]).unwrap());
    let element = "4vKuCmq8TnGohKlhxQBRX1jjC2qlgt2NtqZZReCNLXY=";
    let body = signed_message(Kind::Sign, 0, element);
    for (asked, used) in [(None, "2"), (Some("1"), "1")] {
        let world = World::new(poprf(), true);
        let mut request = request(Kind::Sign, &body);
        if let Some(version) = asked {
            request
                .headers_mut()
                .insert("odis-key-version", version.parse().unwrap());
        }
        let (response, body) = world.send(request).await;
        assert_eq!(response.status(), StatusCode::OK, "{body}");
        assert_eq!(response.headers()["odis-key-version"], used);
        assert_eq!(body["signature"].as_str().unwrap().len(), 128);
    }
    let world = World::new(poprf(), true);
    let (_, body) = world
        .send(Request::get("/status").body(Body::empty()).unwrap())
        .await;
    assert_eq!(body["evaluator"], "poprf-ristretto255");
    assert_eq!(
        (&body["version"], &body["keys"][1]["version"]),
        (&json!("1.2.3"), &json!(2))
    );
    let public = body["keys"][0]["public_key"].as_str().unwrap();
    assert_eq!(public.len(), 64);
    let (response, _) = world.post(Kind::Sign, &signed(Kind::Sign, 0)).await;
    assert_eq!(response.status(), StatusCode::BAD_REQUEST, "no element");
    world.assert_unused().await;
}

/// What one attempt of a published sequence comes to: when, whether it is accepted or when it would be
/// (`None`: never), and how the domain stands then.
type Step = (i64, Result<(), Option<i64>>, (i64, u64));

/// The sequences S1, S2, S4, S5 and S6 of the deployed signers, request by request.
#[tokio::test]
async fn the_published_sequences_hold() {
    const YES: Result<(), Option<i64>> = Ok(());
    const NEVER: Result<(), Option<i64>> = Err(None);
    let later = |at| Err(Some(at));
    let plain = |delay| (delay, None, None, None);
    let kept = |delay| (delay, Some(false), None, None);
    let sequences: Vec<(&str, Vec<Stage>, Vec<Step>)> = vec![
        (
            "S1",
            vec![plain(0)],
            vec![(-1, later(0), (0, 0)), (0, YES, (0, 1))],
        ),
        (
            "S2",
            vec![(0, None, Some(2), None)],
            vec![(1, YES, (1, 1)), (1, YES, (1, 2)), (1, NEVER, (1, 2))],
        ),
        (
            "S4",
            vec![kept(10), kept(1), kept(1), kept(1)],
            vec![
                (13, YES, (10, 1)),
                (13, YES, (11, 2)),
                (13, YES, (12, 3)),
                (13, YES, (13, 4)),
                (13, NEVER, (13, 4)),
            ],
        ),
        (
            "S5",
            vec![plain(0), plain(1)],
            vec![(2, YES, (2, 1)), (2, later(3), (2, 1)), (3, YES, (3, 2))],
        ),
        (
            "S6",
            vec![
                (10, None, Some(2), None),
                kept(1),
                (1, Some(true), None, None),
                (2, Some(false), None, Some(1)),
                (4, None, Some(2), Some(2)),
            ],
            vec![
                (9, later(10), (0, 0)),
                (10, YES, (10, 1)),
                (11, YES, (11, 2)),
                (13, YES, (12, 3)),
                (13, YES, (13, 4)),
                (16, YES, (15, 5)),
                (18, later(19), (15, 5)),
                (19, YES, (19, 6)),
                (20, YES, (20, 7)),
                (24, YES, (24, 8)),
                (25, YES, (25, 9)),
            ],
        ),
    ];
    for (name, stages, steps) in sequences {
        let world = limiter();
        for (now, outcome, (timer, counter)) in steps {
            world.clock.set(now * 1_000 + 999);
            let body = signed_stages(Kind::Sign, 99, "m", &stages);
            let (response, body) = world.post(Kind::Sign, &body).await;
            let expected = match outcome {
                Ok(()) => (StatusCode::OK, None),
                Err(at) => (StatusCode::TOO_MANY_REQUESTS, at.map(|at| at - now)),
            };
            let wait = response.headers().get("retry-after");
            let wait = wait.map(|wait| wait.to_str().unwrap().parse().unwrap());
            assert_eq!((response.status(), wait), expected, "{name} at {now}");
            assert_eq!(
                body["status"],
                json!({"timer": timer, "counter": counter, "disabled": false, "now": now}),
                "{name} at {now}"
            );
        }
    }
}

/// The sequence S3.
#[tokio::test]
async fn a_disabled_domain_is_never_used_again() {
    let (world, stages) = (limiter(), [(0, None, Some(2), None)]);
    world.clock.set(1_999);
    for (kind, status) in [(Kind::Sign, 200), (Kind::Disable, 200), (Kind::Sign, 429)] {
        let body = signed_stages(kind, 1, "m", &stages);
        let (response, body) = world.post(kind, &body).await;
        assert_eq!(response.status().as_u16(), status);
        let disabled = kind == Kind::Disable || status == 429;
        let stands = json!({"timer": 1, "counter": 1, "disabled": disabled, "now": 1});
        assert_eq!(body["status"], stands);
        assert!(!response.headers().contains_key("retry-after"));
    }
}
