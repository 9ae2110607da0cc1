//! The questions that a chain asks the host.

use asyncgate_warrants::{
    Call, HostCheck, MAX_NONCE_SECS, Policy, Reason, RevocationPolicy, SubjectKind, Verification,
    verify,
};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::{
    NOW,
    build::{Draft, Item, id, map, numbered},
    call, object, policy, public, reason,
};

fn rate(limit: i64, window: i64, scope: i64) -> Vec<u8> {
    let fields = [(0, limit), (1, window), (2, scope)];
    numbered(fields.map(|(key, value)| (key, Item::Int(value))).to_vec()).encode()
}

fn nonce(bytes: usize, ttl: Option<i64>) -> Vec<u8> {
    let mut fields = vec![(0, Item::Bytes(vec![7; bytes]))];
    fields.extend(ttl.map(|ttl| (1, Item::Int(ttl))));
    numbered(fields).encode()
}

fn read(chain: &[Vec<u8>]) -> Verification {
    call(chain, "read_file", json!({"path": "/x"}))
}

fn with_lengths(parts: &[&[u8]]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u32).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

#[test]
fn what_any_warrant_asks_binds_all_that_follow() {
    let root = Draft::root().with(
        10,
        map(&[
            ("tenuo.nonce", Item::Bytes(nonce(16, None))),
            ("tenuo.rate_limit", Item::Bytes(rate(5, 60, 1))),
            ("tenuo.revocable", Item::Bytes(vec![])),
        ]),
    );
    let root = root.sign();
    let middle = Draft::child(&root, 2)
        .extension("tenuo.rate_limit", rate(3, 10, 2))
        .sign();
    let leaf = Draft::child(&middle, 3)
        .extension("tenuo.nonce", nonce(64, Some(5)))
        .sign();
    let verification = read(&[root, middle, leaf]);
    assert_eq!(verification.refusal, None);

    let subjects: Vec<_> = verification
        .host
        .iter()
        .filter_map(|check| match check {
            HostCheck::Revocation { warrant, subject } => {
                Some((*warrant, subject.kind, subject.hash))
            }
            HostCheck::Rate { .. } | HostCheck::Nonce { .. } => None,
        })
        .collect();
    let sha = |bytes: &[u8]| -> [u8; 32] { Sha256::digest(bytes).into() };
    let mut expected = Vec::new();
    for (warrant, issuer, holder) in [(0, 1, 2), (2, 2, 3), (3, 3, 4)] {
        expected.push((id(warrant), SubjectKind::WarrantId, sha(&[warrant; 16])));
        expected.push((id(warrant), SubjectKind::IssuerKey, sha(&public(issuer))));
        expected.push((id(warrant), SubjectKind::HolderKey, sha(&public(holder))));
    }
    assert_eq!(subjects, expected);

    let tool = b"read_file";
    let rest = &verification.host[9..];
    let expected = [
        HostCheck::Rate {
            warrant: id(0),
            namespace: with_lengths(&[&[0; 16], tool]),
            limit: 5,
            window_secs: 60,
        },
        HostCheck::Rate {
            warrant: id(2),
            namespace: with_lengths(&[&public(3), tool]),
            limit: 3,
            window_secs: 10,
        },
        HostCheck::Nonce {
            warrant: id(0),
            namespace: sha(&[0; 16]),
            nonce: vec![7; 16],
            // It is remembered as long as any verifier accepts the warrant, the clock skew included.
            ttl_secs: 1_704_070_800 + 30 - NOW as u64,
        },
        HostCheck::Nonce {
            warrant: id(3),
            namespace: sha(&[3; 16]),
            nonce: vec![7; 64],
            ttl_secs: 5,
        },
    ];
    assert_eq!(rest, expected);
    assert_eq!(rest[0].warrant(), id(0));
    let told = [&verification.host[0], &rest[0], &rest[2]];
    assert_eq!(
        told.map(|check| (check.name().as_str(), check.refusal().as_str())),
        [
            ("revocation", "revoked"),
            ("rate_limit", "rate_limited"),
            ("nonce", "replay"),
        ]
    );
}

#[test]
fn a_nonce_is_not_remembered_for_longer_than_it_can_be_used() {
    let warrant = Draft::root()
        .extension("tenuo.nonce", nonce(16, Some(1_000_000_000)))
        .sign();
    let host = read(&[warrant]).host;
    assert!(
        matches!(
            host[..],
            [HostCheck::Nonce {
                ttl_secs: 2_830,
                ..
            }]
        ),
        "{host:?}"
    );
}

#[test]
fn a_nonce_that_no_host_remembers_long_enough_is_refused() {
    let most = i64::try_from(MAX_NONCE_SECS).unwrap();
    let lasting = |seconds: i64, ttl| {
        let warrant = Draft::root()
            .with(7, Item::Int(NOW + seconds))
            .extension("tenuo.nonce", nonce(16, ttl));
        read(&[warrant.sign()])
    };
    let remembered = |seconds, ttl| match lasting(seconds, ttl).host[..] {
        [HostCheck::Nonce { ttl_secs, .. }] => ttl_secs,
        ref other => panic!("{other:?}"),
    };
    // The leeway for clocks comes on top, so that a warrant may last as long as a nonce can.
    assert_eq!(remembered(most, None), MAX_NONCE_SECS + 30);
    assert_eq!(remembered(most, Some(i64::MAX)), MAX_NONCE_SECS + 30);
    assert_eq!(remembered(10 * most, Some(60)), 60);
    assert_eq!(remembered(10 * most, Some(most)), MAX_NONCE_SECS);
    for (seconds, ttl) in [
        (most + 1, None),
        (10 * most, None),
        (10 * most, Some(most + 31)),
    ] {
        let verification = lasting(seconds, ttl);
        assert_eq!(reason(&verification), Some(Reason::ExtensionInvalid));
        assert!(verification.host.is_empty());
        let message = verification.refusal.unwrap().message;
        assert!(message.contains("7776000 seconds"), "{message}");
    }
}

#[test]
fn a_rate_may_be_of_the_warrant_as_a_whole() {
    let warrant = Draft::root()
        .extension("tenuo.rate_limit", rate(1, 1, 0))
        .sign();
    let expected: [u8; 32] = Sha256::digest([0; 16]).into();
    let host = read(&[warrant]).host;
    assert!(matches!(host[..], [HostCheck::Rate { namespace, .. }] if namespace == expected));
}

#[test]
fn a_call_counts_once_where_two_warrants_count_it() {
    for (first, second, lowest) in [(9, 4, 4), (4, 9, 4), (4, 4, 4)] {
        let root = Draft::root()
            .extension("tenuo.rate_limit", rate(first, 60, 2))
            .sign();
        // The holder hands the warrant to itself: the holder and the tool are the same.
        let leaf = Draft::child(&root, 2)
            .holder(2)
            .extension("tenuo.rate_limit", rate(second, 60, 2))
            .sign();
        let host = read(&[root, leaf]).host;
        assert!(
            matches!(host[..], [HostCheck::Rate { limit, .. }] if limit == lowest),
            "{host:?}"
        );
    }
}

#[test]
fn revocation_can_be_asked_always() {
    let warrants = [Draft::root().sign()];
    assert!(read(&warrants).host.is_empty());
    let args = object(json!({"path": "/x"}));
    let call = Call {
        warrants: &warrants,
        tool: "read_file",
        args: &args,
        pop: None,
        now: NOW,
    };
    let always = Policy {
        revocation: RevocationPolicy::Always,
        ..policy()
    };
    assert_eq!(verify(&always, &call).host.len(), 3);
}

#[test]
fn a_subject_is_asked_about_once() {
    let root = Draft::root()
        .extension("tenuo.revocable", vec![0xf6])
        .sign();
    let leaf = Draft::child(&root, 2).holder(2).sign();
    // There are two ids, two issuers and one holder.
    assert_eq!(read(&[root, leaf]).host.len(), 5);
}

#[test]
fn extensions_that_do_not_say_what_they_must_are_refused() {
    let key =
        |key, value| numbered(vec![(0, Item::Int(1)), (1, Item::Int(1)), (key, value)]).encode();
    for (name, value) in [
        ("tenuo.revocable", vec![0x81]),
        ("tenuo.revocable", vec![0xf6, 0xf6]),
        ("tenuo.rate_limit", vec![]),
        ("tenuo.rate_limit", vec![0xf6]),
        ("tenuo.rate_limit", vec![0xa0]),
        ("tenuo.rate_limit", rate(0, 60, 0)),
        ("tenuo.rate_limit", rate(1, 0, 0)),
        ("tenuo.rate_limit", rate(1, 1, 3)),
        ("tenuo.rate_limit", rate(-1, 1, 0)),
        ("tenuo.rate_limit", key(3, Item::Int(0))),
        ("tenuo.rate_limit", key(1, Item::Int(1))),
        ("tenuo.rate_limit", key(2, Item::Float(0.0))),
        ("tenuo.rate_limit", [rate(1, 1, 0), vec![0]].concat()),
        ("tenuo.nonce", vec![]),
        ("tenuo.nonce", vec![0xa0]),
        ("tenuo.nonce", nonce(15, None)),
        ("tenuo.nonce", nonce(65, None)),
        ("tenuo.nonce", nonce(16, Some(0))),
        ("tenuo.nonce", nonce(16, Some(-1))),
        ("tenuo.nonce", key(2, Item::Int(1))),
        ("tenuo.nonce", [nonce(16, None), vec![0]].concat()),
    ] {
        // The extension counts on the root as on the leaf.
        let root = Draft::root().extension(name, value.clone()).sign();
        let leaf = Draft::child(&root, 2).sign();
        for chain in [vec![root.clone()], vec![root, leaf]] {
            let verification = read(&chain);
            assert_eq!(
                reason(&verification),
                Some(Reason::ExtensionInvalid),
                "{name} {value:x?}"
            );
            assert!(verification.host.is_empty());
            let last = verification.checks.last().unwrap();
            assert!(!last.passed && last.warrant == id(0));
            assert!(name.ends_with(match last.name.as_str() {
                "revocation" => "revocable",
                other => other,
            }));
        }
    }
}

#[test]
fn extensions_of_others_are_carried() {
    let warrant = Draft::root()
        .with(
            10,
            map(&[
                ("tenuo.something", Item::Bytes(vec![0xff])),
                ("tenuo.session_id", Item::Bytes(b"sess-abc".to_vec())),
                (
                    "com.example",
                    Item::List(vec![Item::Int(0), Item::Int(255)]),
                ),
            ]),
        )
        .sign();
    let verification = read(&[warrant]);
    assert_eq!(
        (verification.refusal, verification.host),
        (None, Vec::new())
    );
}

#[test]
fn nonces_and_extensions_are_taken_as_lists_of_numbers_too() {
    let numbers = |bytes: &[u8]| {
        Item::List(
            bytes
                .iter()
                .map(|byte| Item::Int(i64::from(*byte)))
                .collect(),
        )
    };
    let value = numbered(vec![(0, numbers(&[7; 16])), (1, Item::Null)]).encode();
    let warrant = Draft::root()
        .with(10, map(&[("tenuo.nonce", numbers(&value))]))
        .sign();
    let host = read(&[warrant]).host;
    assert!(
        matches!(&host[..], [HostCheck::Nonce { nonce, .. }] if *nonce == [7; 16]),
        "{host:?}"
    );
}
