//! Changed bytes, and bytes that never were a warrant.

use asyncgate_warrants::Reason;
use proptest::prelude::*;
use serde_json::json;

use crate::{
    build::{Draft, Item, constraint, envelope, map, payload_of, set, text, wildcard},
    call, key, reading,
};

const MALFORMED: Option<Reason> = Some(Reason::Malformed);

fn chain() -> [Vec<u8>; 2] {
    let root = Draft::root()
        .extension("tenuo.revocable", vec![0xf6])
        .sign();
    let leaf = Draft::child(&root, 2).with(17, Item::Int(1)).sign();
    [root, leaf]
}

#[test]
fn every_bit_counts() {
    let good = chain();
    assert_eq!(reading(&good, "/x"), None);
    for which in 0..2 {
        for at in 0..good[which].len() {
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[which][at] ^= 1 << bit;
                assert!(
                    reading(&bad, "/x").is_some(),
                    "warrant {which}, byte {at}, bit {bit}"
                );
            }
        }
    }
}

#[test]
fn every_length_counts() {
    let [root, _] = chain();
    for length in 0..root.len() {
        assert_eq!(
            reading(&[root[..length].to_vec()], "/x"),
            MALFORMED,
            "{length}"
        );
    }
    assert_eq!(reading(&[[&root[..], &[0]].concat()], "/x"), MALFORMED);
}

/// Each field is changed and signed again with another key: the signature is good, the chain is not.
#[test]
fn a_stranger_can_change_no_field() {
    for (field, value) in [
        (1, Item::Bytes(vec![9; 16])),
        (3, map(&[("*", set(&[]))])),
        (
            4,
            Item::List(vec![Item::Int(1), Item::Bytes(crate::public(7).to_vec())]),
        ),
        (6, Item::Int(0)),
        (7, Item::Int(4_000_000_000)),
        (8, Item::Int(9)),
        (10, map(&[])),
        (17, Item::Int(255)),
    ] {
        let draft = Draft::root().with(field, value);
        let forged = envelope(&draft.payload(), &key(7));
        assert_eq!(
            reading(&[forged], "/x"),
            Some(Reason::InvalidSignature),
            "{field}"
        );
        let own = draft.issuer(7).sign();
        assert_eq!(
            reading(&[own], "/x"),
            Some(Reason::UntrustedRoot),
            "{field}"
        );
    }
}

/// The trusted key signed these bytes, and they are still no warrant.
#[test]
fn payloads_that_are_no_payloads() {
    let key_of =
        |kind: i64, bytes: usize| Item::List(vec![Item::Int(kind), Item::Bytes(vec![1; bytes])]);
    let many = |count: usize, item: &dyn Fn(usize) -> (String, Item)| {
        let pairs: Vec<_> = (0..count).map(item).collect();
        Item::Map(
            pairs
                .into_iter()
                .map(|(key, value)| (Item::Text(key), value))
                .collect(),
        )
    };
    let mut deep = wildcard();
    for _ in 0..33 {
        deep = constraint(14, map(&[("constraint", deep)]));
    }
    let mut nested = Item::Null;
    for _ in 0..40 {
        nested = Item::List(vec![nested]);
    }
    let wide: Vec<_> = (0..1_100).map(|_| wildcard()).collect();
    let in_set = |constraint| map(&[("t", set(&[("a", constraint)]))]);
    let pattern = |fields: &[(&str, Item)]| in_set(constraint(2, map(fields)));
    for (why, field, value) in [
        ("version", 0, Item::Int(2)),
        ("id", 1, Item::Bytes(vec![0; 15])),
        ("type", 2, Item::Int(2)),
        ("tools", 3, Item::List(vec![])),
        ("reserved tool", 3, map(&[("tenuo:x", set(&[]))])),
        ("long name", 3, map(&[(&"x".repeat(257), set(&[]))])),
        ("tool twice", 3, map(&[("a", set(&[])), ("a", set(&[]))])),
        ("no constraints", 3, map(&[("a", map(&[]))])),
        (
            "unknown key",
            3,
            map(&[("a", map(&[("constraints", map(&[])), ("x", Item::Null)]))]),
        ),
        (
            "too many tools",
            3,
            many(257, &|n| (n.to_string(), set(&[]))),
        ),
        (
            "too many constraints",
            3,
            map(&[(
                "t",
                map(&[("constraints", many(65, &|n| (n.to_string(), wildcard())))]),
            )]),
        ),
        ("deep constraint", 3, in_set(deep)),
        (
            "wide constraint",
            3,
            in_set(constraint(12, map(&[("constraints", Item::List(wide))]))),
        ),
        (
            "deep value",
            3,
            in_set(constraint(1, map(&[("value", nested)]))),
        ),
        (
            "long text",
            3,
            pattern(&[("pattern", text(&"x".repeat(4_097)))]),
        ),
        (
            "bytes as a value",
            3,
            in_set(constraint(1, map(&[("value", Item::Bytes(vec![1]))]))),
        ),
        (
            "no finite number",
            3,
            in_set(constraint(1, map(&[("value", Item::Float(f64::NAN))]))),
        ),
        (
            "unknown key of a pattern",
            3,
            pattern(&[("pattern", text("a")), ("x", Item::Null)]),
        ),
        (
            "key twice",
            3,
            pattern(&[("pattern", text("a")), ("pattern", text("b"))]),
        ),
        ("no pattern", 3, pattern(&[])),
        (
            "a wildcard with a value",
            3,
            in_set(constraint(16, Item::Int(1))),
        ),
        ("no network", 3, in_set(constraint(8, text("10.0.0.0/33")))),
        (
            "a root that is not absolute",
            3,
            in_set(constraint(17, map(&[("root", text("a/b"))]))),
        ),
        (
            "a triple",
            3,
            in_set(Item::List(vec![Item::Int(16), Item::Null, Item::Null])),
        ),
        ("key algorithm", 4, key_of(2, 32)),
        ("key length", 5, key_of(1, 33)),
        ("time", 6, Item::Int(-1)),
        ("life", 7, Item::Int(1_704_067_200)),
        ("max_depth", 8, Item::Int(256)),
        ("hash length", 9, Item::Bytes(vec![0; 31])),
        ("hash numbers", 9, Item::List(vec![Item::Int(256); 32])),
        ("extensions", 10, Item::List(vec![])),
        (
            "extension twice",
            10,
            map(&[("a", Item::Bytes(vec![])), ("a", Item::Bytes(vec![]))]),
        ),
        (
            "large extension",
            10,
            map(&[("a", Item::Bytes(vec![0; 8_193]))]),
        ),
        (
            "many extensions",
            10,
            many(65, &|n| (n.to_string(), Item::Bytes(vec![]))),
        ),
        ("not its type", 11, Item::List(vec![text("a")])),
        ("removed field", 12, Item::Int(1)),
        ("not its type", 13, Item::Int(1)),
        ("clearance", 17, Item::Int(256)),
        ("depth", 18, Item::Int(-1)),
        ("unknown field", 19, Item::Int(1)),
        ("unknown field", 99, Item::Null),
        ("negative field", -1, Item::Null),
    ] {
        let warrant = Draft::root().with(field, value).sign();
        assert_eq!(reading(&[warrant], "/x"), MALFORMED, "{why}");
    }
    for field in [0, 1, 2, 3, 4, 5, 6, 7, 8] {
        let warrant = Draft::root().without(field).sign();
        assert_eq!(reading(&[warrant], "/x"), MALFORMED, "without {field}");
    }
    let mut twice = Draft::root();
    twice.fields.push((18, Item::Int(0)));
    assert_eq!(reading(&[twice.sign()], "/x"), MALFORMED, "a field twice");
}

#[test]
fn encodings_that_several_bytes_could_have() {
    let good = Draft::root().sign();
    let payload = payload_of(&good).to_vec();
    // `depth` is the last byte: its 0 is written with one byte more than needed.
    let longer = [&payload[..payload.len() - 1], &[0x18, 0]].concat();
    assert_eq!(reading(&[envelope(&longer, &key(1))], "/x"), MALFORMED);
    let trailing = [&payload[..], &[0]].concat();
    assert_eq!(reading(&[envelope(&trailing, &key(1))], "/x"), MALFORMED);
    let indefinite = [&[0xbf], &payload[1..], &[0xff]].concat();
    assert_eq!(reading(&[envelope(&indefinite, &key(1))], "/x"), MALFORMED);
    let mut envelope_version = good;
    envelope_version[1] = 2;
    assert_eq!(reading(&[envelope_version], "/x"), MALFORMED);
}

#[test]
fn size_is_bounded() {
    let pad = |bytes: usize| {
        let value = Item::Bytes(vec![0; 8_000]);
        let names: Vec<String> = (0..bytes / 8_000).map(|n| n.to_string()).collect();
        let pairs: Vec<_> = names
            .iter()
            .map(|name| (name.as_str(), value.clone()))
            .collect();
        Draft::root().with(10, map(&pairs)).sign()
    };
    assert_eq!(reading(&[pad(64_000)], "/x"), None);
    assert_eq!(reading(&[pad(72_000)], "/x"), MALFORMED);
    assert_eq!(reading(&[vec![0x81; 300_000]], "/x"), MALFORMED);
    assert_eq!(reading(&vec![pad(64_000); 5], "/x"), MALFORMED);
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert_eq!(reading(&[bytes], "/x"), MALFORMED);
    }

    /// Any payload that the trusted key signed is either read or refused.
    #[test]
    fn any_signed_payload_is_read_without_panic(
        at in 0..200_usize, with in prop::collection::vec(any::<u8>(), 0..8), cut in 0..4_usize,
    ) {
        let mut payload = payload_of(&chain()[0]).to_vec();
        let at = at.min(payload.len());
        let end = (at + cut).min(payload.len());
        payload.splice(at..end, with);
        let warrant = envelope(&payload, &key(1));
        let verification = call(&[warrant], "read_file", json!({"path": "/x"}));
        prop_assert!(verification.refusal.is_none() || verification.host.is_empty());
    }
}
