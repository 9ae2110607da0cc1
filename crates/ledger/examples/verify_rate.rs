//! Writes a ledger that core's rules decided, and measures the rate at which it is verified.
//!
//!     cargo run --release -p asyncgate-ledger --example verify_rate -- [RECEIPTS] [FILE]
//!
//! Without FILE the ledger is written to a temporary one; a FILE that exists is measured as it is.

#![expect(clippy::print_stdout, reason = "the figures are the point")]
#![expect(clippy::disallowed_methods, reason = "measuring needs a clock")]
#![expect(clippy::unwrap_used, reason = "a program for those who measure")]

#[path = "../tests/ledger/world.rs"]
#[expect(dead_code, reason = "the tests use the rest")]
mod world;

use std::{
    env, fs,
    io::BufWriter,
    path::{Path, PathBuf},
    process,
    time::Instant,
};

use asyncgate_core::Link;
use asyncgate_ledger::{Expectations, Export, Report, record, verify_export};
use world::{TENANT, World, proven};

const RUNS: usize = 3;

fn main() {
    let mut arguments = env::args().skip(1);
    let receipts = arguments
        .next()
        .map_or(1_000_000, |count| count.parse().unwrap());
    let kept = arguments.next().map(PathBuf::from);
    let path = kept.clone().unwrap_or_else(|| {
        env::temp_dir().join(format!("asyncgate-ledger-{}.ndjson", process::id()))
    });
    if !path.exists() {
        write(&path, receipts);
    }
    let bytes = fs::metadata(&path).unwrap().len();
    println!("{} MiB, {} threads", bytes >> 20, threads());
    for _ in 0..RUNS {
        let start = Instant::now();
        let report = verify(&path);
        let seconds = start.elapsed().as_secs_f64();
        println!(
            "verified {} receipts, {} tasks, {} signatures in {seconds:.2} s: {:.0} receipts/s, {:.0} MiB/s",
            report.receipts,
            report.tasks,
            report.signatures,
            report.receipts as f64 / seconds,
            bytes as f64 / seconds / f64::from(1 << 20),
        );
    }
    if kept.is_none() {
        fs::remove_file(&path).unwrap();
    }
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn verify(path: &Path) -> Report {
    verify_export(fs::File::open(path).unwrap(), Expectations::default()).unwrap()
}

/// Writes tasks that are created, taken, worked on and proved, with a signature every thousand receipts.
fn write(path: &Path, receipts: u64) {
    let mut world = World::new();
    let out = BufWriter::new(fs::File::create(path).unwrap());
    let mut export = Export::begin(out, &TENANT.to_string(), &world.now.to_string(), None).unwrap();
    let mut link = Link::START;
    let mut signed = 0;
    while world.head.seq < receipts {
        world.wait_ms(1);
        let id = world.create("alice");
        let hold = world.lease(id, "bob");
        world.complete(&hold, id, proven());
        world.tasks.remove(&id);
        if world.head.seq >= signed + 1_000 {
            world.sign();
            signed = world.head.seq;
        }
        for receipt in world.receipts.drain(..) {
            link = link.then(TENANT, &receipt);
            export.receipt(&record(TENANT, &receipt, link)).unwrap();
        }
    }
    export.finish(&world.ledger_head()).unwrap();
}
