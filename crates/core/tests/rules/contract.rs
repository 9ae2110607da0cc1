//! The contract of a task: what its owner says of the work, and the ends that the server puts to it.

use asyncgate_core::{
    Principal, ReceiptType, Rejection, Timestamp,
    task::{Claim, Completion, Contract, Deadline, Failure, NewTask, Placement, State, Status},
};
use serde_json::json as value;

use crate::world::{World, bare, echo, failure, field, json, proven, worker};

fn under(contract: Contract) -> NewTask {
    NewTask { contract, ..echo() }
}

fn within(seconds: i64) -> NewTask {
    under(Contract {
        deadline: Some(Deadline::After { seconds }),
        ..Contract::default()
    })
}

fn whole() -> Contract {
    Contract {
        instructions: Some("Render the report.".to_owned()),
        success_criteria: Some(json(r#"{"pages":3}"#)),
        result_delivery: Some(json(r#"["mail"]"#)),
        lease_ttl_seconds: Some(60),
        deadline: Some(Deadline::After { seconds: 3_600 }),
        max_lease_expiries: Some(7),
    }
}

#[test]
fn the_assignment_tells_the_whole_contract() {
    let mut world = World::new();
    let id = world.create(under(whole()));
    let body = &world.receipts(id, ReceiptType::TaskAssigned)[0].body;
    for (name, expected) in [
        ("instructions", value!("Render the report.")),
        ("success_criteria", value!({ "pages": 3 })),
        ("result_delivery", value!(["mail"])),
        (
            "timeouts",
            value!({ "lease_ttl_seconds": 60, "deadline_seconds": 3_600 }),
        ),
        ("max_lease_expiries", value!(7)),
    ] {
        assert_eq!(field(body, name), Some(expected), "{name}");
    }
    let bare = world.create(echo());
    let body = &world.receipts(bare, ReceiptType::TaskAssigned)[0].body;
    assert_eq!(body.text(), r#"{"type":"echo"}"#);
}

#[test]
fn the_contract_is_content_for_the_key_but_its_limit_on_expiries_is_not() {
    let keyed = |contract| NewTask {
        idempotency_key: Some("k".to_owned()),
        ..under(contract)
    };
    let other = |change: fn(&mut Contract)| {
        let mut contract = whole();
        change(&mut contract);
        contract
    };
    for (contract, same) in [
        (whole(), true),
        (
            other(|c| c.success_criteria = Some(json("{ \"pages\": 3.0 }"))),
            true,
        ),
        (other(|c| c.max_lease_expiries = None), true),
        (other(|c| c.instructions = None), false),
        (other(|c| c.success_criteria = None), false),
        (other(|c| c.result_delivery = Some(json("[]"))), false),
        (other(|c| c.lease_ttl_seconds = Some(61)), false),
        (
            other(|c| c.deadline = Some(Deadline::After { seconds: 3_601 })),
            false,
        ),
        (Contract::default(), false),
    ] {
        let mut world = World::new();
        let id = world.create(keyed(whole()));
        // Long after the deadline too: the request is the same.
        world.wait_ms(10_000_000);
        match world.try_create(keyed(contract.clone())) {
            Ok(again) => assert!(
                same && again.duplicate && again.task.id == id,
                "{contract:?}"
            ),
            Err(refusal) => {
                assert_eq!(refusal, Rejection::IdempotencyConflict { task_id: id });
                assert!(!same, "{contract:?}");
            }
        }
        assert_eq!(world.tasks.len(), 1);
    }
}

#[test]
fn a_task_whose_deadline_has_passed_ends_at_the_first_look() {
    let mut world = World::new();
    let past = world.now.plus_millis(-1);
    let id = world.create(under(Contract {
        deadline: Some(Deadline::At(past)),
        ..Contract::default()
    }));
    assert_eq!(world.sweep().ended, 1);
    assert_given_up(&world, id, value!({ "code": "deadline" }));
}

#[test]
fn the_owners_lease_is_that_of_a_claim_that_names_none() {
    let mut world = World::new();
    for (owner, wish, expected) in [
        (Some(60), None, 60_000),
        (Some(60), Some(5_000), 5_000),
        (None, None, 300_000),
        (Some(999_999), None, 1_800_000),
    ] {
        let id = world.create(under(Contract {
            lease_ttl_seconds: owner,
            ..Contract::default()
        }));
        let claim = Claim {
            worker: worker("bob"),
            capabilities: Vec::new(),
            lease_ttl_ms: wish,
            expected_duration_seconds: Some(30),
        };
        let leased = world.claim(&claim, &[id]);
        let lease = leased[0].lease().unwrap();
        assert_eq!(lease.expires_at.millis_since(world.now), expected);
        assert_eq!(lease.expected_duration_seconds, Some(30));
        let accepted = &world.receipts(id, ReceiptType::TaskAccepted)[0].body;
        assert_eq!(
            field(accepted, "expected_duration_seconds"),
            Some(value!(30))
        );
    }
}

/// Checks that the server itself ended a task, and told so once.
fn assert_given_up(world: &World, id: asyncgate_core::TaskId, error: serde_json::Value) {
    assert_eq!(world.status(id), Status::Failed);
    assert!(!world.is_open(id));
    let task = world.task(id);
    let end = task.end().unwrap();
    assert!(end.by.is_none() && end.discharged);
    assert_eq!(
        task.last_error().map(asyncgate_core::Json::text),
        Some(&*error.to_string())
    );
    let failed = world.receipts(id, ReceiptType::TaskFailed);
    assert_eq!(failed.len(), 1);
    assert!(failed[0].from.is(&Principal::system()) && failed[0].to.is(&task.created_by));
    assert_eq!(failed[0].parents, [task.assignment]);
    assert_eq!(field(&failed[0].body, "error"), Some(error));
    assert_eq!(world.receipts(id, ReceiptType::TaskResultReady).len(), 1);
}

#[test]
fn a_task_that_has_not_ended_by_its_deadline_fails_in_every_state() {
    for state in ["ready", "delayed", "leased", "running", "retried"] {
        let mut world = World::new();
        let delay_ms = if state == "delayed" { 90_000 } else { 0 };
        let id = world.create(NewTask {
            delay_ms,
            ..within(60)
        });
        let hold = (!matches!(state, "ready" | "delayed")).then(|| world.lease(id));
        match (state, &hold) {
            ("running", Some(hold)) => world.start(hold, id).unwrap(),
            ("retried", Some(hold)) => drop(world.fail(hold, id, failure(true)).unwrap()),
            _ => {}
        }
        world.wait_ms(59_999);
        assert_eq!(world.sweep().ended, 0, "{state}");
        // The ready task is claimable, so it stands in two indexes.
        if state == "ready" {
            let due = Some(world.now.plus_millis(1));
            let placement = Placement::Ready { priority: 0, due };
            assert_eq!(world.task(id).placement(), placement);
        }
        world.wait_ms(1);
        assert!(
            world.task(id).placement().due().unwrap() <= world.now,
            "{state}"
        );
        assert_eq!(world.sweep().ended, 1, "{state}");
        assert_given_up(&world, id, value!({ "code": "deadline" }));
        let lease = world.receipts(id, ReceiptType::TaskFailed)[0].lease_id;
        let held = hold
            .filter(|_| state != "retried")
            .map(|hold| hold.lease_id);
        assert_eq!(lease, held, "{state}");
        assert_eq!(world.task(id).placement(), Placement::Ended);
    }
}

#[test]
fn the_holder_is_refused_from_the_deadline_on_even_if_no_sweep_came() {
    let mut world = World::new();
    world.policy.lease_grace_ms = 5_000;
    let id = world.create(within(60));
    let hold = world.lease(id);
    world.wait_ms(59_999);
    world.renew(&hold, id, None).unwrap();
    world.wait_ms(1);
    let refused = Rejection::LeaseInvalid;
    assert_eq!(world.renew(&hold, id, None).unwrap_err(), refused);
    assert_eq!(world.start(&hold, id).unwrap_err(), refused);
    assert_eq!(world.release(&hold, id).unwrap_err(), refused);
    assert_eq!(world.progress(&hold, id, json("1")).unwrap_err(), refused);
    assert_eq!(world.complete(&hold, id, proven()).unwrap_err(), refused);
    assert_eq!(world.fail(&hold, id, failure(false)).unwrap_err(), refused);
    world.sweep();
    assert_eq!(world.complete(&hold, id, proven()).unwrap_err(), refused);
    assert_given_up(&world, id, value!({ "code": "deadline" }));
}

#[test]
fn a_task_that_ended_in_time_stays_as_it_ended() {
    let mut world = World::new();
    let id = world.create(within(60));
    let hold = world.lease(id);
    world.complete(&hold, id, bare()).unwrap();
    world.wait_ms(120_000);
    assert_eq!(world.sweep().ended, 0);
    assert_eq!(world.status(id), Status::Succeeded);
    // Late proof is no work, so it has no deadline.
    assert!(world.complete(&hold, id, proven()).unwrap().discharged);
}

#[test]
fn a_claim_ends_a_candidate_that_is_too_late_and_takes_the_others() {
    let mut world = World::new();
    let (late, fine) = (world.create(within(60)), world.create(echo()));
    world.wait_ms(60_000);
    let claim = Claim {
        worker: worker("bob"),
        capabilities: Vec::new(),
        lease_ttl_ms: None,
        expected_duration_seconds: None,
    };
    let leased = world.claim(&claim, &[late, fine]);
    assert_eq!(
        leased.iter().map(|task| task.id).collect::<Vec<_>>(),
        [fine]
    );
    assert_given_up(&world, late, value!({ "code": "deadline" }));
}

#[test]
fn as_many_expiries_as_allowed_end_the_task_and_name_the_last_five_workers() {
    for (own, policy, most) in [
        (None, 20, 20),
        (Some(2), 20, 2),
        (Some(7), 0, 7),
        (None, 1, 1),
    ] {
        let mut world = World::new();
        world.policy.max_lease_expiries = policy;
        let id = world.create(under(Contract {
            max_lease_expiries: own,
            ..Contract::default()
        }));
        let mut lost = Vec::new();
        for n in 1..=most {
            assert_eq!(world.status(id), Status::Queued, "{n} of {most}");
            let name = format!("w{n}");
            let claim = Claim {
                worker: worker(&name),
                capabilities: Vec::new(),
                lease_ttl_ms: None,
                expected_duration_seconds: None,
            };
            assert_eq!(world.claim(&claim, &[id]).len(), 1);
            lost.push(name);
            world.expire(id);
        }
        let last = &lost[lost.len().saturating_sub(5)..];
        assert_given_up(
            &world,
            id,
            value!({ "code": "lease_expiries", "workers": last }),
        );
        let task = world.task(id);
        assert_eq!((task.attempt, task.expiries), (0, most));
        let expired = world.receipts(id, ReceiptType::LeaseExpired);
        let requeued = expired
            .iter()
            .map(|r| field(&r.body, "requeued") == Some(value!(true)));
        let expected = (1..=most).map(|n| n < most);
        assert!(requeued.eq(expected), "the last one does not come back");
    }
}

#[test]
fn a_retry_comes_when_the_worker_wants_it_and_keeps_the_error() {
    let mut world = World::new();
    let id = world.create(NewTask {
        max_attempts: Some(9),
        ..echo()
    });
    for (wish, delay) in [(None, 30_000), (Some(7), 7_000), (Some(0), 0)] {
        let hold = world.lease(id);
        let failure = Failure {
            retry_after_seconds: wish,
            ..failure(true)
        };
        world.fail(&hold, id, failure.clone()).unwrap();
        let task = world.task(id);
        assert_eq!(task.next_eligible_at, world.now.plus_millis(delay));
        assert_eq!(task.last_error(), Some(&failure.error));
        let retries = world.receipts(id, ReceiptType::TaskRetryScheduled);
        let told = field(&retries.last().unwrap().body, "retry_after_seconds");
        assert_eq!(told, wish.map(|seconds| value!(seconds)));
        world.wait_ms(delay);
        world.sweep();
        assert_eq!(world.task(id).state, State::Ready);
    }
    let hold = world.lease(id);
    world.complete(&hold, id, proven()).unwrap();
    assert!(world.task(id).last_error().is_some(), "the past stays");
}

#[test]
fn what_is_said_of_a_success_stands_in_its_receipts_and_late_proof_does_not_change_it() {
    let mut world = World::new();
    let id = world.create(echo());
    let hold = world.lease(id);
    let first = Completion {
        summary: Some("Three pages.".to_owned()),
        metadata: Some(json(r#"{"model":"m"}"#)),
        ..bare()
    };
    let finished = world.complete(&hold, id, first).unwrap();
    assert!(!finished.discharged);
    let late = Completion {
        summary: Some("Four pages.".to_owned()),
        delivery_proof: Some(json(r#"{"sent":true}"#)),
        ..bare()
    };
    assert!(world.complete(&hold, id, late).unwrap().discharged);
    for receipt_type in [ReceiptType::TaskCompleted, ReceiptType::TaskResultReady] {
        for receipt in world.receipts(id, receipt_type) {
            let body = &receipt.body;
            assert_eq!(field(body, "result_summary"), Some(value!("Three pages.")));
            assert_eq!(
                field(body, "completion_metadata"),
                Some(value!({ "model": "m" }))
            );
        }
    }
    let task = world.task(id);
    let end = task.end().unwrap();
    assert_eq!(end.result_summary.as_deref(), Some("Three pages."));
    assert!(end.completion_metadata.is_some());
}

#[test]
fn the_news_of_a_result_carries_the_proof_of_its_delivery() {
    let mut world = World::new();
    let id = world.create(echo());
    let hold = world.lease(id);
    let completion = Completion {
        delivery_proof: Some(json(r#"{"sent":true}"#)),
        ..bare()
    };
    world.complete(&hold, id, completion).unwrap();
    let ready = world.receipts(id, ReceiptType::TaskResultReady)[0];
    assert_eq!(
        field(&ready.body, "delivery_proof"),
        Some(value!({ "sent": true }))
    );
}

#[test]
fn a_deadline_is_counted_from_the_creation_or_stands_by_itself() {
    let at = Timestamp::from_millis(9);
    assert_eq!(Deadline::At(at).of(Timestamp::from_millis(1)), at);
    let after = Deadline::After { seconds: 2 };
    assert_eq!(after.of(at), Timestamp::from_millis(2_009));
}
