//! Domains of CIP-40 over HTTP, and what is left of them after a restart.

use asyncgate_domains::{Kind, Request as DomainRequest, signing_hash};
use k256::ecdsa::SigningKey;
use serde_json::{Value, json};

use crate::harness::{Launch, Server};
use crate::http::{Request, Response};

const NAME: &str = "ODIS Sequential Delay Domain";

fn none(zero: Value) -> Value {
    json!({"defined": false, "value": zero})
}

fn some(value: Value) -> Value {
    json!({"defined": true, "value": value})
}

fn stage(delay: u64, reset_timer: bool, batch_size: u64) -> Value {
    json!({
        "delay": delay,
        "resetTimer": some(json!(reset_timer)),
        "batchSize": some(json!(batch_size)),
        "repetitions": none(json!(0)),
    })
}

/// A domain of the key `deadbeef`, told apart by its salt.
fn domain(salt: &str, stages: &[Value]) -> Value {
    json!({
        "name": NAME,
        "version": "1",
        "stages": stages,
        "address": some(json!("0xe8a78b476AE1403b7fD39b662545AE608Aced7c7")),
        "salt": some(json!(salt)),
    })
}

/// A request that the domain's holder signed.
fn signed(kind: Kind, domain: &Value, nonce: u64, message: &str) -> Value {
    let mut body = json!({
        "type": kind.tag(),
        "domain": domain,
        "options": {"signature": none(json!("")), "nonce": some(json!(nonce))},
        "sessionID": none(json!("")),
        "blindedMessage": message,
    });
    let parsed = DomainRequest::parse(kind, NAME, body.to_string().as_bytes()).unwrap();
    let mut secret = [0; 32];
    secret[28..].copy_from_slice(&0xdead_beef_u32.to_be_bytes());
    let key = SigningKey::from_slice(&secret).unwrap();
    let hash = signing_hash(&parsed).unwrap();
    let (signature, id) = key.sign_prehash_recoverable(&hash);
    let digits = |byte: &u8| format!("{byte:02x}");
    let bytes: String = signature.to_bytes().iter().map(digits).collect();
    let signature = format!("0x{bytes}{:02x}", 27 + id.to_byte());
    body["options"]["signature"] = some(json!(signature));
    body
}

#[track_caller]
fn ask(server: &Server, kind: Kind, domain: &Value, nonce: u64) -> Response {
    let path = match kind {
        Kind::Sign => "/domain/sign",
        Kind::QuotaStatus => "/domain/quotaStatus",
        Kind::Disable => "/domain/disable",
    };
    let body = signed(kind, domain, nonce, "<blinded message>");
    // No credential but the signature in the body.
    server.send_bare(&Request::post(path, body.to_string()))
}

fn stands(answer: &Value) -> (i64, u64, bool) {
    let status = &answer["status"];
    (
        status["timer"].as_i64().unwrap(),
        status["counter"].as_u64().unwrap(),
        status["disabled"].as_bool().unwrap(),
    )
}

#[test]
fn what_was_used_and_disabled_stays_so_over_restarts() {
    let server = Server::start();
    // Timers that are not reset count from 1970: all delays of the first are long over.
    let kept = domain("kept", &[10, 1, 1, 1].map(|delay| stage(delay, false, 1)));
    let batch = domain("batch", &[stage(0, true, 2)]);
    for (nonce, timer) in [(0, 10), (1, 11)] {
        let answer = ask(&server, Kind::Sign, &kept, nonce).expect(200);
        assert_eq!(stands(&answer), (timer, nonce + 1, false));
        assert_eq!(answer.get("signature"), None, "the plane only limits");
    }
    ask(&server, Kind::Sign, &batch, 0).expect(200);
    ask(&server, Kind::Disable, &batch, 0).expect(200);

    let server = server.restart();
    let answer = ask(&server, Kind::QuotaStatus, &kept, 0).expect(200);
    assert_eq!(stands(&answer), (11, 2, false));
    let replayed = ask(&server, Kind::Sign, &kept, 1).expect(401);
    assert!(replayed["error"].as_str().unwrap().contains("WARN_16"));
    assert_eq!(stands(&replayed), (11, 2, false));
    for (nonce, timer) in [(2, 12), (3, 13)] {
        let answer = ask(&server, Kind::Sign, &kept, nonce).expect(200);
        assert_eq!(stands(&answer), (timer, nonce + 1, false));
    }
    let over = ask(&server, Kind::Sign, &kept, 4);
    assert_eq!(stands(&over.expect(429)), (13, 4, false));
    assert_eq!(over.header("retry-after"), None, "no wait helps");
    let disabled = ask(&server, Kind::Sign, &batch, 1).expect(429);
    let (_, counter, is_disabled) = stands(&disabled);
    assert_eq!((counter, is_disabled), (1, true));
}

#[test]
fn of_many_at_once_as_many_pass_as_the_stages_allow() {
    let server = Server::start();
    let five = domain("five", &[stage(0, true, 5)]);
    let body = signed(Kind::Sign, &five, 1_000, "m").to_string();
    let passed = std::thread::scope(|scope| {
        let ask = || {
            let request = Request::post("/domain/sign", body.clone());
            server.send_bare(&request).status
        };
        let asked: Vec<_> = (0..16).map(|_| scope.spawn(ask)).collect();
        let answers = asked.into_iter().map(|asked| asked.join().unwrap());
        answers.filter(|status| *status == 200).count()
    });
    assert_eq!(passed, 5);
}

#[test]
fn an_evaluator_evaluates_and_its_seed_is_shown_nowhere() {
    let seed = "5a".repeat(32);
    let settings = "
        [domains]
        evaluator = \"poprf-ristretto255\"
        keys = [{ version = 7, seed = \"env:SEED\" }]
    ";
    let launch = Launch::new().env("SEED", &seed).file("a.toml", settings);
    let server = launch.start();
    let status = server.send_bare(&Request::get("/status")).expect(200);
    assert_eq!(status["evaluator"], "poprf-ristretto255");
    assert_eq!(status["keys"][0]["version"], 7);
    let public = status["keys"][0]["public_key"].as_str().unwrap();
    assert_eq!(public.len(), 64);
    // The base point of the group, in base64.
    let point = "4vKuCmq8TnGohKlhxQBRX1jjC2qlgt2NtqZZReCNLXY=";
    let domain = domain("evaluated", &[stage(0, true, 3)]);
    let send = |message: &str| {
        let body = signed(Kind::Sign, &domain, 9, message).to_string();
        server.send_bare(&Request::post("/domain/sign", body))
    };
    let refused = send("no element").expect(400);
    assert!(refused["error"].as_str().unwrap().contains("WARN_01"));
    let answer = send(point);
    let answered = answer.expect(200);
    assert_eq!(answer.header("odis-key-version"), Some("7"));
    assert_eq!(answered["signature"].as_str().unwrap().len(), 128);
    assert_eq!(stands(&answered).1, 1, "what was refused used nothing");
    let shown = server.get("/v1/config");
    assert!(!shown.text().contains(&seed) && !server.log().contains(&seed));
}

#[test]
fn domains_can_be_switched_off_and_limited_by_client() {
    let one = domain("one", &[stage(0, true, 100)]);
    let off = Launch::new().set("domains.enabled=false").start();
    let answer = ask(&off, Kind::QuotaStatus, &one, 0).expect(503);
    assert!(answer["error"].as_str().unwrap().contains("WARN_13"));

    let few =
        r#"limits.policies={"few": {"kind": "fixed_window", "limit": 3, "window_secs": 7776000}}"#;
    let limited = Launch::new().set(few).set("domains.client_policy=few");
    let server = limited.start();
    for _ in 0..3 {
        ask(&server, Kind::Sign, &one, 99).expect(200);
    }
    let refused = ask(&server, Kind::Sign, &one, 99);
    assert!(refused.header("retry-after").is_some());
    let refused = refused.expect(429);
    assert_eq!(refused.get("status"), None, "the domain was not looked at");

    let complaint = Launch::new().set("domains.client_policy=nope").refused();
    assert!(complaint.complaint().contains("names no policy"));
}

#[test]
fn a_stranger_is_limited_unless_the_operator_says_none() {
    let flood = |server: &Server| {
        let empty = Request::post("/domain/disable", "{}");
        (0..1_300).find(|_| server.send_bare(&empty).status == 429)
    };
    let launch = Launch::new();
    let server = launch.clone().start();
    let passed = flood(&server).expect("nobody is refused");
    assert!(passed >= 1_000, "{passed}");
    let one = domain("one", &[stage(0, true, 1)]);
    let refused = ask(&server, Kind::Disable, &one, 0);
    assert!(refused.header("retry-after").is_some());
    let refused = refused.expect(429);
    assert_eq!(refused["success"], json!(false));

    server.stop();
    let server = launch.set("domains.client_policy=none").start();
    assert_eq!(flood(&server), None);
    let answer = ask(&server, Kind::QuotaStatus, &one, 0).expect(200);
    let (_, counter, disabled) = stands(&answer);
    assert_eq!(
        (counter, disabled),
        (0, false),
        "the refused request was stored"
    );
}

#[test]
fn what_an_evaluator_needs_is_checked_at_the_start() {
    let launch = Launch::new().set("domains.evaluator=poprf-ristretto255");
    assert!(launch.refused().complaint().contains("at least one key"));
    let missing = Launch::new().file(
        "a.toml",
        "[domains]\nkeys = [{version = 1, seed = \"env:NOT_SET\"}]\n",
    );
    assert!(missing.refused().complaint().contains("NOT_SET"));
    let shown = Launch::new().set("domains.keys=[]").refused();
    assert!(shown.complaint().contains("command lines are public"));
}
