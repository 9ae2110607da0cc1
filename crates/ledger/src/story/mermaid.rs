//! The receipts as a Mermaid sequence diagram: principals stand side by side, receipts go between
//! them, and notes say which obligation is open and when it closes.

use std::fmt::Write;

use asyncgate_core::receipt::{is_terminal, opens_obligation};

use super::{Moment, Story};

pub(super) fn draw(story: &Story) -> String {
    let mut principals: Vec<&str> = Vec::new();
    for moment in &story.moments {
        for name in [moment.from.as_str(), moment.to.as_str()] {
            if !principals.contains(&name) {
                principals.push(name);
            }
        }
    }
    let alias = |name: &str| {
        let position = principals.iter().position(|known| *known == name);
        format!("p{}", position.unwrap_or_default() + 1)
    };
    let mut lines = vec!["sequenceDiagram".to_owned()];
    for name in &principals {
        lines.push(format!("    participant {} as {}", alias(name), safe(name)));
    }
    for moment in &story.moments {
        let (from, to) = (alias(&moment.from), alias(&moment.to));
        lines.push(format!("    {from}->>{to}: {}", safe(&message(moment))));
        if let Some(note) = note(story, moment) {
            lines.push(format!("    Note over {to}: {}", safe(&note)));
        }
    }
    lines.push(String::new());
    lines.join("\n")
}

fn message(moment: &Moment) -> String {
    format!("{} {}", moment.seq, moment.receipt_type.as_str())
}

fn note(story: &Story, moment: &Moment) -> Option<String> {
    if opens_obligation(moment.receipt_type) {
        return Some(match story.open_obligation() {
            Some(_) => format!("obligation {} is still open", moment.seq),
            None => format!("obligation {} opens", moment.seq),
        });
    }
    if !is_terminal(moment.receipt_type) {
        return None;
    }
    let parents = story.parents(moment);
    if parents.is_empty() {
        return Some("no proof, nothing discharged".to_owned());
    }
    let places: Vec<String> = parents.iter().map(ToString::to_string).collect();
    Some(format!("obligation {} discharged", places.join(", ")))
}

/// Replaces every character that may have a meaning in Mermaid by its number.
fn safe(text: &str) -> String {
    let mut safe = String::new();
    for c in text.chars() {
        // A list of allowed characters: a list of forbidden ones would miss some.
        if c.is_alphanumeric() || " ._-/,()=@+".contains(c) {
            safe.push(c);
        } else {
            // Writing to a string cannot fail.
            let _ = write!(safe, "#{};", u32::from(c));
        }
    }
    safe
}
