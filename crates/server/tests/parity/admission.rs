//! The part of the history that is about admission, and what only REST says of it.

use serde_json::{Value, json};

use crate::{
    facades::{Got, Twin},
    script::{Step, done, refused},
};

const SPACE: &str = "0101010101010101010101010101010101010101010101010101010101010101";
const KEY: &str = "0202020202020202020202020202020202020202020202020202020202020202";

fn nonce(text: &str) -> Value {
    json!({ "namespace": SPACE, "nonce": text, "ttl_secs": 10 })
}

fn count(extra: Value) -> Value {
    let mut input = json!({ "namespace": SPACE, "window_secs": 60, "limit": 1 });
    for (name, value) in extra.as_object().into_iter().flatten() {
        input[name] = value.clone();
    }
    input
}

fn limit(extra: Value) -> Value {
    let mut input = json!({ "policy": "throttled", "key": "k" });
    for (name, value) in extra.as_object().into_iter().flatten() {
        input[name] = value.clone();
    }
    input
}

fn subject(id: &str) -> Value {
    json!({ "kind": "warrant_id", "id": id })
}

/// Nonces, counts, revocations, limits and tiers.
pub fn admission() -> Vec<Step> {
    let id = "0190a0b0c0d0e0f00102030405060708";
    vec![
        // First, while no call has taken any time.
        done("host_health", json!({})),
        refused("host_health", json!({ "x": "1" }), "BAD_REQUEST"),
        // A decision is a success, also when it is no.
        done("host_verify", json!({ "warrant": "oA", "tool": "t" })),
        done(
            "host_verify",
            json!({ "warrant": ["oA", "gA"], "tool": "t", "args": { "a": 1 } }),
        ),
        refused(
            "host_verify",
            json!({ "warrant": "=", "tool": "t" }),
            "BAD_REQUEST",
        ),
        refused(
            "host_verify",
            json!({ "warrant": "oA", "tool": "t", "pop": "AQID" }),
            "BAD_REQUEST",
        ),
        refused(
            "host_verify",
            json!({ "warrant": 7, "tool": "t" }),
            "BAD_REQUEST",
        ),
        done("host_check_nonces", nonce("AQID")),
        done("host_check_nonces", nonce("AQID")).after(9_999),
        done(
            "host_check_nonces",
            json!({ "checks": [nonce("AQID"), nonce("BBBB"), nonce("BBBB")] }),
        ),
        done("host_check_nonces", nonce("AQID")).after(1),
        refused("host_check_nonces", json!({ "checks": [] }), "BAD_REQUEST"),
        refused("host_check_nonces", nonce("AQ=="), "BAD_REQUEST"),
        refused(
            "host_check_nonces",
            json!({ "checks": [nonce("CCCC"), nonce("")] }),
            "BAD_REQUEST",
        ),
        done("host_check_nonces", nonce("CCCC")),
        done("host_increment_counter", count(json!({}))),
        done("host_increment_counter", count(json!({ "by": 7 }))),
        refused(
            "host_increment_counter",
            count(json!({ "window_secs": 0 })),
            "BAD_REQUEST",
        ),
        done("host_check_revocations", json!({ "subject": subject(id) })),
        done(
            "host_revoke",
            json!({ "subject": subject(id), "reason": "lost" }),
        )
        .keep(&[("hash", "/subject/hash")]),
        done("host_revoke", json!({ "subject": subject(id) })).after(5_000),
        refused(
            "host_revoke",
            json!({ "subject": { "kind": "warrant_id" } }),
            "BAD_REQUEST",
        ),
        done(
            "host_check_revocations",
            json!({ "subjects": [
                subject(id), { "kind": "warrant_id", "hash": "$hash" },
                { "kind": "holder_key", "key": KEY },
            ]}),
        ),
        refused(
            "host_check_revocations",
            json!({ "subjects": [{ "kind": "x", "hash": KEY }] }),
            "BAD_REQUEST",
        ),
        done("host_revocations", json!({ "limit": 1 })),
        refused("host_revocations", json!({ "limit": 0 }), "BAD_REQUEST"),
        done(
            "host_unrevoke",
            json!({ "kind": "warrant_id", "hash": "$hash" }),
        ),
        refused(
            "host_unrevoke",
            json!({ "kind": "warrant_id", "hash": "$hash" }),
            "NOT_FOUND",
        ),
        done("host_check_revocations", json!({ "subject": subject(id) })),
        done("limits_policies", json!({})),
        refused("limits_policies", json!({ "x": "1" }), "BAD_REQUEST"),
        done("limits_check", limit(json!({}))),
        done("limits_check", limit(json!({ "cost": 9, "peek": true }))),
        done("limits_check", limit(json!({ "cost": 9 }))),
        done("limits_check", limit(json!({}))),
        refused(
            "limits_check",
            limit(json!({ "enforce": true })),
            "RATE_LIMIT",
        ),
        done(
            "limits_check",
            json!({ "checks": [limit(json!({})), { "policy": "client", "key": "c" }] }),
        )
        .after(60_000),
        done("limits_check", limit(json!({ "cost": -3 }))),
        done("limits_check", limit(json!({ "cost": 11 }))),
        refused(
            "limits_check",
            json!({ "policy": "nothing", "key": "k" }),
            "UNKNOWN_POLICY",
        ),
        refused("limits_check", json!({ "policy": "client" }), "BAD_REQUEST"),
    ]
}

fn header(got: &Got, name: &str) -> Option<String> {
    let value = got.headers.get(name)?;
    Some(value.to_str().expect("a text").to_owned())
}

#[tokio::test]
async fn rest_tells_of_one_limit_in_headers() {
    let twin = Twin::rest();
    let path = "/v1/limits/check";
    let check = json!({ "policy": "client", "key": "a ü" });
    let got = twin.post(path, &[], &check).await;
    assert_eq!(got.status, 200);
    assert_eq!(got.body["retry_after_secs"], Value::Null);
    assert!(
        got.body
            .as_object()
            .expect("an object")
            .contains_key("retry_after_secs")
    );
    let now = 1_767_610_800;
    for (name, value) in [
        ("x-ratelimit-limit", "100".to_owned()),
        ("x-ratelimit-remaining", "99".to_owned()),
        ("x-ratelimit-reset", (now + 6).to_string()),
        ("x-ratelimit-bucket", "client:a %C3%BC".to_owned()),
        ("ratelimit-policy", "\"client\";q=100;w=600".to_owned()),
        ("ratelimit", "\"client\";r=99;t=6".to_owned()),
    ] {
        assert_eq!(header(&got, name), Some(value), "{name}");
    }
    assert_eq!(header(&got, "retry-after"), None);
    let all = json!({ "policy": "client", "key": "a ü", "cost": 99 });
    assert_eq!(twin.post(path, &[], &all).await.body["allowed"], true);
    // A "no" is a decision; who wants an error asks for it.
    let refused = twin.post(path, &[], &check).await;
    assert_eq!(
        (refused.status.as_u16(), &refused.body["allowed"]),
        (200, &json!(false))
    );
    assert_eq!(header(&refused, "retry-after").as_deref(), Some("12"));
    assert_eq!(refused.body["tokens"], json!(-1.0));
    let enforced = twin
        .post("/v1/limits/check?enforce=true", &[], &check)
        .await;
    assert_eq!(enforced.status, 429);
    assert_eq!(enforced.body["code"], "RATE_LIMIT");
    assert_eq!(header(&enforced, "retry-after").as_deref(), Some("18"));
    assert_eq!(
        header(&enforced, "x-ratelimit-remaining").as_deref(),
        Some("0")
    );
    // Several have no headers.
    let several = twin.post(path, &[], &json!({ "checks": [check] })).await;
    assert_eq!(header(&several, "x-ratelimit-limit"), None);
    assert_eq!(several.body["results"][0]["policy"], "client");
}

#[tokio::test]
async fn what_is_wrong_in_a_batch_is_named_and_nothing_is_recorded() {
    let twin = Twin::rest();
    let path = "/v1/host/nonces/check";
    let bad = json!({ "checks": [nonce("AAAA"), nonce("BBBB"), { "namespace": SPACE, "nonce": "AAAA", "ttl_secs": 0 }] });
    let got = twin.post(path, &[], &bad).await;
    assert_eq!((got.status.as_u16(), &got.body["index"]), (400, &json!(2)));
    let got = twin.post(path, &[], &nonce("AAAA")).await;
    assert_eq!(got.body["result"], "accepted");
    assert_eq!(
        got.body["provenance"],
        json!({ "source": "store", "backend": "memory", "failure_mode": null, "cache_age_secs": null })
    );
}

#[tokio::test]
async fn a_revocation_is_created_once() {
    let twin = Twin::rest();
    let path = "/v1/host/revocations";
    let key = json!({ "subject": { "kind": "issuer_key", "key": KEY }, "reason": "lost" });
    let first = twin.post(path, &[], &key).await;
    assert_eq!(
        (first.status.as_u16(), &first.body["created"]),
        (201, &json!(true))
    );
    let again = twin.post(path, &[], &key).await;
    assert_eq!(
        (again.status.as_u16(), &again.body["created"]),
        (200, &json!(false))
    );
    assert_eq!(again.body["revoked_at"], first.body["revoked_at"]);
    let asked = json!({ "subject": { "kind": "issuer_key", "key": KEY } });
    let got = twin.post("/v1/host/revocations/check", &[], &asked).await;
    assert_eq!(got.body["result"], "revoked");
    assert_eq!(got.body["reason"], "lost");
    assert_eq!(got.body["cache_ttl_secs"], 60);
    let listed = twin.call("host_revocations", &json!({ "limit": 1 })).await;
    let crate::facades::Outcome::Answer(listed) = listed else {
        panic!("{listed:?}");
    };
    assert_eq!(listed["revocations"][0]["subject"]["kind"], "issuer_key");
    assert_eq!(listed["next_cursor"], Value::Null);
}

#[tokio::test]
async fn a_tier_counts_at_once_and_until_its_time() {
    let twin = Twin::rest();
    let limit_of = |key: &'static str| {
        let twin = &twin;
        async move {
            let check = json!({ "policy": "client", "key": key, "cost": 0 });
            let got = twin.post("/v1/limits/check", &[], &check).await;
            (got.body["limit"].clone(), got.body["tier"].clone())
        }
    };
    assert_eq!(limit_of("c").await, (json!(100), json!("standard")));
    let until = "2026-01-05T12:00:00+01:00";
    let refused = json!({ "client": "c", "tier": "trusted", "until": until });
    let outcome = twin.call("set_tier", &refused).await;
    assert_eq!(
        outcome,
        crate::facades::Outcome::Refused("BAD_REQUEST".to_owned())
    );
    let set = json!({ "client": "c", "tier": "trusted", "until": "2026-01-05T11:01:00Z", "reason": "friend" });
    twin.call("set_tier", &set).await;
    assert_eq!(limit_of("c").await, (json!(500), json!("trusted")));
    let got = twin.call("get_tier", &json!({ "client": "c" })).await;
    let expected = json!({ "client": "c", "tier": "trusted", "reason": "friend", "until": "2026-01-05T11:01:00.000Z" });
    assert_eq!(got, crate::facades::Outcome::Answer(expected));
    twin.advance(60_000).await;
    assert_eq!(limit_of("c").await, (json!(100), json!("standard")));
    twin.call("set_tier", &json!({ "client": "c", "tier": "throttled" }))
        .await;
    assert_eq!(limit_of("c").await, (json!(10), json!("throttled")));
    let listed = twin.call("list_tiers", &json!({})).await;
    let crate::facades::Outcome::Answer(listed) = listed else {
        panic!("{listed:?}");
    };
    assert_eq!(listed["tiers"][0]["tier"], "throttled");
    twin.call("clear_tier", &json!({ "client": "c" })).await;
    assert_eq!(limit_of("c").await, (json!(100), json!("standard")));
}
