//! Drawn worlds hold every rule, and kept failures stay fixed.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

use asyncgate_api::Plane;
use asyncgate_engine::registry;
use asyncgate_sim::{Failure, Op, STEPS_PER_WORLD, Schedule, Setup, explore, replay};

const STEPS: usize = 1_000_000;

fn regressions() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("regressions")
}

#[test]
fn a_million_steps_hold_every_rule() {
    let worlds = STEPS.div_ceil(STEPS_PER_WORLD) as u64;
    let next = AtomicU64::new(1);
    let live = || -> Option<Box<Failure>> {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed > worlds {
                return None;
            }
            if let Err(failure) = explore(seed, STEPS_PER_WORLD, None) {
                return Some(failure);
            }
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let failure = thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(live)).collect();
        let ended = running.into_iter().map(|one| one.join().unwrap());
        ended.collect::<Vec<_>>().into_iter().flatten().next()
    });
    if let Some(failure) = failure {
        let text = failure.shrunk();
        fs::write(regressions().join(failure.file_name()), &text).unwrap();
        panic!("{failure}\n{text}");
    }
}

#[test]
fn kept_failures_stay_mended() {
    let mut replayed = 0;
    for entry in fs::read_dir(regressions()).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let schedule = Schedule::parse(&text).unwrap();
        if let Err(violation) = replay(&schedule, None) {
            panic!("{}: {violation}", path.display());
        }
        replayed += 1;
    }
    assert!(replayed > 0);
}

#[test]
fn the_same_seed_gives_the_same_world() {
    // Both kinds of worlds: those that call with JSON, and those that call with typed values.
    let seeds = [3, 4, 11, 12];
    let typed = seeds.map(|seed| Setup::of_seed(seed).typed);
    assert_eq!(typed, [false, false, true, true]);
    for seed in seeds {
        let first = explore(seed, STEPS_PER_WORLD, None).unwrap();
        let second = explore(seed, STEPS_PER_WORLD, None).unwrap();
        assert_eq!(first, second);
        // A replay of the drawn steps goes through the same world again.
        replay(&first, None).unwrap();
        assert_eq!(Schedule::parse(&first.to_string()).unwrap(), first);
    }
}

/// Batches of tasks are compared with their calls one by one, over random histories (`core/tests/rules/batch.rs`).
const BATCHES: [&str; 3] = ["create_tasks", "finish_tasks", "renew_leases"];

/// Admission is left out: its decisions are compared with the pure rule over random histories, on every
/// backend.
#[test]
fn every_operation_of_tasks_and_messages_is_simulated() {
    for entry in registry()
        .iter()
        .filter(|it| !matches!(it.spec.plane, Plane::Admission | Plane::Identity))
    {
        let name = entry.spec.name;
        if BATCHES.contains(&name) {
            continue;
        }
        assert!(Op::parse(name).is_some(), "teach the simulator {name}");
    }
}
