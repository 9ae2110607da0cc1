//! The OpenAPI 3.1 document, generated from the registry.

use asyncgate_api::{Access, Code, ErrorBody, Method, Operation, ReceiveMessages};
use asyncgate_engine::{Entry, registry};
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use crate::stream;

/// Returns the whole document.
pub fn openapi() -> Value {
    let mut schemas = Map::new();
    let mut paths = Map::new();
    for entry in registry() {
        let operation = operation(entry, &mut schemas);
        let method = entry.spec.method.as_str().to_ascii_lowercase();
        let path = paths.entry(entry.spec.path).or_insert_with(|| json!({}));
        path[method] = operation;
    }
    paths.insert(stream::PATH.to_owned(), stream_path(&paths));
    paths.insert(EVENTS.to_owned(), events_path());
    let error = SchemaSettings::openapi3().for_serialize().into_generator();
    let error = error.into_root_schema_for::<ErrorBody>().to_value();
    schemas.insert("Error".to_owned(), component(error, &mut Map::new()));
    let code = SchemaSettings::draft2020_12().into_generator();
    let code = code.into_root_schema_for::<Code>().to_value();
    schemas.insert("Code".to_owned(), component(code, &mut Map::new()));
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "AsyncGate",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Durable tasks with leases, receipts and obligations, a mailbox, and \
                            decisions about limits, replay and revocation. A \
                            success answer means committed and fsynced.",
            "license": { "name": "MIT OR Apache-2.0" },
        },
        "security": [{ "bearer": [] }],
        "paths": paths,
        "components": {
            "securitySchemes": { "bearer": { "type": "http", "scheme": "bearer" } },
            "schemas": schemas,
        },
    })
}

fn operation(entry: &Entry, schemas: &mut Map<String, Value>) -> Value {
    let spec = entry.spec;
    let input = component((entry.input_schema)().to_value(), schemas);
    let output = component((entry.output_schema)().to_value(), schemas);
    let created = matches!(spec.name, "create_task" | "host_revoke");
    let mut responses = Map::new();
    let content = json!({ "application/json": { "schema": output } });
    responses.insert(
        "200".to_owned(),
        json!({ "description": "Done", "content": content }),
    );
    if created {
        responses.insert(
            "201".to_owned(),
            json!({ "description": "Created", "content": content }),
        );
    }
    responses.insert("default".to_owned(), refusals());
    let path_fields: Vec<&str> = spec.path_fields().collect();
    let mut operation = json!({
        "operationId": spec.name,
        "summary": spec.summary,
        "description": spec.doc,
        "responses": responses,
    });
    if spec.successor.is_some() {
        operation["deprecated"] = true.into();
    }
    if spec.access == Access::Open {
        operation["security"] = json!([]);
    }
    match spec.method {
        Method::Get | Method::Delete => {
            operation["parameters"] = parameters(&input, &path_fields, true);
        }
        Method::Post | Method::Put => {
            operation["parameters"] = parameters(&input, &path_fields, false);
            let schema = without(input, &path_fields);
            operation["requestBody"] =
                json!({ "content": { "application/json": { "schema": schema } } });
        }
    }
    operation
}

/// Describes the stream, which takes the input of receiving and answers line by line.
fn stream_path(paths: &Map<String, Value>) -> Value {
    let mut operation = paths[ReceiveMessages::SPEC.path]["post"].clone();
    operation["operationId"] = "mailbox_recv_stream".into();
    operation["summary"] = "Receive messages of a topic as they come.".into();
    operation["description"] = stream::DOC.into();
    let schema = json!({ "$ref": "#/components/schemas/Envelope" });
    operation["responses"]["200"] = json!({
        "description": "A message on each line; an empty line every 15 seconds of silence",
        "content": { "application/x-ndjson": { "schema": schema } },
    });
    json!({ "post": operation })
}

/// The path of the events for admins. The server has the route, because it knows the events.
pub const EVENTS: &str = "/v1/events";

fn events_path() -> Value {
    let description = "Server-sent events for admins: first the present state, then what changes. \
        mailbox.health {service, ok, profile, ts}; mailbox.readyz {ready, missing, ts}; \
        mailbox.dlq.moved {topic_class, reason, count, ts}; \
        mailbox.scanner.requeue {shard, count, ts}; \
        mailbox.auth.revoked {scope, samples, window_s, ts}. A reader that is too slow loses the \
        oldest events and is told how many in a comment.";
    let text = json!({ "text/event-stream": { "schema": { "type": "string" } } });
    json!({
        "get": {
            "operationId": "events",
            "summary": "Be told what happens.",
            "description": description,
            "parameters": [],
            "responses": {
                "200": { "description": "Events, until you close it", "content": text },
                "default": refusals(),
            },
        },
    })
}

fn refusals() -> Value {
    let codes: Vec<String> = Code::ALL
        .iter()
        .map(|code| format!("{} {}", code.http_status(), code.as_str()))
        .collect();
    let description = format!(
        "Refused or failed; nothing was changed, except that after HOST_UNAVAILABLE a nonce may be used and \
         a limit charged. {}",
        codes.join(", ")
    );
    json!({
        "description": description,
        "content": {
            "application/json": { "schema": { "$ref": "#/components/schemas/Error" } },
        },
    })
}

/// Moves the definitions of a schema to the document's components, and returns the rest of it.
fn component(mut schema: Value, schemas: &mut Map<String, Value>) -> Value {
    if let Some(object) = schema.as_object_mut() {
        object.remove("$schema");
        if let Some(Value::Object(definitions)) = object.remove("$defs") {
            for (name, definition) in definitions {
                schemas.insert(name, redirect(definition));
            }
        }
    }
    redirect(schema)
}

/// Points references at the document's components.
fn redirect(value: Value) -> Value {
    match value {
        Value::Object(object) => Value::Object(
            object
                .into_iter()
                .map(|(key, value)| match value.as_str() {
                    Some(target) if key == "$ref" => {
                        let target = target.replace("#/$defs/", "#/components/schemas/");
                        (key, target.into())
                    }
                    _ => (key, redirect(value)),
                })
                .collect(),
        ),
        Value::Array(values) => Value::Array(values.into_iter().map(redirect).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value,
    }
}

fn parameters(input: &Value, path_fields: &[&str], with_query: bool) -> Value {
    let empty = Map::new();
    let properties = input["properties"].as_object().unwrap_or(&empty);
    let parameters = properties.iter().filter_map(|(name, schema)| {
        let in_path = path_fields.contains(&name.as_str());
        (in_path || with_query).then(|| {
            json!({
                "name": name,
                "in": if in_path { "path" } else { "query" },
                "required": in_path,
                "schema": schema,
            })
        })
    });
    Value::Array(parameters.collect())
}

fn without(mut input: Value, fields: &[&str]) -> Value {
    if let Some(properties) = input["properties"].as_object_mut() {
        properties.retain(|name, _| !fields.contains(&name.as_str()));
    }
    if let Some(required) = input["required"].as_array_mut() {
        required.retain(|name| !name.as_str().is_some_and(|name| fields.contains(&name)));
    }
    input
}

#[cfg(test)]
mod tests {
    use super::*;

    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(object) => {
                for (key, value) in object {
                    match value.as_str() {
                        Some(target) if key == "$ref" => found.push(target.to_owned()),
                        _ => references(value, found),
                    }
                }
            }
            Value::Array(values) => values.iter().for_each(|value| references(value, found)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    #[test]
    fn every_reference_leads_somewhere() {
        let document = openapi();
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(!found.is_empty());
        for target in found {
            let pointer = target.trim_start_matches('#');
            assert!(document.pointer(pointer).is_some(), "{target}");
        }
    }

    #[test]
    fn every_operation_is_described() {
        let document = openapi();
        for entry in registry() {
            let method = entry.spec.method.as_str().to_ascii_lowercase();
            let operation = &document["paths"][entry.spec.path][&method];
            assert_eq!(operation["operationId"], entry.spec.name);
        }
    }
}
