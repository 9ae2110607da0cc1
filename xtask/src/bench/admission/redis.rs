//! The Redis backend beside `redis-benchmark`, on the same server in the same run.

use std::process::Command;

use anyhow::{Context, Result};

use super::inside::{Program, told};
use crate::bench::report::{Figure, Section, Unit, median};
use crate::bench::{Bench, CONNECTIONS, ROUNDS};
use crate::process;
use crate::services::redis;

const PROGRAM: Program = ("asyncgate-host-redis", "rates");

pub fn run(bench: &Bench) -> Result<Section> {
    let seconds = bench.seconds(4, 1).as_secs().to_string();
    let callers = CONNECTIONS.to_string();
    let (mut sets, mut buckets, mut nonces) = (Vec::new(), Vec::new(), Vec::new());
    let (mut of_sets, mut ones, mut hundreds, mut times) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for round in 1..=ROUNDS {
        eprintln!("Redis, round {round} of {ROUNDS}");
        let folder = bench.folder()?;
        let server = redis::start(folder.path())?;
        let set = plain_sets(server.addr.port(), bench.quick)?;
        let address = |prefix: &str| format!("redis://{}?prefix={prefix}", server.addr);
        let many = [address("many"), callers.clone(), seconds.clone()];
        let [bucket, nonce, _] = told(PROGRAM, &many.each_ref().map(String::as_str))?;
        let alone = [address("alone"), "1".to_owned(), seconds.clone()];
        let [_, one, hundred] = told(PROGRAM, &alone.each_ref().map(String::as_str))?;
        eprintln!(
            "  SET {set:.0}/s, buckets {bucket:.0}/s, nonces {nonce:.0}/s; one caller: {one:.0}/s, {hundred:.0}/s by the hundred"
        );
        sets.push(set);
        buckets.push(bucket);
        nonces.push(nonce);
        of_sets.push(100.0 * bucket / set);
        ones.push(one);
        hundreds.push(hundred);
        times.push(hundred / one);
    }
    let rate = |name: &str, rates: &[f64]| Figure::new(name, median(rates), Unit::PerSecond);
    let figures = vec![
        rate("redis-benchmark SET", &sets),
        rate("bucket checks", &buckets),
        Figure::new("of SET", median(&of_sets), Unit::Percent).at_least(70.0),
        rate("nonces", &nonces),
        rate("nonces of one caller, one by one", &ones),
        rate("nonces of one caller, 100 at a time", &hundreds),
        Figure::new("100 at a time to one by one", median(&times), Unit::Times).at_least(10.0),
    ];
    let how = format!(
        "One Redis that writes nothing to disk, on loopback. `redis-benchmark -t set` with {CONNECTIONS} connections, values of 40 \
         bytes and 10,000 keys, then {CONNECTIONS} callers of the backend (`crates/host-redis/examples/rates.rs`), who share one \
         connection and its scripts as they do in the server, each asking when it has its answer: a bucket check over 10,000 keys, a new \
         nonce. Then one caller alone. In turns; rates are medians of the rounds, ratios medians of the ratios within a round."
    );
    Ok(Section {
        id: "admission-redis",
        how,
        figures,
    })
}

/// Measures `SET`s per second with Redis's own program.
fn plain_sets(port: u16, quick: bool) -> Result<f64> {
    let (port, count) = (port.to_string(), if quick { "100000" } else { "400000" });
    let clients = CONNECTIONS.to_string();
    let mut command = Command::new("redis-benchmark");
    command.args(["-p", &port, "-t", "set", "-n", count, "-c", &clients]);
    command.args(["-d", "40", "-r", "10000", "--csv"]);
    let told = process::output(&mut command)?;
    rate(&told).with_context(|| format!("redis-benchmark told: {told}"))
}

/// Reads the second field of the last line: `"SET","98765.43",...`.
fn rate(csv: &str) -> Option<f64> {
    let fields = csv.lines().last()?.split(',').nth(1)?;
    fields.trim_matches('"').parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_read() {
        let told = "\"test\",\"rps\",\"avg\"\n\"SET\",\"98765.43\",\"0.3\"\n";
        assert_eq!(rate(told), Some(98765.43));
        assert_eq!(rate("WARNING\n"), None);
    }
}
