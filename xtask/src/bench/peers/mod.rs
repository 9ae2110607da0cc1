//! The same work by other programs, in the same minutes and with the same durability: hand a job in, take
//! it out, remove it, each step fsynced before its answer.

pub mod beanstalkd;
mod pgbench;

use anyhow::Result;

use super::Bench;
use super::report::{Figure, Section, Unit, median};
use crate::services::{self, Postgres};

/// Few connections favour a peer that syncs each request, many one that shares a commit.
const CLIENTS: [usize; 2] = [8, 64];

#[derive(Debug, Default)]
pub struct Rounds {
    /// The rates by number of clients.
    beanstalkd: [Vec<f64>; 2],
    postgres: [Vec<f64>; 2],
    postgres_version: String,
}

impl Rounds {
    pub fn run(&mut self, bench: &Bench) -> Result<()> {
        // One peer runs at a time and is stopped after its turn: its vacuum must not slow down another.
        {
            let folder = bench.folder()?;
            let server = services::beanstalkd::start(folder.path())?;
            for (clients, rates) in CLIENTS.into_iter().zip(&mut self.beanstalkd) {
                let rate = beanstalkd::rate(server.addr, clients, bench)?;
                eprintln!("  beanstalkd, {clients} connections: {rate:.0}/s");
                rates.push(rate);
            }
        }
        let folder = bench.folder()?;
        let server = Postgres::start(folder.path())?;
        self.postgres_version = server.version()?;
        pgbench::prepare(&server)?;
        for (clients, rates) in CLIENTS.into_iter().zip(&mut self.postgres) {
            let rate = pgbench::rate(&server, folder.path(), clients, bench)?;
            eprintln!(
                "  {}, {clients} clients: {rate:.0}/s",
                self.postgres_version
            );
            rates.push(rate);
        }
        Ok(())
    }

    pub fn section(&self, ours: f64) -> Section {
        let mut figures = vec![Figure::new(
            "AsyncGate cycles, 64 connections",
            ours,
            Unit::PerSecond,
        )];
        for (name, rates) in [
            ("beanstalkd", &self.beanstalkd),
            (&self.postgres_version, &self.postgres),
        ] {
            for (clients, rates) in CLIENTS.into_iter().zip(rates) {
                figures.push(Figure::new(
                    format!("{name}, {clients} connections"),
                    median(rates),
                    Unit::PerSecond,
                ));
            }
        }
        let beanstalkd = better(&self.beanstalkd);
        let postgres = better(&self.postgres);
        figures.push(
            Figure::new(
                "AsyncGate to beanstalkd's better",
                ours / beanstalkd,
                Unit::Times,
            )
            .at_least(2.0),
        );
        figures.push(
            Figure::new(
                "AsyncGate to PostgreSQL's better",
                ours / postgres,
                Unit::Times,
            )
            .at_least(1.4),
        );
        let how = "beanstalkd `-f0` (fsync at each write): put, reserve, delete, by the same load generator. PostgreSQL \
                   with `fsync=on`, `synchronous_commit=on`: insert, claim with `FOR UPDATE SKIP LOCKED`, delete, three \
                   prepared statements in three transactions, by pgbench over TCP. Each with 8 and with 64 connections; \
                   the ratio is to the better one. Medians of the rounds, in turns with AsyncGate. Neither peer writes receipts."
            .to_owned();
        Section {
            id: "peers",
            how,
            figures,
        }
    }
}

fn better(rates: &[Vec<f64>]) -> f64 {
    rates.iter().map(|rates| median(rates)).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_better_number_of_connections_counts() {
        assert_eq!(better(&[vec![5.0, 7.0, 6.0], vec![1.0, 9.0, 2.0]]), 6.0);
        assert_eq!(better(&[vec![1.0], vec![2.0]]), 2.0);
    }
}
