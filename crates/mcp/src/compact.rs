//! Schemas in few words: many hosts pay for the list of tools in every turn of a model.
//!
//! What goes are words that say something twice or that nobody reads there. A schema still accepts
//! everything that it accepted before.

use schemars::{
    Schema,
    transform::{Transform, transform_subschemas},
};
use serde_json::{Map, Value, json};

const DEFINITIONS: &str = "$defs";

/// Leaves the shape of an output: names, types and required members. A model sees the output itself, and
/// OpenAPI explains each member.
#[derive(Debug, Clone)]
pub(crate) struct ShapeOnly;

impl Transform for ShapeOnly {
    fn transform(&mut self, schema: &mut Schema) {
        for name in ["description", "minimum", "maximum", "format", "enum"] {
            schema.remove(name);
        }
        transform_subschemas(self, schema);
    }
}

/// A tool whose input or output is a record that those of other tools contain.
#[derive(Debug)]
pub(crate) struct Shown {
    /// The record's name among the definitions.
    pub record: String,
    /// The word about where it is shown.
    pub word: String,
}

/// Replaces records that the list shows elsewhere by a word about where.
pub(crate) fn refer(schema: &mut Value, shown: &[Shown]) {
    let Some(Value::Object(definitions)) = schema.get_mut(DEFINITIONS) else {
        return;
    };
    for Shown { record, word } in shown {
        if let Some(body) = definitions.get_mut(record) {
            let word = json!({"type": "object", "description": word});
            if word.to_string().len() < body.to_string().len() {
                *body = word;
            }
        }
    }
}

/// Writes definitions that are used once, or take no more words than a reference to them, where they are used, and drops
/// those that are not used.
pub(crate) fn inline(schema: &mut Value) {
    while let Some((name, body)) = take_single(schema) {
        put(schema, &reference(&name), &body);
    }
    let is_empty = |defs: &Value| defs.as_object().is_some_and(Map::is_empty);
    if schema.get(DEFINITIONS).is_some_and(is_empty)
        && let Some(members) = schema.as_object_mut()
    {
        members.remove(DEFINITIONS);
    }
}

/// Takes out a definition that is used at most once or is short.
fn take_single(schema: &mut Value) -> Option<(String, Value)> {
    let definitions = schema.get(DEFINITIONS)?.as_object()?;
    let single = definitions
        .iter()
        .find(|(name, body)| {
            let reference = reference(name);
            let is_short =
                || body.to_string().len() <= json!({ "$ref": reference }).to_string().len();
            let is_plain = || uses(body, &reference) == 0;
            uses(schema, &reference) <= 1 || (is_plain() && is_short())
        })?
        .0
        .clone();
    let definitions = schema.get_mut(DEFINITIONS)?.as_object_mut()?;
    definitions.remove_entry(&single)
}

fn reference(name: &str) -> String {
    format!("#/{DEFINITIONS}/{name}")
}

fn uses(value: &Value, reference: &str) -> usize {
    match value {
        Value::Object(members) => {
            let here = members.get("$ref").is_some_and(|at| at == reference);
            let inside = members.values().map(|member| uses(member, reference));
            usize::from(here) + inside.sum::<usize>()
        }
        Value::Array(items) => items.iter().map(|item| uses(item, reference)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// Puts a definition in the place of references to it. What stands beside a reference is more specific
/// and stays.
fn put(value: &mut Value, reference: &str, body: &Value) {
    match value {
        Value::Object(members) => {
            if members.get("$ref").is_some_and(|at| at == reference) {
                members.remove("$ref");
                for (name, value) in body.as_object().into_iter().flatten() {
                    members.entry(name).or_insert_with(|| value.clone());
                }
            }
            for member in members.values_mut() {
                put(member, reference, body);
            }
        }
        Value::Array(items) => {
            for item in items {
                put(item, reference, body);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use schemars::json_schema;

    use super::*;

    #[test]
    fn the_shape_of_an_output_is_names_types_and_what_is_required() {
        let mut schema = json_schema!({
            "type": "object",
            "properties": {
                "description": {"type": "string", "description": "A member that is called so."},
                "n": {"type": "integer", "minimum": 0},
                "list": {"type": "array", "items": {"$ref": "#/$defs/Item"}},
            },
            "required": ["n"],
            "$defs": {
                "Item": {"type": "number", "format": "double", "description": "D.", "enum": [1, 2]},
                "Map": {"type": "object", "additionalProperties": {"type": "string"}},
            },
        });
        ShapeOnly.transform(&mut schema);
        assert_eq!(
            schema.to_value(),
            json!({
                "type": "object",
                "properties": {
                    "description": {"type": "string"},
                    "n": {"type": "integer"},
                    "list": {"type": "array", "items": {"$ref": "#/$defs/Item"}},
                },
                "required": ["n"],
                "$defs": {
                    "Item": {"type": "number"},
                    "Map": {"type": "object", "additionalProperties": {"type": "string"}},
                },
            })
        );
    }

    #[test]
    fn what_is_used_once_stands_where_it_is_used() {
        let mut schema = json!({
            "properties": {
                "one": {"$ref": "#/$defs/One", "description": "Mine."},
                "a": {"$ref": "#/$defs/Two"},
                "b": {"items": {"$ref": "#/$defs/Two"}},
                "c": {"$ref": "#/$defs/Text"},
                "d": {"$ref": "#/$defs/Text"},
            },
            "$defs": {
                "Text": {"type": "string"},
                "One": {"type": "object", "description": "Its.", "properties": {"in": {"$ref": "#/$defs/In"}}},
                "In": {"type": "string"},
                "Two": {"type": "integer", "description": "Too long to be repeated."},
                "None": {"$ref": "#/$defs/Two"},
            },
        });
        inline(&mut schema);
        assert_eq!(
            schema,
            json!({
                "properties": {
                    "one": {"type": "object", "description": "Mine.", "properties": {"in": {"type": "string"}}},
                    "a": {"$ref": "#/$defs/Two"},
                    "b": {"items": {"$ref": "#/$defs/Two"}},
                    "c": {"type": "string"},
                    "d": {"type": "string"},
                },
                "$defs": {"Two": {"type": "integer", "description": "Too long to be repeated."}},
            })
        );
        let mut alone = json!({"items": {"$ref": "#/$defs/A"}, "$defs": {"A": {"type": "null"}}});
        inline(&mut alone);
        assert_eq!(alone, json!({"items": {"type": "null"}}));
    }

    #[test]
    fn a_record_that_contains_itself_is_left_alone() {
        let schema = json!({
            "items": {"$ref": "#/$defs/Tree"},
            "$defs": {"Tree": {"items": {"$ref": "#/$defs/Tree"}}},
        });
        let mut inlined = schema.clone();
        inline(&mut inlined);
        assert_eq!(inlined, schema);
    }

    #[test]
    fn a_record_that_another_tool_shows_is_named_and_not_repeated() {
        let task = json!({"type": "object", "properties": {"status": {"$ref": "#/$defs/Status"},
            "payload_pointer": {"type": "string"}, "created_at": {"type": "string"}}});
        let mut schema = json!({
            "properties": {"tasks": {"type": "array", "items": {"$ref": "#/$defs/Task"}}, "ok": {"$ref": "#/$defs/Ok"}},
            "$defs": {"Task": task, "Status": {"enum": ["a"]}, "Ok": {"type": "object"}},
        });
        let shown = ["Task", "Ok", "Other"].map(|record| Shown {
            record: record.to_owned(),
            word: "As get_task returns it.".to_owned(),
        });
        refer(&mut schema, &shown);
        inline(&mut schema);
        assert_eq!(
            schema["properties"],
            json!({
                "tasks": {"type": "array", "items": {"type": "object", "description": "As get_task returns it."}},
                "ok": {"type": "object"},
            })
        );
        assert_eq!(schema.get("$defs"), None);
    }
}
