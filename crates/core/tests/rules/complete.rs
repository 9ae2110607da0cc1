//! Reporting success: the stored result, the effect of a repetition, and the outcome that wins.

use asyncgate_core::{
    Rejection,
    task::{Completion, Hold, Outcome, Status},
};

use crate::world::{World, bare, echo, failure, json, proven, worker};

#[test]
fn a_success_keeps_what_its_worker_sent_byte_for_byte() {
    let result = "{\"z\": 1.0,\"a\":12345678901234567890,\"n\":\"\\u0000\"}";
    let mut world = World::new();
    let id = world.create(echo());
    let hold = world.lease(id);
    world.wait_ms(5);
    let completion = Completion {
        result: Some(json(result)),
        artifacts: Some(json(r#"{"type": "s3"}"#)),
        delivery_proof: Some(json(r#"{"mode":"push" }"#)),
        ..Completion::default()
    };
    let answer = world.complete(&hold, id, completion).unwrap();
    let end = world.task(id).end().unwrap();
    assert_eq!(end.outcome, Outcome::Succeeded);
    assert_eq!(end.at, world.now);
    assert_eq!(end.result.as_ref().unwrap().text(), result);
    assert_eq!(end.artifacts.as_ref().unwrap().text(), r#"{"type": "s3"}"#);
    assert_eq!(
        end.delivery_proof.as_ref().unwrap().text(),
        r#"{"mode":"push" }"#
    );
    assert_eq!(end.by, Some((hold.lease_id, hold.worker)));
    assert_eq!((answer.duplicate, answer.retry_at), (false, None));
    assert_eq!(answer.receipt_id, end.receipt);
    assert_eq!(world.task(id).attempt, 0, "a success is no failure");
}

#[test]
fn a_success_may_have_no_result() {
    let mut world = World::new();
    let id = world.create(echo());
    let hold = world.lease(id);
    let completion = Completion {
        result: None,
        ..proven()
    };
    world.complete(&hold, id, completion).unwrap();
    assert_eq!(world.task(id).end().unwrap().result, None);
}

/// Repeats the call that ended a task: at any later time, with any content.
#[test]
fn repeating_the_call_that_ended_the_task_answers_ok_and_the_first_result_stands() {
    let mut world = World::new();
    let id = world.create(echo());
    let hold = world.lease(id);
    let first = world.complete(&hold, id, proven()).unwrap();
    let (task, receipts) = (world.task(id).clone(), world.ledger.len());
    let other = Completion {
        result: Some(json("\"something else\"")),
        artifacts: Some(json("[\"elsewhere\"]")),
        delivery_proof: Some(json("{\"a\":1}")),
        ..Completion::default()
    };
    for again in [proven(), bare(), other] {
        world.wait_ms(10_000_000);
        let answer = world.complete(&hold, id, again).unwrap();
        assert!(answer.duplicate);
        assert_eq!(answer.receipt_id, first.receipt_id, "the original receipt");
    }
    assert_eq!(*world.task(id), task);
    assert_eq!(world.ledger.len(), receipts);
}

#[test]
fn repeating_a_final_failure_answers_ok_and_changes_nothing() {
    let mut world = World::new();
    let id = world.create(echo());
    let hold = world.lease(id);
    let first = world.fail(&hold, id, failure(false)).unwrap();
    let (task, receipts) = (world.task(id).clone(), world.ledger.len());
    for retryable in [false, true] {
        world.wait_ms(10_000_000);
        let answer = world.fail(&hold, id, failure(retryable)).unwrap();
        assert!(answer.duplicate && answer.retry_at.is_none());
        assert_eq!(answer.receipt_id, first.receipt_id);
    }
    assert_eq!(*world.task(id), task);
    assert_eq!(world.ledger.len(), receipts);
}

#[test]
fn only_the_same_worker_with_the_same_lease_may_repeat() {
    let mut world = World::new();
    let id = world.create(echo());
    let old = world.lease(id);
    world.release(&old, id).unwrap();
    let hold = world.lease(id);
    world.complete(&hold, id, proven()).unwrap();
    let stranger = Hold {
        worker: worker("eve"),
        lease_id: hold.lease_id,
    };
    for other in [old, stranger] {
        let answer = world.complete(&other, id, proven());
        assert_eq!(answer.unwrap_err(), Rejection::LeaseInvalid);
    }
}

#[test]
fn another_outcome_than_the_first_is_refused() {
    let mut world = World::new();
    let [succeeded, failed] = [(); 2].map(|()| world.create(echo()));
    let (first, second) = (world.lease(succeeded), world.lease(failed));
    world.complete(&first, succeeded, proven()).unwrap();
    world.fail(&second, failed, failure(false)).unwrap();

    let changed = world.fail(&first, succeeded, failure(false));
    assert_eq!(changed.unwrap_err(), Rejection::LeaseInvalid);
    let changed = world.complete(&second, failed, proven());
    assert_eq!(changed.unwrap_err(), Rejection::LeaseInvalid);
    assert_eq!(world.status(succeeded), Status::Succeeded);
    assert_eq!(world.status(failed), Status::Failed);
}

/// The call is repeated because its answer was lost, so it must not depend on the settings.
#[test]
fn a_repeat_is_answered_also_when_proof_has_become_compulsory() {
    let mut world = World::new();
    let id = world.create(echo());
    let hold = world.lease(id);
    world.complete(&hold, id, bare()).unwrap();
    world.policy.locatability = asyncgate_core::Locatability::Strict;
    assert!(world.complete(&hold, id, bare()).unwrap().duplicate);
}
