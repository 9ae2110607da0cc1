//! The tool list, made once from the operations.
//!
//! Invariants:
//! - Tools stand in the order of the registry, always.
//! - Both schemas of a tool are objects at their root.

use std::collections::HashMap;

use asyncgate_api::{Effect, Spec};
use serde_json::{Value, json};

use crate::{backend::Listed, portable};

/// The tools' names, and their descriptions as JSON.
#[derive(Debug)]
pub(crate) struct Catalogue {
    numbers: HashMap<&'static str, usize>,
    json: String,
}

impl Catalogue {
    pub(crate) fn new(operations: &[Listed]) -> Self {
        let named = operations
            .iter()
            .enumerate()
            .filter_map(|(number, operation)| Some((operation.spec.tool?, number)));
        Self {
            numbers: named.collect(),
            json: describe(operations).to_string(),
        }
    }

    /// Returns the number of the operation behind a tool.
    pub(crate) fn find(&self, tool: &str) -> Option<usize> {
        self.numbers.get(tool).copied()
    }

    /// Returns the array of tools as JSON.
    pub(crate) fn json(&self) -> &str {
        &self.json
    }
}

/// Returns the array of tools, for `tools/list`.
pub(crate) fn describe(operations: &[Listed]) -> Value {
    let tools = operations.iter().filter_map(|operation| {
        let spec = operation.spec;
        Some(json!({
            "name": spec.tool?,
            "title": title(spec.name),
            "description": description(spec, operations),
            "inputSchema": portable::input(operation.input.clone()),
            "outputSchema": portable::output(operation.output.clone()),
            "annotations": annotations(spec.effect),
        }))
    });
    Value::Array(tools.collect())
}

/// Turns `create_task` into `Create task`.
fn title(name: &str) -> String {
    let mut words = name.replace('_', " ");
    if let Some(first) = words.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    words
}

fn description(spec: &Spec, operations: &[Listed]) -> String {
    let mut text = format!("{}\n\n{}", spec.summary, spec.doc);
    let successor = spec.successor.and_then(|path| {
        let next = operations.iter().find(|next| next.spec.path == path)?;
        next.spec.tool
    });
    if let Some(successor) = successor
        && !text.contains("Deprecated")
    {
        text.push_str(&format!("\n\nDeprecated: call {successor} instead."));
    }
    text.trim().to_owned()
}

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
mod tests {
    use super::*;
    use crate::fake;

    #[test]
    fn tools_keep_the_order_of_the_operations_and_skip_those_without_a_tool() {
        let operations = fake::operations();
        let tools = describe(&operations);
        let names: Vec<_> = tools
            .as_array()
            .unwrap()
            .iter()
            .map(|t| &t["name"])
            .collect();
        assert_eq!(names, ["fake.echo", "fake.wait", "fake.refuse", "fake.old"]);
        let catalogue = Catalogue::new(&operations);
        assert_eq!(
            catalogue.find("fake.refuse"),
            Some(3),
            "hidden ones keep their number"
        );
        assert_eq!(catalogue.find("hidden"), None);
        assert_eq!(catalogue.json(), tools.to_string());
    }

    #[test]
    fn every_tool_of_the_product_is_fit_for_clients() {
        let tools = describe(&crate::backend::operations());
        let tools = tools.as_array().unwrap();
        assert!(tools.len() >= 18);
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        for tool in tools {
            let name = tool["name"].as_str().unwrap();
            assert!(name.len() <= 128 && name.bytes().all(plain), "{name}");
            for side in ["inputSchema", "outputSchema"] {
                assert_eq!(tool[side]["type"], "object", "{name}");
                let text = tool[side].to_string();
                assert!(!text.contains(r#""type":["#), "{name}: {text}");
                assert!(!text.contains(r#""format":"uint"#), "{name}: {text}");
            }
            let said = tool["description"].as_str().unwrap();
            assert!(said.len() > 30 && !said.contains("  "), "{name}: {said}");
        }
    }

    #[test]
    fn a_tool_says_what_it_is_and_what_it_does() {
        let tools = describe(&fake::operations());
        let echo = &tools[0];
        assert_eq!(echo["title"], "Echo all");
        assert_eq!(echo["description"], "Gives back.\n\nAll of it.");
        assert_eq!(echo["annotations"]["readOnlyHint"], true);
        assert_eq!(echo["annotations"]["openWorldHint"], false);
        let old = &tools[3];
        assert_eq!(
            old["description"],
            "Is old.\n\nStill works.\n\nDeprecated: call fake.echo instead."
        );
        assert_eq!(old["annotations"]["destructiveHint"], true);
        assert_eq!(old["annotations"]["idempotentHint"], true);
    }

    #[test]
    fn schemas_are_objects_and_so_are_those_of_their_properties() {
        let tools = describe(&fake::operations());
        for tool in tools.as_array().unwrap() {
            for side in ["inputSchema", "outputSchema"] {
                assert_eq!(tool[side]["type"], "object", "{tool}");
            }
        }
        let input = &tools[0]["inputSchema"];
        assert_eq!(input["properties"]["payload"], json!({}));
        assert_eq!(input["additionalProperties"], false);
    }
}
