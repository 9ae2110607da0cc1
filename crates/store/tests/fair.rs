//! The fair queue: the order of turns, and the room for each tenant.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

use std::time::Duration;

use asyncgate_core::TenantId;
use asyncgate_store::fair::{FairQueue, Flow, Lane, Refused, Weights};

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
    }
}

fn all<T>(queue: &FairQueue<T>) -> Vec<T> {
    queue.pop(usize::MAX, Duration::ZERO).unwrap()
}

#[test]
fn a_lane_keeps_its_order() {
    let queue = FairQueue::new(1_000);
    for n in 0..500 {
        queue.push(flow(1, "a", 1 + n % 7), n).unwrap();
    }
    assert_eq!(all(&queue), (0..500).collect::<Vec<_>>());
}

#[test]
fn a_hot_tenant_does_not_delay_another_beyond_its_share() {
    let queue = FairQueue::new(10_000);
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
    let queue = FairQueue::new(10_000);
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
    let queue = FairQueue::new(10_000);
    queue.set_weights(Weights {
        topics: vec![("gold".to_owned(), 1), ("gold:big".to_owned(), 4)],
        ..Weights::default()
    });
    for n in 0..2_000 {
        queue.push(flow(1, "gold:big:1", 1), ("big", n)).unwrap();
        queue.push(flow(1, "plain", 1), ("plain", n)).unwrap();
    }
    let first = queue.pop(1_000, Duration::ZERO).unwrap();
    let big = first.iter().filter(|(name, _)| *name == "big").count();
    assert!((760..=840).contains(&big), "{big}");
}

#[test]
fn many_topics_do_not_make_a_tenant_larger() {
    let queue = FairQueue::new(10_000);
    for n in 0..2_000 {
        let topic = format!("t{}", n % 100);
        queue.push(flow(1, &topic, 1), 1).unwrap();
        queue.push(flow(2, "only", 1), 2).unwrap();
    }
    let first = queue.pop(1_000, Duration::ZERO).unwrap();
    let many = first.iter().filter(|tenant| **tenant == 1).count();
    assert!((450..=550).contains(&many), "{many}");
}

#[test]
fn one_tenant_cannot_fill_the_queue() {
    let queue = FairQueue::new(100);
    let taken = (0..100).take_while(|_| queue.push(flow(1, "a", 1), ()).is_ok());
    assert_eq!(taken.count(), 75);
    for _ in 0..25 {
        queue.push(flow(2, "a", 1), ()).unwrap();
    }
    assert_eq!(queue.push(flow(3, "a", 1), ()), Err(Refused::Full));
    assert_eq!(all(&queue).len(), 100);
    queue.push(flow(1, "a", 1), ()).unwrap();
}

#[test]
fn a_closed_queue_gives_out_what_it_has() {
    let queue = FairQueue::new(10);
    queue.push(flow(1, "a", 1), 7).unwrap();
    queue.close();
    assert_eq!(queue.push(flow(1, "a", 1), 8), Err(Refused::Closed));
    assert_eq!(queue.pop(9, Duration::from_secs(9)), Some(vec![7]));
    assert_eq!(queue.pop(9, Duration::from_secs(9)), None);
}
