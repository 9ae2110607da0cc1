//! The targets: functions that must hold for any bytes.

use std::cell::RefCell;

use asyncgate_api::{AckBatchInput, Code, NackInput, RecvInput, SendBatchInput, SendInput};
use asyncgate_core::{Link, MessageId, TaskId};
use asyncgate_engine::{
    Role, Source,
    fakes::{TestEngine, caller},
    registry,
};
use asyncgate_grpc::pb;
use prost::Message;
use serde_json::{Value, json};

use crate::{admission, bearers, credentials, oauth};

/// A reader of strangers' input, with the check on it.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name.
    pub name: &'static str,
    /// The check: it panics on an input that breaks the target.
    pub run: fn(&[u8]),
    /// Good inputs to begin with.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// Returns every target.
pub const fn targets() -> &'static [Target] {
    &[
        Target {
            name: "operations",
            run: operations,
            seeds: operation_seeds,
        },
        Target {
            name: "envelope_json",
            run: envelope_json,
            seeds: envelope_seeds,
        },
        Target {
            name: "grpc_frames",
            run: grpc_frames,
            seeds: frame_seeds,
        },
        Target {
            name: "ids",
            run: ids,
            seeds: id_seeds,
        },
        Target {
            name: "warrants",
            run: admission::warrants,
            seeds: admission::warrant_seeds,
        },
        Target {
            name: "warrant_payloads",
            run: admission::warrant_payloads,
            seeds: admission::payload_seeds,
        },
        Target {
            name: "domain_bodies",
            run: admission::domain_bodies,
            seeds: admission::domain_seeds,
        },
        Target {
            name: "limit_tables",
            run: admission::limit_tables,
            seeds: admission::table_seeds,
        },
        Target {
            name: "redis_replies",
            run: admission::redis_replies,
            seeds: admission::reply_seeds,
        },
        Target {
            name: "macaroons",
            run: credentials::macaroons,
            seeds: credentials::macaroon_seeds,
        },
        Target {
            name: "caveats",
            run: credentials::caveats,
            seeds: credentials::caveat_seeds,
        },
        Target {
            name: "tokens",
            run: credentials::tokens,
            seeds: credentials::token_seeds,
        },
        Target {
            name: "token_claims",
            run: credentials::token_claims,
            seeds: credentials::claim_seeds,
        },
        Target {
            name: "oauth_requests",
            run: oauth::requests,
            seeds: oauth::request_seeds,
        },
        Target {
            name: "oauth_addresses",
            run: oauth::addresses,
            seeds: oauth::address_seeds,
        },
        Target {
            name: "id_tokens",
            run: oauth::id_tokens,
            seeds: oauth::id_token_seeds,
        },
        Target {
            name: "provider_keys",
            run: oauth::provider_keys,
            seeds: oauth::key_seeds,
        },
        Target {
            name: "bearers",
            run: bearers::bearers,
            seeds: bearers::bearer_seeds,
        },
    ]
}

/// An engine on a store in memory, renewed before it holds too much.
struct World {
    runtime: tokio::runtime::Runtime,
    engine: TestEngine,
    calls: u32,
}

const CALLS_PER_WORLD: u32 = 2_000;

impl World {
    fn new() -> Option<Self> {
        // Time stands still except during sleeps, so that a call that waits is over at once.
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build().ok()?;
        Some(Self {
            runtime,
            engine: TestEngine::default(),
            calls: 0,
        })
    }
}

thread_local! {
    static WORLD: RefCell<Option<World>> = const { RefCell::new(None) };
}

/// Takes any bytes as the input of any operation, chosen by the first byte: the call is done or refused,
/// and a refusal is never a defect of the server.
fn operations(input: &[u8]) {
    let Some((which, input)) = input.split_first() else {
        return;
    };
    let entry = &registry()[usize::from(*which) % registry().len()];
    let taken = WORLD.with(|world| world.borrow_mut().take());
    let fresh = taken.filter(|world| world.calls < CALLS_PER_WORLD);
    let Some(mut world) = fresh.or_else(World::new) else {
        return;
    };
    world.calls += 1;
    let caller = caller(Role::Admin);
    let call = (entry.call)(&world.engine.engine, &caller, Source::Json(input));
    match world.runtime.block_on(call) {
        Ok(answer) => {
            let json: Result<Value, _> = serde_json::from_slice(&answer.json);
            assert!(json.is_ok(), "{} answered no JSON", entry.spec.name);
        }
        Err(fault) => assert!(
            fault.code != Code::Internal,
            "{}: {:?}",
            entry.spec.name,
            fault.cause
        ),
    }
    WORLD.with(|slot| *slot.borrow_mut() = Some(world));
}

fn operation_seeds() -> Vec<Vec<u8>> {
    let inputs = [
        json!({}),
        json!({"type": "t", "payload": {"a": [1, 2.5, "x"]}, "idempotency_key": "k", "delay_seconds": 1}),
        json!({"worker_id": "w", "max_tasks": 2, "wait_seconds": 1, "capabilities": ["a"]}),
        json!({"task_id": "019a2f6e-0000-7000-8000-000000000000", "lease_id": "019a2f6e-0000-7000-8000-000000000000"}),
        json!({"topic": "t", "idem_key": "k", "payload_b64": "aGk=", "attrs": {"a": "b"}, "delay_ms": 5, "ttl_ms": 9, "priority": -1}),
        json!({"messages": [{"topic": "t", "idem_key": "k", "payload_b64": "aGk="}]}),
        json!({"topic": "t", "visibility_ms": 500, "max_messages": 3, "max_bytes": 10, "wait_seconds": 1}),
        json!({"msg_id": "01JAE6ZQX50000000000000000", "lease": "019a2f6e-0000-7000-8000-000000000000", "reason": "r", "error": "e", "delay_ms": 1}),
        json!({"acks": [{"msg_id": "01JAE6ZQX50000000000000000"}]}),
        json!({"topic": "t", "limit": 3, "reason": "r", "dry_run": true, "per_second": 10, "older_than_secs": 1}),
        json!({"topic": "t", "state": "all"}),
    ];
    let mut seeds = Vec::new();
    for which in 0..registry().len() {
        for input in &inputs {
            let mut seed = vec![which as u8];
            seed.extend_from_slice(input.to_string().as_bytes());
            seeds.push(seed);
        }
    }
    seeds
}

/// An input of the mailbox that parses must say the same after it is written and parsed again.
fn envelope_json(input: &[u8]) {
    fn again<T: serde::de::DeserializeOwned + serde::Serialize>(input: &[u8]) {
        let Ok(parsed) = serde_json::from_slice::<T>(input) else {
            return;
        };
        let written = serde_json::to_value(&parsed).map_err(|error| error.to_string());
        let parsed = written.clone().and_then(|value| {
            let parsed: T = serde_json::from_value(value).map_err(|error| error.to_string())?;
            serde_json::to_value(parsed).map_err(|error| error.to_string())
        });
        assert_eq!(parsed, written);
    }
    again::<SendInput>(input);
    again::<SendBatchInput>(input);
    again::<RecvInput>(input);
    again::<NackInput>(input);
    again::<AckBatchInput>(input);
}

fn envelope_seeds() -> Vec<Vec<u8>> {
    let seeds = operation_seeds().into_iter();
    seeds.map(|seed| seed[1..].to_vec()).collect()
}

/// A gRPC request that decodes must be the same after it is encoded and decoded again.
fn grpc_frames(input: &[u8]) {
    fn again<M: Message + Default + PartialEq>(input: &[u8]) {
        let Ok(decoded) = M::decode(input) else {
            return;
        };
        let encoded = decoded.encode_to_vec();
        assert!(M::decode(encoded.as_slice()).is_ok_and(|again| again == decoded));
    }
    again::<pb::SendRequest>(input);
    again::<pb::RecvRequest>(input);
    again::<pb::AckRequest>(input);
    again::<pb::NackRequest>(input);
    again::<pb::Envelope>(input);
}

fn frame_seeds() -> Vec<Vec<u8>> {
    let send = pb::SendRequest {
        topic: "t".to_owned(),
        idem_key: "k".to_owned(),
        payload: b"payload".as_slice().into(),
        ..pb::SendRequest::default()
    };
    let recv = pb::RecvRequest {
        topic: "t".to_owned(),
        ..pb::RecvRequest::default()
    };
    let envelope = pb::Envelope {
        msg_id: "01JAE6ZQX50000000000000000".to_owned(),
        payload: Some(b"payload".as_slice().into()),
        ..pb::Envelope::default()
    };
    vec![
        send.encode_to_vec(),
        recv.encode_to_vec(),
        envelope.encode_to_vec(),
        Vec::new(),
    ]
}

/// An id that parses must be the same after it is written and parsed again.
fn ids(input: &[u8]) {
    fn again<T: std::str::FromStr + ToString + PartialEq>(text: &str) {
        if let Ok(id) = text.parse::<T>() {
            assert!(id.to_string().parse().is_ok_and(|again: T| again == id));
        }
    }
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    again::<MessageId>(text);
    again::<TaskId>(text);
    again::<Link>(text);
}

fn id_seeds() -> Vec<Vec<u8>> {
    let texts = [
        "01JAE6ZQX50000000000000000".to_owned(),
        "7ZZZZZZZZZZZZZZZZZZZZZZZZZ".to_owned(),
        "019a2f6e-0000-7000-8000-000000000000".to_owned(),
        Link::START.to_string(),
    ];
    texts.map(String::into_bytes).to_vec()
}
