//! `POST /v1/limits/check` beside a handler that does nothing, on the same connections in the same run.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::bench::cost::{Costs, Measured};
use crate::bench::histogram::Histogram;
use crate::bench::load::http::{self, Head};
use crate::bench::load::{Plan, Then, Workload, drive};
use crate::bench::report::{Figure, Section, Unit, median};
use crate::bench::server::{KEY, dist};
use crate::bench::{Bench, CONNECTIONS, ROUNDS};

/// A bucket that nobody empties.
const POLICIES: (&str, &str) = (
    "ASYNCGATE_LIMITS_POLICIES",
    r#"{"bench": {"kind": "token_bucket", "capacity": 1000000000, "refill_per_minute": 1000000}}"#,
);
const IN_MEMORY: (&str, &str) = ("ASYNCGATE_STORE", "memory");
/// The number of keys that are asked about in turn.
const KEYS: usize = 10_000;

pub fn run(bench: &Bench) -> Result<Section> {
    let build = ["--package", "asyncgate-server", "--example", "bare"];
    let bare = Bare::start(dist(&build)?.join("examples").join("bare"))?;
    let (mut bares, mut ratios) = (Vec::new(), Vec::new());
    let (mut memory, mut disk) = (Checks::default(), Checks::default());
    for round in 1..=ROUNDS {
        eprintln!("limits, round {round} of {ROUNDS}");
        let warm = bench.seconds(1, 1);
        let plan = Plan::closed(CONNECTIONS, warm, bench.seconds(6, 2));
        let head = Head::new(&bare.addr.to_string(), KEY);
        let rate = drive(bare.addr, plan, &mut Check::new(head))?.per_second();
        eprintln!("  bare: {rate:.0}/s");
        bares.push(rate);
        ratios.push(100.0 * memory.run(bench, &[POLICIES, IN_MEMORY])? / rate);
        disk.run(bench, &[POLICIES])?;
    }
    let p99 = |checks: &Checks| checks.latencies.quantile(0.99);
    let mut figures = vec![
        Figure::new("bare axum handler", median(&bares), Unit::PerSecond),
        Figure::new("limits/check", median(&memory.rates), Unit::PerSecond),
        Figure::new("of the bare handler", median(&ratios), Unit::Percent).at_least(60.0),
        Figure::latency("limits/check p50", memory.latencies.quantile(0.5)),
        Figure::latency("limits/check p99", p99(&memory)).at_most(5.0),
        Figure::latency("limits/check max", memory.latencies.max()),
    ];
    figures.extend(memory.costs.figures("check"));
    figures.extend([
        Figure::new(
            "limits/check on SQLite, written behind",
            median(&disk.rates),
            Unit::PerSecond,
        ),
        Figure::latency("limits/check p99 on SQLite, written behind", p99(&disk)),
    ]);
    let how = format!(
        "One token bucket check per request, {KEYS} keys in turn, {CONNECTIONS} connections, closed loop, `store = memory`. \
         The bare handler (`crates/server/examples/bare.rs`) reads the body and answers with as many bytes, without a \
         credential, JSON or a decision, on the same runtime and allocator. In turns; rates are medians of the rounds, the \
         ratio is the median of the ratios within a round, latencies come from all rounds."
    );
    Ok(Section {
        id: "limits",
        how,
        figures,
    })
}

/// Measures one round of checks on the store in memory.
pub fn checks(bench: &Bench) -> Result<Measured> {
    let mut checks = Checks::default();
    Ok(Measured {
        rate: checks.run(bench, &[POLICIES, IN_MEMORY])?,
        cost: checks.costs.server(),
    })
}

/// Checks per second, their latencies and their costs, by round.
#[derive(Debug, Default)]
struct Checks {
    rates: Vec<f64>,
    latencies: Histogram,
    costs: Costs,
}

impl Checks {
    fn run(&mut self, bench: &Bench, settings: &[(&str, &str)]) -> Result<f64> {
        let server = bench.server_with(settings)?;
        let plan = Plan::closed(CONNECTIONS, Duration::ZERO, bench.seconds(6, 2));
        let mut check = Check::new(server.head());
        let tally = self.costs.measure(&server, plan, &mut check)?;
        let rate = tally.per_second();
        eprintln!("  limits/check: {rate:.0}/s");
        self.rates.push(rate);
        self.latencies.merge(&tally.all());
        Ok(rate)
    }
}

/// Asks about one key after the other.
struct Check {
    head: Head,
    keys: Vec<String>,
    next: usize,
}

impl Check {
    fn new(head: Head) -> Self {
        let keys = (0..KEYS).map(|key| format!("client-{key:05}")).collect();
        Self {
            head,
            keys,
            next: 0,
        }
    }
}

impl Workload for Check {
    fn kinds(&self) -> &'static [&'static str] {
        &["check"]
    }

    fn request(&mut self, _connection: usize, out: &mut Vec<u8>) -> Option<usize> {
        let key = &self.keys[self.next % KEYS];
        self.next += 1;
        let body = [r#"{"policy":"bench","key":""#, key, r#""}"#];
        self.head.write_post(out, &["/v1/limits/check"], &body);
        Some(0)
    }

    fn answer(
        &mut self,
        _connection: usize,
        _kind: usize,
        status: u16,
        body: &[u8],
    ) -> Result<Then> {
        if status != 200 || !body.starts_with(br#"{"allowed":true"#) {
            bail!("not allowed, but {status}: {}", http::shown(body));
        }
        Ok(Then::Finished)
    }
}

/// A server that does nothing but HTTP.
#[derive(Debug)]
struct Bare {
    child: Child,
    addr: SocketAddr,
}

impl Bare {
    fn start(binary: std::path::PathBuf) -> Result<Self> {
        let mut child = Command::new(&binary)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", binary.display()))?;
        match address(&mut child) {
            Ok(addr) => Ok(Self { child, addr }),
            Err(error) => {
                drop(child.kill());
                drop(child.wait());
                Err(error)
            }
        }
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn address(child: &mut Child) -> Result<SocketAddr> {
    let mut line = String::new();
    let stdout = child.stdout.take().context("no stdout")?;
    BufReader::new(stdout).read_line(&mut line)?;
    let addr = line.trim().strip_prefix("listening on http://");
    let addr = addr.with_context(|| format!("it told no address, but {line:?}"))?;
    addr.parse()
        .with_context(|| format!("not an address: {addr}"))
}
