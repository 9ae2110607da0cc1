//! Refusing: in every state, under every lease, and the time at which the message comes back.

use asyncgate_core::mailbox::{Kind, Nack, Policy, Rejection, State};

use crate::{
    ack::{By, DONE, Place, REPEATED, bring},
    world::{World, mail},
};

#[test]
fn refusals_in_every_place_under_every_lease() {
    use Rejection::{NotFound, NotLeased, StaleLease};
    for (place, own, nobody) in [
        (Place::Unknown, Err(NotFound), Err(NotFound)),
        (Place::NeverDelivered, Err(StaleLease), Err(NotLeased)),
        (
            Place::DelayedBeforeDelivery,
            Err(StaleLease),
            Err(NotLeased),
        ),
        (Place::Leased, DONE, DONE),
        (Place::Overdue, DONE, DONE),
        // The deadline came first and already did what the refusal asks for.
        (Place::TimedOut, REPEATED, Err(NotLeased)),
        (Place::Refused, REPEATED, Err(NotLeased)),
        (Place::Backoff, REPEATED, Err(NotLeased)),
        (Place::TakenOver, Err(StaleLease), DONE),
        (Place::Acked, Err(NotLeased), Err(NotLeased)),
        (Place::AckedByOther, Err(StaleLease), Err(NotLeased)),
        (Place::AckedLongAgo, Err(NotFound), Err(NotFound)),
        (Place::Dead, REPEATED, Err(NotLeased)),
        (Place::Redriven, Err(StaleLease), Err(NotLeased)),
        (Place::PurgedBeforeDelivery, Err(StaleLease), Err(NotLeased)),
    ] {
        let missing = matches!(place, Place::Unknown | Place::AckedLongAgo);
        let stranger = if missing { NotFound } else { StaleLease };
        for (by, expected) in [
            (By::Own, own.clone()),
            (By::Nobody, nobody.clone()),
            (By::Stranger, Err(stranger)),
        ] {
            let mut world = World::new();
            let (id, lease) = bring(&mut world, place);
            let lease = by.lease(&mut world, lease);
            let before = world.rows.clone();
            let nack = Nack {
                delay_ms: Some(7_000),
                ..Nack::default()
            };
            let answer = world.nack(id, lease, nack).map(|said| said.repeated);
            assert_eq!(answer, expected, "{place:?} {by:?}");
            if answer == DONE {
                let until = world.now.plus_millis(7_000);
                assert_eq!(world.message(id).state, State::Delayed { until });
            } else {
                assert_eq!(world.rows, before, "{place:?} {by:?}");
            }
        }
    }
}

#[test]
fn a_refusal_may_say_when_the_message_comes_back() {
    for (delay_ms, kind) in [
        (0, Kind::Ready),
        (-1, Kind::Ready),
        (1, Kind::Delayed),
        (86_400_000, Kind::Delayed),
    ] {
        let mut world = World::new();
        let (id, lease) = bring(&mut world, Place::Leased);
        let nack = Nack {
            delay_ms: Some(delay_ms),
            ..Nack::default()
        };
        let said = world.nack(id, lease, nack).unwrap();
        assert_eq!((said.attempt, said.died), (1, None));
        assert_eq!(world.kind(id), Some(kind), "{delay_ms}");
        if kind == Kind::Delayed {
            world.wait_ms(delay_ms - 1);
            world.sweep();
            assert_eq!(world.kind(id), Some(Kind::Delayed));
            world.wait_ms(1);
            world.sweep();
        }
        let (again, other) = world.take();
        assert!(again == id && Some(other) != lease);
        assert_eq!(world.message(id).attempt, 2);
    }
}

/// Full jitter: the wait is anything from zero to base x 2^attempt, at most the maximum.
#[test]
fn backoff_doubles_and_is_spread_over_its_whole_range() {
    let policy = Policy {
        max_attempts: 100,
        backoff_base_ms: 200,
        backoff_max_ms: 2_000,
        ..Policy::default()
    };
    for (failures, bound) in [(1, 400), (2, 800), (3, 1_600), (4, 2_000), (9, 2_000)] {
        let mut waits = Vec::new();
        for seed in 0..400 {
            let mut world = World::with(policy.clone());
            let id = world.send(mail("a"));
            world.take();
            world.rows.get_mut(&1).unwrap().attempt = failures;
            // Another seed gives another jitter.
            for _ in 0..seed {
                world.env();
            }
            world.nack(id, None, Nack::default()).unwrap();
            waits.push(match world.message(id).state {
                State::Delayed { until } => until.millis_since(world.now),
                _ => 0,
            });
        }
        let (least, most) = (waits.iter().min().unwrap(), waits.iter().max().unwrap());
        assert!(*least >= 0 && *least < bound / 10, "{least}");
        assert!(*most <= bound && *most > bound - bound / 10, "{most}");
        let mean = waits.iter().sum::<i64>() / waits.len() as i64;
        assert!((bound * 2 / 5..bound * 3 / 5).contains(&mean), "{mean}");
    }
}
