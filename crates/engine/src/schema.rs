//! The JSON Schemas of inputs and outputs, as every facade starts from them.
//!
//! schemars writes what the Rust types say. Here the schemas get what holds for all operations: fields have
//! the forms of their names, an enumeration is an `enum`, outputs may gain fields, and texts are not wrapped.

use asyncgate_api::{Forms, bounds};
use schemars::{
    JsonSchema, Schema, SchemaGenerator,
    generate::SchemaSettings,
    transform::{Transform, transform_subschemas},
};
use serde_json::{Map, Value, json};

/// Writes the schema of one type.
type Write = fn(SchemaGenerator) -> Schema;

/// Returns the schema of an input.
pub fn input<T: JsonSchema>() -> Schema {
    written_input(SchemaGenerator::into_root_schema_for::<T>)
}

/// Returns the schema of an output.
pub fn output<T: JsonSchema>() -> Schema {
    written_output(SchemaGenerator::into_root_schema_for::<T>)
}

fn written_input(write: Write) -> Schema {
    let settings = SchemaSettings::draft2020_12()
        .with_transform(Readable)
        .with_transform(WithoutNull)
        .with_transform(Forms::Input);
    write(settings.into_generator())
}

fn written_output(write: Write) -> Schema {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let settings = settings
        .with_transform(Readable)
        .with_transform(WithoutNull)
        .with_transform(Forms::Output)
        .with_transform(Open);
    write(settings.into_generator())
}

const _: () = assert!(
    bounds::MAX_ARTIFACTS == asyncgate_core::receipt::MAX_ARTIFACTS,
    "the rule's own bound"
);

/// Writes enumerations and descriptions as readers expect them.
#[derive(Debug, Clone)]
struct Readable;

impl Transform for Readable {
    fn transform(&mut self, schema: &mut Schema) {
        if let Some(members) = schema.as_object_mut() {
            unwrap_description(members);
            list_constants(members);
        }
        transform_subschemas(self, schema);
    }
}

/// Takes `null` from fields that may be left out. In an input, to leave a field out says the same as `null`
/// and is plainer; in an output, a field that has nothing to say is left out.
#[derive(Debug, Clone)]
struct WithoutNull;

impl Transform for WithoutNull {
    fn transform(&mut self, schema: &mut Schema) {
        let required = schema.get("required").and_then(Value::as_array).cloned();
        let required = required.unwrap_or_default();
        if let Some(Value::Object(properties)) = schema.get_mut("properties") {
            for (name, property) in properties {
                if let Value::Object(property) = property
                    && !required.iter().any(|required| required == name)
                {
                    drop_null(property);
                }
            }
        }
        transform_subschemas(self, schema);
    }
}

/// Takes `null` from what a field may be.
pub fn drop_null(property: &mut Map<String, Value>) {
    if property.get("default").is_some_and(Value::is_null) {
        property.remove("default");
    }
    if let Some(Value::Array(types)) = property.get_mut("type") {
        types.retain(|one| one != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            property.insert("type".to_owned(), only);
        }
    }
    if let Some(Value::Array(values)) = property.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
    let Some(Value::Array(branches)) = property.get_mut("anyOf") else {
        return;
    };
    branches.retain(|branch| *branch != json!({ "type": "null" }));
    if let [Value::Object(only)] = branches.as_slice() {
        let only = only.clone();
        property.remove("anyOf");
        for (name, value) in only {
            property.entry(name).or_insert(value);
        }
    }
}

/// Lets every object have more fields than the schema names.
#[derive(Debug, Clone)]
struct Open;

impl Transform for Open {
    fn transform(&mut self, schema: &mut Schema) {
        if schema.get("additionalProperties") == Some(&Value::Bool(false)) {
            schema.remove("additionalProperties");
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
            text.push_str(&format!("\n- {value}: {}", said.replace('\n', " ")));
        }
    }
    let constants = json!(constants);
    members.remove("oneOf");
    members.insert("type".to_owned(), "string".into());
    members.insert("enum".to_owned(), constants);
    members.insert("description".to_owned(), text.trim().into());
}

#[cfg(test)]
mod tests {
    use asyncgate_core::{
        ReceiptType,
        admission::{SubjectKind, Tier},
        identity::{
            TenantTier,
            audit::{Event, Severity},
        },
    };
    use schemars::json_schema;

    use super::*;
    use crate::registry;

    #[test]
    fn constants_are_an_enum_and_keep_their_descriptions() {
        let mut schema = json_schema!({
            "$defs": {"Kind": {
                "description": "The kind.\nOf all.",
                "oneOf": [
                    {"type": "string", "const": "a", "description": "First\nof all."},
                    {"type": "string", "const": "b", "description": "Last."},
                ],
            }},
        });
        Readable.transform(&mut schema);
        assert_eq!(
            schema.pointer("/$defs/Kind"),
            Some(&json!({
                "type": "string",
                "enum": ["a", "b"],
                "description": "The kind. Of all.\n- a: First of all.\n- b: Last.",
            }))
        );
    }

    #[test]
    fn a_field_that_may_be_left_out_has_no_null_and_another_keeps_it() {
        let mut schema = json_schema!({
            "required": ["must"],
            "properties": {
                "must": {"type": ["string", "null"]},
                "may": {"type": ["string", "null"], "default": null, "description": "May."},
                "kind": {"anyOf": [{"$ref": "#/$defs/Kind"}, {"type": "null"}], "description": "Kind."},
                "either": {"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}]},
            },
        });
        WithoutNull.transform(&mut schema);
        let expected = json!({
            "must": {"type": ["string", "null"]},
            "may": {"type": "string", "description": "May."},
            "kind": {"$ref": "#/$defs/Kind", "description": "Kind."},
            "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        });
        assert_eq!(schema.get("properties"), Some(&expected));
    }

    /// Finds what a check objects to, anywhere in a schema.
    fn find(schema: &Value, objects: &impl Fn(&Value) -> bool) -> Option<Value> {
        if objects(schema) {
            return Some(schema.clone());
        }
        let inner: Vec<&Value> = match schema {
            Value::Object(members) => members.values().collect(),
            Value::Array(values) => values.iter().collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
        };
        inner.into_iter().find_map(|inner| find(inner, objects))
    }

    #[test]
    fn inputs_are_closed_and_outputs_are_open() {
        let closed = |schema: &Value| schema["additionalProperties"] == json!(false);
        let open = |schema: &Value| {
            schema.get("properties").is_some() && schema["type"] == "object" && !closed(schema)
        };
        for entry in registry() {
            let name = entry.spec.name;
            let input = (entry.input_schema)().to_value();
            assert_eq!(find(&input, &open), None, "{name} takes unknown fields");
            let output = (entry.output_schema)().to_value();
            assert_eq!(find(&output, &closed), None, "{name} can gain no field");
        }
    }

    fn input_of(name: &str) -> Value {
        let found = registry().iter().find(|entry| entry.spec.name == name);
        (found.unwrap().input_schema)().to_value()
    }

    /// Lists of names are written twice: the rules and the wire types do not see each other.
    #[test]
    fn enumerations_are_those_of_the_rules() {
        let names = input_of("list_ledger")["$defs"]["ReceiptType"]["enum"].clone();
        assert_eq!(names, json!(ReceiptType::ALL.map(ReceiptType::as_str)));
        let names = input_of("set_tier")["$defs"]["TierName"]["enum"].clone();
        assert_eq!(names, json!(Tier::ALL.map(Tier::as_str)));
        let names = input_of("list_audit")["$defs"]["AuditEvent"]["enum"].clone();
        assert_eq!(names, json!(Event::ALL.map(Event::as_str)));
        let names = input_of("list_audit")["$defs"]["SeverityName"]["enum"].clone();
        assert_eq!(names, json!(Severity::ALL.map(Severity::as_str)));
        let names = input_of("create_tenant")["$defs"]["TenantTierName"]["enum"].clone();
        assert_eq!(names, json!(TenantTier::ALL.map(TenantTier::as_str)));
        let names = input_of("create_key")["$defs"]["RoleName"]["enum"].clone();
        assert_eq!(names, json!(["agent", "worker", "admin"]));
        let names = input_of("host_revoke")["$defs"]["SubjectKind"]["enum"].clone();
        for name in names.as_array().unwrap() {
            assert!(
                name.as_str().unwrap().parse::<SubjectKind>().is_ok(),
                "{name}"
            );
        }
    }

    #[test]
    fn bounds_that_settings_change_are_those_of_the_default_settings() {
        let policy = &crate::Settings::default().policy.mailbox;
        assert_eq!(policy.visibility_min_ms, bounds::MIN_VISIBILITY_MS);
        assert_eq!(policy.visibility_max_ms, bounds::MAX_VISIBILITY_MS);
    }

    #[test]
    fn fields_have_the_forms_of_their_names() {
        let claim = &input_of("lease_next")["properties"];
        assert_eq!(claim["wait_seconds"]["maximum"], 60);
        assert_eq!(claim["max_tasks"]["maximum"], 1_000);
        assert_eq!(claim["capabilities"]["maxItems"], 64);
        assert_eq!(claim["capabilities"]["items"]["maxLength"], 256);
        assert_eq!(claim["worker_kind"]["not"], json!({ "const": "system" }));
        assert_eq!(
            input_of("lease_next")["dependentRequired"]["worker_kind"],
            json!(["worker_id"])
        );
        let read = input_of("get_task");
        assert_eq!(
            read["properties"]["task_id"].get("format"),
            None,
            "it has its own pattern"
        );
        assert_eq!(
            input_of("cancel_task")["properties"]["task_id"]["format"],
            "uuid"
        );
        assert_eq!(read["properties"]["principal_kind"]["not"], false);
        assert_eq!(
            input_of("mailbox_recv")["properties"]["max_messages"]["minimum"],
            1
        );
        let counter = &input_of("host_increment_counter")["properties"];
        assert_eq!(counter["window_secs"]["maximum"], 7_776_000);
    }

    #[test]
    fn no_enumeration_is_a_choice_of_constants() {
        let is_constant = |schema: &Value| schema["oneOf"][0].get("const").is_some();
        for entry in registry() {
            for schema in [(entry.input_schema)(), (entry.output_schema)()] {
                assert_eq!(find(schema.as_value(), &is_constant), None);
            }
        }
    }
}
