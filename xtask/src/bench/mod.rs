//! `cargo xtask bench`: measures the figures that the product promises, on the build that is handed out (`--profile dist`) over HTTP
//! with every commit fsynced, beside peers on the same machine in the same run.
//!
//! Each part has its own file. The parts that compare rates run in turns, three rounds of each, and
//! report medians, because the speed of a shared machine drifts.

mod admission;
mod auth;
mod batch;
mod caller;
mod cost;
mod create;
mod cycle;
mod family;
mod flat;
mod histogram;
mod load;
mod machine;
mod mailbox;
mod neighbours;
mod peers;
mod proof;
mod report;
mod server;
mod steady;
mod turns;
mod wake;
mod workload;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, Subcommand, ValueEnum};
use tempfile::TempDir;

use self::report::Section;
use self::server::Server;
use crate::process;

const ROUNDS: usize = 3;
const CONNECTIONS: usize = 64;

/// The folder for data. The usual folder for temporary files may live in memory, where fsync costs nothing.
const SCRATCH: &str = "/var/tmp";

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Tasks: create, claim, complete, wait
    Tasks(Options<Part>),
    /// The work of tasks by other programs, one at a time and in batches
    Peers(Options<peers::Part>),
    /// Messages: send, receive, acknowledge, wait
    Mailbox(Options<mailbox::Part>),
    /// Proof: the verifier, the simulator, the client and the worker, the hash chain
    Proof(Options<proof::Part>),
    /// Admission: decisions within the process and over HTTP, warrants, ten million keys
    Admission(Options<admission::Part>),
    /// Credentials beside the shared key, the first use of a key, many tenants, TLS handshakes
    Auth(Options<auth::Part>),
    /// A quiet tenant beside attacks by another one, and beside strangers
    Neighbours(Options<neighbours::Attack>),
    /// All attacks at once beside a quiet tenant, for long: nothing acknowledged is lost, and memory stays flat
    Soak(neighbours::SoakOptions),
    /// The attacker's side of `neighbours` and `soak`, which start it
    #[command(hide = true)]
    Attack(neighbours::AttackOptions),
    /// Two servers in turns: by how much the second is quicker or slower than the first
    Turns(turns::Options),
}

/// The options of every benchmark; `P` are its parts.
#[derive(Debug, Args)]
pub struct Options<P: Choice> {
    /// Shorter runs on less data; docs/BENCHMARKS.md stays as it is
    #[arg(long)]
    quick: bool,
    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,
    /// Only these parts
    #[arg(long, value_delimiter = ',')]
    only: Vec<P>,
    /// Measure this binary instead of building one
    #[arg(long, value_name = "BINARY")]
    server: Option<PathBuf>,
    /// Keep the data here while measuring
    #[arg(long, default_value = SCRATCH)]
    dir: PathBuf,
}

/// A part that can be chosen by its name.
pub trait Choice: ValueEnum + PartialEq + Send + Sync + 'static {}

impl<P: ValueEnum + PartialEq + Send + Sync + 'static> Choice for P {}

impl<P: Choice> Options<P> {
    fn wants(&self, part: P) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }

    /// Prints the figures, and writes them into the document unless it was a quick run.
    fn publish(&self, sections: &[Section]) -> Result<()> {
        report::print(sections, self.quick, self.json);
        if !self.quick {
            report::rewrite(&process::root().join("docs/BENCHMARKS.md"), sections)?;
            eprintln!("docs/BENCHMARKS.md rewritten");
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    Create,
    Cycle,
    Batch,
    Flat,
    Steady,
    Wake,
}

/// The things that every part needs.
#[derive(Debug)]
pub struct Bench {
    binary: PathBuf,
    scratch: TempDir,
    quick: bool,
}

impl Bench {
    /// Builds the server, unless one is given, and makes room for its data.
    fn open<P: Choice>(options: &Options<P>) -> Result<Self> {
        Self::of(options.server.as_deref(), &options.dir, options.quick)
    }

    fn of(server: Option<&Path>, dir: &Path, quick: bool) -> Result<Self> {
        let binary = match server {
            Some(path) => path
                .canonicalize()
                .with_context(|| format!("no binary at {}", path.display()))?,
            None => server::build()?,
        };
        Ok(Self {
            binary,
            scratch: open_folder(dir)?,
            quick,
        })
    }

    /// Starts a fresh server on an empty directory.
    fn server(&self) -> Result<Server> {
        self.server_with(&[])
    }

    /// Starts a fresh server on an empty directory, with these settings in its environment.
    fn server_with(&self, settings: &[(&str, &str)]) -> Result<Server> {
        Server::start(&self.binary, self.scratch.path(), settings)
    }

    fn folder(&self) -> Result<TempDir> {
        open_folder(self.scratch.path())
    }

    /// Returns a duration in seconds, by scale.
    fn seconds(&self, full: u64, quick: u64) -> Duration {
        Duration::from_secs(if self.quick { quick } else { full })
    }
}

pub fn run(command: &Command) -> Result<()> {
    if cfg!(debug_assertions) {
        return again_optimised();
    }
    match command {
        Command::Tasks(options) => tasks(options),
        Command::Peers(options) => peers::run(options),
        Command::Mailbox(options) => mailbox::run(options),
        Command::Proof(options) => proof::run(options),
        Command::Admission(options) => admission::run(options),
        Command::Auth(options) => auth::run(options),
        Command::Neighbours(options) => neighbours::run(options),
        Command::Soak(options) => neighbours::soak(options),
        Command::Attack(options) => neighbours::attack(options),
        Command::Turns(options) => turns::run(options),
    }
}

fn tasks(options: &Options<Part>) -> Result<()> {
    let wants = |part| options.wants(part);
    let bench = Bench::open(options)?;
    let mut sections = vec![machine::section(bench.scratch.path())?];
    let rates = in_turns(&bench, &wants, &mut sections)?;
    if wants(Part::Wake) {
        sections.push(wake::run(&bench)?);
    }
    if wants(Part::Steady) {
        sections.push(steady::run(&bench, rates)?);
    }
    if wants(Part::Flat) {
        sections.push(flat::run(&bench)?);
    }
    options.publish(&sections)
}

/// Runs the parts that compare rates: a round of each, then the next round. Returns the cycles per second.
fn in_turns(
    bench: &Bench,
    wants: &impl Fn(Part) -> bool,
    sections: &mut Vec<Section>,
) -> Result<Option<f64>> {
    let mut create = wants(Part::Create).then(create::Rounds::default);
    let mut batch = wants(Part::Batch).then(batch::Rounds::default);
    let mut cycle = wants(Part::Cycle).then(cycle::Rounds::default);
    for round in 1..=ROUNDS {
        if create.is_some() || cycle.is_some() || batch.is_some() {
            eprintln!("round {round} of {ROUNDS}");
        }
        if let Some(rounds) = &mut create {
            rounds.run(bench)?;
        }
        if let Some(rounds) = &mut cycle {
            rounds.run(bench)?;
        }
        if let Some(rounds) = &mut batch {
            rounds.run(bench)?;
        }
    }
    sections.extend(create.map(|rounds| rounds.section()));
    sections.extend(cycle.as_ref().map(cycle::Rounds::section));
    sections.extend(batch.map(|rounds| rounds.section()));
    Ok(cycle.map(|rounds| rounds.rate()))
}

/// Starts this command again, optimised: an unoptimised load generator would take the processor from the
/// server that it measures.
fn again_optimised() -> Result<()> {
    let mut command = process::cargo();
    command.current_dir(std::env::current_dir()?);
    command.args([
        "run",
        "--quiet",
        "--profile",
        "dist",
        "--package",
        "xtask",
        "--manifest-path",
    ]);
    command
        .arg(process::root().join("Cargo.toml"))
        .arg("--")
        .args(std::env::args_os().skip(1));
    // It has already printed what went wrong.
    let status = command.status().context("cannot start cargo")?;
    std::process::exit(status.code().unwrap_or(1));
}

/// Creates a folder that is removed with its owner and that the user `postgres` may walk through.
fn open_folder(parent: &Path) -> Result<TempDir> {
    tempfile::Builder::new()
        .prefix("asyncgate-bench-")
        .permissions(std::fs::Permissions::from_mode(0o755))
        .tempdir_in(parent)
        .with_context(|| format!("cannot create a folder in {}", parent.display()))
}
