//! `cargo xtask bench neighbours`: a quiet tenant beside each attack that another tenant, or a stranger, can think of.
//!
//! Attackers run in a process of their own at a lower priority. In the world they have machines of their own; here
//! they would take the processor from the server, and everybody's latencies would tell of that.

mod attack;
mod crowd;
mod frames;
mod keys;
mod quiet;
mod soak;

pub use attack::Attack;
pub use soak::{Options as SoakOptions, run as soak};

use std::io::Read as _;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum as _};

use self::crowd::Outcome;
use self::keys::Keys;
use super::load::http::Head;
use super::load::{Plan, drive};
use super::report::{Figure, Section, Unit};
use super::server::Server;
use super::workload::Cycle;
use super::{Bench, Options, machine};
use crate::process;

/// The memory for bodies and answers under way, and what the process may take beside it.
const BUDGET_MIB: f64 = 256.0;
const BESIDE_MIB: f64 = 200.0;
const BUDGET: (&str, &str) = ("ASYNCGATE_LIMITS_MEMORY_BUDGET", "256MiB");
/// A latency beside an attack may be so many times that alone, and so long at most.
const TIMES: f64 = 5.0;
const LONGEST_MS: f64 = 50.0;
/// The number of connections that make the same calls in an ordinary way.
const FEW: usize = 4;
const CLAIM_KIND: usize = 1;
/// The part of its rounds that the quiet tenant must finish, in percent.
const FINISHED: f64 = 95.0;

pub fn run(options: &Options<Attack>) -> Result<()> {
    let bench = Bench::open(options)?;
    let mut sections = vec![machine::section(bench.scratch.path())?];
    let mut figures = Vec::new();
    for &attack in Attack::value_variants() {
        if options.wants(attack) {
            eprintln!("{}", attack.name());
            figures.extend(beside(&bench, attack)?);
        }
    }
    let how = format!(
        "A quiet tenant makes 50 rounds of calls a second over 32 connections, timed from when they were due, and comes 20 times \
         a second on a new connection: first alone, then beside the attack of another tenant or of strangers, who come \
         from another address, run at a lower priority and ignore every refusal. A latency beside an attack may be {TIMES} times that alone and {LONGEST_MS} \
         ms. `limits.memory_budget` is {BUDGET_MIB} MiB; other settings are defaults, but for `fill`, which needs less room to \
         fill, and `classes`, which needs more than a tenant may have. The attacker's rate counts successful answers; the same calls from {FEW} connections are its ordinary rate."
    );
    sections.push(Section {
        id: "neighbours",
        how,
        figures,
    });
    options.publish(&sections)
}

/// Measures the quiet tenant alone and beside one attack, on one server.
fn beside(bench: &Bench, attack: Attack) -> Result<Vec<Figure>> {
    let name = attack.name();
    let settings = [&[BUDGET], attack.settings()].concat();
    let (server, keys) = Keys::server(bench, &settings)?;
    let own = || own_claims(bench, &server, &keys.loud);
    let one_class = (attack == Attack::Classes).then(own).transpose()?;
    attack.prepare(bench, &server, &keys.loud)?;
    settle()?;
    let mut figures = Vec::new();
    if let Some(one) = one_class {
        let many = own()?;
        figures.push(Figure::latency(
            format!("{name}: the attacker's own claim p50, one class"),
            one,
        ));
        let ratio = many.as_secs_f64() / one.as_secs_f64();
        let figure = Figure::new(format!("{name}: 50,000 classes to one"), ratio, Unit::Times);
        figures.push(figure.at_most(1.5));
    }
    let alone = quiet::live(server.addr, &keys.quiet, bench.seconds(10, 4))?;
    let at = |connections: Option<usize>| Attackers {
        attack,
        addr: server.addr,
        key: &keys.loud,
        connections,
        requests: None,
    };
    let rates = match attack.shape().has_rate {
        true => {
            let few = at(Some(FEW)).start()?.after(bench.seconds(6, 2))?;
            let all = at(None).start()?.after(bench.seconds(6, 2))?;
            Some((few.per_second(), all.per_second()))
        }
        false => None,
    };
    let attackers = at(None).start()?;
    // The attack is under way when the measurement begins.
    thread::sleep(bench.seconds(3, 1));
    let met = quiet::live(server.addr, &keys.quiet, bench.seconds(20, 5));
    let attacked = attackers.stop()?;
    eprintln!(
        "  attack: {:?}, {} connections",
        attacked.answers, attacked.opened
    );
    figures.extend(quiet_figures(&name, &alone, met));
    if let Some((few, all)) = rates {
        let rate = |what: &str, value| {
            Figure::new(
                format!("{name}: attacker's rate, {what}"),
                value,
                Unit::PerSecond,
            )
        };
        figures.extend([
            rate("alone from few connections", few),
            // Nothing at all would be half of nothing.
            rate("alone", all).at_least((few / 2.0).max(1.0)),
            rate("beside the quiet tenant", attacked.per_second()),
        ]);
    }
    // An attack that did not take place would show nothing.
    let connections = attack.shape().connections as f64;
    let opened = attacked.opened as f64;
    let opened = Figure::new(format!("{name}: connections opened"), opened, Unit::Count);
    figures.push(opened.at_least(connections));
    let peak = server.peak_memory()? as f64 / f64::from(1 << 20);
    figures.extend([
        Figure::new(
            format!("{name}: answers 5xx that are not 503 with Retry-After"),
            attacked.bad as f64,
            Unit::Count,
        )
        .at_most(0.0),
        Figure::new(format!("{name}: most resident memory"), peak, Unit::MiB)
            .at_most(BUDGET_MIB + BESIDE_MIB),
    ]);
    Ok(figures)
}

/// Waits until the disk has what was written before: the data of the attack before this one is being deleted, and others'
/// syncs wait for that.
fn settle() -> Result<()> {
    process::run(&mut Command::new("sync"))
}

/// Returns the figures of the quiet tenant. A run that broke off has one, which says so.
fn quiet_figures(name: &str, alone: &quiet::Met, met: Result<quiet::Met>) -> Vec<Figure> {
    let met = match met {
        Ok(met) => met,
        Err(error) => {
            eprintln!("  the quiet tenant was cut off: {error:#}");
            let figure = Figure::new(
                format!("{name}: quiet tenants that were cut off"),
                1.0,
                Unit::Count,
            );
            return vec![figure.at_most(0.0)];
        }
    };
    let ms = |latency: Duration| latency.as_secs_f64() * 1e3;
    let mut figures = Vec::new();
    for (call, kind) in quiet::REPORTED {
        let quantiles = |met: &quiet::Met| (met.quantile(kind, 0.5), met.quantile(kind, 0.99));
        let ((p50, p99), (p50_alone, p99_alone)) = (quantiles(&met), quantiles(alone));
        eprintln!(
            "  {call}: p50 {:.2} ms, p99 {:.2} ms; alone {:.2} and {:.2} ms",
            ms(p50),
            ms(p99),
            ms(p50_alone),
            ms(p99_alone)
        );
        let told = format!(
            "{name}: {call} p99 (p50 {:.2} ms; alone p99 {:.2} ms, p50 {:.2} ms)",
            ms(p50),
            ms(p99_alone),
            ms(p50_alone)
        );
        let asked = (TIMES * ms(p99_alone)).min(LONGEST_MS);
        figures.push(Figure::latency(told, p99).at_most(asked));
    }
    if met.refusals() > 0 {
        eprintln!("  refused: {:?}", met.refused);
    }
    let finished = Figure::new(
        format!("{name}: quiet rounds finished of those due"),
        met.finished(),
        Unit::Percent,
    );
    figures.push(finished.at_least(FINISHED));
    let refused = Figure::new(
        format!("{name}: quiet calls refused"),
        met.refusals() as f64,
        Unit::Count,
    );
    figures.push(refused.at_most(0.0));
    figures
}

/// Returns the median of a tenant's own claims, each after a create, so that there is something to claim.
fn own_claims(bench: &Bench, server: &Server, key: &str) -> Result<Duration> {
    let head = Head::new(&server.addr.to_string(), key);
    let mut cycle = Cycle::new(&head, 1);
    let plan = Plan::closed(1, bench.seconds(1, 1), bench.seconds(6, 2));
    let tally = drive(server.addr, plan, &mut cycle)?;
    Ok(tally.latencies[CLAIM_KIND].quantile(0.5))
}

/// An attack to be started.
#[derive(Clone, Copy, Debug)]
struct Attackers<'a> {
    attack: Attack,
    addr: SocketAddr,
    key: &'a str,
    connections: Option<usize>,
    requests: Option<u64>,
}

impl Attackers<'_> {
    fn start(self) -> Result<Running> {
        let mut command = Command::new("nice");
        command
            .args(["-n", "10"])
            .arg(std::env::current_exe()?)
            .args(["bench", "attack", &self.attack.name()])
            .args(["--addr", &self.addr.to_string()])
            // Not as an argument: those are shown to everybody on the machine.
            .env(KEY_VARIABLE, self.key)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if let Some(connections) = self.connections {
            command.args(["--connections", &connections.to_string()]);
        }
        if let Some(requests) = self.requests {
            command.args(["--requests", &requests.to_string()]);
        }
        let child = command.spawn().context("cannot start the attackers")?;
        Ok(Running { child })
    }
}

const KEY_VARIABLE: &str = "ASYNCGATE_BENCH_KEY";

/// Attackers at work. They stop when their stdin is closed, also if this process is killed.
#[derive(Debug)]
struct Running {
    child: Child,
}

impl Running {
    fn after(self, length: Duration) -> Result<Outcome> {
        thread::sleep(length);
        self.stop()
    }

    fn stop(mut self) -> Result<Outcome> {
        drop(self.child.stdin.take());
        let mut told = String::new();
        let stdout = self.child.stdout.take().context("no stdout")?;
        std::io::BufReader::new(stdout).read_to_string(&mut told)?;
        let status = self.child.wait()?;
        if !status.success() {
            bail!("the attackers ended with {status}");
        }
        Outcome::parse(&told)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // They may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[derive(Debug, Args)]
pub struct AttackOptions {
    attack: Attack,
    #[arg(long)]
    addr: SocketAddr,
    #[arg(long)]
    connections: Option<usize>,
    #[arg(long)]
    requests: Option<u64>,
}

/// The longest attack, whatever becomes of the process that started it.
const LONGEST_ATTACK: Duration = Duration::from_secs(2 * 3600);

/// Attacks until stdin is closed, and prints what became of it.
pub fn attack(options: &AttackOptions) -> Result<()> {
    if !options.addr.ip().is_loopback() {
        bail!("only a server on this machine may be attacked");
    }
    let key = std::env::var(KEY_VARIABLE).context("there is no key")?;
    let stop = Arc::new(AtomicBool::new(false));
    let closed = Arc::clone(&stop);
    thread::spawn(move || {
        drop(std::io::stdin().read_to_end(&mut Vec::new()));
        closed.store(true, Ordering::Relaxed);
    });
    let mut crowd = options.attack.crowd(options.addr, &key);
    crowd.connections = options.connections.unwrap_or(crowd.connections);
    crowd.left = options.requests.unwrap_or(crowd.left);
    let outcome = crowd::unleash(options.addr, crowd, LONGEST_ATTACK, &stop)?;
    println!("{}", outcome.json());
    Ok(())
}
