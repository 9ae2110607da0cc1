//! The vectors of the protocol (tenuo-ai/tenuo, Apache-2.0: `docs/spec/test-vectors.md` and
//! `pop_canonical.json`), and `H1`, which the reference implementation read and accepted.

use asyncgate_warrants::{Call, HostCheck, Policy, Pop, Reason, WarrantId, proof_message, verify};
use ed25519_dalek::{Signer, SigningKey};
use serde_json::{Map, Value, json};

use crate::{NOW, bytes, call, object, policy, reading, reason};

fn published() -> Value {
    serde_json::from_str(include_str!("published.json")).unwrap()
}

fn warrants(names: &[&str]) -> Vec<Vec<u8>> {
    let all = published();
    let one = |name: &&str| bytes(all["warrants"][*name].as_str().unwrap());
    names.iter().map(one).collect()
}

#[test]
fn good_chains_are_accepted() {
    for (names, path) in [
        (&["A.1"][..], "/anything"),
        (&["H1"], "/anything"),
        (&["A.3a"], "/data/x"),
        (&["A.3a", "A.3b"], "/data/reports/x"),
        (&["A.3a", "A.3b", "A.3c"], "/data/reports/q3.pdf"),
        (&["A.8"], "/data/reports/q3.pdf"),
        (&["A.6"], "/data/report.pdf"),
        (&["A.7"], "/data/report.pdf"),
        (&["A.10a"], "/data/x"),
        (&["A.14b"], "/data/x"),
        (&["A.17a"], "/data/x"),
        (&["A.22a", "A.22b"], "/data/x"),
        (&["A.23a"], "/data/x"),
        (&["A.23b", "A.23c"], "/data/x"),
    ] {
        assert_eq!(reading(&warrants(names), path), None, "{names:?}");
    }
}

#[test]
fn bad_chains_are_refused_for_what_is_wrong_with_them() {
    for (names, expected) in [
        (&["A.3a", "A.4"][..], Reason::ChainBroken),
        (&["A.5"], Reason::Expired),
        (&["A.10a", "A.10b"], Reason::ChainBroken),
        (&["A.11a", "A.11b"], Reason::ChainBroken),
        (&["A.12a", "A.12b"], Reason::ChainBroken),
        (&["A.13a", "A.13b"], Reason::ChainBroken),
        (&["A.14a"], Reason::InvalidSignature),
        (&["A.15a", "A.15b"], Reason::ChainBroken),
        (&["A.17a", "A.17b"], Reason::ChainBroken),
        // Others must approve, and nobody can do so here.
        (&["A.18"], Reason::UnsupportedConstraint),
        (&["A.21.1"], Reason::UnsupportedConstraint),
        (&["A.21.2"], Reason::UnsupportedConstraint),
        // An issuer's warrant allows no calls.
        (&["A.2"], Reason::ToolNotAllowed),
        // A link is sent without the warrants before it.
        (&["A.3b"], Reason::UntrustedRoot),
        (&["A.3a", "A.3c"], Reason::ChainBroken),
        (&["A.3b", "A.3a"], Reason::UntrustedRoot),
        (&["A.23a", "A.23c"], Reason::ChainBroken),
        (&["A.3a", "A.3a"], Reason::ChainBroken),
    ] {
        let found = reading(&warrants(names), "/data/x");
        assert_eq!(found, Some(expected), "{names:?}");
    }
}

#[test]
fn constraints_allow_and_refuse_as_published() {
    for (name, tool, good, bad) in [
        (
            "A.19.1",
            "api_call",
            json!({"count": 50.0}),
            json!({"count": 150.0}),
        ),
        (
            "A.19.2",
            "deploy",
            json!({"env": "staging"}),
            json!({"env": "development"}),
        ),
        (
            "A.19.3",
            "connect",
            json!({"ip": "10.1.2.3"}),
            json!({"ip": "192.168.1.1"}),
        ),
        (
            "A.25.1",
            "http_request",
            json!({"url": "https://api.example.com/data"}),
            json!({"url": "http://169.254.169.254/"}),
        ),
        (
            "A.25.2",
            "write_file",
            json!({"path": "/home/agent/workspace/file.txt"}),
            json!({"path": "/home/agent/workspace/../../../etc/passwd"}),
        ),
        (
            "A.25.3",
            "deploy",
            json!({"tags": ["approved", "reviewed", "urgent"]}),
            json!({"tags": ["approved", "urgent"]}),
        ),
        (
            "A.25.4",
            "set_permissions",
            json!({"permissions": ["read", "write"]}),
            json!({"permissions": ["read", "admin"]}),
        ),
        (
            "A.25.5",
            "api_call",
            json!({"endpoint": "https://api.example.com/v1/users"}),
            json!({"endpoint": "https://evil.com/api"}),
        ),
        (
            "A.25.6",
            "transfer",
            json!({"amount": 500.0, "currency": "USD"}),
            json!({"amount": 500.0, "currency": "GBP"}),
        ),
        (
            "A.25.7",
            "read_file",
            json!({"path": "/shared/data.json"}),
            json!({"path": "/private/secret.txt"}),
        ),
        (
            "A.25.8",
            "read_file",
            json!({"path": "/public/readme.txt"}),
            json!({"path": "/secret/keys.txt"}),
        ),
    ] {
        let chain = warrants(&[name]);
        assert_eq!(reason(&call(&chain, tool, good)), None, "{name}");
        let refused = Some(Reason::ConstraintViolation);
        assert_eq!(reason(&call(&chain, tool, bad)), refused, "{name}");
        assert_eq!(reason(&call(&chain, tool, json!({}))), refused, "{name}");
        let other = reason(&call(&chain, "another", json!({})));
        assert_eq!(other, Some(Reason::ToolNotAllowed), "{name}");
    }
}

fn hash(hex: &str) -> [u8; 32] {
    bytes(hex).try_into().unwrap()
}

#[test]
fn the_three_extensions_are_read_as_the_reference_wrote_them() {
    let verification = call(&warrants(&["H1"]), "read_file", json!({"path": "/x"}));
    let id = WarrantId(
        bytes("019471f8000070008000000000007001")
            .try_into()
            .unwrap(),
    );
    assert_eq!(verification.chain, [id]);
    assert_eq!(id.to_string(), "tnu_wrt_019471f8000070008000000000007001");
    let namespace = hash("0152a35b6b56fd5fd43c3445a7303aef795c3ddde39717094e32e3e784f545b4");
    let [_, _, _, rate, nonce] = &verification.host[..] else {
        panic!(
            "three subjects, a rate and a nonce: {:?}",
            verification.host
        )
    };
    let HostCheck::Rate {
        limit,
        window_secs,
        warrant,
        ..
    } = rate
    else {
        panic!("{rate:?}")
    };
    assert_eq!((*limit, *window_secs, *warrant), (100, 60, id));
    let expected = HostCheck::Nonce {
        warrant: id,
        namespace,
        nonce: (0..16).collect(),
        ttl_secs: 600,
    };
    assert_eq!(*nonce, expected);
    let HostCheck::Revocation { subject, .. } = &verification.host[0] else {
        panic!("{:?}", verification.host[0])
    };
    assert_eq!(subject.hash, namespace, "of the 16 bytes of the id");
}

fn proven(warrant: &[u8], tool: &str, args: &Map<String, Value>, proof: &[u8], now: i64) -> bool {
    let warrants = [warrant.to_vec()];
    let issuer = SigningKey::from_bytes(&std::array::from_fn(|at| at as u8));
    let policy = Policy {
        trusted_roots: vec![issuer.verifying_key().to_bytes(), crate::public(1)],
        require_pop: true,
        ..policy()
    };
    let proof = proof.try_into().unwrap();
    let call = Call {
        warrants: &warrants,
        tool,
        args,
        pop: Some(&proof),
        now,
    };
    let verification = verify(&policy, &call);
    assert_eq!(
        verification.pop == Pop::Verified,
        verification.refusal.is_none()
    );
    verification.refusal.is_none()
}

#[test]
fn proofs_are_written_as_the_reference_writes_them() {
    let holder = SigningKey::from_bytes(&std::array::from_fn(|at| at as u8 + 32));
    for case in published()["proofs"].as_array().unwrap() {
        let warrant = bytes(case["warrant"].as_str().unwrap());
        // The id stands after the first keys of the payload.
        let payload = crate::build::payload_of(&warrant);
        let id = WarrantId(payload[5..21].try_into().unwrap());
        let (tool, args) = (case["tool"].as_str().unwrap(), object(case["args"].clone()));
        let message = proof_message(id, tool, &args, 1_700_000_000);
        let proof = holder.sign(&message).to_bytes();
        let expected = bytes(case["signature"].as_str().unwrap());
        assert_eq!(proof[..], expected, "{}", case["name"]);
    }
}

#[test]
fn a_proof_is_good_for_one_call_and_about_a_minute() {
    let case = &published()["proofs"][4];
    let warrant = bytes(case["warrant"].as_str().unwrap());
    let payload = crate::build::payload_of(&warrant);
    let id = WarrantId(payload[5..21].try_into().unwrap());
    let holder = SigningKey::from_bytes(&std::array::from_fn(|at| at as u8 + 32));
    let args = object(json!({"enabled": true, "ratio": 0.5, "count": 0}));
    let now = 1_776_746_760;
    let proof = holder
        .sign(&proof_message(id, "configure", &args, now))
        .to_bytes();
    for (late, expected) in [
        (0, true),
        (29, true),
        (60, true),
        (89, true),
        (90, false),
        (-60, true),
        (-61, false),
    ] {
        let found = proven(&warrant, "configure", &args, &proof, now + late);
        assert_eq!(found, expected, "{late}");
    }
    for other in [
        json!({"enabled": true, "ratio": 0.5, "count": 1}),
        json!({"enabled": true, "ratio": 0.5, "count": 0.0}),
        json!({"enabled": true, "ratio": 0.5}),
        json!({"enabled": true, "ratio": 0.5, "count": 0, "more": null}),
    ] {
        assert!(!proven(&warrant, "configure", &object(other), &proof, now));
    }
    for at in 0..64 {
        let mut forged = proof;
        forged[at] ^= 1;
        assert!(
            !proven(&warrant, "configure", &args, &forged, now),
            "byte {at}"
        );
    }
}

#[test]
fn a_proof_that_is_asked_for_must_be_there() {
    let warrants = warrants(&["A.1"]);
    let args = object(json!({"path": "/x"}));
    let policy = Policy {
        require_pop: true,
        ..policy()
    };
    let call = Call {
        warrants: &warrants,
        tool: "read_file",
        args: &args,
        pop: None,
        now: NOW,
    };
    assert_eq!(reason(&verify(&policy, &call)), Some(Reason::PopMissing));
}

#[test]
fn a_proof_by_another_key_is_refused_as_published() {
    let warrant = &warrants(&["A.20.1"])[0];
    let args = object(json!({"path": "/data/file.txt"}));
    let attacker = bytes(
        "183a5bd8faaf1c8a523cdb804f26e8276bef7c8617446cacc0be8b33fb4a8a1311e90670e7b080001b5c50e5947acc53d442858da591c15271e3ae143e8d5f06",
    );
    assert!(!proven(warrant, "read_file", &args, &attacker, NOW));
}
