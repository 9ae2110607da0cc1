//! Claiming: the tasks that are skipped, the length of leases, and the content of the receipt.

use asyncgate_core::{
    ReceiptType,
    task::{Claim, NewTask, State, Status},
};

use crate::world::{World, echo, field, proven, worker};

fn claim_for(lease_ttl_ms: Option<i64>) -> Claim {
    Claim {
        worker: worker("bob"),
        capabilities: vec!["gpu".to_owned()],
        lease_ttl_ms,
        expected_duration_seconds: None,
    }
}

#[test]
fn a_claim_passes_over_candidates_that_are_not_ready() {
    let mut world = World::new();
    let [canceled, leased, ended, first, second] = [(); 5].map(|()| world.create(echo()));
    let late = world.create(NewTask {
        delay_ms: 60_000,
        ..echo()
    });
    world.cancel(canceled, None).unwrap();
    world.lease(leased);
    let hold = world.lease(ended);
    world.complete(&hold, ended, proven()).unwrap();

    let offered = [canceled, leased, late, first, ended, second];
    let given = world.claim(&claim_for(None), &offered);
    let ids: Vec<_> = given.iter().map(|task| task.id).collect();
    assert_eq!(ids, [first, second], "in the order offered");
    assert_eq!(world.status(late), Status::Queued);
}

#[test]
fn each_task_gets_a_lease_of_its_own() {
    let mut world = World::new();
    let ids = [(); 3].map(|()| world.create(echo()));
    let given = world.claim(&claim_for(None), &ids);
    let mut leases: Vec<_> = given.iter().map(|task| task.lease().unwrap().id).collect();
    leases.sort_unstable();
    leases.dedup();
    assert_eq!(leases.len(), 3);
}

/// Two claims that saw the same candidates: the second finds the task taken.
#[test]
fn at_most_one_active_lease_per_task() {
    let mut world = World::new();
    let id = world.create(echo());
    assert_eq!(world.claim(&claim_for(None), &[id]).len(), 1);
    let lease = world.task(id).lease().cloned();
    assert_eq!(world.claim(&claim_for(None), &[id]).len(), 0);
    assert_eq!(world.task(id).lease().cloned(), lease);
}

#[test]
fn a_task_that_is_marked_ready_is_still_not_claimed_before_it_is_eligible() {
    let mut world = World::new();
    let id = world.create(echo());
    let eligible = world.now.plus_millis(1);
    world.tasks.get_mut(&id).unwrap().next_eligible_at = eligible;
    assert!(world.claim(&claim_for(None), &[id]).is_empty());
    world.wait_ms(1);
    assert_eq!(world.claim(&claim_for(None), &[id]).len(), 1);
}

#[test]
fn lease_times_default_to_300_seconds_and_are_clamped_to_1800() {
    for (wished_ms, lasts_ms) in [
        (None, 300_000),
        (Some(1_000), 1_000),
        (Some(1_799_999), 1_799_999),
        (Some(1_800_000), 1_800_000),
        (Some(1_800_001), 1_800_000),
        (Some(i64::MAX), 1_800_000),
    ] {
        let mut world = World::new();
        let id = world.create(echo());
        world.claim(&claim_for(wished_ms), &[id]);
        let lease = world.task(id).lease().unwrap();
        assert_eq!(lease.created_at, world.now);
        assert_eq!(
            lease.expires_at.millis_since(world.now),
            lasts_ms,
            "{wished_ms:?}"
        );
    }
}

#[test]
fn a_claim_leaves_one_acceptance_that_stands_where_the_lease_says() {
    let mut world = World::new();
    let id = world.create(echo());
    world.claim(&claim_for(None), &[id]);
    let State::Leased(lease) = &world.task(id).state else {
        panic!("not leased");
    };
    let accepted = world.receipts(id, ReceiptType::TaskAccepted);
    assert_eq!(accepted.len(), 1);
    assert_eq!(accepted[0].lease_id, Some(lease.id));
    assert_eq!(accepted[0].seq(), lease.id.seq());
    let body = &accepted[0].body;
    assert_eq!(field(body, "attempt").unwrap(), 0);
    assert_eq!(field(body, "worker_capabilities").unwrap()[0], "gpu");
}

#[test]
fn a_claim_counts_no_attempt() {
    let mut world = World::new();
    let id = world.create(echo());
    for _ in 0..5 {
        let hold = world.lease(id);
        assert_eq!(world.task(id).attempt, 0);
        world.release(&hold, id).unwrap();
    }
}
