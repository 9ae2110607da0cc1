//! Receiving: the order of messages, the amount given, and the messages that are not given at all.

use std::sync::Arc;

use asyncgate_core::mailbox::{
    Cause, Damage, Flaw, Full, Kind, Message, Outgoing, Policy, Rejection, Share, State, Wish,
};
use bytes::Bytes;

use crate::world::{ALL, ONE, World, mail};

fn keys(messages: &[Message]) -> Vec<&str> {
    let keys = messages.iter().map(|message| &*message.idem_key);
    keys.collect()
}

fn sized(key: &str, bytes: usize) -> Outgoing {
    Outgoing {
        payload: vec![b'x'; bytes].into(),
        ..mail(key)
    }
}

#[test]
fn a_delivery_has_a_lease_a_deadline_and_a_number() {
    let mut world = World::new();
    let id = world.send(mail("a"));
    world.wait_ms(1_000);
    let given = world.receive(&ALL);
    let message = world.message(id);
    assert_eq!(given.len(), 1);
    assert_eq!(given[0], message, "what is given is what is written");
    let delivery = message.delivery.unwrap();
    assert_eq!((delivery.at, delivery.visibility_ms), (world.now, 5_000));
    assert_eq!(delivery.lease.seq(), id.seq(), "a lease tells its message");
    let until = world.now.plus_millis(5_000);
    assert_eq!(message.state, State::Leased { until });
    assert_eq!(message.attempt, 1);
    assert!(world.receive(&ALL).is_empty(), "it is with a receiver");
}

#[test]
fn priority_goes_before_age() {
    let mut world = World::new();
    for (key, priority) in [("c", 0), ("a", 9), ("e", -1), ("d", 0), ("b", 9)] {
        world.send(Outgoing {
            priority,
            ..mail(key)
        });
        world.wait_ms(1);
    }
    assert_eq!(keys(&world.receive(&ALL)), ["a", "b", "c", "d", "e"]);
}

/// A message that returns keeps its place: it does not go to the back of the line.
#[test]
fn what_returns_keeps_its_age() {
    let mut world = World::new();
    for key in ["a", "b"] {
        world.send(mail(key));
    }
    world.take();
    world.send(mail("c"));
    world.wait_ms(5_000);
    world.sweep();
    assert_eq!(keys(&world.receive(&ALL)), ["a", "b", "c"]);
}

#[test]
fn every_delivery_has_a_lease_of_its_own() {
    let mut world = World::new();
    for key in ["a", "b", "c"] {
        world.send(mail(key));
    }
    let mut leases = Vec::new();
    for _ in 0..4 {
        let given = world.receive(&ALL);
        leases.extend(given.iter().map(|message| message.delivery.unwrap().lease));
        world.wait_ms(5_000);
        world.sweep();
    }
    leases.sort_unstable();
    leases.dedup();
    assert_eq!(leases.len(), 12);
}

#[test]
fn at_most_the_wished_number_is_given() {
    let mut world = World::new();
    for key in ["a", "b", "c"] {
        world.send(mail(key));
    }
    let max_messages = 2;
    let two = Wish {
        max_messages,
        ..ALL
    };
    assert_eq!(keys(&world.receive(&two)), ["a", "b"]);
    assert_eq!(keys(&world.receive(&two)), ["c"]);
}

#[test]
fn bytes_are_those_of_the_content_and_the_first_message_is_always_given() {
    for (sizes, max_bytes, given) in [
        (&[100, 100, 100][..], 200, 2),
        (&[100, 100, 100], 199, 1),
        (&[100, 100, 100], 300, 3),
        (&[1_000, 1], 10, 1),
        (&[1_000, 1], 0, 1),
        // A message that does not fit ends the batch; no later message overtakes it.
        (&[10, 1_000, 10], 20, 1),
        (&[0, 0, 0], 0, 3),
        (&[0, 1, 0], 0, 1),
    ] {
        let mut world = World::new();
        for (n, bytes) in sizes.iter().enumerate() {
            world.send(sized(&n.to_string(), *bytes));
        }
        let wish = Wish { max_bytes, ..ALL };
        assert_eq!(world.receive(&wish).len(), given, "{sizes:?} {max_bytes}");
    }
}

#[test]
fn receivers_together_hold_no_more_than_the_ceiling() {
    let mut world = World::with(Policy {
        global_inflight: 3,
        ..Policy::default()
    });
    for key in ["a", "b", "c", "d", "e"] {
        world.send(mail(key));
    }
    let two = Wish {
        max_messages: 2,
        ..ALL
    };
    assert_eq!(world.receive(&two).len(), 2);
    assert_eq!(world.receive(&two).len(), 1, "as many as there is room for");
    let full = Err(Rejection::Saturated(Full::Inflight));
    assert_eq!(world.try_receive("inbox", &two), full);
    let nothing = world.try_receive("empty", &two).unwrap();
    assert!(nothing.messages.is_empty(), "no room, but no need either");
    let held = world.rows.values().next().unwrap().clone();
    world.ack(held.id, held.delivery.unwrap().lease).unwrap();
    assert_eq!(keys(&world.receive(&two)), ["d"]);
}

#[test]
fn what_grew_too_old_becomes_a_dead_letter_on_the_way() {
    let mut world = World::with(Policy {
        ready_retention_ms: 60_000,
        ..Policy::default()
    });
    let short = world.send(Outgoing {
        ttl_ms: Some(1_000),
        ..mail("short")
    });
    let long = world.send(mail("long"));
    world.wait_ms(999);
    let fresh = world.send(mail("fresh"));
    world.wait_ms(1);
    let received = world.try_receive("inbox", &ONE).unwrap();
    assert_eq!(keys(&received.messages), ["long"]);
    assert_eq!(received.died.len(), 1);
    assert_eq!(received.died[0].cause, Cause::Expired);
    assert_eq!(world.kind(short), Some(Kind::Dead));
    world.wait_ms(59_000 - 1);
    world.sweep();
    let received = world.try_receive("inbox", &ONE).unwrap();
    assert_eq!(keys(&received.messages), ["long"], "one millisecond left");
    world.wait_ms(999 + 1);
    let received = world.try_receive("inbox", &ALL).unwrap();
    assert!(received.messages.is_empty());
    assert_eq!(world.kind(fresh), Some(Kind::Dead));
    assert_eq!(world.kind(long), Some(Kind::Leased));
}

#[test]
fn damaged_messages_are_handed_to_nobody_and_die_after_their_attempts() {
    type Damaging = fn(&mut Message);
    let flaws: [(Flaw, Damaging); 5] = [
        (Flaw::PayloadHash, |message| {
            message.payload = Bytes::from_static(b"b");
        }),
        (Flaw::HashChain, |message| {
            Arc::make_mut(&mut message.attrs).insert("k".to_owned(), String::new());
        }),
        (Flaw::HashChain, |message| message.idem_key = "other".into()),
        (Flaw::HashChain, |message| {
            message.sent_at = message.sent_at.plus_millis(1);
        }),
        (Flaw::HashChain, |message| {
            message.hash_chain = message.payload_hash;
        }),
    ];
    for (flaw, damage) in flaws {
        let mut world = World::new();
        let id = world.send(mail("a"));
        world.send(mail("b"));
        damage(world.rows.get_mut(&1).unwrap());
        for attempt in 1..=5 {
            let received = world.try_receive("inbox", &ALL).unwrap();
            let trace = world.message(id).trace();
            assert_eq!(received.damaged, [Damage { id, trace, flaw }]);
            let behind = if attempt == 1 { vec!["b"] } else { vec![] };
            assert_eq!(keys(&received.messages), behind, "what is behind comes");
            for message in &received.messages {
                world.ack(message.id, None).unwrap();
            }
            assert_eq!(world.message(id).attempt, attempt);
            if attempt < 5 {
                let State::Delayed { until } = world.message(id).state else {
                    panic!("it waits before it is looked at again");
                };
                let wait = until.millis_since(world.now);
                assert!((0..=200 << attempt).contains(&wait), "{wait}");
                assert!(received.died.is_empty());
                world.now = until;
                world.sweep();
            } else {
                assert_eq!(received.died[0].cause, Cause::Integrity);
                assert_eq!(received.died[0].reason, "integrity");
            }
        }
        assert_eq!(world.kind(id), Some(Kind::Dead));
        assert_eq!(world.message(id).delivery, None, "nobody ever had it");
    }
}

/// Other tenants may hold all that may be held: each has a part that nobody else can fill.
#[test]
fn what_other_tenants_hold_does_not_stop_a_tenant_within_its_part() {
    let mut world = World::with(Policy {
        global_inflight: 4,
        ..Policy::default()
    });
    world.elsewhere[0] = Share {
        total: 4,
        own: 0,
        tenants: 1,
    };
    for key in ["a", "b", "c"] {
        world.send(mail(key));
    }
    assert_eq!(world.receive(&ALL).len(), 2);
    let refused = world.try_receive("inbox", &ALL).unwrap_err();
    assert_eq!(refused, Rejection::Saturated(Full::Inflight));
}
