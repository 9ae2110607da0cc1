//! Acknowledging and extending: in every state, under every lease.

use asyncgate_core::{
    LeaseId, MessageId,
    mailbox::{Kind, Nack, Outgoing, Policy, Rejection, State},
};

use crate::world::{ALL, World, mail};

const T_REPLAY: i64 = 300_000;
const NOW: Nack = Nack {
    reason: None,
    error: None,
    delay_ms: Some(0),
};

/// The situations in which a message can be when a receiver calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Unknown,
    NeverDelivered,
    DelayedBeforeDelivery,
    Leased,
    /// The deadline has passed, but no sweep has run yet.
    Overdue,
    TimedOut,
    Refused,
    Backoff,
    /// Another receiver has it.
    TakenOver,
    Acked,
    /// Another receiver had it and was done with it.
    AckedByOther,
    AckedLongAgo,
    Dead,
    Redriven,
    PurgedBeforeDelivery,
}

/// Builds a message in that situation. Returns it with the lease of its first receiver, if any.
pub fn bring(world: &mut World, place: Place) -> (MessageId, Option<LeaseId>) {
    if place == Place::DelayedBeforeDelivery {
        let delay_ms = 60_000;
        let id = world.send(Outgoing {
            delay_ms,
            ..mail("a")
        });
        return (id, None);
    }
    let id = world.send(mail("a"));
    match place {
        Place::NeverDelivered => return (id, None),
        Place::PurgedBeforeDelivery => {
            world.purge(&[id]);
            return (id, None);
        }
        _ => {}
    }
    let (_, lease) = world.take();
    let time_out = |world: &mut World| {
        world.wait_ms(5_000);
        world.sweep();
    };
    match place {
        Place::Overdue => world.wait_ms(5_000),
        Place::TimedOut => time_out(world),
        Place::Refused => drop(world.nack(id, lease, NOW).unwrap()),
        Place::Backoff => {
            let delay_ms = Some(60_000);
            drop(world.nack(id, lease, Nack { delay_ms, ..NOW }).unwrap());
        }
        Place::TakenOver => {
            time_out(world);
            world.take();
        }
        Place::Acked | Place::AckedLongAgo | Place::Unknown => {
            world.ack(id, lease).unwrap();
        }
        Place::AckedByOther => {
            time_out(world);
            let (_, other) = world.take();
            world.ack(id, other).unwrap();
        }
        Place::Dead | Place::Redriven => {
            world.policy.max_attempts = 1;
            world.nack(id, lease, Nack::default()).unwrap();
        }
        Place::NeverDelivered
        | Place::DelayedBeforeDelivery
        | Place::Leased
        | Place::PurgedBeforeDelivery => {}
    }
    match place {
        Place::Redriven => drop(world.redrive(&[id]).unwrap()),
        Place::AckedLongAgo => world.wait_ms(T_REPLAY),
        Place::Unknown => {
            world.wait_ms(T_REPLAY);
            world.sweep();
            assert_eq!(world.kind(id), None);
        }
        _ => {}
    }
    (id, Some(lease))
}

/// The answer to a call: done, done before, or refused.
pub type Verdict = Result<bool, Rejection>;
pub const DONE: Verdict = Ok(false);
pub const REPEATED: Verdict = Ok(true);

/// The lease that a call names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    Own,
    Nobody,
    Stranger,
}

impl By {
    pub fn lease(self, world: &mut World, own: Option<LeaseId>) -> Option<LeaseId> {
        match self {
            // A caller that never received the message can only invent a lease.
            Self::Own => own.or_else(|| Some(world.env().ids.lease(1))),
            Self::Nobody => None,
            Self::Stranger => Some(world.env().ids.lease(1)),
        }
    }
}

#[test]
fn acknowledgements_in_every_place_under_every_lease() {
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
        // A late acknowledgement counts as long as the message was not delivered again.
        (Place::Overdue, DONE, DONE),
        (Place::TimedOut, DONE, DONE),
        (Place::Refused, DONE, DONE),
        (Place::Backoff, DONE, DONE),
        (Place::TakenOver, Err(StaleLease), DONE),
        (Place::Acked, REPEATED, REPEATED),
        (Place::AckedByOther, Err(StaleLease), REPEATED),
        (Place::AckedLongAgo, Err(NotFound), Err(NotFound)),
        (Place::Dead, DONE, Err(NotLeased)),
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
            let answer = world.ack(id, lease).map(|said| said.repeated);
            assert_eq!(answer, expected, "{place:?} {by:?}");
            if answer == DONE {
                assert_eq!(world.kind(id), Some(Kind::Gone), "{place:?} {by:?}");
                assert_eq!(world.ack(id, lease).map(|said| said.repeated), REPEATED);
            } else {
                assert_eq!(world.rows, before, "{place:?} {by:?}");
            }
        }
    }
}

#[test]
fn a_server_that_wants_leases_refuses_calls_without() {
    for place in [Place::Leased, Place::TimedOut, Place::Acked, Place::Dead] {
        let mut world = World::new();
        let (id, lease) = bring(&mut world, place);
        world.policy.require_lease = true;
        let missing = Rejection::LeaseMissing;
        assert_eq!(world.ack(id, None), Err(missing.clone()), "{place:?}");
        assert_eq!(world.nack(id, None, NOW), Err(missing.clone()));
        assert_eq!(world.extend(id, None, 1_000), Err(missing));
        assert!(world.ack(id, lease).is_ok());
    }
}

#[test]
fn an_acknowledged_id_is_remembered_for_the_window_and_then_forgotten() {
    let mut world = World::new();
    let (id, lease) = bring(&mut world, Place::Leased);
    world.wait_ms(4_000);
    world.ack(id, lease).unwrap();
    let until = world.now.plus_millis(T_REPLAY);
    let message = world.message(id);
    assert_eq!(message.state, State::Gone { until });
    assert!(message.payload.is_empty(), "its content is not kept");
    world.wait_ms(T_REPLAY - 1);
    assert_eq!(world.sweep().forgotten, 0);
    assert!(world.ack(id, lease).unwrap().repeated);
    assert_eq!(world.message(id).state, State::Gone { until });
    world.wait_ms(1);
    assert_eq!(world.ack(id, lease), Err(Rejection::NotFound));
    assert_eq!(world.sweep().forgotten, 1);
    assert!(world.rows.is_empty());
}

#[test]
fn what_is_acknowledged_is_never_delivered_again() {
    for place in [Place::Leased, Place::TimedOut, Place::Backoff, Place::Dead] {
        let mut world = World::new();
        let (id, lease) = bring(&mut world, place);
        world.ack(id, lease).unwrap();
        for _ in 0..100 {
            world.wait_ms(10_000);
            world.sweep();
            assert!(world.receive(&ALL).is_empty(), "{place:?}");
        }
    }
}

#[test]
fn acknowledgements_of_a_batch_stand_each_for_itself() {
    let mut world = World::new();
    for key in ["a", "b", "c"] {
        world.send(mail(key));
    }
    let (a, lease_a) = world.take();
    let (b, lease_b) = world.take();
    let c = world.ready("inbox")[0].id;
    let unknown = world.env().ids.message(99);
    let answers = world.ack_all(&[
        (a, Some(lease_a)),
        (unknown, None),
        (a, None),
        (b, Some(lease_a)),
        (c, None),
        (b, Some(lease_b)),
        (a, Some(lease_b)),
    ]);
    let answers: Vec<Verdict> = answers
        .into_iter()
        .map(|answer| answer.map(|said| said.repeated))
        .collect();
    use Rejection::{NotFound, NotLeased, StaleLease};
    assert_eq!(
        answers,
        [
            DONE,
            Err(NotFound),
            REPEATED,
            Err(StaleLease),
            Err(NotLeased),
            DONE,
            Err(StaleLease),
        ]
    );
    assert_eq!((world.count(Kind::Gone), world.count(Kind::Ready)), (2, 1));
}

#[test]
fn extending_in_every_place_under_every_lease() {
    use Rejection::{NotFound, NotLeased, StaleLease};
    for (place, own, nobody) in [
        (Place::Unknown, Err(NotFound), Err(NotFound)),
        (Place::NeverDelivered, Err(StaleLease), Err(NotLeased)),
        (Place::Leased, Ok(()), Ok(())),
        // A delivery that has ended cannot be extended, even if no sweep has run yet.
        (Place::Overdue, Err(StaleLease), Err(NotLeased)),
        (Place::TimedOut, Err(StaleLease), Err(NotLeased)),
        (Place::Backoff, Err(StaleLease), Err(NotLeased)),
        (Place::TakenOver, Err(StaleLease), Ok(())),
        (Place::Acked, Err(StaleLease), Err(NotLeased)),
        (Place::AckedLongAgo, Err(NotFound), Err(NotFound)),
        (Place::Dead, Err(StaleLease), Err(NotLeased)),
        (Place::Redriven, Err(StaleLease), Err(NotLeased)),
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
            let answer = world.extend(id, lease, 20_000);
            assert_eq!(answer.clone().map(drop), expected, "{place:?} {by:?}");
            match answer {
                Ok(until) => assert_eq!(until, world.now.plus_millis(20_000)),
                Err(_) => assert_eq!(world.rows, before),
            }
        }
    }
}

#[test]
fn an_extension_never_comes_nearer_nor_goes_beyond_its_bound() {
    // The limit is ten times five seconds from the delivery.
    for (after, wished, until) in [
        (0, 1_000, 5_000),
        (0, 5_000, 5_000),
        (4_999, 10_000, 14_999),
        (0, 49_999, 49_999),
        (0, 50_001, 50_000),
        (1_000, i64::MAX, 50_000),
    ] {
        let mut world = World::new();
        let (id, lease) = bring(&mut world, Place::Leased);
        let delivered = world.now;
        world.wait_ms(after);
        let answer = world.extend(id, lease, wished).unwrap();
        assert_eq!(answer, delivered.plus_millis(until), "{after} {wished}");
        assert_eq!(world.message(id).state, State::Leased { until: answer });
        assert_eq!(world.message(id).attempt, 1, "it is the same delivery");
    }
    let mut world = World::with(Policy {
        inflight_factor: 2,
        ..Policy::default()
    });
    let (id, lease) = bring(&mut world, Place::Leased);
    for _ in 0..4 {
        world.wait_ms(2_400);
        world.extend(id, lease, 5_000).unwrap();
    }
    world.wait_ms(400);
    assert_eq!(world.extend(id, lease, 5_000), Err(Rejection::StaleLease));
}
