//! Tables for people, JSON for programs.

use std::{
    io::{IsTerminal as _, stderr, stdout},
    time::Duration,
};

use asyncgate_client::api::{Principal, PrincipalKind, TaskStatus};
use asyncgate_core::TaskId;
use serde::Serialize;
use tokio::time::Instant;

use crate::{
    output,
    plain::{plain, plain_json, width},
};

/// Prints `value` as JSON, or `text` for people.
pub fn show<T: Serialize + ?Sized>(
    json: bool,
    value: &T,
    text: impl FnOnce() -> String,
) -> anyhow::Result<()> {
    was_shown(json, value, text).map(drop)
}

/// Prints as [`show`] does. Returns false if the reader went away.
pub fn was_shown<T: Serialize + ?Sized>(
    json: bool,
    value: &T,
    text: impl FnOnce() -> String,
) -> anyhow::Result<bool> {
    let text = match json {
        true => json_text(serde_json::to_string_pretty(value)?),
        false => text(),
    };
    Ok(output::was_said(text.trim_end())?)
}

/// Returns JSON as it is for a program, and without characters that drive a terminal for a person.
pub fn json_text(json: String) -> String {
    match stdout().is_terminal() {
        true => plain_json(&json).into_owned(),
        false => json,
    }
}

/// A piece of text with its look. It has no characters that could drive the terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    pub fn new(style: Style, text: &str) -> Self {
        let text = plain(text).into_owned();
        Self { text, style }
    }

    /// Returns the text, with the codes of its style if stdout is a terminal that wants them.
    pub fn painted(&self) -> String {
        self.padded(0, wants_colour())
    }

    /// Returns the text with spaces behind it up to a width. The codes of a style take no room.
    fn padded(&self, to: usize, colour: bool) -> String {
        let text = &self.text;
        let spaces = " ".repeat(to.saturating_sub(width(text)));
        match self.style.code().filter(|_| colour) {
            Some(code) => format!("\u{1b}[{code}m{text}\u{1b}[0m{spaces}"),
            None => format!("{text}{spaces}"),
        }
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::new(Style::Plain, &text)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::new(Style::Plain, text)
    }
}

/// Formats a table with a header; each column is as wide as its widest cell.
pub fn table<C: Into<Cell>, const N: usize>(header: [&str; N], rows: Vec<[C; N]>) -> String {
    let rows = rows.into_iter().map(|row| row.map(Into::into)).collect();
    render(header, rows, wants_colour())
}

fn render<const N: usize>(header: [&str; N], rows: Vec<[Cell; N]>, colour: bool) -> String {
    if rows.is_empty() {
        return "nothing".to_owned();
    }
    let header = header.map(|name| Cell::new(Style::Bold, name));
    let lines: Vec<[Cell; N]> = [header].into_iter().chain(rows).collect();
    let widest = |n: usize| lines.iter().map(|line| width(&line[n].text)).max();
    let widths: [usize; N] = std::array::from_fn(|n| widest(n).unwrap_or(0));
    let line = |cells: &[Cell; N]| {
        let padded = cells.iter().zip(widths);
        let padded = padded.map(|(cell, width)| cell.padded(width, colour));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    lines.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Formats names and values, one pair a line. Pairs without a value are left out.
pub fn fields<C: Into<Cell>, const N: usize>(pairs: [(&str, Option<C>); N]) -> String {
    let width = pairs.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let lines = pairs.into_iter().filter_map(|(name, value)| {
        let value: Cell = value?.into();
        Some(format!("{name:<width$}  {}", value.painted()))
    });
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

/// Returns the short form of a task's id, which every command takes as well.
pub fn short(task_id: &str) -> String {
    let short = task_id.parse::<TaskId>().ok().and_then(|id| id.short());
    short.map_or_else(|| task_id.to_owned(), |short| short.to_string())
}

/// Formats a status in its colour.
pub fn status(status: TaskStatus) -> Cell {
    let (style, name) = match status {
        TaskStatus::Queued => (Style::Plain, "queued"),
        TaskStatus::Leased => (Style::Yellow, "leased"),
        TaskStatus::Running => (Style::Yellow, "running"),
        TaskStatus::Succeeded => (Style::Green, "succeeded"),
        TaskStatus::Failed => (Style::Red, "failed"),
        TaskStatus::Canceled => (Style::Red, "canceled"),
    };
    Cell::new(style, name)
}

/// Formats a length of time in its largest unit.
pub fn age(seconds: i64) -> String {
    match seconds {
        ..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min", seconds / 60),
        3_600..172_800 => format!("{} h", seconds / 3_600),
        172_800.. => format!("{} d", seconds / 86_400),
    }
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

impl Style {
    const fn code(self) -> Option<u8> {
        match self {
            Self::Plain => None,
            Self::Bold => Some(1),
            Self::Dim => Some(2),
            Self::Green => Some(32),
            Self::Yellow => Some(33),
            Self::Red => Some(31),
        }
    }
}

/// Adds the codes of a style, unless stdout is no terminal or `NO_COLOR` is set.
pub fn paint(style: Style, text: &str) -> String {
    Cell::new(style, text).painted()
}

fn wants_colour() -> bool {
    stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none()
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The text as a terminal shows it: without the codes of styles.
    fn seen(text: &str) -> String {
        let mut parts = text.split('\u{1b}');
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold(first, |seen, part| {
            seen + part.split_once('m').map_or("", |(_, text)| text)
        })
    }

    #[test]
    fn columns_stand_under_each_other_whatever_is_in_them() {
        let rows = vec![
            [status(TaskStatus::Queued), "echo".into(), "1".into()],
            [status(TaskStatus::Succeeded), "日本語".into(), "2".into()],
            [status(TaskStatus::Failed), "\u{1b}[2J".into(), "3".into()],
        ];
        let header = ["STATUS", "TYPE", "N"];
        for colour in [false, true] {
            let text = render(header, rows.clone(), colour);
            assert_eq!(text.contains("\u{1b}[32m"), colour);
            assert!(!text.contains("\u{1b}[2J"), "{text:?}");
            let columns: Vec<usize> = seen(&text)
                .lines()
                .map(|line| width(line.trim_end_matches(|c: char| c.is_ascii_alphanumeric())))
                .collect();
            assert_eq!(columns, [22; 4], "{text}");
        }
    }

    #[test]
    fn values_of_others_cannot_drive_the_terminal() {
        let text = fields([("error", Some("a\u{1b}[2Jb\nc"))]);
        assert_eq!(text, "error  a\\u{1b}[2Jb\\nc");
    }

    #[test]
    fn ages_are_short() {
        for (seconds, text) in [
            (0, "0 s"),
            (59, "59 s"),
            (60, "1 min"),
            (3_600, "1 h"),
            (200_000, "2 d"),
        ] {
            assert_eq!(age(seconds), text);
        }
    }
}
