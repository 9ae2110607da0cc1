//! Broken input for everything that reads what strangers send.
//!
//! A target is a function that must hold for any bytes: it panics when it does not. Inputs are mutations
//! of good ones, drawn from a seed, so that a finding can be repeated. It works with the stable toolchain,
//! without instrumentation.

mod admission;
mod bearers;
mod credentials;
mod mutate;
mod oauth;
mod targets;

use std::panic::{AssertUnwindSafe, catch_unwind};

pub use mutate::Mutator;
pub use targets::{Target, targets};

/// An input that broke a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The name of the target.
    pub target: &'static str,
    /// The input.
    pub input: Vec<u8>,
    /// The message of the panic.
    pub message: String,
}

/// Runs a target on one input.
pub fn check(target: &Target, input: &[u8]) -> Result<(), Finding> {
    let outcome = catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
    outcome.map_err(|panic| Finding {
        target: target.name,
        input: input.to_vec(),
        message: said(panic.as_ref()),
    })
}

fn said(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("it panicked").to_owned()
}

/// Cuts pieces off an input and returns the shortest one found that still breaks the target.
pub fn shrink(target: &Target, finding: Finding) -> Finding {
    let mut best = finding;
    let mut piece = best.input.len() / 2;
    while piece > 0 {
        let mut at = 0;
        while at + piece <= best.input.len() {
            let mut shorter = best.input.clone();
            shorter.drain(at..at + piece);
            match check(target, &shorter) {
                Err(found) => best = found,
                Ok(()) => at += piece,
            }
        }
        piece /= 2;
    }
    best
}
