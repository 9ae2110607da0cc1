//! Sweeping: each state moves at its time, not a millisecond earlier, and only once.

use asyncgate_core::mailbox::{Kind, Nack, Outgoing, Policy};

use crate::world::{ALL, World, mail};

/// The events in a message's life after it was sent.
#[derive(Debug, Clone, Copy)]
enum Then {
    Nothing,
    Lease,
    Ack,
    Kill,
}

#[test]
fn each_state_moves_at_its_time() {
    let short = Outgoing {
        ttl_ms: Some(300),
        ..delayed(700)
    };
    for (name, sent, then, at, becomes) in [
        (
            "delayed",
            delayed(700),
            Then::Nothing,
            700,
            Some(Kind::Ready),
        ),
        ("leased", mail("a"), Then::Lease, 5_000, Some(Kind::Ready)),
        (
            "ready, mortal",
            mortal(900),
            Then::Nothing,
            900,
            Some(Kind::Dead),
        ),
        (
            "ready too long",
            mail("a"),
            Then::Nothing,
            50_000,
            Some(Kind::Dead),
        ),
        (
            "delayed, mortal",
            short,
            Then::Nothing,
            300,
            Some(Kind::Dead),
        ),
        (
            "delayed too long",
            delayed(60_000),
            Then::Nothing,
            50_000,
            Some(Kind::Dead),
        ),
        // A receiver may finish a message that grew too old while it held it.
        (
            "leased, mortal",
            mortal(900),
            Then::Lease,
            5_000,
            Some(Kind::Dead),
        ),
        ("gone", mail("a"), Then::Ack, 300_000, None),
        ("dead", mail("a"), Then::Kill, 400_000, None),
    ] {
        let mut world = World::with(Policy {
            ready_retention_ms: 50_000,
            dlq_retention_ms: 400_000,
            ..Policy::default()
        });
        let id = world.send(sent);
        if !matches!(then, Then::Nothing) {
            world.take();
        }
        match then {
            Then::Nothing | Then::Lease => {}
            Then::Ack => assert!(world.ack(id, None).is_ok()),
            Then::Kill => {
                world.policy.max_attempts = 1;
                assert!(world.nack(id, None, Nack::default()).is_ok());
            }
        }
        let before = world.rows.clone();
        world.wait_ms(at - 1);
        let swept = world.sweep();
        assert_eq!((swept.moved(), swept.timed_out.len()), (0, 0), "{name}");
        assert_eq!(world.rows, before, "{name}");
        world.wait_ms(1);
        let swept = world.sweep();
        assert_eq!(swept.moved(), 1, "{name}");
        assert_eq!(world.kind(id), becomes, "{name}");
        let timed_out = usize::from(name.starts_with("leased"));
        assert_eq!(swept.timed_out.len(), timed_out, "{name}");
        let counts = (swept.readied, swept.died.len(), swept.forgotten);
        let expected = match becomes {
            Some(Kind::Ready) => (1, 0, 0),
            Some(_) => (0, 1, 0),
            None => (0, 0, 1),
        };
        assert_eq!(counts, expected, "{name}");
        assert_eq!(world.sweep().moved(), 0, "{name}: once");
    }
}

fn delayed(delay_ms: i64) -> Outgoing {
    Outgoing {
        delay_ms,
        ..mail("a")
    }
}

fn mortal(ttl_ms: i64) -> Outgoing {
    Outgoing {
        ttl_ms: Some(ttl_ms),
        ..mail("a")
    }
}

/// The deadline that stores index must be the time at which a sweep would move the message.
#[test]
fn a_message_is_due_when_a_sweep_would_move_it() {
    let mut world = World::new();
    world.send(delayed(700));
    world.send(Outgoing {
        ttl_ms: Some(300),
        idem_key: "b".to_owned(),
        ..delayed(700)
    });
    world.send(Outgoing {
        ttl_ms: Some(900),
        ..mail("c")
    });
    world.send(mail("d"));
    assert_eq!(world.receive(&ALL).len(), 2);
    for _ in 0..200 {
        let rows = world.rows.values();
        let due = rows.filter_map(|row| row.standing().due).min();
        let Some(due) = due.filter(|due| *due > world.now) else {
            break;
        };
        world.now = due.plus_millis(-1);
        assert_eq!(world.sweep().moved(), 0);
        world.wait_ms(1);
        assert_ne!(world.sweep().moved(), 0);
        world.receive(&ALL);
    }
    assert!(world.rows.is_empty(), "everything is forgotten in the end");
}
