//! Partitions: messages with one key come one at a time, in the order in which they were sent.

use asyncgate_core::{
    MessageId,
    mailbox::{Kind, Nack, Outgoing, Policy, Rejection, State, Wish},
};

use crate::world::{ALL, ONE, World, mail};

/// Builds a message with a partition key.
fn keyed(key: &str, partition: &str) -> Outgoing {
    Outgoing {
        partition_key: Some(partition.to_owned()),
        ..mail(key)
    }
}

/// Receives everything that can be received, and returns the names.
fn names(world: &mut World) -> Vec<String> {
    let received = world.receive(&ALL);
    received.iter().map(|m| m.idem_key.to_string()).collect()
}

fn back(delay_ms: i64) -> Nack {
    Nack {
        delay_ms: Some(delay_ms),
        ..Nack::default()
    }
}

#[test]
fn the_next_comes_when_the_one_before_is_acknowledged() {
    let mut world = World::new();
    for key in ["1", "2", "3"] {
        world.send(keyed(key, "k"));
    }
    for key in ["1", "2", "3"] {
        assert_eq!(world.count(Kind::Ready), 1);
        assert_eq!(names(&mut world), [key]);
        assert_eq!(names(&mut world), [""; 0], "it is with a receiver");
        let held = world.rows.values().find(|row| &*row.idem_key == key);
        let (id, lease) = held
            .map(|row| (row.id, row.delivery.unwrap().lease))
            .unwrap();
        world.ack(id, lease).unwrap();
    }
    assert_eq!(names(&mut world), [""; 0]);
}

#[test]
fn keys_topics_and_messages_without_a_key_do_not_wait_for_each_other() {
    let mut world = World::new();
    world.send(keyed("a1", "a"));
    world.send(keyed("b1", "b"));
    world.send(mail("none"));
    world.send(keyed("a2", "a"));
    world.send(keyed("b2", "b"));
    world.send(mail("none too"));
    world.send(Outgoing {
        topic: "elsewhere".to_owned(),
        ..keyed("a3", "a")
    });
    assert_eq!(names(&mut world), ["a1", "b1", "none", "none too"]);
    assert_eq!(
        world.try_receive("elsewhere", &ALL).unwrap().messages.len(),
        1
    );
}

#[test]
fn one_that_is_given_back_or_times_out_keeps_the_turn() {
    let mut world = World::with(Policy {
        max_attempts: 9,
        ..Policy::default()
    });
    world.send(keyed("1", "k"));
    world.send(keyed("2", "k"));
    let (first, lease) = world.take();
    world.nack(first, lease, back(1_000)).unwrap();
    assert_eq!(names(&mut world), [""; 0], "it waits to be tried again");
    world.wait_ms(1_000);
    world.sweep();
    assert_eq!(names(&mut world), ["1"]);
    world.wait_ms(5_000);
    world.sweep();
    assert_eq!(names(&mut world), ["1"], "after a timeout too");
}

#[test]
fn the_next_comes_when_the_one_before_is_dead_however_it_died() {
    for how in ["nack", "timeout", "expired", "swept", "purged", "deleted"] {
        let mut world = World::with(Policy {
            max_attempts: 1,
            ..Policy::default()
        });
        let first = world.send(Outgoing {
            ttl_ms: Some(60_000),
            ..keyed("1", "k")
        });
        world.send(keyed("2", "k"));
        world.send(keyed("3", "k"));
        match how {
            "nack" => {
                world.take();
                world.nack(first, None, back(0)).unwrap();
            }
            "timeout" => {
                world.take();
                world.wait_ms(5_000);
                world.sweep();
            }
            "expired" => {
                world.wait_ms(60_000);
                assert_eq!(world.try_receive("inbox", &ALL).unwrap().died.len(), 1);
            }
            "swept" => {
                world.wait_ms(60_000);
                world.sweep();
            }
            "purged" => assert_eq!(world.purge(&[first]), 1),
            _ => drop(world.delete(first).unwrap()),
        }
        assert_eq!(names(&mut world), ["2"], "{how}");
    }
}

/// Otherwise a delay would let younger messages overtake, and their order would mean nothing.
#[test]
fn a_delay_holds_up_what_was_sent_after_it() {
    let mut world = World::new();
    let until = world.now.plus_millis(9_000);
    world.send(Outgoing {
        delay_ms: 1_000,
        ..keyed("1", "k")
    });
    let second = world.send(Outgoing {
        delay_ms: 9_000,
        ..keyed("2", "k")
    });
    world.send(keyed("3", "k"));
    assert_eq!(world.message(second).state, State::Blocked { until });
    world.wait_ms(1_000);
    world.sweep();
    let (first, lease) = world.take();
    world.ack(first, lease).unwrap();
    assert_eq!(world.message(second).state, State::Delayed { until });
    assert_eq!(names(&mut world), [""; 0], "its own delay goes on");
    world.wait_ms(8_000);
    world.sweep();
    assert_eq!(names(&mut world), ["2"]);
}

#[test]
fn priority_ranks_keys_and_not_the_messages_of_one() {
    let mut world = World::new();
    let ranked = |key: &str, partition: &str, priority| Outgoing {
        priority,
        ..keyed(key, partition)
    };
    world.send(ranked("low 1", "low", 0));
    world.send(ranked("low 2", "low", 9));
    world.send(ranked("high", "high", 1));
    assert_eq!(names(&mut world), ["high", "low 1"]);
}

#[test]
fn one_batch_may_bring_several_and_end_several() {
    let mut world = World::new();
    let batch = vec![keyed("1", "k"), keyed("2", "k"), mail("x"), keyed("3", "k")];
    let sent = world.send_all(batch);
    let ids: Vec<MessageId> = sent.iter().map(|sent| sent.as_ref().unwrap().id).collect();
    assert_eq!(names(&mut world), ["1", "x"]);
    // The second was never delivered: only the first and the one without a key end.
    let acks: Vec<_> = ids.iter().map(|id| (*id, None)).collect();
    let answers = world.ack_all(&acks);
    assert_eq!(answers[1].as_ref().err(), Some(&Rejection::NotLeased));
    assert_eq!(names(&mut world), ["2"]);
    // A sweep that ends the one that has the turn and the next one gives it to the third.
    world.policy.max_attempts = 1;
    world.policy.ready_retention_ms = 5_000;
    let third = ids[3].seq();
    let now = world.now;
    world
        .rows
        .entry(third)
        .and_modify(|row| row.since = now.plus_millis(1));
    let blocked = world.send(keyed("4", "k"));
    world
        .rows
        .entry(blocked.seq())
        .and_modify(|row| row.since = now);
    world.wait_ms(5_000);
    let swept = world.sweep();
    assert_eq!(swept.died.len(), 2, "2 and 4");
    assert_eq!(names(&mut world), ["3"]);
}

#[test]
fn a_purge_of_all_but_what_is_held_leaves_the_turn_where_it_is() {
    let mut world = World::new();
    let ids: Vec<MessageId> = ["1", "2", "3"]
        .map(|key| world.send(keyed(key, "k")))
        .into();
    let (first, lease) = world.take();
    assert_eq!(world.purge(&ids), 2);
    let last = world.send(keyed("4", "k"));
    assert!(world.message(last).is_blocked());
    world.ack(first, lease).unwrap();
    assert_eq!(names(&mut world), ["4"]);
    world.ack(last, None).unwrap();
    let new = world.send(keyed("5", "k"));
    assert_eq!(
        world.message(new).state,
        State::Ready,
        "nobody has the turn"
    );
}

/// A dead letter has left the line, and so it comes back behind the one that has the turn, but before
/// those that were sent after it.
#[test]
fn dead_letters_come_back_in_their_order() {
    let mut world = World::with(Policy {
        max_attempts: 1,
        ..Policy::default()
    });
    let ids: Vec<MessageId> = ["1", "2", "3", "4", "5"]
        .map(|key| world.send(keyed(key, "k")))
        .into();
    for id in &ids[..2] {
        assert_eq!(world.take().0, *id);
        world.nack(*id, None, back(0)).unwrap();
    }
    world.policy.max_attempts = 9;
    assert_eq!(world.redrive(&[ids[1], ids[0]]), Ok(2));
    for key in ["3", "1", "2", "4", "5"] {
        let taken = world.receive(&ONE).pop().unwrap();
        assert_eq!(&*taken.idem_key, key);
        world.ack(taken.id, None).unwrap();
    }
    // With nobody in line the oldest has the turn.
    let dead: Vec<MessageId> = ["6", "7"].map(|key| world.send(keyed(key, "k"))).into();
    world.policy.max_attempts = 1;
    for id in &dead {
        world.take();
        world.nack(*id, None, back(0)).unwrap();
    }
    assert_eq!(world.redrive(&[dead[1], dead[0]]), Ok(2));
    assert_eq!(names(&mut world), ["6"]);
}

#[test]
fn a_late_acknowledgement_passes_the_turn_on() {
    let mut world = World::new();
    world.send(keyed("1", "k"));
    world.send(keyed("2", "k"));
    let (first, lease) = world.take();
    world.wait_ms(5_000);
    world.sweep();
    world.ack(first, lease).unwrap();
    assert_eq!(names(&mut world), ["2"]);
    assert!(world.ack(first, lease).unwrap().repeated);
    assert_eq!(names(&mut world), [""; 0], "the turn passes once");
}

#[test]
fn blocked_messages_count_as_waiting() {
    let mut world = World::with(Policy {
        topic_capacity: 2,
        ..Policy::default()
    });
    world.send(keyed("1", "k"));
    world.send(keyed("2", "k"));
    assert_eq!(
        (world.count(Kind::Ready), world.count(Kind::Delayed)),
        (1, 1)
    );
    assert!(world.try_send(keyed("3", "k")).is_err());
}

/// A receiver that may take little is given the first of several keys.
#[test]
fn what_is_not_handed_over_keeps_its_turn() {
    let mut world = World::new();
    for key in ["a", "b", "c"] {
        world.send(keyed(key, key));
        world.send(keyed(&format!("{key} 2"), key));
    }
    let two = Wish {
        max_messages: 2,
        ..ALL
    };
    let given: Vec<String> = {
        let received = world.receive(&two);
        received.iter().map(|m| m.idem_key.to_string()).collect()
    };
    assert_eq!(given, ["a", "b"]);
    assert_eq!(names(&mut world), ["c"]);
}
