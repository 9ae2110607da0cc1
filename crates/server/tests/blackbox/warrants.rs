//! Calls by warrant: what the host remembers between them.

use std::time::{SystemTime, UNIX_EPOCH};

use asyncgate_warrants::{WarrantId, proof_message};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use ed25519_dalek::{Signer as _, SigningKey};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::harness::{Launch, Server};

/// A CBOR item.
#[derive(Clone)]
enum Item {
    Int(u64),
    Bytes(Vec<u8>),
    Text(&'static str),
    List(Vec<Self>),
    Map(Vec<(Self, Self)>),
    Null,
}

impl Item {
    fn encode(&self) -> Vec<u8> {
        match self {
            Self::Int(number) => head(0, *number),
            Self::Bytes(bytes) => [head(2, bytes.len() as u64), bytes.clone()].concat(),
            Self::Text(text) => [head(3, text.len() as u64), text.as_bytes().to_vec()].concat(),
            Self::List(items) => {
                let encoded = items.iter().flat_map(Self::encode).collect();
                [head(4, items.len() as u64), encoded].concat()
            }
            Self::Map(pairs) => {
                let pair = |(key, value): &(Self, Self)| [key.encode(), value.encode()].concat();
                [
                    head(5, pairs.len() as u64),
                    pairs.iter().flat_map(pair).collect(),
                ]
                .concat()
            }
            Self::Null => vec![0xf6],
        }
    }
}

fn head(major: u8, argument: u64) -> Vec<u8> {
    let wide = argument.to_be_bytes();
    let (minor, skip) = match argument {
        0..=23 => return vec![major << 5 | wide[7]],
        24..=0xff => (24, 7),
        0x100..=0xffff => (25, 6),
        0x1_0000..=0xffff_ffff => (26, 4),
        _ => (27, 0),
    };
    [&[major << 5 | minor], &wide[skip..]].concat()
}

fn numbered(pairs: Vec<(u64, Item)>) -> Item {
    let pairs = pairs.into_iter();
    Item::Map(pairs.map(|(key, value)| (Item::Int(key), value)).collect())
}

fn key(seed: u8) -> SigningKey {
    SigningKey::from_bytes(&[seed; 32])
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap().as_secs()
}

/// A warrant from the trusted key to key 2, to read any file within the hour.
fn warrant(id: u8, extensions: &[(&'static str, Vec<u8>)]) -> String {
    let public = |seed: u8| {
        let bytes = key(seed).verifying_key().to_bytes().to_vec();
        Item::List(vec![Item::Int(1), Item::Bytes(bytes)])
    };
    let anything = Item::List(vec![Item::Int(16), Item::Null]);
    let path = Item::Map(vec![(Item::Text("path"), anything)]);
    let set = Item::Map(vec![(Item::Text("constraints"), path)]);
    let mut fields = vec![
        (0, Item::Int(1)),
        (1, Item::Bytes(vec![id; 16])),
        (2, Item::Int(0)),
        (3, Item::Map(vec![(Item::Text("read_file"), set)])),
        (4, public(2)),
        (5, public(1)),
        (6, Item::Int(now() - 60)),
        (7, Item::Int(now() + 3_600)),
        (8, Item::Int(3)),
    ];
    if !extensions.is_empty() {
        let pair = |(name, value): &(&'static str, Vec<u8>)| {
            (Item::Text(name), Item::Bytes(value.clone()))
        };
        fields.push((10, Item::Map(extensions.iter().map(pair).collect())));
    }
    fields.push((18, Item::Int(0)));
    let payload = numbered(fields).encode();
    let message = [b"tenuo-warrant-v1\x01", payload.as_slice()].concat();
    let signature = key(1).sign(&message).to_bytes().to_vec();
    let signature = Item::List(vec![Item::Int(1), Item::Bytes(signature)]);
    let signed = Item::List(vec![Item::Int(1), Item::Bytes(payload), signature]);
    BASE64_URL_SAFE_NO_PAD.encode(signed.encode())
}

fn rate(limit: u64) -> (&'static str, Vec<u8>) {
    let fields = [(0, limit), (1, 7_776_000), (2, 0)];
    let fields = fields.map(|(key, value)| (key, Item::Int(value)));
    ("tenuo.rate_limit", numbered(fields.to_vec()).encode())
}

fn nonce(byte: u8) -> (&'static str, Vec<u8>) {
    let fields = vec![(0, Item::Bytes(vec![byte; 16]))];
    ("tenuo.nonce", numbered(fields).encode())
}

const REVOCABLE: (&str, Vec<u8>) = ("tenuo.revocable", Vec::new());

fn launch() -> Launch {
    let root = hex(key(1).verifying_key().as_bytes());
    Launch::new().set(&format!("warrants.trusted_roots={root}"))
}

#[track_caller]
fn verify(server: &Server, warrant: &str) -> Value {
    let call = json!({"warrant": warrant, "tool": "read_file", "args": {"path": "/x"}});
    server.post("/v1/host/verify", &call).expect(200)
}

/// Decision, path and reason.
fn told(answer: &Value) -> (&str, &str, Option<&str>) {
    let text = |name| answer[name].as_str();
    let decided = (text("decision"), text("path"));
    (decided.0.unwrap(), decided.1.unwrap(), text("reason"))
}

fn checks(answer: &Value) -> Vec<(&str, &str)> {
    let checks = answer["checks"].as_array().unwrap().iter();
    checks
        .map(|check| {
            (
                check["check"].as_str().unwrap(),
                check["result"].as_str().unwrap(),
            )
        })
        .collect()
}

#[test]
fn without_extensions_nobody_is_asked() {
    let server = launch().start();
    let plain = warrant(1, &[]);
    let answer = verify(&server, &plain);
    assert_eq!(told(&answer), ("accept", "fast", None), "{answer}");
    let id = format!("tnu_wrt_{}", "01".repeat(16));
    assert_eq!(answer["warrant_id"], id);
    assert_eq!(answer["chain"], json!([id]));
    assert_eq!(answer["holder"], hex(key(2).verifying_key().as_bytes()));
    assert_eq!(answer["pop"], "absent");
    let names = ["signature", "chain", "time", "tool", "constraints"];
    assert_eq!(checks(&answer), names.map(|name| (name, "pass")));

    let other = json!({"warrant": plain, "tool": "write_file"});
    let answer = server.post("/v1/host/verify", &other).expect(200);
    assert_eq!(told(&answer), ("reject", "fast", Some("tool_not_allowed")));
    let untrusting = Server::start();
    let answer = verify(&untrusting, &plain);
    assert_eq!(told(&answer), ("reject", "fast", Some("untrusted_root")));
}

#[test]
fn signatures_are_counted_and_timed() {
    let server = launch().start();
    let plain = warrant(1, &[]);
    verify(&server, &plain);
    let mut forged = BASE64_URL_SAFE_NO_PAD.decode(&plain).unwrap();
    // The last byte is the end of the signature.
    *forged.last_mut().unwrap() ^= 1;
    let answer = verify(&server, &BASE64_URL_SAFE_NO_PAD.encode(forged));
    assert_eq!(told(&answer).2, Some("invalid_signature"), "{answer}");
    server.get("/v1/ledger/head").expect(200);
    for (sample, count) in [
        (
            r#"pq_signature_verify_total{algo="ed25519",result="ok"}"#,
            1.0,
        ),
        (
            r#"pq_signature_verify_total{algo="ed25519",result="failed"}"#,
            1.0,
        ),
        (
            r#"crypto_latency_seconds_count{op="verify",algo="ed25519"}"#,
            2.0,
        ),
        (
            r#"crypto_latency_seconds_count{op="sign",algo="ed25519"}"#,
            1.0,
        ),
    ] {
        assert_eq!(server.metric(sample), Some(count), "{sample}");
    }
}

#[test]
fn the_holder_proves_that_it_calls() {
    let server = launch().set("warrants.require_pop=true").start();
    let plain = warrant(1, &[]);
    assert_eq!(told(&verify(&server, &plain)).2, Some("pop_missing"));
    let args = json!({"path": "/x"});
    let table = args.as_object().unwrap();
    let time = i64::try_from(now()).unwrap();
    let message = proof_message(WarrantId([1; 16]), "read_file", table, time);
    for (signer, expected) in [(2, ("accept", "verified")), (3, ("reject", "absent"))] {
        let proof = key(signer).sign(&message).to_bytes();
        let proof = BASE64_URL_SAFE_NO_PAD.encode(proof);
        let call = json!({"warrant": plain, "tool": "read_file", "args": args, "pop": proof});
        let answer = server.post("/v1/host/verify", &call).expect(200);
        let found = (answer["decision"].as_str(), answer["pop"].as_str());
        assert_eq!(found, (Some(expected.0), Some(expected.1)), "{answer}");
    }
}

#[test]
fn a_nonce_is_used_only_when_all_else_passed() {
    let server = launch().start();
    let limited = |byte| warrant(1, &[REVOCABLE, rate(2), nonce(byte)]);
    let answer = verify(&server, &limited(1));
    assert_eq!(told(&answer), ("accept", "slow", None), "{answer}");
    let asked = &answer["checks"].as_array().unwrap()[5..];
    let names: Vec<&str> = asked
        .iter()
        .map(|check| check["check"].as_str().unwrap())
        .collect();
    let expected = [
        "revocation",
        "revocation",
        "revocation",
        "rate_limit",
        "nonce",
    ];
    assert_eq!(names, expected);
    for check in asked {
        assert_eq!(check["provenance"]["source"], "store", "{check}");
        assert_eq!(check["provenance"]["backend"], "sqlite");
    }
    // A replay counts as an attempt, and so do the refused ones after it.
    let answer = verify(&server, &limited(1));
    assert_eq!(told(&answer), ("reject", "slow", Some("replay")));
    let answer = verify(&server, &limited(2));
    assert_eq!(told(&answer), ("reject", "slow", Some("rate_limited")));
    assert!(
        answer["retry_after_secs"]
            .as_u64()
            .is_some_and(|wait| wait >= 1)
    );
    assert_eq!(checks(&answer).last(), Some(&("rate_limit", "fail")));
    // The gateway that asks by itself meets the same state: the first nonce was used, the other not.
    let namespace = hex(&Sha256::digest([1; 16]));
    for (byte, result) in [(1, "replay"), (2, "accepted")] {
        let nonce = BASE64_URL_SAFE_NO_PAD.encode([byte; 16]);
        let input = json!({"namespace": namespace, "nonce": nonce, "ttl_secs": 60});
        let answer = server.post("/v1/host/nonces/check", &input).expect(200);
        assert_eq!(answer["result"], result, "nonce {byte}");
    }
    let server = server.restart();
    let answer = verify(&server, &limited(3));
    assert_eq!(told(&answer), ("reject", "slow", Some("rate_limited")));
}

#[test]
fn what_is_revoked_is_rejected_before_anything_is_counted() {
    let server = launch().start();
    let revocable = warrant(1, &[REVOCABLE, rate(1), nonce(1)]);
    let subject = json!({"kind": "warrant_id", "id": "01".repeat(16)});
    let revoke = json!({ "subject": subject });
    server.post("/v1/host/revocations", &revoke).expect(201);
    for _ in 0..3 {
        let answer = verify(&server, &revocable);
        assert_eq!(
            told(&answer),
            ("reject", "slow", Some("revoked")),
            "{answer}"
        );
        let last = checks(&answer);
        assert!(
            last.iter().all(|(name, _)| *name != "rate_limit"),
            "{last:?}"
        );
    }
    let hash = hex(&Sha256::digest([1; 16]));
    let path = format!("/v1/host/revocations/warrant_id/{hash}");
    server
        .send(crate::http::Request::new("DELETE", &path))
        .expect(200);
    assert_eq!(
        told(&verify(&server, &revocable)).0,
        "accept",
        "the one call is left"
    );

    // The root of all trust cannot be revoked.
    let root = hex(key(1).verifying_key().as_bytes());
    let revoke = json!({"subject": {"kind": "issuer_key", "key": root}});
    server.post("/v1/host/revocations", &revoke).expect(403);
    // A warrant that is not marked is asked about only if the settings say so.
    let plain = warrant(2, &[]);
    assert_eq!(told(&verify(&server, &plain)).1, "fast");
    let always = launch().set("warrants.revocation=always").start();
    assert_eq!(told(&verify(&always, &plain)), ("accept", "slow", None));
}
