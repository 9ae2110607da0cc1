//! `cargo xtask bench soak`: every attack at once beside a quiet tenant, for long.
//!
//! At the end nothing that was acknowledged is lost, the data directory is whole, no answer was an error of the
//! server's own, and its memory was as large in the second half as in the first.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::{Args, ValueEnum as _};

use super::crowd::Outcome;
use super::keys::Keys;
use super::quiet::{self, Met};
use super::{Attack, Attackers, BESIDE_MIB, BUDGET, BUDGET_MIB};
use crate::bench::caller::Caller;
use crate::bench::load::http::Head;
use crate::bench::mailbox::workload::{deliveries, receive};
use crate::bench::report::{self, Figure, Section, Unit, median};
use crate::bench::server::Server;
use crate::bench::{Bench, SCRATCH};
use crate::process;

/// The part of the time that the server has to grow into its load.
const WARM_SHARE: f64 = 0.25;
/// By so much may memory grow from the first part after that to the last. An allocator's pages come and go.
const GROWTH: f64 = 1.15;
/// The quiet tenant lives in stretches of this length, so that memory is looked at in between.
const STRETCH: Duration = Duration::from_secs(10);
/// Attackers that write without end come in bursts, so that the disk has room for what they write: one in so many
/// stretches.
const BURST_EVERY: u32 = 6;
/// The time for which the quiet tenant keeps a message that it received.
const VISIBILITY: Duration = Duration::from_secs(60);

#[derive(Debug, Args)]
pub struct Options {
    /// How long to run
    #[arg(long, default_value_t = 30.0)]
    minutes: f64,
    /// Only these attacks
    #[arg(long, value_delimiter = ',')]
    only: Vec<Attack>,
    /// Try this binary instead of building one
    #[arg(long, value_name = "BINARY")]
    server: Option<PathBuf>,
    /// Keep the data here
    #[arg(long, default_value = SCRATCH)]
    dir: PathBuf,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

pub fn run(options: &Options) -> Result<()> {
    let bench = Bench::of(options.server.as_deref(), &options.dir, false)?;
    let attacks = match options.only.as_slice() {
        [] => Attack::value_variants(),
        chosen => chosen,
    };
    let settings = [&[BUDGET], Attack::Classes.settings()].concat();
    let (mut server, keys) = Keys::server(&bench, &settings)?;
    for attack in attacks {
        eprintln!("preparing {}", attack.name());
        attack.prepare(&bench, &server, &keys.loud)?;
    }
    let length = Duration::from_secs_f64(options.minutes * 60.0);
    let mut lived = endure(&server, &keys, attacks, length)?;
    lived.peak = server.peak_memory()?;

    eprintln!("ending the server, and looking at what it left");
    server.end()?;
    verify(&bench, &server)?;
    server.start_again(&bench.binary, &settings)?;
    keys.prove(&server)?;
    let lost = lost(&server, &keys.quiet, &lived.met)?;
    let section = section(&lived, lost, length);
    report::print(std::slice::from_ref(&section), false, options.json);
    ensure!(!section.is_missed(), "the soak failed");
    Ok(())
}

/// What happened in a run.
#[derive(Debug, Default)]
struct Lived {
    met: Met,
    cut_off: u64,
    /// Answers to attackers that a server must not give.
    bad: u64,
    answered: u64,
    /// Resident memory after each stretch, in bytes.
    memory: Vec<u64>,
    peak: u64,
}

/// Runs all attacks beside the quiet tenant.
fn endure(server: &Server, keys: &Keys, attacks: &[Attack], length: Duration) -> Result<Lived> {
    let mut lived = Lived::default();
    let stretches = (length.as_secs_f64() / STRETCH.as_secs_f64())
        .ceil()
        .max(1.0);
    let bursts = (stretches / f64::from(BURST_EVERY)).ceil() as u64;
    let start = |attack: Attack, requests| {
        let attackers = Attackers {
            attack,
            addr: server.addr,
            key: &keys.loud,
            connections: None,
            requests,
        };
        attackers.start()
    };
    let (bounded, endless): (Vec<Attack>, Vec<Attack>) = attacks
        .iter()
        .partition(|attack| attack.shape().bound.is_some());
    let began = Instant::now();
    let mut running = Vec::new();
    for attack in endless {
        running.push(start(attack, None)?);
    }
    for stretch in 0..stretches as u32 {
        let mut bursting = Vec::new();
        if stretch % BURST_EVERY == 0 {
            for &attack in &bounded {
                let requests = attack.shape().bound.map(|all| all.div_ceil(bursts));
                bursting.push(start(attack, requests)?);
            }
        }
        let left = length.saturating_sub(began.elapsed());
        match quiet::live(
            server.addr,
            &keys.quiet,
            STRETCH.min(left.max(Duration::from_secs(1))),
        ) {
            Ok(met) => lived.met.add(met),
            Err(error) => {
                eprintln!("  the quiet tenant was cut off: {error:#}");
                lived.cut_off += 1;
            }
        }
        for burst in bursting {
            lived.count(&burst.stop()?);
        }
        let (resident, _) = server.memory()?;
        lived.memory.push(resident);
        eprintln!(
            "  {:.0} s: {} MiB, refused {:?}",
            began.elapsed().as_secs_f64(),
            resident >> 20,
            lived.met.refused
        );
    }
    for attackers in running {
        lived.count(&attackers.stop()?);
    }
    Ok(lived)
}

impl Lived {
    fn count(&mut self, outcome: &Outcome) {
        self.bad += outcome.bad;
        self.answered += outcome.answers.values().sum::<u64>();
    }

    /// Returns by how much memory grew from the first third of the time to the last, once the server was warm.
    fn growth(&self) -> f64 {
        let warm = (self.memory.len() as f64 * WARM_SHARE) as usize;
        let warm: Vec<f64> = self.memory[warm..].iter().map(|&one| one as f64).collect();
        let third = warm.len().div_ceil(3);
        let (first, last) = (&warm[..third], &warm[warm.len() - third..]);
        median(last) / median(first)
    }
}

fn section(lived: &Lived, lost: u64, length: Duration) -> Section {
    let count = |name: &str, count: u64| Figure::new(name, count as f64, Unit::Count);
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let errors = lived.met.refused.range(500..);
    let errors: u64 = errors
        .filter(|(status, _)| **status != 503)
        .map(|(_, count)| count)
        .sum();
    let mut figures = vec![
        count("answers to attackers", lived.answered),
        count("of them 5xx that are not 503 with Retry-After", lived.bad).at_most(0.0),
        count("quiet calls refused", lived.met.refusals()),
        count("of them 5xx that are not 503", errors).at_most(0.0),
        count("times that the quiet tenant was cut off", lived.cut_off).at_most(0.0),
        count(
            "creates acknowledged",
            lived.met.acknowledged.tasks.len() as u64,
        ),
        count("acknowledged and lost", lost).at_most(0.0),
        Figure::new("most resident memory", mib(lived.peak), Unit::MiB)
            .at_most(BUDGET_MIB + BESIDE_MIB),
        Figure::new(
            "growth of memory, first third to last",
            lived.growth(),
            Unit::Times,
        )
        .at_most(GROWTH),
    ];
    figures.push(Figure::new(
        "quiet rounds finished of those due",
        lived.met.finished(),
        Unit::Percent,
    ));
    for (call, kind) in quiet::REPORTED {
        figures.push(Figure::latency(
            format!("{call} p99"),
            lived.met.quantile(kind, 0.99),
        ));
    }
    let how = format!(
        "Every attack of `neighbours` at once beside the quiet tenant for {:.1} minutes. Attackers that write come in bursts, \
         so that the disk has room for what they write. Then the server ends, `asyncgate verify --data-dir` finds its data \
         whole, and everything that it acknowledged is there after a start.",
        length.as_secs_f64() / 60.0
    );
    Section {
        id: "soak",
        how,
        figures,
    }
}

fn verify(bench: &Bench, server: &Server) -> Result<()> {
    let mut command = Command::new(&bench.binary);
    command
        .args(["verify", "--data-dir"])
        .arg(server.data_dir());
    let told = process::output(&mut command)?;
    eprintln!("{}", told.trim_end());
    Ok(())
}

/// Counts the acknowledged tasks and messages that the server does not have any more.
fn lost(server: &Server, key: &str, met: &Met) -> Result<u64> {
    let head = Head::new(&server.addr.to_string(), key);
    let mut caller = Caller::connect(server.addr)?;
    let mut lost = 0;
    for id in &met.acknowledged.tasks {
        caller.send(&head.get(&format!("/v1/tasks/{id}")))?;
        lost += u64::from(caller.answer(200).is_err());
    }
    let mut missing = met.acknowledged.messages.clone();
    let began = Instant::now();
    // A message that was handed over before the end comes back when its visibility is over.
    while !missing.is_empty() && began.elapsed() < VISIBILITY + STRETCH {
        caller.send(&receive(&head, 32, 3_600_000, 1))?;
        for delivery in deliveries(&caller.answer(200)?)? {
            missing.remove(&delivery.id);
        }
    }
    for id in &missing {
        eprintln!("  message {id} was acknowledged and is not there");
    }
    Ok(lost + missing.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_seen_and_a_warm_server_has_none() {
        let lived = |memory: Vec<u64>| Lived {
            memory,
            ..Lived::default()
        };
        let flat = lived([vec![10, 50, 90], vec![100; 9]].concat());
        assert!((flat.growth() - 1.0).abs() < 1e-9);
        let growing = lived((1..=12).map(|n| n * 10).collect());
        assert!(growing.growth() > 1.5);
    }
}
