//! The operator's actions: bring dead letters back, and purge messages.

use asyncgate_core::{
    MessageId,
    mailbox::{Full, Kind, Nack, Outgoing, Policy, Rejection, State},
};

use crate::world::{ALL, World, mail};

/// Builds a world in which one refusal makes a dead letter, with its dead letters.
fn dead(keys: &[&str], policy: Policy) -> (World, Vec<MessageId>) {
    let mut world = World::with(Policy {
        max_attempts: 1,
        ..policy
    });
    for key in keys {
        world.send(mail(key));
    }
    let mut ids = Vec::new();
    for message in world.receive(&ALL) {
        let nack = Nack {
            reason: Some("E_PARSE".to_owned()),
            error: Some("what?".to_owned()),
            delay_ms: None,
        };
        world.nack(message.id, None, nack).unwrap();
        ids.push(message.id);
    }
    (world, ids)
}

#[test]
fn a_redriven_message_is_as_new_under_its_old_id() {
    let (mut world, ids) = dead(&["a"], Policy::default());
    let sent_at = world.message(ids[0]).sent_at;
    world.wait_ms(60_000);
    assert_eq!(world.redrive(&ids), Ok(1));
    let message = world.message(ids[0]);
    assert_eq!(message.state, State::Ready);
    assert_eq!((message.attempt, message.delivery), (0, None));
    assert_eq!((message.reason, message.last_error), (None, None));
    assert_eq!((message.sent_at, message.since), (sent_at, world.now));
    let given = world.receive(&ALL);
    assert_eq!((given[0].id, given[0].attempt), (ids[0], 1));
    assert_eq!(given[0].payload, "a");
}

#[test]
fn what_is_redriven_comes_in_the_order_in_which_it_was_sent() {
    let (mut world, ids) = dead(&["a", "b", "c"], Policy::default());
    world.send(mail("new"));
    let backwards = [ids[2], ids[0], ids[1]];
    assert_eq!(world.redrive(&backwards), Ok(3));
    let given: Vec<MessageId> = world.receive(&ALL).iter().map(|m| m.id).collect();
    assert_eq!(given[..3], ids[..]);
    assert_eq!(given.len(), 4);
}

#[test]
fn a_redrive_moves_all_or_none() {
    let tight = Policy {
        topic_capacity: 3,
        ..Policy::default()
    };
    let (mut world, ids) = dead(&["a", "b", "c"], tight);
    world.send(mail("d"));
    let before = world.rows.clone();
    let full = Err(Rejection::Saturated(Full::Topic { capacity: 3 }));
    assert_eq!(world.redrive(&ids), full);
    assert_eq!(world.rows, before);
    assert_eq!(world.redrive(&ids[..2]), Ok(2));
    assert_eq!(world.redrive(&ids[2..]), full);
    world.receive(&ALL);
    assert_eq!(world.redrive(&ids[2..]), Ok(1));
}

/// Somebody else may have acted first: a message that is no dead letter any more is left alone.
#[test]
fn a_redrive_passes_over_what_is_not_dead() {
    let (mut world, ids) = dead(&["a", "b"], Policy::default());
    let ready = world.send(mail("ready"));
    world.send(mail("leased"));
    let leased = world.receive(&ALL)[1].id;
    world.purge(&ids[..1]);
    assert_eq!(world.redrive(&[ids[0], ids[1], ready, leased]), Ok(1));
    assert_eq!(world.kind(ids[0]), Some(Kind::Gone));
    assert_eq!(world.kind(ids[1]), Some(Kind::Ready));
    assert_eq!(world.kind(leased), Some(Kind::Leased));
}

/// A redriven message would die again at once if its age, or its sender's time to live, still counted.
#[test]
fn what_expired_lives_again_when_it_is_redriven() {
    for ttl_ms in [Some(1_000), None] {
        let mut world = World::with(Policy {
            ready_retention_ms: 60_000,
            ..Policy::default()
        });
        let id = world.send(Outgoing {
            ttl_ms,
            ..mail("a")
        });
        world.wait_ms(60_000);
        assert_eq!(world.sweep().died.len(), 1);
        world.redrive(&[id]).unwrap();
        assert_eq!(world.sweep().moved(), 0);
        world.wait_ms(59_999);
        assert_eq!(world.sweep().moved(), 0);
        world.wait_ms(1);
        assert_eq!(world.sweep().died.len(), 1, "it grows old again");
    }
    // A time to live that is not over goes on.
    let mut world = World::with(Policy {
        max_attempts: 1,
        ..Policy::default()
    });
    let id = world.send(Outgoing {
        ttl_ms: Some(10_000),
        ..mail("a")
    });
    world.take();
    world.nack(id, None, Nack::default()).unwrap();
    world.redrive(&[id]).unwrap();
    world.wait_ms(10_000);
    assert_eq!(world.sweep().died.len(), 1);
}

#[test]
fn a_purge_takes_all_but_what_receivers_have() {
    let (mut world, dead) = dead(&["dead"], Policy::default());
    world.send(mail("leased"));
    let (leased, lease) = world.take();
    let ready = world.send(mail("ready"));
    let delay_ms = 9_000;
    let delayed = world.send(Outgoing {
        delay_ms,
        ..mail("delayed")
    });
    let all = [dead[0], leased, ready, delayed];
    assert_eq!(world.purge(&all), 3);
    for id in [dead[0], ready, delayed] {
        assert_eq!(world.kind(id), Some(Kind::Gone));
    }
    assert_eq!(world.kind(leased), Some(Kind::Leased));
    assert_eq!(world.purge(&all), 0, "what is gone is gone");
    world.ack(leased, lease).unwrap();
    world.wait_ms(300_000);
    assert_eq!(world.sweep().forgotten, 4);
}

#[test]
fn one_message_is_thrown_away_unless_a_receiver_has_it() {
    let (mut world, dead) = dead(&["dead"], Policy::default());
    world.send(mail("leased"));
    let (leased, lease) = world.take();
    let ready = world.send(mail("ready"));
    let refused = world.delete(leased).map(drop);
    assert_eq!(refused, Err(Rejection::Leased));
    assert_eq!(world.kind(leased), Some(Kind::Leased));
    for id in [dead[0], ready] {
        assert!(!world.delete(id).unwrap().repeated);
        assert_eq!(world.kind(id), Some(Kind::Gone));
        assert!(world.delete(id).unwrap().repeated, "it was done before");
    }
    assert!(world.try_send(mail("ready")).unwrap().duplicate);
    world.ack(leased, lease).unwrap();
    world.wait_ms(300_000);
    assert_eq!(world.delete(ready).map(drop), Err(Rejection::NotFound));
}

#[test]
fn one_message_comes_back_if_it_is_a_dead_letter() {
    let (mut world, dead) = dead(&["dead"], Policy::default());
    let ready = world.send(mail("ready"));
    assert!(!world.redrive_one(dead[0]).unwrap().repeated);
    assert_eq!(world.kind(dead[0]), Some(Kind::Ready));
    for id in [dead[0], ready] {
        assert!(world.redrive_one(id).unwrap().repeated, "it is none");
        assert_eq!(world.kind(id), Some(Kind::Ready));
    }
    world.delete(ready).unwrap();
    let gone = world.redrive_one(ready).map(drop);
    assert_eq!(gone, Err(Rejection::NotFound));
}

/// Operators are told of dead letters that are forgotten, not of messages that were done.
#[test]
fn a_sweep_tells_which_dead_letters_it_forgot() {
    let (mut world, ids) = dead(&["a", "b"], Policy::default());
    world.purge(&ids[..1]);
    world.wait_ms(14 * 86_400_000);
    let swept = world.sweep();
    assert_eq!((swept.forgotten, swept.buried.len()), (2, 1));
    assert_eq!(&*swept.buried[0].topic, "inbox");
}
