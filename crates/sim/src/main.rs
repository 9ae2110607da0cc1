//! `asyncgate-sim`: simulates for a while, or replays a schedule.

#![expect(
    clippy::print_stdout,
    reason = "printing is what a command line tool does"
)]

use std::{fs, path::PathBuf, process::ExitCode, time::Duration};

use asyncgate_sim::{Failure, STEPS_PER_WORLD, Schedule, explore, explore_queue, replay};
use asyncgate_store::Stopwatch;
use clap::Parser;

const REPORT_EVERY: Duration = Duration::from_secs(10);
/// One world in so many has a queue beside it, which serves so many batches: together about one part in a hundred of
/// the time.
const QUEUE_EVERY: u64 = 16;
const QUEUE_BATCHES: usize = 100;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Simulate the engine from a seed
#[derive(Debug, Parser)]
struct Options {
    /// How long to run
    #[arg(long, default_value_t = 1.0)]
    minutes: f64,
    /// The first seed; each world has the next one
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Stop after so many worlds, even if there is time left
    #[arg(long, default_value_t = u64::MAX, hide_default_value = true)]
    worlds: u64,
    /// How long each world lives
    #[arg(long, default_value_t = STEPS_PER_WORLD)]
    steps: usize,
    /// Where to write the schedule of a failure
    #[arg(long)]
    regressions: Option<PathBuf>,
    /// Replay this schedule instead
    #[arg(long)]
    replay: Option<PathBuf>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let held = match &options.replay {
        Some(path) => replay_file(path),
        None => simulate(&options),
    };
    if held {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn simulate(options: &Options) -> bool {
    let watch = Stopwatch::start();
    let limit = Duration::from_secs_f64(options.minutes * 60.0);
    let (mut seed, mut steps, mut reported) = (options.seed, 0, Duration::ZERO);
    while watch.elapsed() < limit && seed.wrapping_sub(options.seed) < options.worlds {
        match explore(seed, options.steps, None) {
            Ok(lived) => steps += lived.steps.len(),
            Err(failure) => {
                report(&failure, options);
                return false;
            }
        }
        if seed.is_multiple_of(QUEUE_EVERY)
            && let Err(violation) = explore_queue(seed, QUEUE_BATCHES, None)
        {
            println!("the queue of seed {seed}: {violation}");
            return false;
        }
        seed = seed.wrapping_add(1);
        if watch.elapsed() - reported >= REPORT_EVERY {
            reported = watch.elapsed();
            print_progress(steps, seed, reported);
        }
    }
    print_progress(steps, seed, watch.elapsed());
    true
}

fn print_progress(steps: usize, seed: u64, elapsed: Duration) {
    let rate = steps as f64 / elapsed.as_secs_f64().max(1e-9);
    println!("{steps} steps, {rate:.0} steps/s, next seed {seed}");
}

fn report(failure: &Failure, options: &Options) {
    println!("{failure}");
    println!("shrinking {} steps", failure.schedule.steps.len());
    let text = failure.shrunk();
    println!("{text}");
    let Some(folder) = &options.regressions else {
        return;
    };
    let path = folder.join(failure.file_name());
    match fs::write(&path, text) {
        Ok(()) => println!("kept in {}", path.display()),
        Err(error) => println!("cannot write {}: {error}", path.display()),
    }
}

fn replay_file(path: &PathBuf) -> bool {
    let read = fs::read_to_string(path).map_err(|error| error.to_string());
    let schedule = read.and_then(|text| Schedule::parse(&text));
    let held = schedule
        .and_then(|schedule| replay(&schedule, None).map_err(|violation| violation.to_string()));
    match held {
        Ok(()) => println!("{}: every rule holds", path.display()),
        Err(error) => {
            println!("{}: {error}", path.display());
            return false;
        }
    }
    true
}
