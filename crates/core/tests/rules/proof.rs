//! Locatability: a success without a findable result discharges nothing, until proof arrives.

use asyncgate_core::{
    Json, Locatability, ReceiptType, Rejection,
    task::{Completion, Hold, Status},
};

use crate::world::{World, bare, echo, field, json, proven, worker};

fn with(artifacts: Option<&str>, delivery_proof: Option<&str>) -> Completion {
    Completion {
        artifacts: artifacts.map(json),
        delivery_proof: delivery_proof.map(json),
        ..bare()
    }
}

/// Successes that say where the result is, or that it was delivered.
fn locatable() -> Vec<Completion> {
    vec![
        with(Some(r#"[{"url":"s3://x"}]"#), None),
        with(Some(r#"{"url":"s3://x"}"#), None),
        with(None, Some(r#"{"mode":"push","status":"succeeded"}"#)),
        with(Some("[]"), Some(r#"{"mode":"push"}"#)),
        with(Some(r#"[{"url":"s3://x"}]"#), Some("null")),
        // A text is one artifact.
        with(Some("\"s3://x\""), None),
    ]
}

/// Successes that name no place and no delivery.
fn unlocatable() -> Vec<Completion> {
    vec![
        with(None, None),
        with(Some("[]"), None),
        with(Some("[ ]"), None),
        with(Some("{}"), None),
        with(Some("null"), None),
        with(Some("\"\""), None),
        // A number or a boolean names no place, and a word proves no delivery.
        with(Some("true"), None),
        with(None, Some("1")),
        with(None, Some("\"sent\"")),
        with(None, Some("{}")),
        with(Some("[]"), Some("{ }")),
    ]
}

fn leased(locatability: Locatability) -> (World, asyncgate_core::TaskId, Hold) {
    let mut world = World::new();
    world.policy.locatability = locatability;
    let id = world.create(echo());
    let hold = world.lease(id);
    (world, id, hold)
}

#[test]
fn a_success_with_proof_discharges_the_obligation_in_either_mode() {
    for mode in [Locatability::Lenient, Locatability::Strict] {
        for completion in locatable() {
            let (mut world, id, hold) = leased(mode);
            world.complete(&hold, id, completion).unwrap();
            assert_eq!(world.status(id), Status::Succeeded);
            assert!(!world.is_open(id));
            assert!(world.task(id).end().unwrap().discharged);
            let completed = world.receipts(id, ReceiptType::TaskCompleted);
            assert_eq!(completed[0].parents, [world.task(id).assignment]);
        }
    }
}

#[test]
fn lenient_mode_accepts_a_success_without_proof_but_leaves_the_obligation_open() {
    for completion in unlocatable() {
        let (mut world, id, hold) = leased(Locatability::Lenient);
        world.complete(&hold, id, completion).unwrap();
        assert_eq!(world.status(id), Status::Succeeded);
        assert!(world.is_open(id));
        assert!(!world.task(id).end().unwrap().discharged);
        let completed = world.receipts(id, ReceiptType::TaskCompleted);
        assert_eq!(completed.len(), 1);
        assert!(completed[0].parents.is_empty(), "it discharges nothing");
        let ready = world.receipts(id, ReceiptType::TaskResultReady);
        assert_eq!(ready.len(), 1, "the outcome can be fetched all the same");
    }
}

#[test]
fn strict_mode_refuses_a_success_without_proof_and_the_worker_may_try_again() {
    for completion in unlocatable() {
        let (mut world, id, hold) = leased(Locatability::Strict);
        let receipts = world.ledger.len();
        let refused = world.complete(&hold, id, completion);
        assert_eq!(refused.unwrap_err(), Rejection::Unlocatable);
        assert_eq!(world.status(id), Status::Leased);
        assert_eq!(world.ledger.len(), receipts);
        world.complete(&hold, id, proven()).unwrap();
        assert!(!world.is_open(id));
    }
}

#[test]
fn strict_mode_checks_the_lease_first() {
    let (mut world, id, mut hold) = leased(Locatability::Strict);
    hold.worker = worker("eve");
    let refused = world.complete(&hold, id, bare());
    assert_eq!(refused.unwrap_err(), Rejection::LeaseInvalid);
}

#[test]
fn late_proof_discharges_exactly_once_and_changes_nothing_else() {
    for mode in [Locatability::Lenient, Locatability::Strict] {
        for proof in locatable() {
            let (mut world, id, hold) = leased(Locatability::Lenient);
            let first = world.complete(&hold, id, bare()).unwrap();
            let before = world.task(id).clone();
            // The proof may come long after the lease, under either mode.
            world.wait_ms(100_000_000);
            world.policy.locatability = mode;
            let late = world.complete(&hold, id, proof.clone()).unwrap();
            assert!(!late.duplicate);
            assert_ne!(late.receipt_id, first.receipt_id);
            assert!(!world.is_open(id));
            let after = world.task(id);
            let (was, is) = (before.end().unwrap(), after.end().unwrap());
            assert_eq!((is.outcome, is.at, &is.by), (was.outcome, was.at, &was.by));
            assert_eq!(is.result, was.result);
            assert_eq!(is.receipt, late.receipt_id);
            assert_eq!(is.artifacts, proof.artifacts, "get_task shows it");
            assert_eq!(is.delivery_proof, proof.delivery_proof);
            assert_eq!(after.attempt, before.attempt);
            assert_eq!(after.next_eligible_at, before.next_eligible_at);

            let completed = world.receipts(id, ReceiptType::TaskCompleted);
            assert_eq!(completed.len(), 2);
            assert_eq!(completed[1].parents, [after.assignment]);
            assert_eq!(world.receipts(id, ReceiptType::TaskResultReady).len(), 1);

            let receipts = world.ledger.len();
            let again = world.complete(&hold, id, proof).unwrap();
            assert!(again.duplicate);
            assert_eq!(again.receipt_id, late.receipt_id, "the one that proves it");
            assert_eq!(world.ledger.len(), receipts);
        }
    }
}

#[test]
fn only_the_worker_that_ended_the_task_may_prove_it() {
    let (mut world, id, hold) = leased(Locatability::Lenient);
    world.complete(&hold, id, bare()).unwrap();
    let stranger = Hold {
        worker: worker("eve"),
        ..hold
    };
    let refused = world.complete(&stranger, id, proven());
    assert_eq!(refused.unwrap_err(), Rejection::LeaseInvalid);
    assert!(world.is_open(id));
}

/// The first result stays, so no receipt may tell the owner of another.
#[test]
fn late_proof_does_not_put_another_result_into_the_ledger() {
    let (mut world, id, hold) = leased(Locatability::Lenient);
    world.complete(&hold, id, bare()).unwrap();
    let other = Completion {
        result: Some(json(r#"{"answer":43}"#)),
        ..proven()
    };
    world.complete(&hold, id, other).unwrap();
    let stands = world.task(id).end().unwrap().result.as_ref().map(value);
    for receipt in world.receipts(id, ReceiptType::TaskCompleted) {
        let told = field(&receipt.body, "result_payload");
        assert!(told.is_none() || told == stands, "told {told:?}");
    }
}

fn value(json: &Json) -> serde_json::Value {
    serde_json::from_str(json.text()).unwrap()
}
