//! Decisions without a network: programs that call the crates, each on one thread.

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::bench::report::{Figure, Section, Unit, median, thousands};
use crate::bench::server::dist;
use crate::bench::{Bench, ROUNDS};
use crate::process;

pub fn decisions(bench: &Bench) -> Result<Section> {
    let seconds = bench.seconds(3, 1).as_secs().to_string();
    let (mut host, mut guard) = (Vec::new(), Vec::new());
    let (mut warrants, mut chains) = (Vec::new(), Vec::new());
    for round in 1..=ROUNDS {
        eprintln!("decisions, round {round} of {ROUNDS}");
        let [alone, guarded] = told(DECIDE, &["rate", &seconds])?;
        let [warrant, chain] = told(WARRANT, &[])?;
        eprintln!("  {guarded:.0} checks/s, {warrant:.1} µs for a warrant");
        host.push(alone);
        guard.push(guarded);
        warrants.push(warrant);
        chains.push(chain);
    }
    let (host, guard) = (median(&host), median(&guard));
    let figures = vec![
        Figure::new("bucket checks on one core", guard, Unit::PerSecond).at_least(2e6),
        Figure::new("a bucket check", 1e6 / guard, Unit::Micros).at_most(1.0),
        Figure::new("bucket checks by the backend alone", host, Unit::PerSecond),
        Figure::new("a warrant, without a host", median(&warrants), Unit::Micros).at_most(100.0),
        Figure::new(
            "a chain of three warrants, without a host",
            median(&chains),
            Unit::Micros,
        ),
    ];
    let how = "Within one process on one thread. A bucket check is one `Guard::check_limit` on the backend in memory: \
               deadline, circuit breaker, metrics and the decision, over 10,000 keys in turn \
               (`crates/admission/examples/decide.rs`). A warrant is verified with all its signatures, links, times, the \
               tool and its arguments, and asks nothing of a host (`crates/warrants/examples/fast_path.rs`). Medians of \
               the rounds.";
    Ok(Section {
        id: "admission",
        how: how.to_owned(),
        figures,
    })
}

pub fn keys(bench: &Bench) -> Result<Section> {
    let count: u32 = if bench.quick { 100_000 } else { 10_000_000 };
    eprintln!("{count} keys");
    let [each, resident, without_room] = told(DECIDE, &["keys", &count.to_string()])?;
    let more = f64::from(count / 100);
    let count = f64::from(count);
    let figures = vec![
        Figure::new("keys kept", count, Unit::Count),
        Figure::new("memory per key", each, Unit::Bytes),
        Figure::new(
            "resident memory of the process",
            resident / f64::from(1 << 20),
            Unit::MiB,
        ),
        Figure::new("keys beyond that, asked", more, Unit::Count),
        Figure::new("of them without room", without_room, Unit::Count).at_least(more),
        Figure::new("kept keys that were let off", 0.0, Unit::Count).at_most(0.0),
    ];
    let how = format!(
        "The backend in memory with `admission.max_rows` = {} and as many buckets that are used up. A key beyond them finds \
         no room, so that the failure mode counts for it; no bucket is forgotten while its limit is in force, which every \
         97th key is asked for (`crates/admission/examples/decide.rs` stops at the first that was).",
        thousands(count)
    );
    Ok(Section {
        id: "keys",
        how,
        figures,
    })
}

/// A program that prints figures.
pub type Program = (&'static str, &'static str);

const DECIDE: Program = ("asyncgate-admission", "decide");
const WARRANT: Program = ("asyncgate-warrants", "fast_path");

/// Runs a program and returns the figures that it prints.
pub fn told<const N: usize>((package, name): Program, words: &[&str]) -> Result<[f64; N]> {
    let build = ["--package", package, "--example", name];
    let binary = dist(&build)?.join("examples").join(name);
    let told = process::output(Command::new(binary).args(words))?;
    figures(&told).with_context(|| format!("{name} told: {told}"))
}

fn figures<const N: usize>(told: &str) -> Result<[f64; N]> {
    let figures: Result<Vec<f64>, _> = told.split_whitespace().map(str::parse).collect();
    match figures?.try_into() {
        Ok(figures) => Ok(figures),
        Err(_) => bail!("not {N} figures"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_figures_as_asked_for_are_read() {
        assert_eq!(figures("1 2.5\n").unwrap(), [1.0, 2.5]);
        assert!(figures::<1>("1 2.5\n").is_err());
        assert!(figures::<1>("about 1\n").is_err());
    }
}
