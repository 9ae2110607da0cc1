//! Shutdown: jobs that were taken in are done, later ones are refused, and all threads end.

use loom::{sync::Arc, thread};

use crate::{
    explore,
    fair::Refused,
    queue::{flow, pop, queue},
};

#[test]
fn a_queue_that_closes_gives_out_exactly_what_it_took() {
    explore(|| {
        let queue = queue(8);
        let writer = thread::spawn({
            let queue = Arc::clone(&queue);
            move || {
                let mut done = Vec::new();
                while let Some(job) = pop(&queue) {
                    done.push(job);
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
        assert_eq!(pop(&queue), None);
    });
}
