//! The share of the rate of bare sockets that the typed client and the worker runtime reach.

use std::process::Command;

use anyhow::{Context, Result};

use crate::bench::Bench;
use crate::bench::report::{Figure, Section, Unit, median};
use crate::bench::server::{KEY, dist};
use crate::process;

const MODES: [&str; 3] = ["raw", "client", "worker"];

pub fn run(bench: &Bench) -> Result<Section> {
    let rounds = if bench.quick { 1 } else { 5 };
    let build = ["--package", "asyncgate-client", "--example", "throughput"];
    let binary = dist(&build)?.join("examples").join("throughput");
    let server = bench.server()?;
    let mut rates: [Vec<f64>; 3] = Default::default();
    for round in 1..=rounds {
        eprintln!("client, round {round} of {rounds}");
        // Forward and then backward, so that none of them always has the smaller database.
        let mut order = [0, 1, 2];
        if round % 2 == 0 {
            order.reverse();
        }
        for mode in order {
            let mut command = Command::new(&binary);
            let told = process::output(command.args([&server.url(), KEY, MODES[mode]]))?;
            eprint!("  {told}");
            let rate = rate(&told).with_context(|| format!("no rate in what it told: {told}"))?;
            rates[mode].push(rate);
        }
    }
    let [raw, client, worker] = &rates;
    let to_raw = |of: &[f64]| {
        let ratios: Vec<f64> = of.iter().zip(raw).map(|(of, raw)| of / raw).collect();
        median(&ratios)
    };
    let figures = vec![
        Figure::new("cycles on bare sockets", median(raw), Unit::PerSecond),
        Figure::new("cycles by the client", median(client), Unit::PerSecond),
        Figure::new("cycles by the worker", median(worker), Unit::PerSecond),
        Figure::new("client to bare sockets", to_raw(client), Unit::Times).at_least(0.9),
        Figure::new("worker to bare sockets", to_raw(worker), Unit::Times).at_least(0.7),
    ];
    let how = "Create, claim, complete against one server, by `crates/client/examples/throughput.rs`: 64 loops with \
               prepared bytes on sockets of their own; 64 loops with the typed client; a worker with concurrency 64 while \
               64 loops create. All three share the cores with the server. Rates are medians of the rounds, in turns; \
               ratios are medians of the ratios within a round."
        .to_owned();
    Ok(Section {
        id: "client",
        how,
        figures,
    })
}

/// Reads a line like `raw: 9012 cycles/s`.
pub fn rate(told: &str) -> Option<f64> {
    let (_, rate) = told.trim_end().split_once(": ")?;
    rate.strip_suffix(" cycles/s")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_rate() {
        assert_eq!(rate("client: 9012 cycles/s\n"), Some(9012.0));
        assert_eq!(rate(""), None);
    }
}
