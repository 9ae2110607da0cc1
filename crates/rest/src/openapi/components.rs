//! The parts of the document that have names: schemas, error answers, headers and credentials.

use std::collections::BTreeMap;

use asyncgate_api::{Code, ErrorBody};
use asyncgate_engine::schema;
use schemars::Schema;
use serde_json::{Map, Value, json};

use super::{dialect, route};

const SCHEMAS: &str = "#/components/schemas/";

/// The named parts.
#[derive(Debug, Default)]
pub(super) struct Components {
    schemas: Map<String, Value>,
    responses: Map<String, Value>,
}

impl Components {
    /// Adds the schema of an output under its name, and returns a reference to it.
    pub(super) fn output(&mut self, schema: Schema) -> Value {
        let (name, schema) = self.adopt(dialect::output(schema));
        self.add(&name, schema)
    }

    /// Adds the schemas that an input consists of. Returns its name and the input itself, which may
    /// become parameters, a body, or both.
    pub(super) fn input(&mut self, schema: Schema) -> (String, Value) {
        self.adopt(dialect::input(schema))
    }

    /// Adds a schema under a name, and returns a reference to it.
    pub(super) fn add(&mut self, name: &str, schema: Value) -> Value {
        let reference = json!({ "$ref": format!("{SCHEMAS}{name}") });
        let before = self.schemas.insert(name.to_owned(), schema);
        debug_assert!(
            before.is_none_or(|before| before == self.schemas[name]),
            "two schemas are called {name}"
        );
        reference
    }

    /// Moves the definitions of a schema to the components. Returns its name and the rest of it.
    fn adopt(&mut self, mut schema: Value) -> (String, Value) {
        let mut definitions = Map::new();
        let mut name = String::new();
        if let Some(members) = schema.as_object_mut() {
            members.remove("$schema");
            if let Some(Value::String(title)) = members.remove("title") {
                name = title;
            }
            if let Some(Value::Object(found)) = members.remove("$defs") {
                definitions = found;
            }
        }
        let names = self.new_names(&definitions);
        for (old, definition) in definitions {
            let definition = redirect(definition, &names);
            self.schemas.insert(names[&old].clone(), definition);
        }
        (name, redirect(schema, &names))
    }

    /// Chooses the names of definitions. Inputs are closed and outputs are open, so that a type that
    /// stands in both has two schemas; then that of the input gets another name.
    fn new_names(&self, definitions: &Map<String, Value>) -> BTreeMap<String, String> {
        let same = definitions.keys().map(|name| (name.clone(), name.clone()));
        let mut names: BTreeMap<String, String> = same.collect();
        // A definition that refers to a renamed one differs too, so this goes on until nothing changes.
        loop {
            let differs = |name: &String, definition: &Value| {
                let known = self.schemas.get(&names[name]);
                known.is_some_and(|known| *known != redirect(definition.clone(), &names))
            };
            let found = definitions
                .iter()
                .find(|(name, definition)| names[*name] == **name && differs(name, definition));
            let Some((name, _)) = found else {
                return names;
            };
            names.insert(name.clone(), format!("{name}Input"));
        }
    }

    /// Returns the error answers for these codes, by status.
    pub(super) fn refusals(&mut self, codes: &[Code]) -> Map<String, Value> {
        let mut by_status: BTreeMap<u16, Vec<Code>> = BTreeMap::new();
        for code in codes {
            by_status.entry(code.http_status()).or_default().push(*code);
        }
        let refusals = by_status.into_iter().map(|(status, codes)| {
            let names: Vec<String> = codes.iter().map(|code| camel_case(code.as_str())).collect();
            let name = names.join("Or");
            let reference = json!({ "$ref": format!("#/components/responses/{name}") });
            let described = self.responses.entry(name);
            described.or_insert_with(|| refusal(status, &codes));
            (status.to_string(), reference)
        });
        refusals.collect()
    }

    /// Returns the whole section of the document.
    pub(super) fn describe(mut self) -> Value {
        let (_, error) = self.adopt(dialect::output(schema::output::<ErrorBody>()));
        self.add("Error", error);
        json!({
            "schemas": self.schemas,
            "responses": self.responses,
            "headers": route::headers(),
            "securitySchemes": route::security_schemes(),
        })
    }
}

/// Describes the error answer for codes that share a status.
fn refusal(status: u16, codes: &[Code]) -> Value {
    let meanings = meanings();
    let meaning = |code: &Code| meanings.get(code.as_str()).cloned().unwrap_or_default();
    let described = codes
        .iter()
        .map(|code| format!("`{}`: {}", code.as_str(), meaning(code)));
    let described: Vec<String> = described.collect();
    let names: Vec<&str> = codes.iter().map(|code| code.as_str()).collect();
    let mut headers = json!({ "X-Corr-Id": { "$ref": "#/components/headers/CorrId" } });
    if matches!(status, 429 | 503) {
        headers["Retry-After"] = json!({ "$ref": "#/components/headers/RetryAfter" });
    }
    json!({
        "description": described.join("\n\n"),
        "headers": headers,
        "content": { "application/json": { "schema": { "$ref": format!("{SCHEMAS}Error") } } },
        // For programs, which should not have to read the description.
        "x-codes": names,
    })
}

/// Returns the meaning of each code, which is the comment on its variant.
fn meanings() -> BTreeMap<String, String> {
    let schema = schemars::schema_for!(Code).to_value();
    let choices = schema["oneOf"].as_array().cloned().unwrap_or_default();
    let pair = |choice: Value| {
        let (code, meaning) = (choice["const"].as_str()?, choice["description"].as_str()?);
        Some((code.to_owned(), meaning.replace('\n', " ")))
    };
    choices.into_iter().filter_map(pair).collect()
}

/// Writes `TASK_NOT_FOUND` as `TaskNotFound`.
fn camel_case(name: &str) -> String {
    let words = name.split('_').map(|word| {
        let (first, rest) = word.split_at(word.len().min(1));
        format!("{first}{}", rest.to_ascii_lowercase())
    });
    words.collect()
}

/// Points references at the document's components, under their new names.
fn redirect(value: Value, names: &BTreeMap<String, String>) -> Value {
    match value {
        Value::Object(members) => {
            let members = members.into_iter().map(|(key, value)| {
                let target = value
                    .as_str()
                    .and_then(|target| target.strip_prefix("#/$defs/"));
                match target.and_then(|target| names.get(target)) {
                    Some(name) if key == "$ref" => (key, format!("{SCHEMAS}{name}").into()),
                    _ => (key, redirect(value, names)),
                }
            });
            members.collect()
        }
        Value::Array(values) => {
            let values = values.into_iter().map(|value| redirect(value, names));
            values.collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value,
    }
}

#[cfg(test)]
mod tests {
    use schemars::json_schema;

    use super::*;

    fn holder(name: &str, closed: bool) -> Schema {
        let mut held = json!({ "type": "object", "properties": {} });
        if closed {
            held["additionalProperties"] = false.into();
        }
        json_schema!({
            "title": name,
            "properties": { "held": { "$ref": "#/$defs/Outer" } },
            "$defs": { "Held": held, "Outer": { "items": { "$ref": "#/$defs/Held" } } },
        })
    }

    #[test]
    fn an_input_that_differs_from_the_output_of_its_name_gets_another_name() {
        let mut components = Components::default();
        components.output(holder("Out", false));
        let (name, input) = components.input(holder("In", true));
        assert_eq!(name, "In");
        assert_eq!(
            input["properties"]["held"]["$ref"],
            "#/components/schemas/OuterInput"
        );
        let schemas = &components.schemas;
        assert_eq!(
            schemas["OuterInput"]["items"]["$ref"],
            "#/components/schemas/HeldInput"
        );
        assert_eq!(schemas["HeldInput"]["additionalProperties"], false);
        assert_eq!(schemas["Held"].get("additionalProperties"), None);
        components.input(holder("Other", true));
        assert_eq!(components.schemas.len(), 5, "nothing is there twice");
    }
}
