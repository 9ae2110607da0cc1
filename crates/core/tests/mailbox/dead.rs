//! Dead letters: the moment at which a message becomes one, and its content.

use asyncgate_core::{
    MessageId,
    mailbox::{Cause, Death, Kind, Nack, Outgoing, Policy, State},
};

use crate::world::{World, mail};

/// One way for a delivery to fail.
#[derive(Debug, Clone, Copy)]
enum Fail {
    Nack(Option<&'static str>, Option<&'static str>),
    Timeout,
}

/// Delivers the message and lets the delivery fail. Returns the death, if that was the last delivery.
fn fail(world: &mut World, id: MessageId, how: Fail) -> Option<Death> {
    let (taken, lease) = world.take();
    assert_eq!(taken, id);
    match how {
        Fail::Nack(reason, error) => {
            let nack = Nack {
                reason: reason.map(str::to_owned),
                error: error.map(str::to_owned),
                delay_ms: Some(0),
            };
            world.nack(id, lease, nack).unwrap().died
        }
        Fail::Timeout => {
            world.wait_ms(5_000);
            let swept = world.sweep();
            assert_eq!(swept.timed_out.len(), 1);
            swept.died.into_iter().next()
        }
    }
}

const PARSE: Fail = Fail::Nack(Some("E_PARSE"), Some("unexpected end"));
const BUSY: Fail = Fail::Nack(Some("busy"), None);
const MUTE: Fail = Fail::Nack(None, None);

#[test]
fn the_last_allowed_delivery_that_fails_is_the_end() {
    for how in [PARSE, MUTE, Fail::Timeout] {
        for max_attempts in [1, 2, 5] {
            let mut world = World::with(Policy {
                max_attempts,
                ..Policy::default()
            });
            let id = world.send(mail("a"));
            for attempt in 1..max_attempts {
                assert_eq!(fail(&mut world, id, how), None);
                assert_eq!(world.message(id).attempt, attempt);
                assert_eq!(world.kind(id), Some(Kind::Ready), "{how:?}");
            }
            let death = fail(&mut world, id, how).unwrap();
            let message = world.message(id);
            assert_eq!(
                (death.cause, death.attempt),
                (Cause::MaxAttempts, max_attempts)
            );
            assert_eq!(death.trace, message.trace());
            assert_eq!(message.attempt, max_attempts);
            let (at, until) = (world.now, world.now.plus_millis(14 * 86_400_000));
            let cause = Cause::MaxAttempts;
            assert_eq!(message.state, State::Dead { cause, at, until });
            assert!(world.ready("inbox").is_empty(), "no further delivery");
        }
    }
}

#[test]
fn a_dead_letter_says_what_the_last_refusal_said() {
    for (failures, reason, last_error) in [
        (
            &[Fail::Timeout, Fail::Timeout][..],
            "visibility_timeout",
            None,
        ),
        (&[PARSE, PARSE], "E_PARSE", Some("unexpected end")),
        (&[PARSE, BUSY], "busy", None),
        (&[BUSY, PARSE], "E_PARSE", Some("unexpected end")),
        (&[PARSE, Fail::Timeout], "E_PARSE", Some("unexpected end")),
        (&[Fail::Timeout, PARSE], "E_PARSE", Some("unexpected end")),
        (&[PARSE, MUTE], "nack", None),
    ] {
        let mut world = World::with(Policy {
            max_attempts: 2,
            ..Policy::default()
        });
        let id = world.send(mail("a"));
        assert_eq!(fail(&mut world, id, failures[0]), None);
        let death = fail(&mut world, id, failures[1]).unwrap();
        let message = world.message(id);
        assert_eq!(death.reason, reason, "{failures:?}");
        assert_eq!(message.reason.as_deref(), Some(reason));
        assert_eq!(message.last_error.as_deref(), last_error, "{failures:?}");
    }
}

#[test]
fn what_expires_is_a_dead_letter_too() {
    for (failure, reason) in [(None, "expired"), (Some(BUSY), "busy")] {
        let mut world = World::new();
        let id = world.send(Outgoing {
            ttl_ms: Some(60_000),
            ..mail("a")
        });
        if let Some(failure) = failure {
            fail(&mut world, id, failure);
        }
        let sent = world.message(id).sent_at;
        world.now = sent.plus_millis(59_999);
        assert_eq!(world.sweep().moved(), 0);
        world.wait_ms(1);
        let died = world.sweep().died;
        assert_eq!((died.len(), died[0].cause), (1, Cause::Expired));
        assert_eq!(
            died[0].reason, reason,
            "the last refusal's, if there was one"
        );
        assert!(matches!(
            world.message(id).state,
            State::Dead { cause: Cause::Expired, at, .. } if at == world.now
        ));
    }
}

#[test]
fn dead_letters_are_kept_for_their_time_and_then_forgotten() {
    let mut world = World::with(Policy {
        max_attempts: 1,
        dlq_retention_ms: 1_000_000,
        ..Policy::default()
    });
    let id = world.send(mail("a"));
    fail(&mut world, id, PARSE).unwrap();
    world.wait_ms(999_999);
    assert_eq!(world.sweep().forgotten, 0);
    assert_eq!(
        world.message(id).payload,
        "a",
        "it can still be brought back"
    );
    world.wait_ms(1);
    assert_eq!(world.sweep().forgotten, 1);
    assert!(world.rows.is_empty());
}
