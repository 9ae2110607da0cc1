//! Schemas in the dialect that generators of clients read.
//!
//! schemars writes legal JSON Schema, but generators know fewer formats, want the items of every list
//! described, and do not read a choice beside properties. The schemas are rewritten here to mean the same.

use schemars::{
    Schema,
    transform::{ReplaceBoolSchemas, Transform, transform_subschemas},
};
use serde_json::{Map, Value, json};

use super::ways;

/// Rewrites the schema of an input.
pub(super) fn input(schema: Schema) -> Value {
    let schema = ways::spread(schema.to_value());
    let schema = Schema::try_from(schema).unwrap_or_default();
    plain(schema, "int32").to_value()
}

/// Rewrites the schema of an output.
pub(super) fn output(schema: Schema) -> Value {
    plain(schema, "int64").to_value()
}

/// Rewrites what inputs and outputs have in common. `uint32` is the format for `u32`: an input may say
/// less than the server takes, an output may not.
fn plain(mut schema: Schema, uint32: &'static str) -> Schema {
    let mut replace = ReplaceBoolSchemas::default();
    replace.skip_additional_properties = true;
    replace.transform(&mut schema);
    Plain { uint32 }.transform(&mut schema);
    schema
}

#[derive(Debug, Clone)]
struct Plain {
    uint32: &'static str,
}

impl Transform for Plain {
    fn transform(&mut self, schema: &mut Schema) {
        if let Some(members) = schema.as_object_mut() {
            self.name_known_format(members);
            describe_items(members);
            // Nothing is excluded, which need not be said.
            if members.get("not") == Some(&json!(false)) {
                members.remove("not");
            }
        }
        transform_subschemas(self, schema);
    }
}

impl Plain {
    /// Replaces the formats of Rust's integers by the two that the specification knows.
    fn name_known_format(&self, members: &mut Map<String, Value>) {
        let format = match members.get("format").and_then(Value::as_str) {
            Some("uint8" | "uint16") => "int32",
            Some("uint32") => self.uint32,
            Some("uint64" | "uint") => "int64",
            _ if members.get("contentEncoding") == Some(&json!("base64")) => "byte",
            _ => return,
        };
        members.insert("format".to_owned(), format.into());
    }
}

fn describe_items(members: &mut Map<String, Value>) {
    if members.get("type") == Some(&json!("array")) {
        members.entry("items").or_insert_with(|| json!({}));
    }
}

#[cfg(test)]
mod tests {
    use schemars::json_schema;

    use super::*;

    #[test]
    fn formats_are_known_ones_and_lists_have_items() {
        let schema = output(json_schema!({"properties": {
            "small": {"type": ["integer", "null"], "format": "uint16", "minimum": 0, "maximum": 65_535},
            "number": {"type": "integer", "format": "uint32", "minimum": 0, "maximum": 60},
            "large": {"type": "integer", "format": "uint64", "minimum": 0},
            "signed": {"type": "integer", "format": "int32"},
            "bytes": {"type": "string", "contentEncoding": "base64"},
            "list": {"type": "array", "maxItems": 0},
            "any": true,
        }}));
        let expected = json!({"properties": {
            "small": {"type": ["integer", "null"], "format": "int32", "minimum": 0, "maximum": 65_535},
            "number": {"type": "integer", "format": "int64", "minimum": 0, "maximum": 60},
            "large": {"type": "integer", "format": "int64", "minimum": 0},
            "signed": {"type": "integer", "format": "int32"},
            "bytes": {"type": "string", "contentEncoding": "base64", "format": "byte"},
            "list": {"type": "array", "maxItems": 0, "items": {}},
            "any": {},
        }});
        assert_eq!(schema, expected);
    }
}
