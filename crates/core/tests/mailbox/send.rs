//! Sending: new messages, repetitions, and refusals when there is no room.

use asyncgate_core::mailbox::{Full, Kind, Outgoing, Policy, Rejection, Share, State};
use bytes::Bytes;

use crate::world::{ALL, World, mail};

const T_REPLAY: i64 = 300_000;

/// Builds a policy with small topics, and the refusal of a full one.
fn small(topic_capacity: u32) -> (Policy, Rejection) {
    let policy = Policy {
        topic_capacity,
        ..Policy::default()
    };
    let capacity = topic_capacity;
    (policy, Rejection::Saturated(Full::Topic { capacity }))
}

#[test]
fn a_new_message_is_ready_and_carries_what_its_sender_said() {
    let mut world = World::new();
    let id = world.send(Outgoing {
        attrs: [("k".to_owned(), "v".to_owned())].into(),
        partition_key: Some("user-7".to_owned()),
        priority: -3,
        corr_id: Some([7; 16]),
        ttl_ms: Some(9_000),
        ..mail("a")
    });
    let message = world.message(id);
    assert_eq!(message.state, State::Ready);
    assert_eq!((message.attempt, message.delivery), (0, None));
    assert_eq!(message.attrs["k"], "v");
    assert_eq!(message.partition_key.as_deref(), Some("user-7"));
    assert_eq!((message.priority, message.corr_id), (-3, [7; 16]));
    assert_eq!(message.expires_at, Some(world.now.plus_millis(9_000)));
    assert_eq!((message.sent_at, message.since), (world.now, world.now));
    let other = world.send(mail("b"));
    assert_ne!(world.message(other).corr_id, [0; 16], "one is made");
}

#[test]
fn a_delay_keeps_a_message_back() {
    for (delay_ms, kind) in [
        (0, Kind::Ready),
        (-5, Kind::Ready),
        (1, Kind::Delayed),
        (i64::MAX, Kind::Delayed),
    ] {
        let mut world = World::new();
        let delayed = Outgoing {
            delay_ms,
            ..mail("a")
        };
        let id = world.send(delayed);
        assert_eq!(world.kind(id), Some(kind), "{delay_ms}");
    }
}

#[test]
fn a_repeated_send_inside_the_window_is_answered_with_the_first() {
    for later in [0, 1, T_REPLAY - 1] {
        let mut world = World::new();
        let first = world.try_send(mail("a")).unwrap();
        world.wait_ms(later);
        let again = world.try_send(mail("a")).unwrap();
        assert!(again.duplicate && !first.duplicate);
        assert_eq!((again.id, again.shard), (first.id, first.shard));
        assert_eq!(again.corr_id, first.corr_id);
        assert_eq!(world.rows.len(), 1, "{later}");
    }
}

#[test]
fn after_the_window_the_key_is_free_again() {
    for later in [T_REPLAY, T_REPLAY + 1] {
        for content in ["a", "other"] {
            let mut world = World::new();
            let first = world.send(mail("a"));
            world.wait_ms(later);
            let again = world.send(Outgoing {
                payload: Bytes::from(content),
                ..mail("a")
            });
            assert_ne!(first, again);
            // From here on the second message counts.
            world.wait_ms(T_REPLAY - 1);
            let third = world.try_send(Outgoing {
                payload: Bytes::from(content),
                ..mail("a")
            });
            assert_eq!(third.unwrap().id, again);
        }
    }
}

/// The replay window belongs to the send and does not depend on what became of the message.
#[test]
fn a_repetition_is_recognised_whatever_became_of_the_message() {
    let policy = Policy {
        max_attempts: 1,
        // The retention is shorter than the window, and the window must hold all the same.
        dlq_retention_ms: 1_000,
        ready_retention_ms: 2_000,
        ..Policy::default()
    };
    for fate in ["leased", "acked", "dead", "expired", "purged"] {
        let mut world = World::with(policy.clone());
        let id = world.send(mail("a"));
        match fate {
            "leased" => drop(world.take()),
            "acked" => {
                let (id, lease) = world.take();
                world.ack(id, lease).unwrap();
            }
            "dead" => {
                let (id, lease) = world.take();
                world.nack(id, lease, Default::default()).unwrap();
            }
            "purged" => drop(world.purge(&[id])),
            _ => {}
        }
        for _ in 0..299 {
            world.wait_ms(1_000);
            world.sweep();
            let again = world.try_send(mail("a")).unwrap();
            assert!(again.duplicate && again.id == id, "{fate}");
        }
        world.wait_ms(1_000);
        assert_ne!(world.send(mail("a")), id, "{fate}");
    }
}

#[test]
fn other_content_under_the_same_key_is_refused_inside_the_window() {
    let mut world = World::new();
    let msg_id = world.send(mail("a"));
    let other = Outgoing {
        payload: Bytes::from_static(b"other"),
        ..mail("a")
    };
    world.wait_ms(T_REPLAY - 1);
    let refused = world.try_send(other.clone());
    assert_eq!(refused, Err(Rejection::IdemConflict { msg_id }));
    // Only topic, key and content make a repetition.
    let same = Outgoing {
        attrs: [("k".to_owned(), "v".to_owned())].into(),
        priority: 9,
        delay_ms: 1,
        ..mail("a")
    };
    assert_eq!(world.try_send(same).unwrap().id, msg_id);
    let elsewhere = Outgoing {
        topic: "outbox".to_owned(),
        ..other
    };
    assert_ne!(world.send(elsewhere), msg_id);
}

#[test]
fn a_batch_may_repeat_itself() {
    let mut world = World::new();
    let old = world.send(mail("old"));
    let changed = Outgoing {
        payload: Bytes::from_static(b"other"),
        ..mail("a")
    };
    let elsewhere = Outgoing {
        topic: "outbox".to_owned(),
        ..mail("a")
    };
    let batch = vec![
        mail("a"),
        mail("old"),
        mail("a"),
        changed,
        elsewhere,
        mail("b"),
    ];
    let answers = world.send_all(batch);
    let sent = |n: usize| *answers[n].as_ref().unwrap();
    assert!(!sent(0).duplicate && sent(2).duplicate);
    assert_eq!(sent(0).id, sent(2).id);
    assert!(sent(1).duplicate && sent(1).id == old);
    let msg_id = sent(0).id;
    assert_eq!(answers[3], Err(Rejection::IdemConflict { msg_id }));
    assert!(!sent(4).duplicate && !sent(5).duplicate);
    assert_eq!(world.rows.len(), 4);
}

/// A stored message under the key that is too old must not hide one that this very batch has sent.
#[test]
fn a_batch_repeats_itself_under_a_key_whose_window_is_over() {
    let mut world = World::new();
    let old = world.send(mail("a"));
    world.wait_ms(T_REPLAY);
    let answers = world.send_all(vec![mail("a"), mail("a")]);
    let [first, second] = [0, 1].map(|n: usize| *answers[n].as_ref().unwrap());
    assert!(!first.duplicate && second.duplicate);
    assert!(first.id == second.id && first.id != old);
}

#[test]
fn a_full_topic_refuses_what_is_new_and_answers_what_is_not() {
    let (policy, full) = small(2);
    let (mut world, full) = (World::with(policy), Err(full));
    let first = world.send(mail("a"));
    world.send(Outgoing {
        delay_ms: 60_000,
        ..mail("b")
    });
    assert_eq!(world.try_send(mail("c")), full);
    let again = world.try_send(mail("a")).unwrap();
    assert!(again.duplicate && again.id == first);
    // A delivery makes room: messages with receivers count against another limit.
    world.take();
    world.send(mail("c"));
    assert_eq!(world.try_send(mail("d")), full);
}

#[test]
fn a_batch_fills_a_topic_to_the_brim_and_no_further() {
    let (policy, full) = small(2);
    let (mut world, full) = (World::with(policy), Err(full));
    let answers = world.send_all(vec![mail("a"), mail("b"), mail("c"), mail("a"), mail("c")]);
    assert!(answers[0].is_ok() && answers[1].is_ok());
    assert_eq!(answers[2], full);
    assert!(answers[3].as_ref().unwrap().duplicate);
    assert_eq!(answers[4], full);
    assert_eq!(world.depth("inbox"), 2);
}

/// Also if both topics are in one shard, and within one batch.
#[test]
fn one_full_topic_does_not_stop_another() {
    let (policy, full) = small(1);
    let mut world = World::with(Policy {
        shards: 1,
        ..policy
    });
    let to = |topic: &str, key: &str| Outgoing {
        topic: topic.to_owned(),
        ..mail(key)
    };
    let answers = world.send_all(vec![to("a", "1"), to("b", "1"), to("a", "2"), to("c", "1")]);
    let refused = answers.iter().filter_map(|answer| answer.as_ref().err());
    assert_eq!(refused.collect::<Vec<_>>(), [&full]);
    assert_eq!(answers[2], Err(full));
    assert!(world.try_send(to("b", "2")).is_err());
    assert!(world.try_send(to("d", "1")).is_ok());
}

/// Other tenants may have filled the memory of sends: each has a part that nobody else can fill.
#[test]
fn what_other_tenants_sent_does_not_stop_a_tenant_within_its_part() {
    let mut world = World::with(Policy {
        dedup_capacity: 6,
        ..Policy::default()
    });
    let flood = Share {
        total: 6,
        own: 0,
        tenants: 1,
    };
    world.elsewhere[1] = flood;
    let answers = world.send_all(["a", "b", "c", "d"].map(mail).into());
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 3);
    let until = world.now.plus_millis(T_REPLAY);
    let full = Err(Rejection::Saturated(Full::Dedup { until }));
    assert_eq!(answers[3], full);
    world.elsewhere[1].tenants = 5;
    assert_eq!(world.try_send(mail("e")), full, "parts are smaller now");
    world.wait_ms(T_REPLAY);
    world.send(mail("e"));
}

#[test]
fn no_send_is_forgotten_early_to_make_room_for_another() {
    let mut world = World::with(Policy {
        dedup_capacity: 2,
        ..Policy::default()
    });
    let first = world.send(mail("a"));
    let until = world.now.plus_millis(T_REPLAY);
    world.wait_ms(1_000);
    world.send(mail("b"));
    world.receive(&ALL);
    let full = Err(Rejection::Saturated(Full::Dedup { until }));
    assert_eq!(world.try_send(mail("c")), full);
    assert_eq!(world.try_send(mail("a")).unwrap().id, first);
    world.wait_ms(T_REPLAY - 1_001);
    assert_eq!(world.try_send(mail("c")), full);
    world.wait_ms(1);
    world.send(mail("c"));
}

#[test]
fn a_batch_respects_the_bound_of_remembered_sends() {
    let mut world = World::with(Policy {
        dedup_capacity: 2,
        ..Policy::default()
    });
    let answers = world.send_all(vec![mail("a"), mail("b"), mail("c")]);
    let until = world.now.plus_millis(T_REPLAY);
    assert!(answers[0].is_ok() && answers[1].is_ok());
    let full = Err(Rejection::Saturated(Full::Dedup { until }));
    assert_eq!(answers[2], full);
}

#[test]
fn exactly_the_largest_content_passes() {
    for (bytes, passes) in [(0, true), (1 << 20, true), ((1 << 20) + 1, false)] {
        let mut world = World::new();
        let sent = world.try_send(Outgoing {
            payload: vec![0; bytes].into(),
            ..mail("a")
        });
        let limit = 1 << 20;
        match passes {
            true => drop(sent.unwrap()),
            false => assert_eq!(sent, Err(Rejection::TooLarge { limit })),
        }
        assert_eq!(world.rows.len(), usize::from(passes));
    }
}

/// A refused send leaves no hole in the chain, nor among the places.
#[test]
fn what_is_refused_takes_no_place() {
    let mut world = World::with(small(1).0);
    world.send(mail("a"));
    for _ in 0..3 {
        assert!(world.try_send(mail("b")).is_err());
    }
    world.take();
    let next = world.send(mail("b"));
    assert_eq!((next.seq(), world.message(next).chain_seq), (2, 2));
}
