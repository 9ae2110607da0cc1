//! The job queue that people write by hand on PostgreSQL, driven by its own pgbench.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::bench::cost::Measured;
use crate::bench::{Bench, family};
use crate::process;
use crate::services::Postgres;

/// Vacuumed often, as an operator of a queue table would set it; the default would favour us.
const SCHEMA: &str = "
    CREATE TABLE job (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        body text NOT NULL,
        leased_until timestamptz
    ) WITH (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 10000);
    CREATE INDEX job_ready ON job (id) WHERE leased_until IS NULL;";

pub fn prepare(server: &Postgres) -> Result<()> {
    process::output(server.client("psql").args([
        "-q",
        "-v",
        "ON_ERROR_STOP=1",
        "-d",
        "postgres",
        "-c",
        SCHEMA,
    ]))?;
    Ok(())
}

/// Measures cycles per second with this many clients, and the server's processor time for each.
pub fn measure(
    server: &Postgres,
    folder: &Path,
    clients: usize,
    payload: &str,
    bench: &Bench,
) -> Result<Measured> {
    let path = folder.join("cycle.sql");
    fs::write(&path, script(payload))?;
    // A short run first: new log segments and cold caches are not what is compared.
    pgbench(server, &path, clients, bench.seconds(2, 1).as_secs())?;
    let before = family::cpu_time(server.pid())?;
    let length = bench.seconds(10, 3);
    let rate = pgbench(server, &path, clients, length.as_secs())?;
    let used = family::cpu_time(server.pid())?.saturating_sub(before);
    Ok(Measured::of(rate * length.as_secs_f64(), length, used))
}

fn pgbench(server: &Postgres, script: &Path, clients: usize, seconds: u64) -> Result<f64> {
    let mut command = server.client("pgbench");
    command.args(["--no-vacuum", "--protocol=prepared", "--jobs=1"]);
    command
        .arg(format!("--client={clients}"))
        .arg(format!("--time={seconds}"));
    command.arg("--file").arg(script).arg("postgres");
    cycles(&process::output(&mut command)?)
}

/// `\aset` rather than `\gset`: rarely a claim finds nothing because another client was faster between two
/// snapshots, and that must not stop the client.
fn script(body: &str) -> String {
    format!(
        "\\set id 0\n\
         INSERT INTO job (body) VALUES ('{body}');\n\
         UPDATE job SET leased_until = now() + interval '300 s' WHERE id = (SELECT id FROM job \
         WHERE leased_until IS NULL ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id \\aset\n\
         DELETE FROM job WHERE id = :id;\n"
    )
}

fn cycles(report: &str) -> Result<f64> {
    let line = report.lines().find_map(|line| line.strip_prefix("tps = "));
    let number = line.and_then(|line| line.split(' ').next()?.parse().ok());
    number.with_context(|| format!("pgbench reported no rate:\n{report}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_read_from_the_report() {
        let report = "number of clients: 8\ntps = 3157.123456 (without initial connection time)\n";
        assert_eq!(cycles(report).unwrap(), 3157.123456);
        assert!(cycles("nothing").is_err());
    }
}
