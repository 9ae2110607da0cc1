//! Signed messages of an ingress, when another host than the store decides about nonces.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

use std::{collections::BTreeMap, sync::Arc};

use asyncgate_api::Code;
use asyncgate_core::{
    admission::{Asks, NonceCheck, sha256},
    hex,
};
use asyncgate_engine::{
    Clock, Engine, Ingress, LimitBy, Message, Principal, PrincipalKind, Provider, Secret, Settings,
    fakes::{Counter, FakeClock, TENANT},
};
use asyncgate_store::{admission::Host as _, memory::MemoryStore};
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::json;
use sha2::Sha256;

/// A time just before a second is over.
const START: i64 = 1_767_610_800_999;
const WINDOW: i64 = 300;

/// Returns an engine over `store` that asks `host` about nonces.
fn engine(store: &Arc<MemoryStore>, host: &Arc<MemoryStore>, clock: &Arc<FakeClock>) -> Engine {
    let hooks = Ingress {
        provider: Provider::Own,
        secrets: vec![Secret::new(b"secret")],
        tenant: TENANT,
        principal: Principal::new(PrincipalKind::Service, "hooks"),
        task_type: "hook".to_owned(),
        policy: "client".to_owned(),
        key: LimitBy::Address,
        timestamp_window_secs: WINDOW.unsigned_abs(),
        nonce_ttl_secs: 2 * WINDOW.unsigned_abs(),
        max_body_bytes: 1 << 20,
    };
    let settings = Settings {
        ingress: Arc::new(BTreeMap::from([("hooks".to_owned(), hooks)])),
        ..Settings::default()
    };
    let (store, clock) = (
        Arc::<MemoryStore>::clone(store),
        Arc::<FakeClock>::clone(clock),
    );
    let entropy = Arc::new(Counter::default());
    let engine = Engine::new(store, clock, entropy, settings);
    engine.with_host(Arc::<MemoryStore>::clone(host))
}

fn start() -> Arc<FakeClock> {
    Arc::new(FakeClock::at(START))
}

async fn send(engine: &Engine, nonce: &str, timestamp: i64) -> Result<String, Code> {
    let body = json!({ "nonce": nonce, "timestamp": timestamp }).to_string();
    send_body(engine, &body).await
}

async fn send_body(engine: &Engine, body: &str) -> Result<String, Code> {
    let mut mac = Hmac::<Sha256>::new_from_slice(b"secret").unwrap();
    mac.update(body.as_bytes());
    let signature = format!("sha256={}", hex::encode(&mac.finalize().into_bytes()));
    let message = Message {
        header: &|name| (name == "x-signature-256").then_some(signature.as_bytes()),
        body: body.as_bytes(),
    };
    let received = engine.receive("hooks", message).await;
    let received = received.map_err(|fault| fault.code)?;
    Ok(received.task_id)
}

#[tokio::test]
async fn a_body_with_half_a_character_is_refused() {
    let (store, clock) = (Arc::default(), start());
    let engine = engine(&store, &store, &clock);
    let at = START / 1_000;
    for (text, fits) in [(r"\ud83d\ude00", true), (r"\ud83d", false)] {
        let body = format!(r#"{{"nonce":"{fits}","timestamp":{at},"deep":[{{"a":"{text}"}}]}}"#);
        let refusal = (!fits).then_some(Code::BadRequest);
        assert_eq!(send_body(&engine, &body).await.err(), refusal, "{text}");
    }
}

/// Two servers ask one host but have a store each, so the second finds no task of the message.
#[tokio::test]
async fn a_nonce_that_was_used_anywhere_lets_nobody_in() {
    let (host, clock) = (Arc::default(), start());
    let at = START / 1_000;
    let (one, other) = (Arc::default(), Arc::default());
    let (one, other) = (engine(&one, &host, &clock), engine(&other, &host, &clock));
    assert!(send(&one, "n", at).await.is_ok());
    for engine in [&one, &other] {
        for timestamp in [at, at + 1] {
            assert_eq!(send(engine, "n", timestamp).await, Err(Code::NonceReuse));
        }
    }
    assert!(send(&other, "m", at).await.is_ok());
}

/// A message with a time in the future is in time for longest. Its nonce is refused until the end of it.
#[tokio::test]
async fn a_nonce_is_known_for_as_long_as_its_message_is_in_time() {
    let (host, clock) = (Arc::new(MemoryStore::new()), start());
    let at = START / 1_000 + WINDOW;
    let taken = engine(&Arc::new(MemoryStore::new()), &host, &clock);
    assert!(send(&taken, "n", at).await.is_ok());
    // This is a moment before the message is too old.
    clock.set((at + WINDOW) * 1_000 + 999);
    let asks = Asks {
        nonces: vec![NonceCheck {
            namespace: sha256(b"asyncgate.ingress:hooks"),
            nonce: sha256(b"n").to_vec(),
            ttl_secs: 1,
        }],
        ..Asks::default()
    };
    let known = host.admit(TENANT, clock.now(), asks).await;
    assert!(!known.unwrap().passed(), "the host knows it still");
    assert_eq!(send(&taken, "n", at).await, Err(Code::NonceReuse));
    clock.advance(1);
    assert_eq!(send(&taken, "n", at).await, Err(Code::TimestampOutOfWindow));
}
