//! Requests with each kind of credential, beside the shared key on the same server in the same minutes.

use std::time::Duration;

use anyhow::{Context, Result};

use super::admin::{Admin, PRINCIPAL};
use super::login;
use crate::bench::caller::Caller;
use crate::bench::cost::{Costs, Measured};
use crate::bench::load::http::{self, Head};
use crate::bench::load::{Plan, Then, Workload};
use crate::bench::report::{Figure, Section, Unit, median};
use crate::bench::server::{KEY, Server};
use crate::bench::workload::{Create, create_body, expect};
use crate::bench::{Bench, CONNECTIONS};

/// A difference of a few percent needs more rounds than a rate does, and short ones: the speed of a shared machine drifts
/// within seconds, and only what is measured right after one another can be compared.
const ROUNDS: usize = 25;
const QUICK_ROUNDS: usize = 3;

/// The kinds of credentials, the shared key first, with the part of its rate that each may lose.
const KINDS: [(&str, f64); 4] = [
    ("shared key", 0.0),
    ("API key", 5.0),
    ("access token", 5.0),
    ("macaroon with five caveats", 10.0),
];

/// The caveats of the macaroon; the server adds the fifth, about time.
const CAVEATS: [&str; 4] = [
    "op = create_task,get_task",
    "tenant = 00000000-0000-7000-8000-000000000001",
    "principal = agent/bench",
    "time < 2100-01-01T00:00:00Z",
];

pub fn run(bench: &Bench) -> Result<Section> {
    let server = bench.server()?;
    let credentials = credentials(&server)?;
    let mut creates = [const { Vec::new() }; KINDS.len()];
    let mut reads = [const { Vec::new() }; KINDS.len()];
    let rounds = if bench.quick { QUICK_ROUNDS } else { ROUNDS };
    for round in 0..rounds {
        eprintln!("credentials, round {} of {rounds}", round + 1);
        // Whoever comes first changes, because the server's data grows and the machine's speed drifts.
        for turn in 0..KINDS.len() {
            let kind = (round + turn) % KINDS.len();
            let head = Head::new(&server.addr.to_string(), &credentials[kind]);
            creates[kind].push(create(bench, &server, &head)?);
            reads[kind].push(read(bench, &server, &head)?);
            let (create, read) = (creates[kind][round], reads[kind][round]);
            let name = KINDS[kind].0;
            eprintln!(
                "  {name}: {:.0} creates/s, {:.0} reads/s",
                create.rate, read.rate
            );
        }
    }
    let mut figures = of("creates", &creates);
    figures.extend(of("reads", &reads));
    let how = format!(
        "`POST /v1/tasks` (fsynced by SQLite) and `GET /v1/tasks/{{id}}` on {CONNECTIONS} connections, closed loop, with each \
         kind of credential in turn on one server, {rounds} rounds. A loss is the median of the losses within the rounds, \
         against the shared key: of requests per second, and of the server's processor time per request. The caveats of the \
         macaroon are about operation, tenant, principal, and twice about time."
    );
    Ok(Section {
        id: "credentials",
        how,
        figures,
    })
}

/// Makes one credential of each kind, for the same principal.
fn credentials(server: &Server) -> Result<[String; KINDS.len()]> {
    let mut admin = Admin::connect(server)?;
    let key = admin.key(None)?;
    let token = login::access_token(&mut admin, server)?;
    let macaroon = admin.macaroon(&CAVEATS)?;
    Ok([KEY.to_owned(), key, token, macaroon])
}

fn create(bench: &Bench, server: &Server, head: &Head) -> Result<Measured> {
    measure(bench, server, &mut Create::echo(head))
}

fn read(bench: &Bench, server: &Server, head: &Head) -> Result<Measured> {
    let mut caller = Caller::connect(server.addr)?;
    caller.send(&head.post("/v1/tasks", &create_body("")))?;
    let answer = caller.answer(201).context("a task to read")?;
    let task = http::field(&answer, "\"task_id\":\"").context("no task id")?;
    let request = head.get(&format!("/v1/tasks/{task}?principal_id={PRINCIPAL}"));
    measure(bench, server, &mut Read { request })
}

fn measure(bench: &Bench, server: &Server, workload: &mut impl Workload) -> Result<Measured> {
    let mut costs = Costs::default();
    let plan = Plan::closed(CONNECTIONS, Duration::ZERO, bench.seconds(1, 1));
    let rate = costs.measure(server, plan, workload)?.per_second();
    Ok(Measured {
        rate,
        cost: costs.server(),
    })
}

/// Returns the figures of one sort of request: for each kind its rate, and what it loses against the first kind.
fn of(what: &str, measured: &[Vec<Measured>; KINDS.len()]) -> Vec<Figure> {
    let [shared, ..] = measured;
    let mut figures = Vec::new();
    for ((kind, asked), own) in KINDS.iter().zip(measured) {
        let rates: Vec<f64> = own.iter().map(|one| one.rate).collect();
        let name = format!("{what}, {kind}");
        figures.push(Figure::new(&*name, median(&rates), Unit::PerSecond));
        if *asked == 0.0 {
            continue;
        }
        let losses = |lost: fn(&Measured, &Measured) -> f64| {
            let losses = own
                .iter()
                .zip(shared)
                .map(|(own, shared)| lost(own, shared));
            median(&losses.collect::<Vec<_>>())
        };
        let slower = losses(|own, shared| 100.0 * (1.0 - own.rate / shared.rate));
        let costlier = losses(|own, shared| 100.0 * (own.cost / shared.cost - 1.0));
        figures.extend([
            Figure::new(format!("{name}: fewer per second"), slower, Unit::Percent).at_most(*asked),
            Figure::new(
                format!("{name}: more processor time"),
                costlier,
                Unit::Percent,
            ),
        ]);
    }
    figures
}

/// Reads one task again and again.
struct Read {
    request: Vec<u8>,
}

impl Workload for Read {
    fn kinds(&self) -> &'static [&'static str] {
        &["read"]
    }

    fn request(&mut self, _connection: usize, out: &mut Vec<u8>) -> Option<usize> {
        out.extend_from_slice(&self.request);
        Some(0)
    }

    fn answer(&mut self, _: usize, _: usize, status: u16, body: &[u8]) -> Result<Then> {
        expect(200, status, body)?;
        Ok(Then::Finished)
    }
}
