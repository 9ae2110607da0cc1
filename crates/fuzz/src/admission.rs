//! Warrants and requests about domains, which strangers sign or claim to have signed. And the tables of
//! limits, which an operator changes while the server runs: a mistake in them must stop nobody. And what a server
//! sends that claims to be Redis.

use asyncgate_admission::{Table, limits};
use asyncgate_core::{
    TenantId, Timestamp,
    admission::{Asks, LimitCheck, Limits, Tier, decide},
};
use asyncgate_domains::{
    Compat, Kind, Limiter, Request, Rules, State,
    delay::{Verdict, check},
    domain_hash, signing_hash,
};
use asyncgate_host_redis::replies_in_parts;
use asyncgate_warrants::{Call, Policy, Reason, RevocationPolicy, Verification, verify};
use ed25519_dalek::{Signer, SigningKey};
use serde_json::{Map, Value, json};

const NOW: i64 = 1_704_068_000;

fn root() -> SigningKey {
    SigningKey::from_bytes(&[1; 32])
}

fn call(warrants: &[Vec<u8>]) -> Verification {
    let policy = Policy {
        trusted_roots: vec![root().verifying_key().to_bytes()],
        require_pop: false,
        revocation: RevocationPolicy::Marked,
        clock_skew_secs: 30,
    };
    let args: Map<String, Value> = [("path".to_owned(), json!("/data/x"))]
        .into_iter()
        .collect();
    let call = Call {
        warrants,
        tool: "read_file",
        args: &args,
        pop: None,
        now: NOW,
    };
    verify(&policy, &call)
}

/// Checks that a verification is consistent: a refusal is the last check, and asks nothing of the host.
fn hangs_together(verification: &Verification) {
    let failed = verification.checks.iter().filter(|check| !check.passed);
    match &verification.refusal {
        None => assert_eq!(failed.count(), 0),
        Some(refusal) => {
            assert!(verification.host.is_empty());
            let malformed = refusal.reason == Reason::Malformed;
            assert_eq!(failed.count(), usize::from(!malformed));
            let last = verification.checks.last();
            assert!(malformed || last.is_some_and(|check| !check.passed));
        }
    }
}

/// Takes any bytes as a warrant or a stack: only signed ones may be accepted.
pub fn warrants(input: &[u8]) {
    let verification = call(&[input.to_vec()]);
    hangs_together(&verification);
    if verification.refusal.is_none() {
        let good = warrant_seeds();
        assert!(good.iter().any(|seed| seed == input), "a forgery");
    }
}

/// Returns well-formed, signed warrants, and one of them as a stack.
pub fn warrant_seeds() -> Vec<Vec<u8>> {
    let payloads = payload_seeds();
    let mut seeds: Vec<Vec<u8>> = payloads.iter().map(|payload| envelope(payload)).collect();
    let stack = [&[0x81], &seeds[0][..]].concat();
    seeds.push(stack);
    seeds
}

/// Takes any bytes as the payload of a warrant that the trusted key signed.
pub fn warrant_payloads(input: &[u8]) {
    hangs_together(&call(&[envelope(input)]));
}

fn envelope(payload: &[u8]) -> Vec<u8> {
    let message = [b"tenuo-warrant-v1\x01", payload].concat();
    let signature = root().sign(&message).to_bytes();
    let length = payload.len() as u64;
    let mut bytes = vec![0x83, 0x01];
    let wide = length.to_be_bytes();
    match length {
        0..=23 => bytes.push(0x40 | wide[7]),
        24..=0xff => bytes.extend([0x58, wide[7]]),
        0x100..=0xffff => bytes.extend([0x59, wide[6], wide[7]]),
        _ => bytes.extend([&[0x5a], &wide[4..]].concat()),
    }
    bytes.extend(payload);
    bytes.extend([0x82, 0x01, 0x58, 0x40]);
    bytes.extend(signature);
    bytes
}

/// Returns payloads with each kind of constraint, and one with all three extensions.
pub fn payload_seeds() -> Vec<Vec<u8>> {
    let constraints: [&[u8]; 12] = [
        b"\x82\x10\xf6",
        b"\x82\x02\xa1\x67pattern\x67/data/*",
        b"\x82\x01\xa1\x65value\x67/data/x",
        b"\x82\x04\xa1\x66values\x82\x67/data/x\xf9\x38\x00",
        b"\x82\x07\xa1\x68excluded\x81\x61a",
        b"\x82\x05\xa1\x67pattern\x66^/data",
        b"\x82\x11\xa1\x64root\x65/data",
        b"\x82\x0d\xa1\x6bconstraints\x82\x82\x10\xf6\x82\x0e\xa1\x6aconstraint\x82\x10\xf6",
        b"\x82\x0c\xa1\x6bconstraints\x81\x82\x10\xf6",
        b"\x82\x0e\xa1\x6aconstraint\x82\x08\x6a10.0.0.0/8",
        b"\x82\x03\xa4\x63min\xf6\x63max\x05\x6dmin_inclusive\xf5\x6dmax_inclusive\xf4",
        b"\x82\x0e\xa1\x6aconstraint\x82\x12\xa1\x67schemes\x81\x65https",
    ];
    let key = root().verifying_key().to_bytes();
    let payload = |constraint: &[u8], extensions: bool| {
        let fields = if extensions { 11 } else { 10 };
        let mut bytes = vec![0xa0 | fields, 0x00, 0x01, 0x01, 0x50];
        bytes.extend([7; 16]);
        bytes.extend(b"\x02\x00\x03\xa1\x69read_file\xa1\x6bconstraints\xa1\x64path");
        bytes.extend(constraint);
        for field in [4, 5] {
            bytes.extend([field, 0x82, 0x01, 0x58, 0x20]);
            bytes.extend(key);
        }
        bytes.extend(b"\x06\x1a\x65\x92\x00\x80\x07\x1a\x65\x92\x0e\x90\x08\x03");
        if extensions {
            bytes.extend(b"\x0a\xa3\x6btenuo.nonce\x58\x18\xa2\x00\x50");
            bytes.extend([9; 16]);
            bytes.extend(b"\x01\x19\x02\x58");
            bytes.extend(b"\x70tenuo.rate_limit\x49\xa3\x00\x18\x64\x01\x18\x3c\x02\x01");
            bytes.extend(b"\x6ftenuo.revocable\x81\x18\xf6");
        }
        bytes.extend(b"\x12\x00");
        bytes
    };
    let mut seeds: Vec<_> = constraints.iter().map(|c| payload(c, false)).collect();
    seeds.push(payload(constraints[0], true));
    seeds
}

/// Takes any bytes as the body of any request: a body that is read can be hashed and decided, and nobody
/// is admitted without a signature.
pub fn domain_bodies(input: &[u8]) {
    const KINDS: [Kind; 3] = [Kind::Sign, Kind::QuotaStatus, Kind::Disable];
    for compat in [Compat::Odis, Compat::Cip40] {
        let rules = Rules {
            compat,
            evaluator: Box::new(Limiter),
            version: "0",
        };
        let admitted = KINDS.map(|kind| rules.admit(kind, input, None).is_ok());
        assert_eq!(admitted, [false; 3], "nobody signs while fuzzing");
    }
    for kind in KINDS {
        let Some(request) = Request::parse(kind, "ODIS Sequential Delay Domain", input) else {
            continue;
        };
        assert_eq!(
            domain_hash(&request.domain).is_some(),
            signing_hash(&request).is_some()
        );
        let stages: Vec<_> = request.domain.stages.iter().map(|s| s.resolved()).collect();
        let mut state = State::default();
        for now in [0, NOW, NOW, i64::MAX] {
            if let Verdict::Accepted(next) = check(&stages, state, now) {
                assert!(next.counter == state.counter + 1 && next.timer <= now);
                state = next;
            }
        }
    }
}

/// Returns an unsigned request of each kind.
pub fn domain_seeds() -> Vec<Vec<u8>> {
    let none = |zero: Value| json!({"defined": false, "value": zero});
    let some = |value: Value| json!({"defined": true, "value": value});
    let stage = json!({"delay": 60, "resetTimer": some(json!(true)), "batchSize": some(json!(2)), "repetitions": none(json!(0))});
    let domain = json!({
        "name": "ODIS Sequential Delay Domain",
        "version": "1",
        "stages": [stage, stage],
        "address": some(json!("0xe8a78b476AE1403b7fD39b662545AE608Aced7c7")),
        "salt": none(json!("")),
    });
    let bodies = [Kind::Sign, Kind::QuotaStatus, Kind::Disable].map(|kind| {
        json!({
            "type": kind.tag(),
            "domain": domain,
            "options": {"signature": some(json!(format!("0x{}1b", "11".repeat(64)))), "nonce": some(json!(0))},
            "sessionID": none(json!("")),
            "blindedMessage": "m",
        })
    });
    bodies.map(|body| body.to_string().into_bytes()).to_vec()
}

/// The separator between the tables in one input.
const NEXT_TABLE: char = '\u{1f}';

/// Takes any texts as tables of limits: accepted limits can be asked again and again, at any time and cost.
pub fn limit_tables(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let tables = Table::ALL.into_iter().zip(text.split(NEXT_TABLE));
    let rows = tables.map(|(table, text)| table.parse(text));
    let limits = rows
        .collect::<Result<Vec<_>, _>>()
        .and_then(|rows| limits(rows).map_err(|wrong| wrong.problem));
    match limits {
        Ok(limits) => ask_all(&limits),
        Err(problem) => assert!(!problem.is_empty(), "it says what is wrong"),
    }
}

fn ask_all(limits: &Limits) {
    let tenant = TenantId::from_bytes([1; 16]);
    for (name, _) in limits.policies() {
        for tier in Tier::ALL {
            let Ok(resolved) = limits.resolve(name, tier) else {
                panic!("a policy is listed that cannot be resolved");
            };
            let mut rows = std::collections::HashMap::new();
            for (millis, cost) in [
                (0, 1),
                (1, -1),
                (0, i64::MAX),
                (NOW * 1_000, 1),
                (i64::MAX, i64::MIN),
            ] {
                let check = LimitCheck {
                    policy: resolved.policy.clone(),
                    key: "k".to_owned(),
                    rule: resolved.rule.clone(),
                    cost,
                    shadow: resolved.shadow,
                };
                let asks = Asks {
                    limits: vec![check],
                    ..Asks::default()
                };
                let now = Timestamp::from_millis(millis);
                let load = |name| Ok::<_, std::convert::Infallible>(rows.get(&name).copied());
                let Ok(decision) = decide(tenant, now, &asks, load);
                assert_eq!(decision.verdicts.limits.len(), 1);
                rows.extend(decision.rows);
            }
        }
    }
}

/// Returns tables with a policy of each kind, and the tables that name them.
pub fn table_seeds() -> Vec<Vec<u8>> {
    let policies = json!({
        "api": {"kind": "token_bucket", "capacity": 5, "refill_per_minute": 0.5, "overdraw": true},
        "hour": {"kind": "fixed_window", "limit": 3, "window_secs": 3600, "shadow": true},
        "pin": {"kind": "sequential_delay", "stages": [{"delay": 0}, {"delay": 60, "resetTimer": false, "batchSize": 2, "repetitions": 3}]},
        "mine": {"kind": "tiered", "trusted": "api"},
    });
    let tiers = json!({"trusted": ["a"], "throttled": ["b"]});
    let gate = json!({"global": "hour", "tenant": "api"});
    let envoy = json!({"edge": {"generic_key=slow,remote_address": "api"}});
    let all = [&policies, &tiers, &gate, &envoy].map(Value::to_string);
    let alone = policies.to_string().into_bytes();
    vec![alone, all.join(&NEXT_TABLE.to_string()).into_bytes()]
}

/// Replies must be the same wherever the network cuts them.
pub fn redis_replies(input: &[u8]) {
    let whole = replies_in_parts(input, input.len());
    for part in [1, 7] {
        assert_eq!(replies_in_parts(input, part), whole);
    }
}

/// Returns replies of each kind.
pub fn reply_seeds() -> Vec<Vec<u8>> {
    let texts = [
        "+OK\r\n-ERR no\r\n:-12\r\n$-1\r\n*-1\r\n",
        "*4\r\n:1731690000000\r\n:1\r\n$23\r\n1731690000 1731690060000\r\n$-1\r\n",
        "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:6379\r\n",
    ];
    texts.map(|text| text.as_bytes().to_vec()).to_vec()
}
