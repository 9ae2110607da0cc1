//! Tables for people, JSON for programs.

use std::{
    io::{IsTerminal as _, stderr, stdout},
    time::Duration,
};

use asyncgate_client::api::{Principal, PrincipalKind, TaskStatus};
use serde::Serialize;
use tokio::time::Instant;

use crate::output;

/// Prints `value` as JSON, or `text` for people.
pub fn show<T: Serialize>(
    json: bool,
    value: &T,
    text: impl FnOnce() -> String,
) -> anyhow::Result<()> {
    was_shown(json, value, text).map(drop)
}

/// Prints as [`show`] does. Returns false if the reader went away.
pub fn was_shown<T: Serialize>(
    json: bool,
    value: &T,
    text: impl FnOnce() -> String,
) -> anyhow::Result<bool> {
    let text = if json {
        serde_json::to_string_pretty(value)?
    } else {
        text()
    };
    Ok(output::was_said(text.trim_end())?)
}

/// Formats a table with a header; each column is as wide as its widest cell.
pub fn table<const N: usize>(header: [&str; N], rows: Vec<[String; N]>) -> String {
    if rows.is_empty() {
        return "nothing".to_owned();
    }
    let width = |n: usize| {
        let cells = rows.iter().map(|row| row[n].chars().count());
        cells.chain([header[n].len()]).max().unwrap_or(0)
    };
    let widths: [usize; N] = std::array::from_fn(width);
    let line = |cells: &[&str]| {
        let padded = cells
            .iter()
            .zip(widths)
            .map(|(cell, width)| format!("{cell:<width$}"));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let mut lines = vec![paint(Style::Bold, &line(&header))];
    for row in &rows {
        lines.push(line(&row.each_ref().map(String::as_str)));
    }
    lines.join("\n")
}

/// Formats names and values, one pair a line. Pairs without a value are left out.
pub fn fields(pairs: &[(&str, Option<String>)]) -> String {
    let width = pairs.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let lines = pairs
        .iter()
        .filter_map(|(name, value)| Some(format!("{:<width$}  {}", name, value.as_ref()?)));
    lines.collect::<Vec<_>>().join("\n")
}

/// Formats a principal as `kind/id`.
pub fn who(principal: &Principal) -> String {
    let kind = match principal.kind {
        PrincipalKind::Agent => "agent",
        PrincipalKind::Worker => "worker",
        PrincipalKind::Service => "service",
        PrincipalKind::Human => "human",
        PrincipalKind::System => "system",
    };
    format!("{kind}/{}", principal.id)
}

/// Formats a status in its colour.
pub fn status(status: TaskStatus) -> String {
    let (style, name) = match status {
        TaskStatus::Queued => (Style::Plain, "queued"),
        TaskStatus::Leased => (Style::Yellow, "leased"),
        TaskStatus::Running => (Style::Yellow, "running"),
        TaskStatus::Succeeded => (Style::Green, "succeeded"),
        TaskStatus::Failed => (Style::Red, "failed"),
        TaskStatus::Canceled => (Style::Red, "canceled"),
    };
    paint(style, name)
}

/// The look of a piece of text on a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    Plain,
    Bold,
    Dim,
    Green,
    Yellow,
    Red,
}

/// Adds the codes of a style, unless stdout is no terminal or `NO_COLOR` is set.
pub fn paint(style: Style, text: &str) -> String {
    let code = match style {
        Style::Plain => return text.to_owned(),
        Style::Bold => 1,
        Style::Dim => 2,
        Style::Green => 32,
        Style::Yellow => 33,
        Style::Red => 31,
    };
    if !stdout().is_terminal() || std::env::var_os("NO_COLOR").is_some() {
        return text.to_owned();
    }
    format!("\u{1b}[{code}m{text}\u{1b}[0m")
}

/// A line on stderr that shows how far long work has come. Prints nothing if stderr is no terminal.
#[derive(Debug)]
pub struct Progress {
    last: Option<Duration>,
    started: Instant,
    watched: bool,
}

impl Progress {
    pub fn start() -> Self {
        Self {
            last: None,
            started: Instant::now(),
            watched: stderr().is_terminal(),
        }
    }

    /// Shows the text, at most four times a second and not within the first second.
    pub fn at(&mut self, text: impl FnOnce() -> String) {
        let now = self.started.elapsed();
        let since = now.saturating_sub(self.last.unwrap_or_default());
        if self.watched && now.as_secs() >= 1 && since.as_millis() >= 250 {
            output::overwrite(&text());
            self.last = Some(now);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.last.is_some() {
            output::overwrite("");
        }
    }
}
