//! Figures, the bounds on them, and their forms: a table on the terminal, JSON for programs, and the
//! marked sections of docs/BENCHMARKS.md.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

#[derive(Clone, Copy, Debug)]
pub enum Unit {
    PerSecond,
    Millis,
    MiB,
    Bytes,
    Times,
    Micros,
    Percent,
    Count,
}

impl Unit {
    fn show(self, value: f64) -> String {
        match self {
            Self::PerSecond => format!("{}/s", thousands(value)),
            Self::Millis if value < 1.0 => format!("{value:.3} ms"),
            Self::Millis => format!("{value:.2} ms"),
            Self::MiB => format!("{value:.0} MiB"),
            Self::Bytes => format!("{} B", thousands(value)),
            Self::Times => format!("{value:.2}x"),
            Self::Micros if value < 10.0 => format!("{value:.2} µs"),
            Self::Micros => format!("{value:.1} µs"),
            Self::Percent => format!("{value:.1} %"),
            Self::Count => thousands(value),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::PerSecond => "per_second",
            Self::Millis => "ms",
            Self::MiB => "mib",
            Self::Bytes => "bytes",
            Self::Times => "times",
            Self::Micros => "us",
            Self::Percent => "percent",
            Self::Count => "count",
        }
    }
}

/// The required value of a figure, and its goal.
#[derive(Clone, Copy, Debug)]
struct Bound {
    most: bool,
    asked: f64,
    goal: Option<f64>,
}

#[derive(Clone, Debug)]
pub struct Figure {
    name: String,
    value: f64,
    unit: Unit,
    bound: Option<Bound>,
}

impl Figure {
    pub fn new(name: impl Into<String>, value: f64, unit: Unit) -> Self {
        Self {
            name: name.into(),
            value,
            unit,
            bound: None,
        }
    }

    pub fn latency(name: impl Into<String>, value: Duration) -> Self {
        Self::new(name, value.as_secs_f64() * 1e3, Unit::Millis)
    }

    pub fn at_least(mut self, asked: f64) -> Self {
        self.bound = Some(Bound {
            most: false,
            asked,
            goal: None,
        });
        self
    }

    pub fn at_most(mut self, asked: f64) -> Self {
        self.bound = Some(Bound {
            most: true,
            asked,
            goal: None,
        });
        self
    }

    pub fn goal(mut self, goal: f64) -> Self {
        if let Some(bound) = &mut self.bound {
            bound.goal = Some(goal);
        }
        self
    }

    fn holds(&self, most: bool, limit: f64) -> bool {
        if most {
            self.value <= limit
        } else {
            self.value >= limit
        }
    }

    fn is_missed(&self) -> bool {
        self.bound
            .is_some_and(|bound| !self.holds(bound.most, bound.asked))
    }

    fn verdict(&self) -> &'static str {
        let Some(bound) = self.bound else { return "" };
        match bound.goal {
            _ if self.is_missed() => "**missed**",
            Some(goal) if self.holds(bound.most, goal) => "goal met",
            _ => "met",
        }
    }

    fn row(&self) -> String {
        let limit = |value: Option<f64>| match (self.bound, value) {
            (Some(bound), Some(value)) => format!(
                "{} {}",
                if bound.most { "≤" } else { "≥" },
                self.unit.show(value)
            ),
            _ => String::new(),
        };
        let asked = limit(self.bound.map(|bound| bound.asked));
        let goal = limit(self.bound.and_then(|bound| bound.goal));
        format!(
            "| {} | {} | {asked} | {goal} | {} |\n",
            self.name,
            self.unit.show(self.value),
            self.verdict()
        )
    }

    fn json(&self) -> Value {
        json!({
            "name": self.name,
            "value": self.value,
            "unit": self.unit.name(),
            "asked": self.bound.map(|bound| bound.asked),
            "goal": self.bound.and_then(|bound| bound.goal),
            "verdict": self.verdict().trim_matches('*'),
        })
    }
}

/// The figures of one part of the benchmark, with the method.
#[derive(Clone, Debug)]
pub struct Section {
    /// The name in the section's marks in docs/BENCHMARKS.md.
    pub id: &'static str,
    pub how: String,
    pub figures: Vec<Figure>,
}

impl Section {
    pub fn markdown(&self) -> String {
        let mut text = format!("{}\n", self.how);
        if !self.figures.is_empty() {
            text.push_str("\n| figure | measured | asked | goal | |\n|---|---:|---:|---:|---|\n");
            self.figures
                .iter()
                .for_each(|figure| text.push_str(&figure.row()));
        }
        text
    }

    /// Returns true if a figure is not what was asked for.
    pub fn is_missed(&self) -> bool {
        self.figures.iter().any(Figure::is_missed)
    }

    pub fn json(&self) -> Value {
        let figures: Vec<Value> = self.figures.iter().map(Figure::json).collect();
        json!({ "part": self.id, "how": self.how, "figures": figures })
    }
}

/// Prints the sections as tables or as JSON.
pub fn print(sections: &[Section], quick: bool, as_json: bool) {
    if as_json {
        let parts: Vec<_> = sections.iter().map(Section::json).collect();
        println!("{:#}", json!({ "quick": quick, "parts": parts }));
        return;
    }
    for section in sections {
        println!("## {}\n\n{}", section.id, section.markdown());
    }
}

/// Puts the sections between their marks in the document and leaves the rest unchanged.
pub fn rewrite(path: &Path, sections: &[Section]) -> Result<()> {
    let mut text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    for section in sections {
        text = replaced(&text, section.id, &section.markdown())?;
    }
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn replaced(text: &str, id: &str, content: &str) -> Result<String> {
    let (open, close) = (
        format!("<!-- bench:{id} -->"),
        format!("<!-- /bench:{id} -->"),
    );
    let missing = || format!("the document has no {open} ... {close}");
    let (before, rest) = text.split_once(&open).with_context(missing)?;
    let (_, after) = rest.split_once(&close).with_context(missing)?;
    let mut out = String::with_capacity(text.len() + content.len());
    write!(out, "{before}{open}\n{content}{close}{after}")?;
    Ok(out)
}

/// Returns the middle of an odd number of values; of an even number, the mean of the two in the middle.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match (
        sorted.get(sorted.len().saturating_sub(1) / 2),
        sorted.get(sorted.len() / 2),
    ) {
        (Some(low), Some(high)) => f64::midpoint(*low, *high),
        _ => 0.0,
    }
}

/// Formats a whole number with separators: 1,000,000.
pub fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_follow_the_bound() {
        let figure = |value| {
            Figure::new("x", value, Unit::PerSecond)
                .at_least(10.0)
                .goal(20.0)
        };
        assert_eq!(figure(9.0).verdict(), "**missed**");
        assert_eq!(figure(10.0).verdict(), "met");
        assert_eq!(figure(20.0).verdict(), "goal met");
        let latency = Figure::new("x", 25.1, Unit::Millis).at_most(25.0);
        assert_eq!(latency.verdict(), "**missed**");
        assert_eq!(Figure::new("x", 1.0, Unit::Count).verdict(), "");
    }

    #[test]
    fn a_section_replaces_only_what_is_between_its_marks() {
        let text =
            "a\n<!-- bench:x -->\nold\n<!-- /bench:x -->\nb <!-- bench:y --><!-- /bench:y -->";
        let out = replaced(text, "x", "new\n").unwrap();
        assert_eq!(
            out,
            "a\n<!-- bench:x -->\nnew\n<!-- /bench:x -->\nb <!-- bench:y --><!-- /bench:y -->"
        );
        assert!(replaced(text, "z", "").is_err());
    }

    #[test]
    fn a_row_shows_value_bound_and_verdict() {
        let row = Figure::new("creates", 12_345.6, Unit::PerSecond)
            .at_least(12_000.0)
            .goal(25_000.0)
            .row();
        assert_eq!(
            row,
            "| creates | 12,346/s | ≥ 12,000/s | ≥ 25,000/s | met |\n"
        );
    }

    #[test]
    fn medians() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[1.0, 2.0]), 1.5);
        assert_eq!(median(&[]), 0.0);
    }
}
