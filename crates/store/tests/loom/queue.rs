//! The writer's queue: several threads push, one pops.

use std::time::Duration;

use asyncgate_core::TenantId;
use loom::{sync::Arc, thread};

use crate::{
    explore,
    fair::{FairQueue, Flow, Lane, Popped, Refused, Room},
};

pub fn flow(tenant: u8) -> Flow {
    Flow {
        tenant: TenantId::from_bytes([tenant; 16]),
        lane: Lane::Messages,
        cost: 1,
        bytes: 1,
    }
}

pub fn queue<T>(jobs: usize) -> Arc<FairQueue<T>> {
    let bytes = usize::MAX;
    Arc::new(FairQueue::new(Room { jobs, bytes }))
}

/// Returns the next job, or nothing once the queue is closed and empty.
pub fn pop<T>(queue: &FairQueue<T>) -> Option<T> {
    match queue.pop(PATIENCE) {
        Popped::Job(turn) => {
            queue.settle(turn.charge, Duration::ZERO);
            Some(turn.job)
        }
        Popped::Nothing => panic!("nobody's patience ends"),
        Popped::Closed => None,
    }
}

/// The longest wait for a job. Loom's clock stands still: a thread that waits for a job that never comes
/// waits for ever, which loom finds.
pub const PATIENCE: Duration = Duration::from_secs(1);

#[test]
fn what_is_pushed_is_popped_once_and_nobody_sleeps_over_it() {
    explore(|| {
        let queue = queue(8);
        let pushing = [1, 2].map(|tenant| {
            let queue = Arc::clone(&queue);
            thread::spawn(move || {
                for n in 0..2 {
                    queue.push(flow(tenant), (tenant, n)).unwrap();
                }
            })
        });
        let mut popped = Vec::new();
        while popped.len() < 4 {
            popped.push(pop(&queue).unwrap());
        }
        for pushed in pushing {
            pushed.join().unwrap();
        }
        let of = |tenant| popped.iter().filter(move |job| job.0 == tenant);
        assert!(of(1).eq(&[(1, 0), (1, 1)]), "in its order: {popped:?}");
        assert!(of(2).eq(&[(2, 0), (2, 1)]), "in its order: {popped:?}");
    });
}

#[test]
fn a_full_queue_refuses_and_loses_nothing_of_what_it_took() {
    explore(|| {
        let queue = queue(1);
        let pushing = [1, 2].map(|tenant| {
            let queue = Arc::clone(&queue);
            thread::spawn(move || match queue.push(flow(tenant), tenant) {
                Ok(()) => 1,
                Err(refused) => {
                    assert_eq!(refused, Refused::Full);
                    0
                }
            })
        });
        let first = usize::from(pop(&queue).is_some());
        let taken: usize = pushing.map(|pushed| pushed.join().unwrap()).iter().sum();
        queue.close();
        let rest = std::iter::from_fn(|| pop(&queue)).count();
        assert_eq!(first + rest, taken);
        assert!(first == 1 && (1..=2).contains(&taken));
    });
}
