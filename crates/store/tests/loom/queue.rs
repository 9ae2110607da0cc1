//! The writer's queue: several threads push, one pops.

use std::time::Duration;

use asyncgate_core::TenantId;
use loom::{sync::Arc, thread};

use crate::{
    explore,
    fair::{FairQueue, Flow, Lane, Refused},
};

pub fn flow(tenant: u8) -> Flow {
    Flow {
        tenant: TenantId::from_bytes([tenant; 16]),
        lane: Lane::Messages,
        cost: 1,
    }
}

/// The longest wait for a job. Loom's clock stands still: a thread that waits for a job that never comes
/// waits for ever, which loom finds.
pub const PATIENCE: Duration = Duration::from_secs(1);

#[test]
fn what_is_pushed_is_popped_once_and_nobody_sleeps_over_it() {
    explore(|| {
        let queue = Arc::new(FairQueue::new(8));
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
            popped.extend(queue.pop(3, PATIENCE).unwrap());
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
        let queue = Arc::new(FairQueue::new(1));
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
        let first = queue.pop(9, PATIENCE).unwrap().len();
        let taken: usize = pushing.map(|pushed| pushed.join().unwrap()).iter().sum();
        queue.close();
        let rest = queue.pop(9, PATIENCE).map_or(0, |jobs| jobs.len());
        assert_eq!(first + rest, taken);
        assert!(first == 1 && (1..=2).contains(&taken));
    });
}
