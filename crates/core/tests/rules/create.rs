//! Creating tasks: defaults, delays, and creation that can be repeated safely.

use asyncgate_core::{
    Rejection, Timestamp,
    task::{NewTask, Requirements, State, Status},
};

use crate::world::{World, agent, echo, json, proven};

#[test]
fn what_a_tasker_leaves_open_is_filled_from_the_policy() {
    let mut world = World::new();
    let id = world.create(echo());
    let task = world.task(id);
    assert_eq!(task.status(), Status::Queued);
    assert_eq!((task.attempt, task.expiries), (0, 0));
    assert_eq!(task.spec.priority, 0);
    assert_eq!(task.spec.max_attempts, 3);
    assert_eq!(task.spec.retry_backoff_seconds, 30);
    assert!(task.spec.requirements.is_empty());
    assert_eq!(task.next_eligible_at, world.now);
    assert_eq!((task.created_at, task.updated_at), (world.now, world.now));
    assert_eq!(task.created_by, agent("alice"));
    assert_eq!(&*task.instance, "asyncgate-1");
}

#[test]
fn what_a_tasker_asks_for_is_kept_as_it_was_sent() {
    let mut world = World::new();
    let payload = "{\"z\":1.50, \"a\":[12345678901234567890,\"\\u0000\"]}";
    let id = world.create(NewTask {
        payload: json(payload),
        payload_pointer: Some("s3://in".to_owned()),
        requirements: Requirements::new(
            vec!["net".to_owned(), "gpu".to_owned(), "net".to_owned()],
            vec!["b".to_owned(), "a".to_owned()],
        ),
        priority: Some(-7),
        max_attempts: Some(1),
        retry_backoff_seconds: Some(0),
        expected_outcome_kind: Some("file".to_owned()),
        expected_artifact_mime: Some("text/csv".to_owned()),
        ..echo()
    });
    let spec = &world.task(id).spec;
    assert_eq!(spec.payload.text(), payload);
    assert_eq!(spec.payload_pointer.as_deref(), Some("s3://in"));
    assert_eq!(spec.requirements.capabilities, ["gpu", "net"]);
    assert_eq!(spec.requirements.tags, ["b", "a"]);
    assert_eq!((spec.priority, spec.max_attempts), (-7, 1));
    assert_eq!(spec.retry_backoff_seconds, 0);
    assert_eq!(spec.expected_outcome_kind.as_deref(), Some("file"));
    assert_eq!(spec.expected_artifact_mime.as_deref(), Some("text/csv"));
}

#[test]
fn a_delayed_task_is_queued_but_ready_only_when_its_time_has_come() {
    let mut world = World::new();
    let id = world.create(NewTask {
        delay_ms: 60_000,
        ..echo()
    });
    assert_eq!(world.status(id), Status::Queued);
    assert_eq!(
        world.task(id).next_eligible_at,
        world.now.plus_millis(60_000)
    );
    world.wait_ms(59_999);
    assert_eq!(world.sweep().readied, 0);
    assert_eq!(world.task(id).state, State::Delayed);
    world.wait_ms(1);
    assert_eq!(world.sweep().readied, 1);
    assert_eq!(world.task(id).state, State::Ready);
}

#[test]
fn no_delay_or_a_negative_one_means_ready_at_once() {
    for delay_ms in [0, -1, i64::MIN] {
        let mut world = World::new();
        let id = world.create(NewTask { delay_ms, ..echo() });
        assert_eq!(world.task(id).state, State::Ready, "{delay_ms}");
        assert_eq!(world.task(id).next_eligible_at, world.now);
    }
}

#[test]
fn an_absurd_delay_does_not_wrap_around_into_the_past() {
    let mut world = World::new();
    let id = world.create(NewTask {
        delay_ms: i64::MAX,
        ..echo()
    });
    let end_of_time = Timestamp::from_millis(i64::MAX);
    assert_eq!(world.task(id).next_eligible_at, end_of_time);
}

fn keyed() -> NewTask {
    NewTask {
        payload: json(r#"{"b":[1,2.0],"a":"x"}"#),
        payload_pointer: Some("s3://in".to_owned()),
        requirements: Requirements::new(vec!["gpu".to_owned()], vec!["low".to_owned()]),
        idempotency_key: Some("order-17".to_owned()),
        ..echo()
    }
}

#[test]
fn the_same_content_again_is_answered_with_the_first_task() {
    for (why, again) in [
        ("the very same", keyed()),
        (
            "the payload is compared as a value, not as text",
            NewTask {
                payload: json("{ \"a\" : \"\\u0078\", \"b\" : [1.0, 2] }"),
                ..keyed()
            },
        ),
        (
            "capabilities are a set",
            NewTask {
                requirements: Requirements::new(
                    vec!["gpu".to_owned(), "gpu".to_owned()],
                    vec!["low".to_owned()],
                ),
                ..keyed()
            },
        ),
        (
            "priority is not content",
            NewTask {
                priority: Some(9),
                ..keyed()
            },
        ),
        (
            "delay is not content",
            NewTask {
                delay_ms: 60_000,
                ..keyed()
            },
        ),
        (
            "limits are not content",
            NewTask {
                max_attempts: Some(9),
                retry_backoff_seconds: Some(1),
                ..keyed()
            },
        ),
    ] {
        let mut world = World::new();
        let first = world.create(keyed());
        let (before, receipts) = (world.task(first).clone(), world.ledger.len());
        world.wait_ms(1_000);
        let answer = world.try_create(again).unwrap();
        assert!(answer.duplicate, "{why}");
        assert_eq!(answer.task, before, "{why}");
        assert_eq!(world.tasks.len(), 1, "{why}");
        assert_eq!(world.ledger.len(), receipts, "{why}");
    }
}

type Change = (&'static str, fn(&mut NewTask));

#[test]
fn other_content_under_the_same_key_is_refused() {
    let changed: [Change; 7] = [
        ("type", |new| new.task_type = "other".to_owned()),
        ("payload", |new| {
            new.payload = json(r#"{"b":[1,2],"a":"y"}"#)
        }),
        ("payload order", |new| {
            new.payload = json(r#"{"b":[2,1],"a":"x"}"#);
        }),
        ("payload_pointer", |new| new.payload_pointer = None),
        ("capabilities", |new| {
            new.requirements.capabilities = vec!["cpu".to_owned()];
        }),
        ("no capabilities", |new| {
            new.requirements.capabilities = Vec::new();
        }),
        ("tags", |new| new.requirements.tags = Vec::new()),
    ];
    for (what, change) in changed {
        let mut world = World::new();
        let task_id = world.create(keyed());
        let mut other = keyed();
        change(&mut other);
        assert_eq!(
            world.try_create(other).unwrap_err(),
            Rejection::IdempotencyConflict { task_id },
            "{what}"
        );
        assert_eq!(world.tasks.len(), 1);
    }
}

#[test]
fn a_key_still_stands_for_a_task_that_has_ended() {
    let mut world = World::new();
    let id = world.create(keyed());
    let hold = world.lease(id);
    world.complete(&hold, id, proven()).unwrap();
    let answer = world.try_create(keyed()).unwrap();
    assert!(answer.duplicate);
    assert_eq!(answer.task.status(), Status::Succeeded);
}

#[test]
fn a_new_task_opens_exactly_one_obligation_towards_its_owner() {
    let mut world = World::new();
    let id = world.create(echo());
    assert_eq!(world.open.len(), 1);
    assert!(world.is_open(id));
    assert_eq!(world.task(id).assignment, world.ledger[0].id);
    assert_eq!(
        id.seq(),
        world.ledger[0].seq(),
        "a task stands at its assignment"
    );
}
