//! Creates and cycles on a server that knows ten thousand tenants with a key each, beside an empty server.

use std::time::Duration;

use anyhow::{Context, Result};

use super::admin::Admin;
use crate::bench::caller::Caller;
use crate::bench::cost::{Costs, Measured};
use crate::bench::load::http::Head;
use crate::bench::load::{Plan, Then, Workload};
use crate::bench::report::{Figure, Section, Unit, median, thousands};
use crate::bench::server::Server;
use crate::bench::workload::{Create, Cycle, create_body, expect};
use crate::bench::{Bench, CONNECTIONS};

const TENANTS: usize = 10_000;
const QUICK_TENANTS: usize = 500;
/// A difference of a few percent needs more rounds than a rate does.
const ROUNDS: usize = 11;
const QUICK_ROUNDS: usize = 3;
/// The rounds in which the tenants create tasks themselves.
const SPREAD_ROUNDS: usize = 3;
/// The part of its rate that a server with tenants may lose.
const ASKED: f64 = 5.0;

/// Cheap hashes: ten thousand of the usual ones would take a quarter of an hour, and no request that is measured makes one.
const CHEAP: [(&str, &str); 2] = [
    ("ASYNCGATE_SECURITY_API_KEYS_HASH_MEMORY_COST", "8192"),
    ("ASYNCGATE_SECURITY_API_KEYS_HASH_TIME_COST", "1"),
];

pub fn run(bench: &Bench) -> Result<Section> {
    let tenants = if bench.quick { QUICK_TENANTS } else { TENANTS };
    let rounds = if bench.quick { QUICK_ROUNDS } else { ROUNDS };
    let (empty, full) = (bench.server_with(&CHEAP)?, bench.server_with(&CHEAP)?);
    let keys = fill(&full, tenants)?;
    let mut pairs = [Pairs::default(), Pairs::default()];
    let mut spread = Vec::new();
    for round in 0..rounds {
        eprintln!("tenants, round {} of {rounds}", round + 1);
        for (pairs, work) in pairs.iter_mut().zip([create, cycle]) {
            // Whoever comes first changes with each round.
            if round % 2 == 0 {
                pairs.empty.push(work(bench, &empty)?);
                pairs.full.push(work(bench, &full)?);
            } else {
                pairs.full.push(work(bench, &full)?);
                pairs.empty.push(work(bench, &empty)?);
            }
        }
    }
    // Only after the rounds, so that both servers hold as many tasks until then.
    for _ in 0..SPREAD_ROUNDS {
        spread.push(measure(bench, &full, &mut Spread::new(&full, &keys))?.rate);
    }
    let [creates, cycles] = &pairs;
    let mut figures = creates.figures("creates");
    figures.extend(cycles.figures("cycles"));
    figures.push(Figure::new(
        "creates, each for the next tenant with its own key",
        median(&spread),
        Unit::PerSecond,
    ));
    let how = format!(
        "A server with {} tenants that have a key each, and an empty one, in turns, {rounds} rounds: creates and cycles with \
         the shared key on {CONNECTIONS} connections, as above. A loss is the median of the losses within the rounds.",
        thousands(tenants as f64)
    );
    Ok(Section {
        id: "tenants",
        how,
        figures,
    })
}

/// Makes tenants with a key each, and uses each key once.
fn fill(server: &Server, tenants: usize) -> Result<Vec<String>> {
    let mut admin = Admin::connect(server)?;
    let mut keys = Vec::with_capacity(tenants);
    let mut caller = Caller::connect(server.addr)?;
    for number in 1..=tenants {
        let tenant = admin.tenant(&format!("tenant-{number}"))?;
        let key = admin.key(Some(&tenant))?;
        let head = Head::new(&server.addr.to_string(), &key);
        caller.send(&head.get("/v1/whoami"))?;
        caller.answer(200).context("the first use of a key")?;
        keys.push(key);
        if number % 1_000 == 0 {
            eprintln!("  {number} of {tenants} tenants");
        }
    }
    Ok(keys)
}

fn create(bench: &Bench, server: &Server) -> Result<Measured> {
    measure(bench, server, &mut Create::echo(&server.head()))
}

fn cycle(bench: &Bench, server: &Server) -> Result<Measured> {
    measure(bench, server, &mut Cycle::new(&server.head(), CONNECTIONS))
}

fn measure(bench: &Bench, server: &Server, workload: &mut impl Workload) -> Result<Measured> {
    let mut costs = Costs::default();
    let plan = Plan::closed(CONNECTIONS, Duration::ZERO, bench.seconds(4, 2));
    let rate = costs.measure(server, plan, workload)?.per_second();
    eprintln!("  {rate:.0}/s");
    Ok(Measured {
        rate,
        cost: costs.server(),
    })
}

/// One sort of work on both servers, round by round.
#[derive(Debug, Default)]
struct Pairs {
    empty: Vec<Measured>,
    full: Vec<Measured>,
}

impl Pairs {
    fn figures(&self, what: &str) -> Vec<Figure> {
        let rates = |of: &[Measured]| median(&of.iter().map(|one| one.rate).collect::<Vec<_>>());
        let losses = |lost: fn(&Measured, &Measured) -> f64| {
            let pairs = self.full.iter().zip(&self.empty);
            median(
                &pairs
                    .map(|(full, empty)| lost(full, empty))
                    .collect::<Vec<_>>(),
            )
        };
        let slower = losses(|full, empty| 100.0 * (1.0 - full.rate / empty.rate));
        let costlier = losses(|full, empty| 100.0 * (full.cost / empty.cost - 1.0));
        vec![
            Figure::new(
                format!("{what}, empty"),
                rates(&self.empty),
                Unit::PerSecond,
            ),
            Figure::new(
                format!("{what}, with tenants"),
                rates(&self.full),
                Unit::PerSecond,
            ),
            Figure::new(format!("{what}: fewer per second"), slower, Unit::Percent).at_most(ASKED),
            Figure::new(
                format!("{what}: more processor time"),
                costlier,
                Unit::Percent,
            ),
        ]
    }
}

/// Creates tasks, each for the next tenant.
struct Spread {
    requests: Vec<Vec<u8>>,
    next: usize,
}

impl Spread {
    fn new(server: &Server, keys: &[String]) -> Self {
        let host = server.addr.to_string();
        let request = |key: &String| Head::new(&host, key).post("/v1/tasks", &create_body(""));
        Self {
            requests: keys.iter().map(request).collect(),
            next: 0,
        }
    }
}

impl Workload for Spread {
    fn kinds(&self) -> &'static [&'static str] {
        &["create"]
    }

    fn request(&mut self, _connection: usize, out: &mut Vec<u8>) -> Option<usize> {
        let request = self.requests.get(self.next % self.requests.len())?;
        self.next += 1;
        out.extend_from_slice(request);
        Some(0)
    }

    fn answer(&mut self, _: usize, _: usize, status: u16, body: &[u8]) -> Result<Then> {
        expect(201, status, body)?;
        Ok(Then::Finished)
    }
}
