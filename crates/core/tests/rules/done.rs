//! The contract's own tests for being done, as far as the rules alone can show them: "Definition of
//! Done" (§11) and the required coverage of the obligation model (PH.10). Restarts, schedules and
//! the bootstrap endpoint are shown by the tests of the server.

use asyncgate_core::{
    ObligationKey, Receipt, ReceiptId, ReceiptType, Rejection, TaskId, Timestamp, obligation,
    receipt::{MAX_ARTIFACTS, MAX_BODY_BYTES, can_terminate, is_terminal},
    task::{Completion, NewTask, Status},
};

use crate::world::{World, agent, bare, echo, failure, json, json_of_size, proven, worker};

#[test]
fn killing_a_worker_mid_task_does_not_corrupt_state_lease_expires_and_task_requeues() {
    let mut world = World::new();
    let id = world.create(echo());
    let killed = world.lease(id);
    world.start(&killed, id).unwrap();
    world.progress(&killed, id, json("50")).unwrap();
    // The worker never calls again.
    world.wait_ms(300_000);
    assert_eq!(world.sweep().expired, 1);
    assert_eq!(world.status(id), Status::Queued);
    assert_eq!(world.task(id).attempt, 0);
    assert!(world.is_open(id));
    // Another worker finishes the task; the first one returns and changes nothing.
    let heir = world.lease(id);
    let late = world.complete(&killed, id, proven());
    assert_eq!(late.unwrap_err(), Rejection::LeaseInvalid);
    world.complete(&heir, id, proven()).unwrap();
    let late = world.fail(&killed, id, failure(false));
    assert_eq!(late.unwrap_err(), Rejection::LeaseInvalid);
    assert_eq!(world.status(id), Status::Succeeded);
    assert!(!world.is_open(id));
}

#[test]
fn replaying_create_task_with_same_idempotency_key_does_not_duplicate() {
    let new = || NewTask {
        idempotency_key: Some("k".to_owned()),
        ..echo()
    };
    let mut world = World::new();
    let first = world.try_create(new()).unwrap();
    assert!(!first.duplicate);
    for _ in 0..3 {
        world.wait_ms(1_000_000);
        let again = world.try_create(new()).unwrap();
        assert!(again.duplicate);
        assert_eq!(again.task.id, first.task.id);
    }
    assert_eq!((world.tasks.len(), world.open.len()), (1, 1));
}

/// A restarted scheduler relies on this: it fires a run again under the key that names the run.
#[test]
fn scheduler_restart_does_not_duplicate_schedule_firings() {
    let fire = |run_at: &str| NewTask {
        idempotency_key: Some(format!("schedule:s1:{run_at}")),
        ..echo()
    };
    let mut world = World::new();
    let noon = world.create(fire("2026-01-05T12:00:00Z"));
    assert_eq!(world.create(fire("2026-01-05T12:00:00Z")), noon);
    assert_ne!(world.create(fire("2026-01-05T13:00:00Z")), noon);
    assert_eq!(world.tasks.len(), 2);
}

#[test]
fn agent_can_query_tasks_and_results_after_time_passes_and_recover_context() {
    let mut world = World::new();
    let id = world.create(echo());
    let hold = world.lease(id);
    world.complete(&hold, id, proven()).unwrap();
    world.wait_ms(365 * 86_400_000);
    world.sweep();
    let task = world.task(id);
    let end = task.end().unwrap();
    assert_eq!(task.spec.payload.text(), r#"{"say":"hello"}"#);
    assert_eq!(end.result.as_ref().unwrap().text(), r#"{"answer":42}"#);
    let story: Vec<_> = world
        .ledger
        .iter()
        .filter(|receipt| receipt.task_id == Some(id))
        .map(|receipt| receipt.receipt_type.as_str())
        .collect();
    assert_eq!(
        story,
        [
            "task.assigned",
            "task.accepted",
            "task.completed",
            "task.result_ready"
        ]
    );
}

#[test]
fn termination_type_semantics() {
    let terminators = ["task.completed", "task.failed", "task.canceled"];
    for parent in ReceiptType::ALL {
        for terminator in ReceiptType::ALL {
            let expected =
                parent.as_str() == "task.assigned" && terminators.contains(&terminator.as_str());
            assert_eq!(can_terminate(terminator, parent), expected);
        }
        assert_eq!(is_terminal(parent), terminators.contains(&parent.as_str()));
    }
}

/// Builds a ledger that no rule would write, to show that only receipts decide what is open.
#[test]
fn db_driven_termination_checks() {
    let open = |receipts: &[Receipt]| -> Vec<u64> {
        let keys = obligation::open(receipts);
        keys.iter().map(|key: &ObligationKey| key.seq).collect()
    };
    let assigned = receipt(1, ReceiptType::TaskAssigned, &[]);
    let second = receipt(2, ReceiptType::TaskAssigned, &[]);
    assert_eq!(open(&[assigned.clone(), second.clone()]), [1, 2]);
    for receipt_type in ReceiptType::ALL {
        let named = receipt(3, receipt_type, &[&assigned]);
        let closes = ["task.completed", "task.failed", "task.canceled"];
        let expected = if closes.contains(&receipt_type.as_str()) {
            vec![2]
        } else if receipt_type == ReceiptType::TaskAssigned {
            vec![1, 2, 3]
        } else {
            vec![1, 2]
        };
        let ledger = [assigned.clone(), second.clone(), named];
        assert_eq!(open(&ledger), expected, "{}", receipt_type.as_str());
    }
    let unlinked = receipt(3, ReceiptType::TaskCompleted, &[]);
    assert_eq!(open(&[assigned.clone(), second.clone(), unlinked]), [1, 2]);
    let both = receipt(3, ReceiptType::TaskFailed, &[&assigned, &second]);
    assert_eq!(open(&[assigned.clone(), second, both.clone()]), [0_u64; 0]);
    let elsewhere = receipt(4, ReceiptType::TaskCompleted, &[&both]);
    assert_eq!(open(&[assigned, both, elsewhere]), [0_u64; 0]);
}

#[test]
fn parent_linkage_enforcement() {
    let mut world = World::new();
    for outcome in ["completed", "failed", "canceled"] {
        let id = world.create(echo());
        let hold = world.lease(id);
        match outcome {
            "completed" => drop(world.complete(&hold, id, proven()).unwrap()),
            "failed" => drop(world.fail(&hold, id, failure(false)).unwrap()),
            _ => drop(world.cancel(id, None).unwrap()),
        }
        let end = world.task(id).end().unwrap();
        let terminal = &world.ledger[end.receipt.seq() as usize - 1];
        assert_eq!(terminal.parents, [world.task(id).assignment], "{outcome}");
        assert!(!world.is_open(id), "{outcome}");
    }
    let discharged = world.ledger.iter().filter(|r| is_terminal(r.receipt_type));
    assert_eq!(discharged.count(), 3);
}

#[test]
fn locatability_validation() {
    let mut world = World::new();
    let (found, lost) = (world.create(echo()), world.create(echo()));
    let (first, second) = (world.lease(found), world.lease(lost));
    world.complete(&first, found, proven()).unwrap();
    world.complete(&second, lost, bare()).unwrap();
    assert!(!world.is_open(found) && world.is_open(lost));
    world.complete(&second, lost, proven()).unwrap();
    assert!(!world.is_open(lost));
    world.policy.locatability = asyncgate_core::Locatability::Strict;
    let refused = world.create(echo());
    let hold = world.lease(refused);
    let answer = world.complete(&hold, refused, bare());
    assert_eq!(answer.unwrap_err(), Rejection::Unlocatable);
}

#[test]
fn lease_retry_separation() {
    let mut world = World::new();
    let id = world.create(echo());
    for _ in 0..10 {
        world.lease(id);
        world.expire(id);
    }
    assert_eq!(world.task(id).attempt, 0, "crashes use up no attempt");
    let hold = world.lease(id);
    let answer = world.fail(&hold, id, failure(true)).unwrap();
    assert_eq!(world.task(id).attempt, 1, "failures do");
    let delay = answer.retry_at.unwrap().millis_since(world.now);
    assert_eq!(delay, 30_000, "and only they slow the task down");
}

#[test]
fn receipt_size_limits() {
    let mut world = World::new();
    let id = world.create(echo());
    let hold = world.lease(id);
    let too_many = format!("[{}1]", "1,".repeat(MAX_ARTIFACTS));
    for artifacts in [json(&too_many), json_of_size(MAX_BODY_BYTES + 1)] {
        let completion = Completion {
            artifacts: Some(artifacts),
            ..bare()
        };
        assert!(matches!(
            world.complete(&hold, id, completion),
            Err(Rejection::LimitExceeded { .. })
        ));
    }
    // A result may be larger than a receipt; the receipt then leaves it out.
    let completion = Completion {
        result: Some(json_of_size(1 << 20)),
        ..proven()
    };
    world.complete(&hold, id, completion).unwrap();
    assert!(world.ledger.iter().all(|r| r.body.len() <= MAX_BODY_BYTES));
}

fn receipt(seq: u64, receipt_type: ReceiptType, parents: &[&Receipt]) -> Receipt {
    let mut ids = asyncgate_core::Ids::new(asyncgate_core::Stamp::from_u64(seq), seq);
    let id: ReceiptId = ids.receipt(seq);
    Receipt {
        id,
        receipt_type,
        created_at: Timestamp::from_millis(0),
        from: worker("bob"),
        to: agent("alice"),
        task_id: Some(TaskId::from_bytes([7; 16])),
        lease_id: None,
        parents: parents.iter().map(|parent| parent.id).collect(),
        body: json("{}"),
        instance: "asyncgate-1".into(),
    }
}
