//! Chains of messages that were tampered with; each is caught at the first message that shows it.

use std::{collections::BTreeMap, sync::Arc};

use asyncgate_core::{
    Env, Ids, Policy, Stamp, Timestamp,
    mailbox::{ChainHead, Lines, Message, Outgoing, SendContext, Share, Wish, ack, receive, send},
};
use asyncgate_ledger::{BrokenChain, ChainVerifier};

fn env() -> Env {
    Env {
        now: Timestamp::from_millis(1_760_000_000_000),
        ids: Ids::new(Stamp::of_millis(1_760_000_000_000), 7),
        instance: "i".into(),
        policy: Arc::new(Policy::default()),
        quotas: None,
    }
}

/// Builds forty messages over a few shards, and the heads of their chains.
fn sent() -> (Vec<Message>, BTreeMap<u16, ChainHead>) {
    let outgoing = (0..40).map(|n| Outgoing {
        topic: format!("topic-{}", n % 5),
        idem_key: format!("key-{n}"),
        payload: format!("payload {n}").into_bytes().into(),
        is_text: false,
        attrs: BTreeMap::from([("n".to_owned(), n.to_string())]),
        partition_key: None,
        delay_ms: 0,
        ttl_ms: None,
        priority: 0,
        corr_id: None,
    });
    let decision = send(env(), SendContext::default(), outgoing.collect());
    let messages = decision.changes.messages.into_iter();
    let messages = messages.map(|write| write.message).collect();
    (messages, decision.changes.chains)
}

fn check(messages: &[Message], heads: &BTreeMap<u16, ChainHead>) -> Result<u64, BrokenChain> {
    let mut verifier = ChainVerifier::default();
    for message in messages {
        verifier.push(message)?;
    }
    verifier.finish(heads).map(|report| report.messages)
}

#[test]
fn what_was_sent_holds_also_with_gaps_and_what_is_gone() {
    let (mut messages, heads) = sent();
    assert_eq!(check(&messages, &heads), Ok(40));
    let wish = Wish {
        visibility_ms: 1_000,
        max_messages: 1,
        max_bytes: 1 << 20,
    };
    let received = receive(
        env(),
        &wish,
        Share::default(),
        vec![messages[3].clone()],
        Lines::new(),
    )
    .unwrap();
    let lease = received.output.messages[0]
        .delivery
        .map(|delivery| delivery.lease);
    let settled = ack(
        &env(),
        received.output.messages.into_iter().next(),
        lease,
        Lines::new(),
    )
    .unwrap();
    messages[3] = settled.changes.messages[0].message.clone();
    assert_eq!(check(&messages, &heads), Ok(40));
    messages.retain(|message| message.id.seq() % 3 != 0);
    assert!(check(&messages, &heads).is_ok());
}

type Tamper = fn(&mut Vec<Message>, &mut BTreeMap<u16, ChainHead>);

#[test]
fn every_tampering_is_caught() {
    let tampers: [(&str, Tamper); 9] = [
        ("payload", |messages, _| {
            messages[7].payload = b"other".as_slice().into()
        }),
        ("attrs", |messages, _| messages[7].attrs = Arc::default()),
        ("topic", |messages, _| messages[7].topic = "other".into()),
        ("idem_key", |messages, _| {
            messages[7].idem_key = "other".into()
        }),
        ("time", |messages, _| {
            messages[7].sent_at = messages[7].sent_at.plus_millis(1);
        }),
        ("link", |messages, _| {
            messages[7].prev = asyncgate_core::Link::from_bytes([9; 32]);
        }),
        ("order", |messages, _| {
            let shard = messages[7].shard;
            let other = (8..40).find(|n| messages[*n].shard == shard).unwrap();
            messages.swap(7, other);
        }),
        ("rewritten", |messages, _| {
            // The message is replaced by a whole new one with its own right hashes.
            let (topic, at) = (messages[7].topic.clone(), messages[7].sent_at);
            messages[7].payload = b"other".as_slice().into();
            let hash = asyncgate_core::mailbox::payload_hash(b"other");
            messages[7].payload_hash = hash;
            let (key, attrs) = (messages[7].idem_key.clone(), messages[7].attrs.clone());
            let chain = asyncgate_core::mailbox::hash_chain(&topic, at, &key, &hash, &attrs);
            messages[7].hash_chain = chain;
        }),
        ("head", |_, heads| {
            for head in heads.values_mut() {
                head.link = asyncgate_core::Link::from_bytes([1; 32]);
            }
        }),
    ];
    for (what, tamper) in tampers {
        let (mut messages, mut heads) = sent();
        tamper(&mut messages, &mut heads);
        assert!(check(&messages, &heads).is_err(), "{what} was not noticed");
    }
}

#[test]
fn a_cut_head_is_caught() {
    let (messages, mut heads) = sent();
    let shard = messages[39].shard;
    heads.get_mut(&shard).unwrap().seq -= 1;
    let broken = check(&messages, &heads).unwrap_err();
    assert_eq!(broken.shard, shard);
}
