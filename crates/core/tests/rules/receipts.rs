//! The sender, addressee and parents of every receipt type.

use asyncgate_core::{
    Head, Link, Principal, PrincipalKind, Receipt, ReceiptType,
    receipt::{SignedHead, acknowledge, record_signature},
    task::{Hold, NewTask},
};

use crate::world::{World, agent, echo, failure, field, json, proven, worker};

/// A task that has lived through everything that leaves a receipt, and the receipts.
fn eventful() -> World {
    let mut world = World::new();
    let mut owner = agent("alice");
    owner.instance_id = Some("laptop".into());
    let new = || NewTask {
        owner: owner.clone(),
        max_attempts: Some(2),
        ..echo()
    };
    let ids = [(); 3].map(|()| world.create(new()));
    let [completed, failed, canceled] = ids;
    for _ in 0..4 {
        world.lease(completed);
        world.expire(completed);
    }
    let hold = world.lease(completed);
    world.release(&hold, completed).unwrap();
    let hold = world.lease(completed);
    world.start(&hold, completed).unwrap();
    world.progress(&hold, completed, json("1")).unwrap();
    world.complete(&hold, completed, proven()).unwrap();

    for retryable in [true, false] {
        let hold = world.lease(failed);
        world.fail(&hold, failed, failure(retryable)).unwrap();
        world.wait_ms(900_000);
        world.sweep();
    }
    world.cancel(canceled, Some("enough")).unwrap();
    let first = world.ledger[0].clone();
    world
        .run(|env, head| Ok(acknowledge(env, head, &first, &agent("alice"), None)))
        .unwrap();
    let signed = signed_head(&world);
    world
        .run(|env, head| Ok(record_signature(env, head, &signed)))
        .unwrap();
    world
}

fn signed_head(world: &World) -> SignedHead {
    SignedHead {
        head: Head {
            seq: world.ledger.len() as u64,
            link: Link::START,
            open_obligations: world.open.len() as u64,
        },
        signed_at: world.now,
        public_key: [1; 32],
        signature: [2; 64],
    }
}

#[test]
fn every_receipt_type_has_its_sender_and_its_addressee() {
    let (owner, holder, system) = ("agent/alice", "worker/bob", "system/asyncgate");
    let world = eventful();
    for receipt_type in ReceiptType::ALL {
        let (from, to) = match receipt_type {
            ReceiptType::TaskAssigned | ReceiptType::TaskCanceled => (owner, owner),
            ReceiptType::TaskAccepted
            | ReceiptType::TaskStarted
            | ReceiptType::TaskProgress
            | ReceiptType::LeaseReleased => (holder, system),
            ReceiptType::TaskRetryScheduled
            | ReceiptType::TaskCompleted
            | ReceiptType::TaskFailed => (holder, owner),
            ReceiptType::TaskResultReady
            | ReceiptType::LeaseExpired
            | ReceiptType::SystemAnomaly => (system, owner),
            ReceiptType::ReceiptAcknowledged => (owner, system),
            ReceiptType::LedgerSigned => (system, system),
        };
        let of_type: Vec<_> = with_type(&world, receipt_type);
        assert!(!of_type.is_empty(), "no {}", receipt_type.as_str());
        for receipt in of_type {
            let name = receipt_type.as_str();
            assert_eq!(receipt.from.key().to_string(), from, "{name}");
            assert_eq!(receipt.to.key().to_string(), to, "{name}");
        }
    }
}

#[test]
fn terminal_receipts_name_the_assignment_and_result_ready_names_the_terminal_receipt() {
    let world = eventful();
    for receipt in &world.ledger {
        let named: Vec<_> = receipt
            .parents
            .iter()
            .map(|parent| find(&world, parent).receipt_type)
            .collect();
        match receipt.receipt_type {
            ReceiptType::TaskCompleted | ReceiptType::TaskFailed | ReceiptType::TaskCanceled => {
                assert_eq!(named, [ReceiptType::TaskAssigned]);
            }
            ReceiptType::TaskResultReady => {
                assert_eq!(named.len(), 1);
                assert!(asyncgate_core::receipt::is_terminal(named[0]));
            }
            ReceiptType::ReceiptAcknowledged => assert_eq!(named, [ReceiptType::TaskAssigned]),
            ReceiptType::TaskAssigned
            | ReceiptType::TaskAccepted
            | ReceiptType::TaskStarted
            | ReceiptType::TaskProgress
            | ReceiptType::TaskRetryScheduled
            | ReceiptType::LeaseExpired
            | ReceiptType::LeaseReleased
            | ReceiptType::SystemAnomaly
            | ReceiptType::LedgerSigned => assert!(named.is_empty(), "{receipt:?}"),
        }
    }
    assert!(world.open.is_empty());
}

#[test]
fn the_owners_inbox_tells_the_whole_story_of_a_success() {
    let mut world = World::new();
    let id = world.create(echo());
    let hold = world.lease(id);
    world.complete(&hold, id, proven()).unwrap();
    let inbox: Vec<_> = world
        .ledger
        .iter()
        .filter(|receipt| receipt.to.is(&agent("alice")))
        .map(|receipt| receipt.receipt_type.as_str())
        .collect();
    assert_eq!(
        inbox,
        ["task.assigned", "task.completed", "task.result_ready"]
    );
}

#[test]
fn receipts_carry_the_task_the_lease_and_the_instance_that_wrote_them() {
    let world = eventful();
    for receipt in &world.ledger {
        let about_a_task = receipt.receipt_type != ReceiptType::LedgerSigned;
        assert_eq!(receipt.task_id.is_some(), about_a_task);
        assert_eq!(&*receipt.instance, "asyncgate-1");
        let under_a_lease = receipt.from.kind == PrincipalKind::Worker
            || receipt.receipt_type == ReceiptType::LeaseExpired;
        assert!(!under_a_lease || receipt.lease_id.is_some(), "{receipt:?}");
    }
}

#[test]
fn a_cancellation_by_somebody_else_says_who_it_was() {
    let mut world = World::new();
    let id = world.create(echo());
    let admin = Principal::new(PrincipalKind::Service, "admin");
    let task = world.task(id).clone();
    world
        .run(|env, head| asyncgate_core::task::cancel(env, head, task, &admin, None))
        .unwrap();
    let canceled = world.receipts(id, ReceiptType::TaskCanceled)[0];
    assert_eq!(canceled.from, admin);
    assert_eq!(canceled.to, agent("alice"));
    assert!(!world.is_open(id), "anyone may discharge what is owed");
}

#[test]
fn an_acknowledgement_moves_nothing() {
    let mut world = World::new();
    let id = world.create(echo());
    let before = world.tasks.clone();
    let assignment = world.ledger[0].clone();
    let mut first = None;
    for receipts in [2, 2] {
        let acknowledged = world.run(|env, head| {
            let by = agent("alice");
            Ok(acknowledge(env, head, &assignment, &by, first))
        });
        first = acknowledged.ok();
        assert_eq!(first, Some(world.ledger[1].id));
        assert_eq!(world.ledger.len(), receipts, "it is recorded once");
    }
    assert_eq!(world.tasks, before);
    assert!(
        world.is_open(id),
        "seeing an obligation does not discharge it"
    );
}

#[test]
fn a_signature_in_the_ledger_says_what_was_signed_and_moves_nothing() {
    let mut world = World::new();
    let id = world.create(echo());
    let before = world.tasks.clone();
    let signed = signed_head(&world);
    world
        .run(|env, head| Ok(record_signature(env, head, &signed)))
        .unwrap();
    assert_eq!(world.tasks, before);
    assert!(world.is_open(id));
    let body = &world.ledger[1].body;
    assert_eq!(field(body, "seq").unwrap(), 1);
    assert_eq!(field(body, "open_obligations").unwrap(), 1);
    assert_eq!(field(body, "link").unwrap(), Link::START.to_string());
    assert_eq!(field(body, "public_key").unwrap(), "01".repeat(32));
    assert_eq!(field(body, "signature").unwrap(), "02".repeat(64));
}

#[test]
fn receipts_without_obligations_open_none() {
    let mut world = World::new();
    let id = world.create(echo());
    let hold = Hold {
        worker: worker("bob"),
        ..world.lease(id)
    };
    world.start(&hold, id).unwrap();
    world.progress(&hold, id, json("1")).unwrap();
    assert_eq!(world.open.len(), 1);
}

fn with_type(world: &World, receipt_type: ReceiptType) -> Vec<&Receipt> {
    let ledger = world.ledger.iter();
    ledger
        .filter(|receipt| receipt.receipt_type == receipt_type)
        .collect()
}

fn find<'a>(world: &'a World, id: &asyncgate_core::ReceiptId) -> &'a Receipt {
    let found = &world.ledger[id.seq() as usize - 1];
    assert_eq!(found.id, *id);
    found
}
