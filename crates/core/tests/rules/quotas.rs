//! Quotas: exactly at each, and one over; and that no quota stops a worker from keeping or ending its work.

use asyncgate_core::{
    Rejection, TaskId,
    identity::{Quota, QuotaExceeded, QuotaName, Quotas},
    task::{Claim, Hold, NewTask, Status},
};
use proptest::prelude::*;

use crate::world::{World, bare, echo, failure, json, json_of_size, proven, worker};

fn only(name: QuotaName, most: u64) -> Quotas {
    Quotas::default().with(name, Quota::AtMost(most))
}

fn world(name: QuotaName, most: u64) -> World {
    let mut world = World::new();
    world.quotas = only(name, most);
    world
}

fn exceeded(quota: QuotaName, limit: u64, current: u64) -> Rejection {
    Rejection::Quota(QuotaExceeded {
        quota,
        limit,
        current,
    })
}

fn claim(lease_ttl_ms: Option<i64>) -> Claim {
    Claim {
        worker: worker("bob"),
        capabilities: Vec::new(),
        lease_ttl_ms,
        expected_duration_seconds: None,
    }
}

#[test]
fn only_so_many_tasks_may_be_active() {
    let mut world = world(QuotaName::ActiveTasks, 2);
    let first = world.create(echo());
    let delay_ms = 60_000;
    world.create(NewTask { delay_ms, ..echo() });
    let full = exceeded(QuotaName::ActiveTasks, 2, 2);
    assert_eq!(world.try_create(echo()), Err(full.clone()));
    // Held tasks are active too; ended ones are not.
    let hold = world.lease(first);
    assert_eq!(world.try_create(echo()), Err(full));
    world.complete(&hold, first, proven()).unwrap();
    world.create(echo());
    // The quota may have been lowered while more were in use.
    world.quotas = only(QuotaName::ActiveTasks, 0);
    let over = exceeded(QuotaName::ActiveTasks, 0, 2);
    assert_eq!(world.try_create(echo()), Err(over));
}

#[test]
fn a_repeated_call_is_answered_whatever_is_used_up() {
    for name in [QuotaName::ActiveTasks, QuotaName::ReceiptStorageBytes] {
        let keyed = || NewTask {
            idempotency_key: Some("k".to_owned()),
            ..echo()
        };
        let mut world = World::new();
        let id = world.create(keyed());
        world.quotas = only(name, 0);
        let again = world.try_create(keyed()).unwrap();
        assert!(again.duplicate && again.task.id == id);
        assert!(world.try_create(echo()).is_err());
    }
}

#[test]
fn a_payload_may_have_as_many_bytes_as_settings_and_quota_both_allow() {
    for (quota, bytes, fits) in [
        (100, 100, true),
        (100, 101, false),
        (u64::MAX, 1 << 20, true),
        (u64::MAX, (1 << 20) + 1, false),
    ] {
        let mut world = world(QuotaName::PayloadBytes, quota);
        let new = NewTask {
            payload: json_of_size(bytes),
            ..echo()
        };
        let limit = quota.min(1 << 20) as usize;
        let what = "payload";
        let refusal = (!fits).then_some(Rejection::TooLarge { what, limit });
        assert_eq!(world.try_create(new).err(), refusal, "{quota} {bytes}");
    }
}

#[test]
fn a_claim_takes_as_many_tasks_as_there_is_room_for() {
    for (quota, held, taken) in [(0, 0, 0), (3, 0, 3), (3, 1, 2), (3, 3, 0), (9, 1, 4)] {
        let mut world = World::new();
        let all = [(); 5].map(|()| world.create(echo()));
        for id in &all[..held] {
            world.lease(*id);
        }
        world.quotas = only(QuotaName::ConcurrentLeases, quota);
        let leased = world.claim(&claim(None), &all[held..]);
        assert_eq!(leased.len(), taken, "{quota} {held}");
        // The first in line are taken.
        let ids: Vec<TaskId> = leased.iter().map(|task| task.id).collect();
        assert_eq!(ids, all[held..held + taken]);
        let left = &all[held + taken..];
        assert!(left.iter().all(|id| world.status(*id) == Status::Queued));
    }
}

#[test]
fn a_claim_says_that_it_lacked_room_only_if_it_left_a_task_that_it_could_have_had() {
    let mut world = world(QuotaName::ConcurrentLeases, 1);
    let [first, second] = [(); 2].map(|()| world.create(echo()));
    let mut lacked = |candidates: &[TaskId]| {
        let tasks = candidates
            .iter()
            .map(|id| world.task(*id).clone())
            .collect();
        let held = world.usage().concurrent_leases;
        let claim = claim(None);
        let claimed = world.run(|env, head| {
            let decision = asyncgate_core::task::claim(env, head, &claim, tasks, held);
            Ok(decision)
        });
        claimed.unwrap().lacked_room
    };
    assert!(!lacked(&[]));
    assert!(!lacked(&[first]));
    assert!(!lacked(&[first]), "it is held: nobody could have had it");
    assert!(lacked(&[second]));
}

#[test]
fn leases_are_as_long_as_settings_and_quota_both_allow() {
    for (quota, wished_s, given_s) in [
        (60, Some(30), 30),
        (60, Some(61), 60),
        (60, None, 60),
        (600, None, 300),
        (u64::MAX, Some(9_999), 1_800),
    ] {
        let mut world = world(QuotaName::LeaseTtlSecs, quota);
        let id = world.create(echo());
        let leased = world.claim(&claim(wished_s.map(|s: i64| s * 1_000)), &[id]);
        let lease = leased[0].lease().unwrap().clone();
        let expires_at = world.now.plus_millis(given_s * 1_000);
        assert_eq!(lease.expires_at, expires_at, "{quota} {wished_s:?}");
        let hold = Hold {
            worker: worker("bob"),
            lease_id: lease.id,
        };
        world.wait_ms(10_000);
        let wished = wished_s.map(|s| s * 1_000);
        let renewed = world.renew(&hold, id, wished).unwrap();
        let expires_at = world.now.plus_millis(given_s * 1_000);
        assert_eq!(renewed.expires_at, expires_at, "{quota} {wished_s:?}");
        // A quota that was lowered meanwhile does not make a lease shorter.
        world.quotas = only(QuotaName::LeaseTtlSecs, 1);
        let kept = world.renew(&hold, id, None).unwrap();
        assert_eq!(kept.expires_at, renewed.expires_at);
    }
}

#[test]
fn only_reports_of_progress_are_refused_for_the_receipts_of_a_task() {
    let mut world = world(QuotaName::ReceiptsPerTask, 4);
    let id = world.create(echo());
    let hold = world.lease(id);
    world.progress(&hold, id, json("1")).unwrap();
    world.progress(&hold, id, json("2")).unwrap();
    let full = exceeded(QuotaName::ReceiptsPerTask, 4, 4);
    assert_eq!(world.progress(&hold, id, json("3")), Err(full.clone()));
    // A stale lease is told of that, not of the quota.
    let stale = Hold {
        worker: worker("eve"),
        ..hold.clone()
    };
    let refused = world.progress(&stale, id, json("3"));
    assert_eq!(refused, Err(Rejection::LeaseInvalid));
    world.start(&hold, id).unwrap();
    world.renew(&hold, id, None).unwrap();
    world.fail(&hold, id, failure(true)).unwrap();
    world.wait_ms(60_000);
    world.sweep();
    let hold = world.lease(id);
    assert!(world.progress(&hold, id, json("3")).is_err());
    world.complete(&hold, id, bare()).unwrap();
    world.complete(&hold, id, proven()).unwrap();
}

#[test]
fn a_tenant_without_room_for_receipts_can_end_its_work_but_not_begin_any() {
    let mut world = World::new();
    let ids = [(); 5].map(|()| world.create(echo()));
    let holds = ids.map(|id| world.lease(id));
    let bytes = world.usage().receipt_storage_bytes;
    world.quotas = only(QuotaName::ReceiptStorageBytes, bytes + 1);
    world.create(echo());
    let now = world.usage().receipt_storage_bytes;
    let full = exceeded(QuotaName::ReceiptStorageBytes, bytes + 1, now);
    assert_eq!(world.try_create(echo()), Err(full));
    world.start(&holds[0], ids[0]).unwrap();
    world.progress(&holds[0], ids[0], json("1")).unwrap();
    world.renew(&holds[0], ids[0], None).unwrap();
    world.complete(&holds[0], ids[0], bare()).unwrap();
    world.complete(&holds[0], ids[0], proven()).unwrap();
    world.fail(&holds[1], ids[1], failure(false)).unwrap();
    world.release(&holds[2], ids[2]).unwrap();
    world.cancel(ids[3], None).unwrap();
    world.expire(ids[4]);
    assert_eq!(world.claim(&claim(None), &[ids[2]]).len(), 1);
}

/// What workers and owners do with tasks that are there, in any order.
#[derive(Debug, Clone, Copy)]
enum Step {
    Create,
    Claim,
    Start,
    Progress,
    Renew,
    Complete,
    Fail,
    Release,
    Cancel,
    Sweep,
    Wait,
}

const STEPS: [Step; 11] = [
    Step::Create,
    Step::Claim,
    Step::Start,
    Step::Progress,
    Step::Renew,
    Step::Complete,
    Step::Fail,
    Step::Release,
    Step::Cancel,
    Step::Sweep,
    Step::Wait,
];

fn any_quotas() -> impl Strategy<Value = Quotas> {
    let one = prop::option::of(0_u64..4);
    let bytes = prop::option::of(0_u64..6_000);
    (one.clone(), one.clone(), bytes, one).prop_map(|(active, leases, bytes, receipts)| {
        let bounds = [
            (QuotaName::ActiveTasks, active),
            (QuotaName::ConcurrentLeases, leases),
            (QuotaName::ReceiptStorageBytes, bytes),
            (QuotaName::ReceiptsPerTask, receipts.map(|most| most + 2)),
        ];
        let set = |quotas: Quotas, (name, most): (QuotaName, Option<u64>)| match most {
            Some(most) => quotas.with(name, Quota::AtMost(most)),
            None => quotas,
        };
        bounds.into_iter().fold(Quotas::default(), set)
    })
}

proptest! {
    #![proptest_config(crate::model::config())]

    /// A quota refuses when it is used up, and only new tasks and reports of progress; claims take what there is
    /// room for; everything else goes on.
    #[test]
    fn quotas_hold_and_stop_nothing_else(
        quotas in any_quotas(),
        steps in prop::collection::vec((0..STEPS.len(), 0_usize..6), 1..60),
    ) {
        let mut world = World::new();
        world.quotas = quotas;
        let mut ids = Vec::new();
        for (step, pick) in steps {
            let (step, before) = (STEPS[step], world.usage());
            let id = ids.get(pick).copied();
            let hold = id.and_then(|id| {
                let lease = world.task(id).lease()?;
                Some(Hold { worker: lease.worker.clone(), lease_id: lease.id })
            });
            let live = hold.clone().zip(id);
            match (step, id, live) {
                (Step::Create, ..) => match world.try_create(echo()) {
                    Ok(created) => ids.push(created.task.id),
                    Err(Rejection::Quota(refused)) => {
                        prop_assert!(refused.current >= refused.limit);
                        let counted = if refused.quota == QuotaName::ActiveTasks {
                            before.active_tasks
                        } else {
                            prop_assert_eq!(refused.quota, QuotaName::ReceiptStorageBytes);
                            before.receipt_storage_bytes
                        };
                        prop_assert_eq!(refused.current, counted);
                    }
                    Err(other) => prop_assert!(false, "{other}"),
                },
                (Step::Claim, ..) => {
                    let ready: Vec<TaskId> = ids.clone();
                    let room = quotas.get(QuotaName::ConcurrentLeases);
                    let room = room.room(before.concurrent_leases).unwrap_or(u64::MAX);
                    let is_ready = |id: &&TaskId| {
                        let task = world.task(**id);
                        task.status() == Status::Queued && task.next_eligible_at <= world.now
                            && task.state == asyncgate_core::task::State::Ready
                    };
                    let offered = ready.iter().filter(is_ready).count() as u64;
                    let leased = world.claim(&claim(None), &ready).len() as u64;
                    prop_assert_eq!(leased, offered.min(room));
                }
                (Step::Progress, _, Some((hold, id))) => {
                    match world.progress(&hold, id, json("1")) {
                        Ok(()) => {}
                        Err(Rejection::Quota(refused)) => {
                            prop_assert_eq!(refused.quota, QuotaName::ReceiptsPerTask);
                            prop_assert!(refused.current >= refused.limit);
                        }
                        Err(other) => prop_assert!(false, "{other}"),
                    }
                }
                (Step::Start, _, Some((hold, id))) => world.start(&hold, id).unwrap(),
                (Step::Renew, _, Some((hold, id))) => drop(world.renew(&hold, id, None).unwrap()),
                (Step::Complete, _, Some((hold, id))) => {
                    world.complete(&hold, id, bare()).unwrap();
                }
                (Step::Fail, _, Some((hold, id))) => {
                    world.fail(&hold, id, failure(true)).unwrap();
                }
                (Step::Release, _, Some((hold, id))) => world.release(&hold, id).unwrap(),
                (Step::Cancel, Some(id), _) if world.task(id).end().is_none() => {
                    world.cancel(id, None).unwrap();
                }
                (Step::Sweep, ..) => drop(world.sweep()),
                (Step::Wait, ..) => {
                    world.wait_ms(400_000);
                    world.sweep();
                }
                _ => {}
            }
            let after = world.usage();
            let is_within = |name, count| quotas.get(name).clamp(count) == count;
            prop_assert!(is_within(QuotaName::ActiveTasks, after.active_tasks));
            prop_assert!(is_within(QuotaName::ConcurrentLeases, after.concurrent_leases));
        }
    }
}
