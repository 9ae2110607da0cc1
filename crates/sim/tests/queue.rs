//! Whatever tenants ask of the queue before the writer, those that wait are served alike; and the audit can fail.

use asyncgate_sim::{QueueDefect, explore_queue};

const BATCHES: usize = 400;

#[test]
fn drawn_queues_serve_tenants_alike() {
    let mut jobs = 0;
    for seed in 1..=100 {
        jobs += explore_queue(seed, BATCHES, None)
            .unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
    }
    assert!(jobs > 1_000_000, "only {jobs} jobs");
}

#[test]
fn every_defect_of_the_queue_is_caught() {
    for defect in QueueDefect::ALL {
        let found = (1..=20).find_map(|seed| explore_queue(seed, BATCHES, Some(defect)).err());
        let violation = found.unwrap_or_else(|| panic!("{defect:?} was not caught"));
        println!("{defect:?}: {violation}");
        assert_eq!(violation.rule, "tenants are served alike", "{defect:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_queue() {
    for seed in 1..=5 {
        assert_eq!(
            explore_queue(seed, BATCHES, None),
            explore_queue(seed, BATCHES, None)
        );
    }
}
