//! The states that receipts add up to are the states that the rules gave the tasks.

use asyncgate_core::{
    LeaseId, ReceiptId, Task, TaskId,
    task::{Contract, Deadline, State, Status},
};
use asyncgate_ledger::Standings;

use crate::world::{World, eventful};

fn standings(world: &World) -> Standings {
    let mut standings = Standings::default();
    for receipt in &world.receipts {
        standings.push(receipt);
    }
    standings
}

/// Builds a ledger that also has tasks under lease.
fn more_than_eventful() -> World {
    let mut world = eventful();
    let id = world.create("alice");
    world.lease(id, "bob");
    let id = world.create("alice");
    let hold = world.lease(id, "bob");
    world.start(&hold, id);
    world.progress(&hold, id, "1");
    for terms in [
        Contract {
            deadline: Some(Deadline::After { seconds: 60 }),
            ..Contract::default()
        },
        Contract {
            max_lease_expiries: Some(1),
            ..Contract::default()
        },
    ] {
        let id = world.create_under("alice", terms);
        world.lease(id, "bob");
        world.expire(id);
        assert_eq!(world.tasks[&id].status(), Status::Failed);
    }
    world
}

#[test]
fn every_task_agrees_with_its_receipts() {
    let world = more_than_eventful();
    let mut standings = standings(&world);
    for task in world.tasks.values() {
        assert!(standings.missing().is_some());
        assert_eq!(standings.check(task), Ok(()));
    }
    assert_eq!(standings.missing(), None);
    let again = world.tasks.values().next().unwrap();
    assert!(standings.check(again).is_err());
}

type Change = fn(&mut Task);

#[test]
fn what_differs_is_named() {
    let world = more_than_eventful();
    let changes: [(&str, Change); 6] = [
        ("attempt", |task| task.attempt += 1),
        ("expired leases", |task| task.expiries += 1),
        ("assignment", |task| {
            task.assignment = ReceiptId::from_bytes(flipped(task.assignment.as_bytes()));
        }),
        ("id", |task| {
            task.id = TaskId::from_bytes(flipped(task.id.as_bytes()));
        }),
        ("lease", |task| {
            if let State::Leased(lease) | State::Running(lease) = &mut task.state {
                lease.id = LeaseId::from_bytes(flipped(lease.id.as_bytes()));
            }
        }),
        ("status", |task| {
            task.state = match &task.state {
                State::Ready => return,
                State::Delayed | State::Leased(_) | State::Running(_) | State::Ended(_) => {
                    State::Ready
                }
            };
        }),
    ];
    for (name, change) in changes {
        let mut noticed = 0;
        for task in world.tasks.values() {
            let mut changed = task.clone();
            change(&mut changed);
            let found = standings(&world).check(&changed);
            if changed == *task {
                assert_eq!(found, Ok(()));
            } else {
                let said = found.unwrap_err();
                assert!(said.contains(name), "{name}: {said}");
                noticed += 1;
            }
        }
        assert!(noticed > 0, "{name}");
    }
    for task in world.tasks.values() {
        let mut changed = task.clone();
        let State::Ended(end) = &mut changed.state else {
            continue;
        };
        end.receipt = ReceiptId::from_bytes(flipped(end.receipt.as_bytes()));
        let said = standings(&world).check(&changed).unwrap_err();
        assert!(said.contains("last receipt"), "{said}");
    }
}

/// Builds another id with the same place.
fn flipped(id: &[u8; 16]) -> [u8; 16] {
    let mut bytes = *id;
    bytes[0] ^= 1;
    bytes
}
