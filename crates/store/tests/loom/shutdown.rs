//! Shutdown: jobs that were taken in are done, later ones are refused, and all threads end.

use loom::{sync::Arc, thread};

use crate::{
    explore,
    fair::{FairQueue, Refused},
    queue::{PATIENCE, flow},
};

#[test]
fn a_queue_that_closes_gives_out_exactly_what_it_took() {
    explore(|| {
        let queue = Arc::new(FairQueue::new(8));
        let writer = thread::spawn({
            let queue = Arc::clone(&queue);
            move || {
                let mut done = Vec::new();
                while let Some(jobs) = queue.pop(1, PATIENCE) {
                    done.extend(jobs);
                }
                done
            }
        });
        let caller = thread::spawn({
            let queue = Arc::clone(&queue);
            move || {
                let mut taken = Vec::new();
                for n in 0..2 {
                    match queue.push(flow(1), n) {
                        Ok(()) => taken.push(n),
                        Err(refused) => assert_eq!(refused, Refused::Closed),
                    }
                }
                taken
            }
        });
        queue.close();
        let taken = caller.join().unwrap();
        assert_eq!(writer.join().unwrap(), taken);
        assert_eq!(queue.push(flow(1), 9), Err(Refused::Closed));
        assert_eq!(queue.pop(1, PATIENCE), None);
    });
}
