//! The cost of the hash chain for a create, measured in two ways: the time to hash a create's receipt,
//! beside the server's processor time for a create; and creates per second beside a server that does not
//! hash. That server is built from a copy of the source with one line taken out, because a product whose
//! chain could be switched off would prove nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::bench::cost::Costs;
use crate::bench::load::Plan;
use crate::bench::report::{Figure, Section, Unit, median};
use crate::bench::server::{Server, dist, target};
use crate::bench::workload::Create;
use crate::bench::{Bench, CONNECTIONS};
use crate::process;

/// The line that keeps the chain, and its replacement in the copy.
const FILE: &str = "crates/store-sqlite/src/ledgers.rs";
const LINE: &str = "self.head.link = self.head.link.then(tenant, receipt);";
const INSTEAD: &str = "let _ = (tenant, receipt);";

/// The files that the build does not need, or makes itself.
const LEFT_OUT: [&str; 3] = ["target", "data", ".git"];

pub fn run(bench: &Bench) -> Result<Section> {
    let rounds = if bench.quick { 2 } else { 6 };
    let upkeep = upkeep()?;
    let unchained = build_unchained()?;
    let mut with = Creates::default();
    let mut without = Creates::default();
    for round in 1..=rounds {
        eprintln!("chain, round {round} of {rounds}");
        // They take turns in going first, so that a machine that slows down is unfair to neither.
        if round % 2 == 0 {
            without.run(bench, &unchained)?;
            with.run(bench, &bench.binary)?;
        } else {
            with.run(bench, &bench.binary)?;
            without.run(bench, &unchained)?;
        }
    }
    let lost = with.rates.iter().zip(&without.rates);
    let lost: Vec<f64> = lost
        .map(|(with, without)| percent(1.0 - with / without))
        .collect();
    let (processor, bare) = (with.costs.server(), without.costs.server());
    let figures = vec![
        Figure::new("hashing the receipt of a create", upkeep, Unit::Micros),
        Figure::new("server processor time per create", processor, Unit::Micros),
        Figure::new(
            "share of the chain in it",
            percent(upkeep / processor),
            Unit::Percent,
        )
        .at_most(5.0),
        Figure::new(
            "server processor time without the chain",
            bare,
            Unit::Micros,
        ),
        Figure::new("creates", median(&with.rates), Unit::PerSecond),
        Figure::new(
            "creates without the chain",
            median(&without.rates),
            Unit::PerSecond,
        ),
        Figure::new("creates lost to the chain", median(&lost), Unit::Percent).at_most(5.0),
    ];
    let how = format!(
        "Before and after: `POST /v1/tasks` on {CONNECTIONS} connections against the server and against one built from the \
         same source without the line that hashes (`{FILE}`); the product has no such switch. {rounds} rounds in turns, \
         each on an empty directory; medians, the loss as the median of the losses within a round. Two equal servers \
         differ by some percent from round to round on a shared machine, so that the share in the processor time, with \
         the hashing measured by itself (`crates/ledger/examples/chain.rs`), is the steadier figure."
    );
    Ok(Section {
        id: "chain",
        how,
        figures,
    })
}

fn percent(share: f64) -> f64 {
    share * 100.0
}

/// Creates per second and their cost, by round.
#[derive(Debug, Default)]
struct Creates {
    rates: Vec<f64>,
    costs: Costs,
}

impl Creates {
    fn run(&mut self, bench: &Bench, binary: &Path) -> Result<()> {
        let server = Server::start(binary, bench.scratch.path(), &[])?;
        let mut create = Create::echo(&server.head());
        let plan = Plan::closed(CONNECTIONS, Duration::ZERO, bench.seconds(6, 2));
        let tally = self.costs.measure(&server, plan, &mut create)?;
        eprintln!("  {:.0} creates/s", tally.per_second());
        self.rates.push(tally.per_second());
        Ok(())
    }
}

/// Returns the microseconds that the chain takes for a create.
fn upkeep() -> Result<f64> {
    let build = ["--package", "asyncgate-ledger", "--example", "chain"];
    let binary = dist(&build)?.join("examples").join("chain");
    let told = process::output(&mut Command::new(binary))?;
    let micros = told.split(' ').next().and_then(|word| word.parse().ok());
    micros.with_context(|| format!("no time in what it told: {told}"))
}

/// Builds the server without the chain. Its dependencies stay built from one run to the next.
fn build_unchained() -> Result<PathBuf> {
    let folder = target()?.join("without-chain");
    let (source, built) = (folder.join("source"), folder.join("target"));
    if source.exists() {
        fs::remove_dir_all(&source)?;
    }
    copy(&process::root(), &source).context("cannot copy the source")?;
    let file = source.join(FILE);
    let text = fs::read_to_string(&file).with_context(|| format!("cannot read {FILE}"))?;
    if text.matches(LINE).count() != 1 {
        bail!("{FILE} has no single line `{LINE}`: say here which line keeps the chain now");
    }
    fs::write(&file, text.replace(LINE, INSTEAD))?;
    let mut command = process::cargo();
    command.current_dir(&source).env("CARGO_TARGET_DIR", &built);
    process::run(command.args([
        "build",
        "--profile",
        "dist",
        "--package",
        "asyncgate-server",
    ]))?;
    Ok(built.join("dist").join("asyncgate"))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        if LEFT_OUT.iter().any(|name| entry.file_name() == *name) {
            continue;
        }
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &to)?;
        } else {
            fs::copy(entry.path(), &to)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_that_keeps_the_chain_is_there() {
        let text = fs::read_to_string(process::root().join(FILE)).unwrap();
        assert_eq!(text.matches(LINE).count(), 1);
    }

    #[test]
    fn a_copy_leaves_out_what_is_built() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::create_dir_all(from.join("target/release")).unwrap();
        fs::create_dir_all(from.join("crates/a")).unwrap();
        fs::write(from.join("crates/a/lib.rs"), "x").unwrap();
        copy(&from, &to).unwrap();
        assert!(to.join("crates/a/lib.rs").exists() && !to.join("target").exists());
    }
}
