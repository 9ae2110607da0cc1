//! A lease is a fencing token: only its own worker, on its own task, before its end.

use asyncgate_core::{
    LeaseId, Policy, Principal, PrincipalKind, Rejection, TaskId,
    task::{Hold, Status},
};

use crate::world::{World, echo, failure, json, proven, worker};

/// Every call that a worker makes under a lease.
const CALLS: [&str; 7] = [
    "renew", "release", "start", "progress", "complete", "fail", "retry",
];

fn call(name: &str, world: &mut World, hold: &Hold, id: TaskId) -> Result<(), Rejection> {
    match name {
        "renew" => world.renew(hold, id, None).map(drop),
        "release" => world.release(hold, id),
        "start" => world.start(hold, id),
        "progress" => world.progress(hold, id, json("1")),
        "complete" => world.complete(hold, id, proven()).map(drop),
        "fail" => world.fail(hold, id, failure(false)).map(drop),
        "retry" => world.fail(hold, id, failure(true)).map(drop),
        other => panic!("no such call: {other}"),
    }
}

/// Checks that the call is refused as stale and changes nothing.
fn refused(name: &str, world: &mut World, hold: &Hold, id: TaskId, why: &str) {
    let (tasks, receipts) = (world.tasks.clone(), world.ledger.len());
    let answer = call(name, world, hold, id);
    assert_eq!(answer, Err(Rejection::LeaseInvalid), "{name}: {why}");
    assert_eq!(world.tasks, tasks, "{name}: {why}");
    assert_eq!(world.ledger.len(), receipts, "{name}: {why}");
}

#[test]
fn mutations_require_the_matching_lease_and_worker() {
    for name in CALLS {
        let mut world = World::new();
        let (id, other) = (world.create(echo()), world.create(echo()));
        let (hold, others) = (world.lease(id), world.lease(other));
        let mut altered = *hold.lease_id.as_bytes();
        altered[15] ^= 1;
        for (why, worker, lease_id) in [
            ("another worker", worker("eve"), hold.lease_id),
            (
                "another kind of principal with the same name",
                Principal::new(PrincipalKind::Service, "bob"),
                hold.lease_id,
            ),
            ("another task's lease", worker("bob"), others.lease_id),
            (
                "a lease that differs in one random bit",
                worker("bob"),
                LeaseId::from_bytes(altered),
            ),
        ] {
            refused(name, &mut world, &Hold { worker, lease_id }, id, why);
        }
        assert_eq!(call(name, &mut world, &hold, id), Ok(()), "{name}");
    }
}

#[test]
fn another_instance_of_the_same_worker_may_use_its_lease() {
    for name in CALLS {
        let mut world = World::new();
        let id = world.create(echo());
        let mut hold = world.lease(id);
        hold.worker.instance_id = Some("pod-2".into());
        assert_eq!(call(name, &mut world, &hold, id), Ok(()), "{name}");
    }
}

#[test]
fn a_lease_counts_until_the_millisecond_of_its_end_and_its_grace() {
    for name in CALLS {
        for grace in [0, 5_000] {
            let policy = Policy {
                lease_grace_ms: grace,
                ..Policy::default()
            };
            let mut world = World::with(policy);
            let id = world.create(echo());
            let hold = world.lease(id);
            world.wait_ms(300_000 + grace);
            refused(name, &mut world, &hold, id, "expired by one millisecond");
            world.wait_ms(-1);
            assert_eq!(call(name, &mut world, &hold, id), Ok(()), "{name} {grace}");
        }
    }
}

#[test]
fn a_sweep_takes_a_lease_exactly_when_its_worker_can_no_longer_use_it() {
    for grace in [0, 5_000] {
        let mut world = World::with(Policy {
            lease_grace_ms: grace,
            ..Policy::default()
        });
        let id = world.create(echo());
        world.lease(id);
        world.wait_ms(300_000 + grace - 1);
        assert_eq!(world.sweep().expired, 0);
        world.wait_ms(1);
        assert_eq!(world.sweep().expired, 1);
    }
}

#[test]
fn a_stale_lease_stays_stale_after_the_task_was_leased_again() {
    for name in CALLS {
        for how in ["released", "expired", "retried"] {
            let mut world = World::new();
            let id = world.create(echo());
            let old = world.lease(id);
            match how {
                "released" => world.release(&old, id).unwrap(),
                "expired" => world.expire(id),
                _ => {
                    world.fail(&old, id, failure(true)).unwrap();
                    world.wait_ms(30_000);
                    world.sweep();
                }
            }
            let current = world.lease(id);
            assert_ne!(current.lease_id, old.lease_id);
            refused(name, &mut world, &old, id, how);
            assert_eq!(call(name, &mut world, &current, id), Ok(()), "{name}");
        }
    }
}

#[test]
fn a_worker_learns_of_a_cancellation_from_its_next_call() {
    for name in CALLS {
        let mut world = World::new();
        let id = world.create(echo());
        let hold = world.lease(id);
        world.cancel(id, None).unwrap();
        refused(name, &mut world, &hold, id, "canceled");
        assert_eq!(world.status(id), Status::Canceled);
    }
}

/// H.4: a task in backoff has no lease that could be renewed.
#[test]
fn a_lease_cannot_be_renewed_during_backoff() {
    let mut world = World::new();
    let id = world.create(echo());
    let hold = world.lease(id);
    world.fail(&hold, id, failure(true)).unwrap();
    refused("renew", &mut world, &hold, id, "in backoff");
}
