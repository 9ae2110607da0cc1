//! The fair queue: the order of turns, and the room for each tenant.

use std::time::Duration;

use asyncgate_core::TenantId;
use asyncgate_store::fair::{FairQueue, Flow, Lane, Popped, Refused, Room, Turn, Weights};
use proptest::prelude::*;

/// The cost that a share of weight 1 may spend in a round.
const QUANTUM: usize = 32;

fn tenant(number: u8) -> TenantId {
    TenantId::from_bytes([number; 16])
}

fn flow(number: u8, topic: &str, cost: u32) -> Flow {
    Flow {
        tenant: tenant(number),
        lane: Lane::Topic(topic.to_owned()),
        cost,
        bytes: 10,
    }
}

fn queue<T>(jobs: usize) -> FairQueue<T> {
    FairQueue::new(Room {
        jobs,
        bytes: usize::MAX,
    })
}

fn next<T>(queue: &FairQueue<T>) -> Option<Turn<T>> {
    match queue.pop(Duration::ZERO) {
        Popped::Job(turn) => Some(turn),
        Popped::Nothing | Popped::Closed => None,
    }
}

fn some<T>(queue: &FairQueue<T>, limit: usize) -> Vec<T> {
    let turns = std::iter::from_fn(|| next(queue));
    turns.take(limit).map(|turn| turn.job).collect()
}

fn all<T>(queue: &FairQueue<T>) -> Vec<T> {
    some(queue, usize::MAX)
}

/// Returns the time that costs so much.
fn time(cost: u64) -> Duration {
    Duration::from_micros(10 * cost)
}

#[test]
fn a_lane_keeps_its_order() {
    let queue = queue(1_000);
    for n in 0..500 {
        queue.push(flow(1, "a", 1 + n % 7), n).unwrap();
    }
    assert_eq!(all(&queue), (0..500).collect::<Vec<_>>());
}

#[test]
fn a_hot_tenant_does_not_delay_another_beyond_its_share() {
    let queue = queue(10_000);
    for n in 0..5_000 {
        queue.push(flow(1, "hot", 1), (1, n)).unwrap();
    }
    for n in 0..100 {
        queue.push(flow(2, "cold", 1), (2, n)).unwrap();
    }
    let order = all(&queue);
    let last = order.iter().rposition(|(tenant, _)| *tenant == 2).unwrap();
    // The last cold job comes after a hundred cold ones, as many hot ones, and one round.
    assert!(last <= 200 + 2 * QUANTUM, "{last}");
}

#[test]
fn what_costs_more_gets_fewer_turns() {
    let queue = queue(10_000);
    for n in 0..200 {
        queue.push(flow(1, "batches", 100), (1, n)).unwrap();
        queue.push(flow(2, "singles", 1), (2, n)).unwrap();
    }
    let order = all(&queue);
    let last = order.iter().rposition(|(tenant, _)| *tenant == 2).unwrap();
    assert!(last < 200 + 10, "{last}");
}

#[test]
fn weights_divide_what_there_is() {
    let queue = queue(10_000);
    queue.set_weights(Weights {
        topics: vec![("gold".to_owned(), 1), ("gold:big".to_owned(), 4)],
        ..Weights::default()
    });
    for n in 0..2_000 {
        queue.push(flow(1, "gold:big:1", 1), ("big", n)).unwrap();
        queue.push(flow(1, "plain", 1), ("plain", n)).unwrap();
    }
    let first = some(&queue, 1_000);
    let big = first.iter().filter(|(name, _)| *name == "big").count();
    assert!((760..=840).contains(&big), "{big}");
}

#[test]
fn many_topics_do_not_make_a_tenant_larger() {
    let queue = queue(10_000);
    for n in 0..2_000 {
        let topic = format!("t{}", n % 100);
        queue.push(flow(1, &topic, 1), 1).unwrap();
        queue.push(flow(2, "only", 1), 2).unwrap();
    }
    let first = some(&queue, 1_000);
    let many = first.iter().filter(|tenant| **tenant == 1).count();
    assert!((450..=550).contains(&many), "{many}");
}

#[test]
fn no_number_of_tenants_fills_the_queue() {
    let queue = queue(100);
    let fill = |number| {
        let taken = (0..100).take_while(|_| queue.push(flow(number, "a", 1), ()).is_ok());
        taken.count()
    };
    assert_eq!(fill(1), 75);
    assert_eq!(fill(2), 19);
    assert_eq!(fill(3), 5);
    assert_eq!(queue.push(flow(1, "a", 1), ()), Err(Refused::Full));
    assert_eq!(all(&queue).len(), 99);
    queue.push(flow(1, "a", 1), ()).unwrap();
}

#[test]
fn room_is_counted_in_bytes_too() {
    let queue = FairQueue::new(Room {
        jobs: 1_000,
        bytes: 1_000,
    });
    let large = |number, bytes| Flow {
        bytes,
        ..flow(number, "a", 1)
    };
    queue.push(large(1, 5_000), "alone").unwrap();
    assert_eq!(queue.push(large(2, 10), "small"), Err(Refused::Full));
    assert_eq!(all(&queue), ["alone"]);
    queue.push(large(1, 750), "most").unwrap();
    assert_eq!(queue.push(large(1, 1), "more"), Err(Refused::Full));
    queue.push(large(2, 10), "another's").unwrap();
    assert_eq!(all(&queue).len(), 2);
}

#[test]
fn a_job_is_charged_what_it_took() {
    let queue = queue(10_000);
    for n in 0..1_000 {
        queue.push(flow(1, "slow", 1), (1, n)).unwrap();
        queue.push(flow(2, "quick", 1), (2, n)).unwrap();
    }
    let mut spent = [0, 0];
    for _ in 0..500 {
        let turn = next(&queue).unwrap();
        let cost = if turn.job.0 == 1 { 200 } else { 2 };
        spent[turn.job.0 - 1] += cost;
        queue.settle(turn.charge, time(cost));
    }
    let difference = spent[0].abs_diff(spent[1]);
    assert!(difference <= 200 + QUANTUM as u64, "{spent:?}");
}

#[test]
fn whoever_pauses_keeps_its_debt_while_others_wait() {
    let queue = queue(10_000);
    for n in 0..200 {
        queue.push(flow(2, "quiet", 1), (2, n)).unwrap();
    }
    let mut slow = 0;
    for _ in 0..150 {
        if queue.len() <= 200 {
            // The slow tenant has one job at a time: it leaves the ring with each.
            let _ = queue.push(flow(1, "slow", 1), (1, 0));
        }
        let turn = next(&queue).unwrap();
        let cost = if turn.job.0 == 1 { 1_000 } else { 1 };
        slow += usize::from(turn.job.0 == 1);
        queue.settle(turn.charge, time(cost));
    }
    assert!(slow <= 2, "the slow tenant had {slow} turns");
}

#[test]
fn debts_end_when_nobody_waits() {
    let queue = queue(10);
    queue.push(flow(1, "a", 1), 1).unwrap();
    let turn = next(&queue).unwrap();
    queue.settle(turn.charge, time(1_000_000));
    queue.push(flow(1, "a", 1), 1).unwrap();
    queue.push(flow(2, "a", 1), 2).unwrap();
    assert_eq!(all(&queue), [1, 2]);
}

#[test]
fn a_closed_queue_gives_out_what_it_has() {
    let queue = queue(10);
    queue.push(flow(1, "a", 1), 7).unwrap();
    queue.close();
    assert_eq!(queue.push(flow(1, "a", 1), 8), Err(Refused::Closed));
    assert_eq!(all(&queue), [7]);
    assert_eq!(queue.pop(Duration::from_secs(9)), Popped::Closed);
}

/// A tenant whose queue never runs empty: the topics it uses, and what each job is thought to cost and really costs.
type Busy = (u8, Vec<(u32, u64)>);

fn busy() -> impl Strategy<Value = Busy> {
    let jobs = prop::collection::vec((1..200_u32, 1..400_u64), 1..8);
    (1..5_u8, jobs)
}

proptest! {
    /// Tenants that always have work are served alike, whatever they ask for: what was spent on any two of them differs
    /// by one batch at most, and a quantum for the turn that has just begun.
    #[test]
    fn served_cost_differs_by_one_batch_at_most(tenants in prop::collection::vec(busy(), 2..6)) {
        const BATCH_COST: u64 = 500;
        let queue = queue(10_000);
        let mut pushed = vec![0; tenants.len()];
        let mut spent = vec![0_u64; tenants.len()];
        for _ in 0..100 {
            for (n, (topics, jobs)) in tenants.iter().enumerate() {
                while pushed[n] < 600 {
                    let (estimate, cost) = jobs[pushed[n] % jobs.len()];
                    let topic = format!("t{}", pushed[n] % usize::from(*topics));
                    queue.push(flow(n as u8, &topic, estimate), (n, cost)).unwrap();
                    pushed[n] += 1;
                }
            }
            let mut batch = 0;
            let mut turn = next(&queue);
            while let Some(Turn { job: (n, cost), charge }) = turn {
                pushed[n] -= 1;
                spent[n] += cost;
                batch += cost;
                if batch >= BATCH_COST {
                    queue.settle(charge, time(cost));
                    break;
                }
                turn = queue.settle_and_pop(charge, time(cost));
            }
            let (least, most) = (spent.iter().min().unwrap(), spent.iter().max().unwrap());
            prop_assert!(most - least <= BATCH_COST + 400 + QUANTUM as u64, "{:?}", spent);
        }
    }
}
