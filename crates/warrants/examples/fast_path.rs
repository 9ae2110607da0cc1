//! Measures the verification of a warrant, and of a chain of three, without questions to a host.
//!
//!     cargo run --release -p asyncgate-warrants --example fast_path

#![expect(clippy::print_stdout, reason = "the figures are the point")]
#![expect(clippy::disallowed_methods, reason = "measuring needs a clock")]

#[path = "../tests/warrants/build.rs"]
#[expect(dead_code, reason = "the tests use the rest")]
mod build;

use std::{hint::black_box, time::Instant};

use asyncgate_warrants::{Call, Policy, RevocationPolicy, verify};
use build::Draft;
use ed25519_dalek::SigningKey;
use serde_json::{Value, json};

const CALLS: u32 = 500;
const ROUNDS: usize = 5;

fn key(seed: u8) -> SigningKey {
    SigningKey::from_bytes(&[seed; 32])
}

fn public(seed: u8) -> [u8; 32] {
    key(seed).verifying_key().to_bytes()
}

fn main() {
    let root = Draft::root().sign();
    let child = Draft::child(&root, 2).sign();
    let leaf = Draft::child(&child, 3).sign();
    let chain = [root, child, leaf];
    println!("{:.3} {:.3}", median(&chain[..1]), median(&chain));
}

fn median(chain: &[Vec<u8>]) -> f64 {
    let mut micros: Vec<f64> = (0..ROUNDS).map(|_| measure(chain)).collect();
    micros.sort_by(f64::total_cmp);
    micros[ROUNDS / 2]
}

fn measure(chain: &[Vec<u8>]) -> f64 {
    let policy = Policy {
        trusted_roots: vec![public(1)],
        require_pop: false,
        revocation: RevocationPolicy::Marked,
        clock_skew_secs: 30,
    };
    let Value::Object(args) = json!({"path": "/data/report.txt"}) else {
        return 0.0;
    };
    let call = Call {
        warrants: chain,
        tool: "read_file",
        args: &args,
        pop: None,
        now: 1_704_068_000,
    };
    let start = Instant::now();
    for _ in 0..CALLS {
        let verification = verify(&policy, black_box(&call));
        assert!(verification.refusal.is_none(), "{verification:?}");
        assert!(verification.host.is_empty(), "the fast path asks nobody");
        black_box(verification);
    }
    start.elapsed().as_secs_f64() * 1e6 / f64::from(CALLS)
}
