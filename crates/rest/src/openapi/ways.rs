//! Inputs that can be filled in in several ways.
//!
//! A schema says so by `oneOf` beside its properties, which is right for a validator; but generators of
//! clients see either the properties or the choice. So every way becomes an object with a name of its own,
//! and the input the choice between them.

use asyncgate_engine::schema::drop_null;
use serde_json::{Map, Value, json};

/// Rewrites a schema and its definitions.
pub(super) fn spread(mut schema: Value) -> Value {
    let mut definitions = match schema.as_object_mut().and_then(|it| it.remove("$defs")) {
        Some(Value::Object(definitions)) => definitions,
        _ => Map::new(),
    };
    let mut found = Map::new();
    schema = spread_one(schema, &mut found);
    for definition in definitions.values_mut() {
        *definition = spread_one(definition.take(), &mut found);
    }
    definitions.append(&mut found);
    schema["$defs"] = definitions.into();
    schema
}

fn spread_one(mut schema: Value, definitions: &mut Map<String, Value>) -> Value {
    if schema.get("properties").is_none() {
        return schema;
    }
    let Some(Value::Array(ways)) = schema.as_object_mut().and_then(|it| it.remove("oneOf")) else {
        return schema;
    };
    let mut choices = Vec::with_capacity(ways.len());
    for way in ways {
        let title = way["title"].as_str().unwrap_or_default().to_owned();
        choices.push(json!({ "$ref": format!("#/$defs/{title}") }));
        definitions.insert(title, one_way(&schema, &way));
    }
    let mut choice = json!({ "oneOf": choices });
    for note in ["title", "description"] {
        if let Some(note_text) = schema.get(note) {
            choice[note] = note_text.clone();
        }
    }
    choice
}

/// Returns the object that is one way to fill in the input.
fn one_way(input: &Value, way: &Value) -> Value {
    let mut object = input.clone();
    if let Some(members) = object.as_object_mut() {
        members.remove("$schema");
        members.remove("title");
    }
    for (field, special) in way["properties"].as_object().into_iter().flatten() {
        let Some(properties) = object["properties"].as_object_mut() else {
            continue;
        };
        if *special == json!(false) {
            // The field may not be there.
            properties.remove(field);
        } else if let Some(Value::Object(own)) = properties.get_mut(field) {
            own.extend(special.as_object().cloned().unwrap_or_default());
        }
    }
    // What could be left out before had `null` for it; now it must be there.
    for field in way["required"].as_array().into_iter().flatten() {
        let field = field.as_str().unwrap_or_default();
        if let Some(property) = object["properties"][field].as_object_mut() {
            drop_null(property);
        }
    }
    let both = [&input["required"], &way["required"]].into_iter();
    let required: Vec<&Value> = both.filter_map(Value::as_array).flatten().collect();
    object["required"] = json!(required);
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_is_an_object_and_the_input_a_choice() {
        let spread = spread(json!({
            "title": "Input",
            "properties": {"subject": {"$ref": "#/$defs/Subject"}},
            "$defs": {"Subject": {
                "description": "One.",
                "required": ["kind"],
                "additionalProperties": false,
                "properties": {"kind": {"type": "string"}, "hash": {"type": ["string", "null"]}, "key": {}},
                "oneOf": [
                    {"title": "ByHash", "required": ["hash"], "properties": {"key": false}},
                    {"title": "ByKey", "required": ["key"], "properties": {
                        "hash": false, "kind": {"enum": ["key"]},
                    }},
                ],
            }},
        }));
        let expected = json!({
            "title": "Input",
            "properties": {"subject": {"$ref": "#/$defs/Subject"}},
            "$defs": {
                "Subject": {
                    "description": "One.",
                    "oneOf": [{"$ref": "#/$defs/ByHash"}, {"$ref": "#/$defs/ByKey"}],
                },
                "ByHash": {
                    "description": "One.",
                    "required": ["kind", "hash"],
                    "additionalProperties": false,
                    "properties": {"kind": {"type": "string"}, "hash": {"type": "string"}},
                },
                "ByKey": {
                    "description": "One.",
                    "required": ["kind", "key"],
                    "additionalProperties": false,
                    "properties": {"kind": {"type": "string", "enum": ["key"]}, "key": {}},
                },
            },
        });
        assert_eq!(spread, expected);
    }
}
