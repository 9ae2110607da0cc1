//! Receipts verified per second: a real server's ledger, exported and verified as a user would.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::bench::load::{Plan, drive};
use crate::bench::report::{Figure, Section, Unit, median};
use crate::bench::server::KEY;
use crate::bench::workload::Cycle;
use crate::bench::{Bench, CONNECTIONS, ROUNDS};
use crate::process;

/// The receipts of a cycle: assigned, accepted, completed, result ready.
const RECEIPTS_PER_CYCLE: u64 = 4;

pub fn run(bench: &Bench) -> Result<Section> {
    let receipts: u64 = if bench.quick { 40_000 } else { 500_000 };
    let folder = bench.folder()?;
    let file = folder.path().join("ledger.ndjson");
    export(bench, receipts / RECEIPTS_PER_CYCLE, &file)?;
    let mut rates = Vec::new();
    let mut counted = 0;
    for round in 1..=ROUNDS {
        let start = Instant::now();
        counted = verify(bench, &file)?;
        let rate = counted as f64 / start.elapsed().as_secs_f64();
        eprintln!("verify, round {round} of {ROUNDS}: {rate:.0} receipts/s");
        rates.push(rate);
    }
    // Signatures of the head are receipts, too, so there may be more receipts than work, but not fewer.
    if counted < receipts {
        bail!("the verifier saw {counted} receipts of at least {receipts}");
    }
    let size = fs::metadata(&file)?.len() as f64 / f64::from(1 << 20);
    let figures = vec![
        Figure::new("receipts verified", median(&rates), Unit::PerSecond).at_least(200_000.0),
        Figure::new("receipts in the ledger", counted as f64, Unit::Count),
        Figure::new("size of the export", size, Unit::MiB),
    ];
    let how = "The ledger of a server that did full cycles, written by `asyncgate ledger export`, checked by \
               `asyncgate verify FILE` on all cores: every link, signature, parent and obligation, from starting the \
               process to its verdict. Median of the rounds; the file is in the page cache."
        .to_owned();
    Ok(Section {
        id: "verify",
        how,
        figures,
    })
}

/// Exports the ledger of a server. The server ends before the measurement and takes nothing from it.
fn export(bench: &Bench, cycles: u64, file: &Path) -> Result<()> {
    let server = bench.server()?;
    eprintln!("{cycles} cycles to verify");
    let mut workload = Cycle::new(&server.head(), CONNECTIONS).times(cycles);
    drive(server.addr, Plan::to_the_end(CONNECTIONS), &mut workload)?;
    eprintln!("exporting");
    let mut command = Command::new(&bench.binary);
    command.args(["ledger", "export"]).arg(file);
    process::run(command.args(["--url", &server.url(), "--key", KEY]))
}

/// Returns the number of verified receipts; a ledger that does not hold is an error.
fn verify(bench: &Bench, file: &Path) -> Result<u64> {
    let mut command = Command::new(&bench.binary);
    let told = process::output(command.arg("verify").arg(file).arg("--json"))?;
    let reports: Value = serde_json::from_str(&told).context("`verify --json` printed no JSON")?;
    let count = reports[0]["receipts"].as_u64();
    count.with_context(|| format!("a report without a number of receipts: {told}"))
}
