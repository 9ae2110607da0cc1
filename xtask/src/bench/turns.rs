//! `cargo xtask bench turns`: two servers in turns, and the ratio of their figures.
//!
//! The speed of a shared machine drifts by more than a change of the program does, so the two are measured right
//! after one another and only the ratio within such a pair counts. Whoever comes first changes with each pair.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, ValueEnum};

use super::cost::Measured;
use super::report::{self, Figure, Section, Unit, median};
use super::{Bench, SCRATCH, admission, create, cycle, mailbox};

/// The part of its rate that a server must keep.
const KEPT: f64 = 0.97;

#[derive(Debug, Args)]
pub struct Options {
    /// The server to compare with
    #[arg(long, value_name = "BINARY")]
    before: PathBuf,
    /// The server to judge, instead of the build that is handed out
    #[arg(long, value_name = "BINARY")]
    after: Option<PathBuf>,
    /// Measure so many pairs of each part
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=101))]
    rounds: u32,
    /// Shorter runs
    #[arg(long)]
    quick: bool,
    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,
    /// Only these parts
    #[arg(long, value_delimiter = ',')]
    only: Vec<Part>,
    /// Keep the data here while measuring
    #[arg(long, default_value = SCRATCH)]
    dir: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Creates
    Create,
    /// Create, claim, complete
    Cycle,
    /// Mixed requests of the mailbox
    Mailbox,
    /// `limits/check`
    Limits,
}

impl Part {
    fn name(self) -> &'static str {
        match self {
            Self::Create => "creates",
            Self::Cycle => "cycles",
            Self::Mailbox => "mixed requests of the mailbox",
            Self::Limits => "limits/check",
        }
    }

    fn measure(self, bench: &Bench) -> Result<Measured> {
        match self {
            Self::Create => {
                let mut rounds = create::Rounds::default();
                rounds.run(bench)?;
                Ok(rounds.measured())
            }
            Self::Cycle => {
                let mut rounds = cycle::Rounds::default();
                rounds.run(bench)?;
                Ok(rounds.measured())
            }
            Self::Mailbox => mailbox::mixed(bench),
            Self::Limits => admission::checks(bench),
        }
    }
}

pub fn run(options: &Options) -> Result<()> {
    let before = Bench::of(Some(&options.before), &options.dir, options.quick)?;
    let after = Bench::of(options.after.as_deref(), &options.dir, options.quick)?;
    let parts = match options.only.as_slice() {
        [] => Part::value_variants(),
        chosen => chosen,
    };
    let mut pairs = vec![Pairs::default(); parts.len()];
    for round in 1..=options.rounds {
        eprintln!("round {round} of {}", options.rounds);
        for (part, pairs) in parts.iter().zip(&mut pairs) {
            if round % 2 == 1 {
                pairs.before.push(part.measure(&before)?);
                pairs.after.push(part.measure(&after)?);
            } else {
                pairs.after.push(part.measure(&after)?);
                pairs.before.push(part.measure(&before)?);
            }
        }
    }
    let told = parts.iter().zip(&pairs);
    let figures = told.flat_map(|(part, pairs)| pairs.figures(part.name()));
    let how = format!(
        "{} and {} in turns, {} pairs. A ratio is the median of the ratios within the pairs, after to before; beside it the \
         lowest and the highest.",
        before.binary.display(),
        after.binary.display(),
        options.rounds
    );
    let section = Section {
        id: "turns",
        how,
        figures: figures.collect(),
    };
    report::print(&[section], options.quick, options.json);
    Ok(())
}

/// The measurements of one part, pair by pair.
#[derive(Clone, Debug, Default)]
struct Pairs {
    before: Vec<Measured>,
    after: Vec<Measured>,
}

impl Pairs {
    fn figures(&self, part: &str) -> Vec<Figure> {
        let rates = |of: &[Measured]| median(&of.iter().map(|one| one.rate).collect::<Vec<_>>());
        let times = |name: &str, value| Figure::new(format!("{part}, {name}"), value, Unit::Times);
        let (rate, cost) = (self.ratios(|one| one.rate), self.ratios(|one| one.cost));
        let lowest = rate.iter().copied().fold(f64::INFINITY, f64::min);
        let highest = rate.iter().copied().fold(0.0, f64::max);
        vec![
            Figure::new(
                format!("{part}, before"),
                rates(&self.before),
                Unit::PerSecond,
            ),
            Figure::new(
                format!("{part}, after"),
                rates(&self.after),
                Unit::PerSecond,
            ),
            times("rate, after to before", median(&rate)).at_least(KEPT),
            times("rate, the lowest pair", lowest),
            times("rate, the highest pair", highest),
            // Others on the machine take time from both, but they hardly change what a request costs.
            times("server processor time, after to before", median(&cost)),
        ]
    }

    fn ratios(&self, of: impl Fn(&Measured) -> f64) -> Vec<f64> {
        let pairs = self.before.iter().zip(&self.after);
        pairs
            .map(|(before, after)| of(after) / of(before))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_taken_within_its_pair() {
        let measured = |rate| Measured {
            rate,
            cost: 1e6 / rate,
        };
        // The machine became slower by half from pair to pair; the second server is a tenth quicker all the time.
        let pairs = Pairs {
            before: [1_000.0, 500.0, 250.0].map(measured).to_vec(),
            after: [1_100.0, 550.0, 275.0].map(measured).to_vec(),
        };
        for ratio in pairs.ratios(|one| one.rate) {
            assert!((ratio - 1.1).abs() < 1e-9, "{ratio}");
        }
        for ratio in pairs.ratios(|one| one.cost) {
            assert!((ratio - 1.0 / 1.1).abs() < 1e-9, "{ratio}");
        }
    }
}
