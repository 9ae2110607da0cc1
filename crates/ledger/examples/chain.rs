//! Measures the cost of the hash chain for a create: one link over the receipt that it writes.
//!
//!     cargo run --release -p asyncgate-ledger --example chain

#![expect(clippy::print_stdout, reason = "the figure is the point")]
#![expect(clippy::disallowed_methods, reason = "measuring needs a clock")]
#![expect(clippy::unwrap_used, reason = "a program for those who measure")]

#[path = "../tests/ledger/world.rs"]
#[expect(dead_code, reason = "the tests use the rest")]
mod world;

use std::{hint::black_box, time::Instant};

use asyncgate_core::{
    Link, TenantLoad,
    task::{self, NewTask},
};
use world::{TENANT, World, json, new_task};

/// Few enough to stay in the processor's cache, where a server has the receipt that it just made.
const CREATES: usize = 256;
const PASSES: usize = 400;
const ROUNDS: usize = 5;

fn main() {
    let mut world = World::new();
    for _ in 0..CREATES {
        world.wait_ms(1);
        // The same task as `cargo xtask bench` creates.
        let new = NewTask {
            payload: json(r#"{"text":"hello, gate","n":1}"#),
            ..new_task("bench")
        };
        world.run(|env, head| task::create(env, head, new, None, TenantLoad::default()));
    }
    let mut micros: Vec<f64> = (0..ROUNDS).map(|_| measure(&world)).collect();
    micros.sort_by(f64::total_cmp);
    println!("{:.3} µs per create", micros[ROUNDS / 2]);
}

fn measure(world: &World) -> f64 {
    let start = Instant::now();
    for _ in 0..PASSES {
        let mut link = Link::START;
        for receipt in &world.receipts {
            link = link.then(TENANT, receipt);
        }
        black_box(link);
    }
    start.elapsed().as_secs_f64() * 1e6 / (CREATES * PASSES) as f64
}
