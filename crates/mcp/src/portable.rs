//! Schemas in the plain dialect that every client and model provider reads.
//!
//! schemars writes legal JSON Schema for Rust's types, but some clients cannot read all of it:
//! `true` as a property's schema, lists of types (`["string", "null"]`), choices beside properties, and
//! formats such as `uint32` that no standard knows. The schemas are rewritten here to mean the
//! same. Names of Rust's types are left out, since a model pays for every word of the list; so are
//! bounds.

use schemars::{
    Schema,
    transform::{ReplaceBoolSchemas, Transform, transform_subschemas},
};
use serde_json::{Map, Value, json};

use crate::compact::{self, ShapeOnly, Shown};

/// Returns the schema of a tool's input: an object. Records that are shown elsewhere are named only.
pub(crate) fn input(schema: Schema, shown: &[Shown]) -> Value {
    let mut schema = plain(schema).to_value();
    compact::refer(&mut schema, shown);
    compact::inline(&mut schema);
    exclude(&mut schema);
    schema
}

/// Returns the schema of a tool's output: the shape of an object. Records that are shown elsewhere are
/// named only.
pub(crate) fn output(schema: Schema, shown: &[Shown]) -> Value {
    let mut schema = plain(schema);
    ShapeOnly.transform(&mut schema);
    let mut schema = schema.to_value();
    compact::refer(&mut schema, shown);
    compact::inline(&mut schema);
    exclude(&mut schema);
    schema
}

fn plain(mut schema: Schema) -> Schema {
    let mut replace = ReplaceBoolSchemas::default();
    replace.skip_additional_properties = true;
    replace.transform(&mut schema);
    // The tool has a title and a description of its own, and the dialect is MCP's default.
    for name in ["$schema", "title", "description"] {
        schema.remove(name);
    }
    schema.insert("type".to_owned(), "object".into());
    Plain.transform(&mut schema);
    schema
}

/// Rewrites a schema and those inside it.
#[derive(Debug, Clone)]
struct Plain;

impl Transform for Plain {
    fn transform(&mut self, schema: &mut Schema) {
        if let Some(members) = schema.as_object_mut() {
            drop_checks(members);
            split_type(members);
        }
        transform_subschemas(self, schema);
    }
}

/// Leaves out formats and bounds: descriptions say in words what matters of them, and the server says so
/// when it refuses. Some model providers refuse a choice beside properties.
fn drop_checks(members: &mut Map<String, Value>) {
    for name in CHECKS {
        members.remove(name);
    }
    if members.contains_key("properties") {
        members.remove("oneOf");
    }
}

const CHECKS: [&str; 10] = [
    "format",
    "pattern",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "maxProperties",
    "dependentRequired",
];

/// Takes values that are excluded from what may be chosen, and drops the exclusions.
fn exclude(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            let not = members.remove("not");
            let excluded = not.as_ref().and_then(|not| not.get("const"));
            if let (Some(excluded), Some(Value::Array(values))) =
                (excluded, members.get_mut("enum"))
            {
                values.retain(|value| value != excluded);
            }
            members.values_mut().for_each(exclude);
        }
        Value::Array(items) => items.iter_mut().for_each(exclude),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Turns `type: [T, null]` into `anyOf: [T, null]`.
fn split_type(members: &mut Map<String, Value>) {
    let Some(Value::Array(types)) = members.get("type") else {
        return;
    };
    let [one, other] = types.as_slice() else {
        return;
    };
    let kept = match (one.as_str(), other.as_str()) {
        (Some("null"), Some(kept)) | (Some(kept), Some("null")) => kept.to_owned(),
        _ => return,
    };
    let (notes, mut branch): (Map<_, _>, Map<_, _>) = std::mem::take(members)
        .into_iter()
        .partition(|(name, _)| is_note(name));
    branch.insert("type".to_owned(), kept.into());
    if let Some(Value::Array(values)) = branch.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
    *members = notes;
    members.insert("anyOf".to_owned(), json!([branch, {"type": "null"}]));
}

/// Returns true for keywords that describe a value and do not check it.
fn is_note(name: &str) -> bool {
    matches!(
        name,
        "title" | "description" | "default" | "examples" | "deprecated" | "readOnly" | "writeOnly"
    ) || name.starts_with('$')
}

#[cfg(test)]
mod tests {
    use schemars::json_schema;

    use super::*;

    fn sample() -> Schema {
        json_schema!({
            "required": ["must", "payload"],
            "properties": {
                "must": {"type": ["string", "null"], "maxLength": 9, "description": "Must."},
                "may": {"type": ["integer", "null"], "minimum": 0, "default": null, "description": "May."},
                "kind": {"description": "Kind.", "anyOf": [{"$ref": "#/$defs/Kind"}, {"type": "null"}]},
                "payload": true,
                "list": {"type": "array", "items": {"type": ["null", "string"], "enum": ["a", null]}},
            },
            "additionalProperties": false,
            "$defs": {"Kind": {"type": "object", "properties": {"id": {"type": ["string", "null"]}}}},
        })
    }

    #[test]
    fn lists_of_types_become_alternatives() {
        let schema = plain(sample()).to_value();
        assert_eq!(schema["type"], "object");
        assert_eq!(schema["additionalProperties"], false);
        assert_eq!(
            schema["properties"]["must"],
            json!({"description": "Must.",
                "anyOf": [{"type": "string"}, {"type": "null"}]})
        );
        assert_eq!(schema["properties"]["payload"], json!({}));
        assert_eq!(
            schema["properties"]["list"]["items"],
            json!({"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "null"}]})
        );
        assert_eq!(
            schema["properties"]["kind"]["anyOf"][1],
            json!({"type": "null"})
        );
    }

    #[test]
    fn rust_names_and_formats_are_left_out() {
        let schema = plain(json_schema!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "RustName",
            "description": "Says less than the tool does.",
            "properties": {
                "n": {"type": "integer", "format": "uint32", "minimum": 0},
                "t": {"type": "string", "format": "date-time", "pattern": "^x$"},
                "either": {"oneOf": [{"type": "string", "const": "a"}, {"type": "integer"}]},
            },
        }));
        assert_eq!(
            schema.to_value(),
            json!({"type": "object", "properties": {
                "n": {"type": "integer"},
                "t": {"type": "string"},
                "either": {"oneOf": [{"type": "string", "const": "a"}, {"type": "integer"}]},
            }})
        );
    }
}
