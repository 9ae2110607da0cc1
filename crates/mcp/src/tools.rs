//! The tools, made once from the operations.
//!
//! Invariants:
//! - Tools stand in the order of the registry, always.
//! - Both schemas of a tool are objects at their root.
//! - A tool is found by either of its names, and whether or not a list shows it.

use std::collections::HashMap;

use asyncgate_api::{Effect, Spec, Toolset};
use schemars::Schema;
use serde_json::{Value, json};

use crate::{backend::Listed, compact::Shown, names::ToolNames, portable};

/// The record by which one item of a batch is refused. Every batch has it, so a word must do.
const REFUSAL: &str = "Refusal";

/// The tools' names, and their descriptions as JSON.
#[derive(Debug)]
pub(crate) struct Catalogue {
    numbers: HashMap<String, usize>,
    tools: Vec<Tool>,
}

#[derive(Debug)]
struct Tool {
    /// The number of the operation behind it.
    number: usize,
    toolset: Toolset,
    json: String,
}

impl Catalogue {
    pub(crate) fn new(operations: &[Listed], names: ToolNames) -> Self {
        let mut numbers = HashMap::new();
        let mut tools = Vec::new();
        for (number, operation) in operations.iter().enumerate() {
            let Some(tool) = operation.spec.tool else {
                continue;
            };
            for name in [ToolNames::Dotted, ToolNames::Underscore] {
                numbers.insert(name.listed(tool), number);
            }
            tools.push(Tool {
                number,
                toolset: operation.spec.toolset(),
                json: describe(operation, tool, operations, names).to_string(),
            });
        }
        Self { numbers, tools }
    }

    /// Returns the number of the operation behind a tool.
    pub(crate) fn find(&self, tool: &str) -> Option<usize> {
        self.numbers.get(tool).copied()
    }

    /// Returns the array of the tools that are wanted, as JSON.
    pub(crate) fn list(&self, wanted: impl Fn(usize, Toolset) -> bool) -> String {
        let wanted = self
            .tools
            .iter()
            .filter(|tool| wanted(tool.number, tool.toolset));
        let tools: Vec<&str> = wanted.map(|tool| tool.json.as_str()).collect();
        format!("[{}]", tools.join(","))
    }
}

fn describe(operation: &Listed, tool: &str, operations: &[Listed], names: ToolNames) -> Value {
    let spec = operation.spec;
    let mut shown = shown_elsewhere(spec, operations, |other| {
        let tool = names.listed(other.spec.tool?);
        Some((&other.output, format!("As {tool} returns it.")))
    });
    shown.push(Shown {
        record: REFUSAL.to_owned(),
        word: "Or code and message.".to_owned(),
    });
    let taken = shown_elsewhere(spec, operations, |other| {
        let tool = names.listed(other.spec.tool?);
        Some((&other.input, format!("As {tool} takes it.")))
    });
    json!({
        "name": names.listed(tool),
        "description": description(spec, operations, names),
        "inputSchema": portable::input(operation.input.clone(), &taken),
        "outputSchema": portable::output(operation.output.clone(), &shown),
        "annotations": annotations(spec.effect),
    })
}

/// Returns the records that tools of the same toolset return or take, as `side` tells. Whoever is shown the
/// operation is shown those too.
fn shown_elsewhere<'a>(
    spec: &Spec,
    operations: &'a [Listed],
    side: impl Fn(&'a Listed) -> Option<(&'a Schema, String)>,
) -> Vec<Shown> {
    let beside = operations
        .iter()
        .filter(|other| other.spec.name != spec.name && other.spec.toolset() == spec.toolset());
    let shown = beside.filter_map(|other| {
        let (schema, word) = side(other)?;
        let record = schema.get("title")?.as_str()?.to_owned();
        Some(Shown { record, word })
    });
    shown.collect()
}

fn description(spec: &Spec, operations: &[Listed], names: ToolNames) -> String {
    let mut text = format!("{} {}", spec.summary, spec.doc);
    let successor = spec.successor.and_then(|path| {
        let next = operations.iter().find(|next| next.spec.path == path)?;
        next.spec.tool
    });
    if let Some(successor) = successor
        && !text.contains("Deprecated")
    {
        let successor = names.listed(successor);
        text.push_str(&format!(" Deprecated: call {successor} instead."));
    }
    names.within(text.trim().to_owned())
}

/// Returns the hints by which hosts decide whether to ask a person first. All tools act on this server
/// and nothing else.
fn annotations(effect: Effect) -> Value {
    let (read_only, destructive, idempotent) = match effect {
        Effect::Read => (true, false, true),
        Effect::Add => (false, false, false),
        Effect::Advance => (false, false, true),
        Effect::End => (false, true, true),
    };
    json!({
        "readOnlyHint": read_only,
        "destructiveHint": destructive,
        "idempotentHint": idempotent,
        "openWorldHint": false,
    })
}

#[cfg(test)]
#[path = "tools_tests.rs"]
mod tests;
