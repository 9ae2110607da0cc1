//! Hashes and shards, against values that were computed by another program. They must never
//! change: receivers check them, and the shard of a message is stored.

use std::collections::BTreeMap;

use asyncgate_core::{
    Link, Timestamp,
    mailbox::{ChainHead, Outgoing, hash_chain, payload_hash, shard_of},
};
use bytes::Bytes;

use crate::world::{World, mail};

const TOPIC: &str = "user:42:inbox";
const KEY: &str = "email-2025-10-12-01";
const PAYLOAD: &[u8] = br#"{"s":"hi"}"#;
const SENT_AT: Timestamp = Timestamp::from_millis(1_760_292_161_000);

const PAYLOAD_HASH: &str = "b3:be04e44316ef8da42cd158917671c1d895cf2d1428a2930c0d29300ab6415f5f";
const PLAIN: &str = "b3:e3fb2ced2eb9baf1f07bb4a978dee50d48afb88e1d0a2a2b7c03c8ccc88fe6a1";
const WITH_ATTRS: &str = "b3:49a46be0aa994c1a25abdac612f7513cfaaf6407085c67ca725453fdbf955116";

fn attrs() -> BTreeMap<String, String> {
    let attrs = [("zeta", "1"), ("alpha", "ünï"), ("", "")];
    let owned = attrs.map(|(key, value)| (key.to_owned(), value.to_owned()));
    owned.into()
}

#[test]
fn an_envelope_hashes_as_it_always_did() {
    let hash = payload_hash(PAYLOAD);
    assert_eq!(hash.to_string(), PAYLOAD_HASH);
    let plain = hash_chain(TOPIC, SENT_AT, KEY, &hash, &BTreeMap::new());
    assert_eq!(plain.to_string(), PLAIN);
    let with_attrs = hash_chain(TOPIC, SENT_AT, KEY, &hash, &attrs());
    assert_eq!(with_attrs.to_string(), WITH_ATTRS);
    let nothing = payload_hash(b"");
    assert_eq!(
        nothing.to_string(),
        "b3:af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
    );
    let least = hash_chain("t", Timestamp::default(), "k", &nothing, &BTreeMap::new());
    assert_eq!(
        least.to_string(),
        "b3:c7009ed14469e5566bf343a8ca2d8ff36825bbd1229939264672b03ae76dd905"
    );
}

/// Builds the preimage byte by byte from the wire form.
#[test]
fn an_envelope_hashes_what_stands_on_the_wire() {
    let part = |text: &str| -> Vec<u8> {
        let length = u32::try_from(text.len()).unwrap().to_be_bytes();
        [&length[..], text.as_bytes()].concat()
    };
    let bytes = [
        b"asyncgate.envelope.v1".to_vec(),
        part(TOPIC),
        part("2025-10-12T18:02:41.000Z"),
        part(KEY),
        part(PAYLOAD_HASH),
        vec![0, 0, 0, 3],
        [part(""), part("")].concat(),
        [part("alpha"), part("ünï")].concat(),
        [part("zeta"), part("1")].concat(),
    ];
    let hash = blake3::hash(&bytes.concat());
    assert_eq!(format!("b3:{}", hash.to_hex()), WITH_ATTRS);
}

#[test]
fn a_chain_links_as_it_always_did() {
    let hash = payload_hash(PAYLOAD);
    let first = hash_chain(TOPIC, SENT_AT, KEY, &hash, &BTreeMap::new());
    let second = hash_chain(TOPIC, SENT_AT, KEY, &hash, &attrs());
    let hex = |link: Link| blake3::Hash::from_bytes(*link.as_bytes()).to_hex();
    let head = ChainHead::default().then(&first);
    assert_eq!(head.seq, 1);
    assert_eq!(
        hex(head.link).as_str(),
        "a5f128e777d4cca4c9128aa8f9c5f4904ad21cfd495a388a4fdf99a332e3b979"
    );
    let head = head.then(&second);
    assert_eq!(head.seq, 2);
    assert_eq!(
        hex(head.link).as_str(),
        "547f67accf43db24ec15d457d2a7bc1a2c9c81b4f1e52581552a8f7fefa1b202"
    );
}

#[test]
fn messages_carry_these_hashes() {
    let mut world = World::new();
    world.now = SENT_AT;
    let id = world.send(Outgoing {
        topic: TOPIC.to_owned(),
        payload: Bytes::from_static(PAYLOAD),
        attrs: attrs(),
        ..mail(KEY)
    });
    let message = world.message(id);
    assert_eq!(message.payload_hash.to_string(), PAYLOAD_HASH);
    assert_eq!(message.hash_chain.to_string(), WITH_ATTRS);
    assert_eq!(message.flaw(), None);
}

/// Moving a byte from one part to the next must change the hash.
#[test]
fn no_two_envelopes_meet() {
    let hash = payload_hash(PAYLOAD);
    let of = |topic, key, attrs: &[(&str, &str)]| {
        let attrs = attrs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        hash_chain(topic, SENT_AT, key, &hash, &attrs.collect())
    };
    let all = [
        of("ab", "c", &[]),
        of("a", "bc", &[]),
        of("ab", "c", &[("", "")]),
        of("ab", "c", &[("k", "v")]),
        of("ab", "c", &[("kv", "")]),
        of("ab", "c", &[("", "kv")]),
        of("ab", "c", &[("k", ""), ("v", "")]),
    ];
    for (n, one) in all.iter().enumerate() {
        assert!(all[n + 1..].iter().all(|other| other != one));
    }
}

#[test]
fn shards_stay_where_they_are() {
    for (topic, partition_key, expected) in [
        ("user:42:inbox", None, [0, 0, 2, 930, 50_624]),
        ("user:43:inbox", None, [0, 1, 5, 869, 10_011]),
        ("orders", None, [0, 0, 6, 70, 60_742]),
        ("orders", Some("a"), [0, 1, 7, 127, 58_874]),
        ("orders", Some("b"), [0, 1, 3, 1_019, 25_344]),
        ("orders", Some(""), [0, 1, 5, 389, 58_260]),
        ("ünï", None, [0, 0, 4, 676, 7_991]),
    ] {
        let found = [1, 2, 8, 1_024, 65_535].map(|shards| shard_of(topic, partition_key, shards));
        assert_eq!(found, expected, "{topic} {partition_key:?}");
        assert_eq!(shard_of(topic, partition_key, 0), 0, "as if there were one");
    }
}

#[test]
fn every_shard_has_a_chain_of_its_own_that_can_be_followed() {
    let mut world = World::new();
    for n in 0..64 {
        let topic = format!("t{}", n % 7);
        world.send(Outgoing {
            topic,
            ..mail(&n.to_string())
        });
    }
    let mut heads: BTreeMap<u16, ChainHead> = BTreeMap::new();
    for message in world.rows.values() {
        let head = heads.entry(message.shard).or_default();
        assert_eq!((head.seq + 1, head.link), (message.chain_seq, message.prev));
        *head = head.then(&message.hash_chain);
    }
    assert!(heads.len() > 1);
    assert_eq!(heads, world.chains);
    assert_eq!(heads.values().map(|head| head.seq).sum::<u64>(), 64);
}
