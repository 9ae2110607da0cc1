//! The measurements of all contenders, round by round, and the figures that they come to.

use crate::bench::cost::Measured;
use crate::bench::report::{Figure, Unit, median};

use super::Part;

/// Whose measurement it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    Gate,
    Peer(Part),
}

/// How many tasks a call brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    One,
    Batch,
}

#[derive(Debug)]
struct Row {
    who: Who,
    way: Way,
    name: String,
    rounds: Vec<Measured>,
}

impl Row {
    fn median(&self, of: impl Fn(&Measured) -> f64) -> f64 {
        median(&self.rounds.iter().map(of).collect::<Vec<_>>())
    }
}

/// A row for each contender, in the order in which they came first.
#[derive(Debug, Default)]
pub struct Table(Vec<Row>);

impl Table {
    /// Adds a round. A name stands for one contender in one way.
    pub fn add(&mut self, who: Who, way: Way, name: impl Into<String>, measured: Measured) {
        let name = name.into();
        eprintln!(
            "  {name}: {:.0}/s, {:.1} µs of the server",
            measured.rate, measured.cost
        );
        let known = self
            .0
            .iter_mut()
            .find(|row| row.way == way && row.name == name);
        match known {
            Some(row) => row.rounds.push(measured),
            None => self.0.push(Row {
                who,
                way,
                name,
                rounds: vec![measured],
            }),
        }
    }

    /// The rate of each contender, and its server's processor time for a task.
    pub fn figures(&self, way: Way) -> Vec<Figure> {
        let rows = self.0.iter().filter(|row| row.way == way);
        let both = rows.flat_map(|row| {
            let cost = format!("{}, server processor time per task", row.name);
            [
                Figure::new(&row.name, row.median(|one| one.rate), Unit::PerSecond),
                Figure::new(cost, row.median(|one| one.cost), Unit::Micros),
            ]
        });
        both.collect()
    }

    /// The gate's rate to the best one of these peers: the median of the ratios within the rounds. None if none of them
    /// was measured.
    pub fn ratio(&self, way: Way, peers: &[Part]) -> Option<f64> {
        let of = |row: &&Row| row.way == way;
        let gate = self.0.iter().filter(of).find(|row| row.who == Who::Gate)?;
        let theirs = self.0.iter().filter(of).filter(|row| match row.who {
            Who::Gate => false,
            Who::Peer(part) => peers.contains(&part),
        });
        let ratio = |row: &Row| {
            let rounds = gate.rounds.iter().zip(&row.rounds);
            median(
                &rounds
                    .map(|(our, their)| our.rate / their.rate)
                    .collect::<Vec<_>>(),
            )
        };
        theirs.map(ratio).min_by(f64::total_cmp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rows: &[(Who, Way, &str, [f64; 3])]) -> Table {
        let mut table = Table::default();
        for round in 0..3 {
            for (who, way, name, rates) in rows {
                let rate = rates[round];
                table.add(
                    *who,
                    *way,
                    *name,
                    Measured {
                        rate,
                        cost: 1e6 / rate,
                    },
                );
            }
        }
        table
    }

    #[test]
    fn a_ratio_is_taken_within_its_round() {
        // The machine became slower from round to round.
        let table = table(&[
            (Who::Gate, Way::One, "AsyncGate", [1_200.0, 600.0, 150.0]),
            (
                Who::Peer(Part::Redis),
                Way::One,
                "Redis",
                [1_000.0, 500.0, 100.0],
            ),
        ]);
        assert_eq!(table.ratio(Way::One, &[Part::Redis]), Some(1.2));
    }

    #[test]
    fn the_best_peer_of_the_same_way_counts() {
        let peer = Who::Peer;
        let table = table(&[
            (Who::Gate, Way::One, "AsyncGate", [100.0; 3]),
            (Who::Gate, Way::Batch, "AsyncGate", [9_000.0; 3]),
            (peer(Part::Beanstalkd), Way::One, "8 connections", [10.0; 3]),
            (
                peer(Part::Beanstalkd),
                Way::One,
                "64 connections",
                [20.0; 3],
            ),
            (peer(Part::PgBoss), Way::Batch, "pg-boss", [2_000.0; 3]),
            (
                peer(Part::GraphileWorker),
                Way::Batch,
                "graphile-worker",
                [3_000.0; 3],
            ),
        ]);
        assert_eq!(table.ratio(Way::One, &[Part::Beanstalkd]), Some(5.0));
        let both = [Part::PgBoss, Part::GraphileWorker];
        assert_eq!(table.ratio(Way::Batch, &both), Some(3.0));
        assert_eq!(table.ratio(Way::One, &both), None);
        assert_eq!(table.ratio(Way::Batch, &[Part::Redis]), None);
    }

    #[test]
    fn a_contender_has_one_row_for_all_rounds() {
        let table = table(&[
            (Who::Gate, Way::One, "AsyncGate", [3.0, 1.0, 2.0]),
            (Who::Gate, Way::Batch, "AsyncGate", [30.0, 10.0, 20.0]),
        ]);
        let figures = table.figures(Way::One);
        assert_eq!(figures.len(), 2);
        assert_eq!(table.0[0].median(|one| one.rate), 2.0);
        assert_eq!(table.0[1].rounds.len(), 3);
    }
}
