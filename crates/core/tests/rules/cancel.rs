//! Calling a task off, in every state.

use asyncgate_core::{
    ReceiptType, Rejection,
    task::{NewTask, Outcome, Status},
};

use crate::world::{World, bare, echo, failure, field, proven};

#[test]
fn a_task_that_has_not_ended_is_canceled_at_once_and_its_obligation_discharged() {
    for state in ["delayed", "ready", "leased", "running", "in backoff"] {
        let mut world = World::new();
        let delay_ms = if state == "delayed" { 60_000 } else { 0 };
        let id = world.create(NewTask { delay_ms, ..echo() });
        if ["leased", "running", "in backoff"].contains(&state) {
            let hold = world.lease(id);
            match state {
                "running" => world.start(&hold, id).unwrap(),
                "in backoff" => drop(world.fail(&hold, id, failure(true)).unwrap()),
                _ => {}
            }
        }
        let lease = world.task(id).lease().map(|lease| lease.id);
        world.wait_ms(1);
        let status = world.cancel(id, Some("not needed")).unwrap();
        assert_eq!(status, Status::Canceled, "{state}");
        let end = world.task(id).end().unwrap();
        assert_eq!(end.outcome, Outcome::Canceled);
        assert_eq!((end.at, &end.by), (world.now, &None));
        assert!(!world.is_open(id), "{state}");
        let canceled = world.receipts(id, ReceiptType::TaskCanceled);
        assert_eq!(canceled.len(), 1);
        assert_eq!(canceled[0].lease_id, lease, "{state}");
        assert_eq!(canceled[0].id, end.receipt);
        assert_eq!(field(&canceled[0].body, "reason").unwrap(), "not needed");
        let error: serde_json::Value =
            serde_json::from_str(end.error.as_ref().unwrap().text()).unwrap();
        assert_eq!(error["reason"], "not needed");
    }
}

#[test]
fn a_canceled_task_is_never_given_out_or_swept_again() {
    for delay_ms in [0, 60_000] {
        let mut world = World::new();
        let id = world.create(NewTask { delay_ms, ..echo() });
        world.cancel(id, None).unwrap();
        world.wait_ms(10_000_000);
        let swept = world.sweep();
        assert_eq!((swept.readied, swept.expired), (0, 0));
        assert_eq!(world.status(id), Status::Canceled);
    }
}

#[test]
fn cancelling_again_changes_nothing() {
    let mut world = World::new();
    let id = world.create(echo());
    world.cancel(id, Some("first")).unwrap();
    let (task, receipts) = (world.task(id).clone(), world.ledger.len());
    world.wait_ms(1);
    assert_eq!(world.cancel(id, Some("second")), Ok(Status::Canceled));
    assert_eq!(*world.task(id), task);
    assert_eq!(world.ledger.len(), receipts);
}

#[test]
fn a_task_that_ended_otherwise_cannot_be_canceled() {
    for ended in ["succeeded", "without proof", "failed"] {
        let mut world = World::new();
        let id = world.create(echo());
        let hold = world.lease(id);
        match ended {
            "succeeded" => world.complete(&hold, id, proven()).unwrap(),
            "without proof" => world.complete(&hold, id, bare()).unwrap(),
            _ => world.fail(&hold, id, failure(false)).unwrap(),
        };
        let status = world.status(id);
        assert_eq!(
            world.cancel(id, None),
            Err(Rejection::InvalidTransition { status }),
            "{ended}"
        );
    }
}

#[test]
fn a_reason_is_optional_and_kept_as_it_was_given() {
    let mut world = World::new();
    let (plain, odd) = (world.create(echo()), world.create(echo()));
    world.cancel(plain, None).unwrap();
    assert_eq!(world.task(plain).end().unwrap().error, None);
    let reason = "\"quoted\"\n\u{0}\u{1f600}";
    world.cancel(odd, Some(reason)).unwrap();
    let canceled = world.receipts(odd, ReceiptType::TaskCanceled)[0];
    assert_eq!(field(&canceled.body, "reason").unwrap(), reason);
}
