//! TLS handshakes with a classical and with a hybrid key exchange.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::bench::cost::Costs;
use crate::bench::report::{Figure, Section, Unit, median};
use crate::bench::server::{KEY, Server, dist};
use crate::bench::{Bench, open_folder};
use crate::process;

/// A difference of a few percent needs more rounds than a rate does.
const ROUNDS: usize = 5;
const QUICK_ROUNDS: usize = 2;
/// How much more a hybrid handshake may cost, as a part of a classical one.
const ASKED: f64 = 20.0;

/// The name of a sort of handshake, the server's mode, and what its clients offer.
const SORTS: [(&str, &str, &str); 3] = [
    ("classical (X25519)", "off", "classical"),
    ("hybrid (X25519MLKEM768)", "hybrid", "hybrid"),
    ("hybrid after a retry", "hybrid", "retry"),
];

pub fn run(bench: &Bench) -> Result<Section> {
    let clients = dist(&["--package", "asyncgate-handshakes"])?.join("asyncgate-handshakes");
    let rounds = if bench.quick { QUICK_ROUNDS } else { ROUNDS };
    let seconds = bench.seconds(5, 2).as_secs();
    let servers = SORTS.iter().map(|(_, mode, _)| start(bench, mode));
    let servers = servers.collect::<Result<Vec<_>>>()?;
    let mut rates = [const { Vec::new() }; SORTS.len()];
    let mut costs = [const { Vec::new() }; SORTS.len()];
    for round in 0..rounds {
        eprintln!("handshakes, round {} of {rounds}", round + 1);
        // Whoever comes first changes with each round.
        for turn in 0..SORTS.len() {
            let sort = (round + turn) % SORTS.len();
            let server = &servers[sort];
            let (name, _, offer) = SORTS[sort];
            let mut measured = Costs::default();
            let made = measured.around(server, || shake(&clients, server, offer, seconds))?;
            let rate = made as f64 / seconds as f64;
            eprintln!("  {name}: {rate:.0}/s, {:.0} µs", measured.server());
            rates[sort].push(rate);
            costs[sort].push(measured.server());
        }
    }
    let mut figures = Vec::new();
    for (sort, (name, ..)) in SORTS.iter().enumerate() {
        figures.push(Figure::new(*name, median(&rates[sort]), Unit::PerSecond));
        let cost = median(&costs[sort]);
        figures.push(Figure::new(
            format!("{name}: server processor time"),
            cost,
            Unit::Micros,
        ));
        if sort > 0 {
            let pairs = costs[sort].iter().zip(&costs[0]);
            let more: Vec<f64> = pairs
                .map(|(own, first)| 100.0 * (own / first - 1.0))
                .collect();
            let figure = Figure::new(
                format!("{name}: more processor time"),
                median(&more),
                Unit::Percent,
            );
            figures.push(if sort == 1 {
                figure.at_most(ASKED)
            } else {
                figure
            });
        }
    }
    let how = format!(
        "Whole handshakes of TLS 1.3, each on a connection of its own, no session resumed, with a certificate for P-256; four \
         clients (`crates/handshakes`), which share the cores with the server and verify its certificate. \
         In turns, {rounds} rounds of {seconds} s; the processor time covers the connection too. A retry happens with clients \
         that know the hybrid exchange but sent a share for X25519 alone."
    );
    Ok(Section {
        id: "handshake",
        how,
        figures,
    })
}

/// Starts a server with the certificate of the client's tests.
fn start(bench: &Bench, mode: &str) -> Result<Server> {
    let folder = open_folder(bench.scratch.path())?;
    for name in ["server.pem", "server.key"] {
        let copy = folder.path().join(name);
        fs::copy(certificates().join(name), &copy)?;
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o600))?;
    }
    let settings = [
        ("ASYNCGATE_API_KEY", KEY),
        ("ASYNCGATE_TLS_ENABLED", "true"),
        ("ASYNCGATE_TLS_CERT_PATH", "server.pem"),
        ("ASYNCGATE_TLS_KEY_PATH", "server.key"),
        ("ASYNCGATE_PQ_MODE", mode),
    ];
    Server::start_in(&bench.binary, folder, &settings)
}

fn certificates() -> PathBuf {
    process::root().join("crates/client/tests/gate/tls")
}

/// Lets clients make handshakes for some seconds, and returns how many they made.
fn shake(clients: &Path, server: &Server, offer: &str, seconds: u64) -> Result<u64> {
    let output = Command::new(clients)
        .arg(server.addr.to_string())
        .arg(certificates().join("ca.pem"))
        .args([offer, &seconds.to_string()])
        .output()
        .with_context(|| format!("cannot start {}", clients.display()))?;
    let said = String::from_utf8_lossy(&output.stdout);
    let made = said.trim().parse();
    made.with_context(|| {
        format!(
            "the clients failed: {}",
            String::from_utf8_lossy(&output.stderr)
        )
    })
}
