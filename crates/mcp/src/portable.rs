//! Schemas in the plain dialect that every client and model provider reads.
//!
//! schemars writes legal JSON Schema for Rust's types, but some clients cannot read all of it:
//! `true` as a property's schema, lists of types (`["string", "null"]`), choices of constants, and
//! formats such as `uint32` that no standard knows. The schemas are rewritten here to mean the
//! same, with one liberty: an optional *input* is shown without its `null`, because leaving it out
//! says the same and is what a model should do. Names of Rust's types are left out, since a model
//! pays for every word of the list.

use schemars::{
    Schema,
    transform::{ReplaceBoolSchemas, Transform, transform_subschemas},
};
use serde_json::{Map, Value, json};

/// Returns the schema of a tool's input: an object, its optional members without `null`.
pub(crate) fn input(schema: Schema) -> Value {
    let mut schema = plain(schema);
    OptionalWithoutNull.transform(&mut schema);
    schema.to_value()
}

/// Returns the schema of a tool's output: an object.
pub(crate) fn output(schema: Schema) -> Value {
    plain(schema).to_value()
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
            unwrap_description(members);
            drop_rust_format(members);
            list_constants(members);
            split_type(members);
        }
        transform_subschemas(self, schema);
    }
}

/// Takes `null` from the alternatives of members that may be left out.
#[derive(Debug, Clone)]
struct OptionalWithoutNull;

impl Transform for OptionalWithoutNull {
    fn transform(&mut self, schema: &mut Schema) {
        let required = schema.get("required").cloned().unwrap_or_default();
        let is_required = |name: &str| {
            let names = required.as_array();
            names.is_some_and(|names| names.iter().any(|one| one == name))
        };
        if let Some(Value::Object(properties)) = schema.get_mut("properties") {
            for (name, property) in properties {
                if let Value::Object(property) = property
                    && !is_required(name)
                {
                    drop_null_default(property);
                    drop_null(property);
                }
            }
        }
        transform_subschemas(self, schema);
    }
}

/// Joins the lines of each paragraph: doc comments are wrapped, descriptions are not.
fn unwrap_description(members: &mut Map<String, Value>) {
    if let Some(Value::String(text)) = members.get_mut("description") {
        let paragraphs = text.split("\n\n").map(|lines| lines.replace('\n', " "));
        *text = paragraphs.collect::<Vec<_>>().join("\n");
    }
}

fn drop_rust_format(members: &mut Map<String, Value>) {
    let format = members.get("format").and_then(Value::as_str);
    if format.is_some_and(|format| format.starts_with("int") || format.starts_with("uint")) {
        members.remove("format");
    }
}

/// Turns `oneOf` constants into an `enum`, and moves the description of each into that of the whole.
fn list_constants(members: &mut Map<String, Value>) {
    let Some(Value::Array(choices)) = members.get("oneOf") else {
        return;
    };
    let constants: Option<Vec<_>> = choices
        .iter()
        .map(|choice| choice.get("const").filter(|value| value.is_string()))
        .collect();
    let Some(constants) = constants else {
        return;
    };
    let about = members.get("description").and_then(Value::as_str);
    let mut text = about.unwrap_or_default().to_owned();
    for choice in choices {
        let (value, said) = (&choice["const"], choice["description"].as_str());
        if let (Some(value), Some(said)) = (value.as_str(), said) {
            text.push_str(&format!("\n- {value}: {said}"));
        }
    }
    let constants = json!(constants);
    members.remove("oneOf");
    members.insert("type".to_owned(), "string".into());
    members.insert("enum".to_owned(), constants);
    members.insert("description".to_owned(), text.trim().into());
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

fn drop_null(property: &mut Map<String, Value>) {
    let Some(Value::Array(branches)) = property.get("anyOf") else {
        return;
    };
    let null = json!({"type": "null"});
    let mut others = branches.iter().filter(|branch| **branch != null);
    let (Some(Value::Object(only)), None, true) =
        (others.next(), others.next(), branches.contains(&null))
    else {
        return;
    };
    let only = only.clone();
    property.remove("anyOf");
    for (name, value) in only {
        property.entry(name).or_insert(value);
    }
}

fn drop_null_default(property: &mut Map<String, Value>) {
    if property.get("default").is_some_and(Value::is_null) {
        property.remove("default");
    }
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
        let schema = output(sample());
        assert_eq!(schema["type"], "object");
        assert_eq!(schema["additionalProperties"], false);
        assert_eq!(
            schema["properties"]["must"],
            json!({"description": "Must.",
                "anyOf": [{"type": "string", "maxLength": 9}, {"type": "null"}]})
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
    fn constants_are_listed_and_explained() {
        let schema = output(json_schema!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "RustName",
            "description": "Says less than the tool does.",
            "properties": {
                "kind": {"description": "What it\nis.\n\nMore.", "oneOf": [
                    {"type": "string", "const": "a", "description": "First."},
                    {"type": "string", "const": "b"},
                ]},
                "n": {"type": "integer", "format": "uint32", "minimum": 0},
                "t": {"type": "string", "format": "date-time"},
                "either": {"oneOf": [{"type": "string", "const": "a"}, {"type": "integer"}]},
            },
        }));
        assert_eq!(
            schema,
            json!({"type": "object", "properties": {
                "kind": {"type": "string", "enum": ["a", "b"],
                    "description": "What it is.\nMore.\n- a: First."},
                "n": {"type": "integer", "minimum": 0},
                "t": {"type": "string", "format": "date-time"},
                "either": {"oneOf": [{"type": "string", "const": "a"}, {"type": "integer"}]},
            }})
        );
    }

    #[test]
    fn optional_inputs_are_shown_without_null_and_required_ones_with_it() {
        let schema = input(sample());
        assert_eq!(
            schema["properties"]["may"],
            json!({"type": "integer", "minimum": 0, "description": "May."})
        );
        assert_eq!(
            schema["properties"]["kind"],
            json!({"description": "Kind.", "$ref": "#/$defs/Kind"})
        );
        assert_eq!(
            schema["$defs"]["Kind"]["properties"]["id"],
            json!({"type": "string"})
        );
        assert_eq!(
            schema["properties"]["must"]["anyOf"][1],
            json!({"type": "null"})
        );
    }
}
